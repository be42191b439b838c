"""Records that are encoded together: as one matrix where all have one size, else in pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.block import Block
from rmqctl.rocketmq.commitlog import LogBlock

Ints = npt.NDArray[np.int64]
Heads = npt.NDArray[Any]


class Chunk(ABC):
    """Messages that are encoded together.

    Attributes:
        heads: the fixed fields of each record, shape (n,).
        topic: number of each one's topic, shape (n,).
    """

    heads: Heads
    topic: Ints

    @abstractmethod
    def joined(self, part: slice) -> npt.NDArray[np.uint8]:
        """The bytes of some records, one behind the other."""

    def log_block(self, block: Block) -> LogBlock:
        """What dispatch is given of a block of its records."""
        return LogBlock(block)


@dataclass(slots=True)
class Matrix(Chunk):
    """Records of one size, shape (n, bytes); the heads lie in it."""

    heads: Heads
    topic: Ints
    rows: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, buffer: npt.NDArray[np.uint8], count: int, size: int, head: np.dtype[Any]) -> Matrix:
        """Room in a buffer for ``count`` records of ``size`` bytes that begin with ``head``."""
        rows = buffer[: count * size].reshape(count, size)
        return cls(rows[:, : head.itemsize].view(head)[:, 0], np.zeros(count, np.int64), rows)

    def first(self, topic: Ints) -> Matrix:
        """Its first records, which may be changed, as those of these topics."""
        return Matrix(self.heads[: len(topic)], topic, self.rows[: len(topic)])

    def joined(self, part: slice) -> npt.NDArray[np.uint8]:
        return self.rows[part].reshape(-1)

    def log_block(self, block: Block) -> LogBlock:
        return LogBlock.alike(block)


@dataclass(slots=True)
class Pieces(Chunk):
    """Records of any size, their bodies and what stands behind these."""

    heads: Heads
    topic: Ints
    bodies: list[bytes | memoryview]
    tails: list[bytes]

    def joined(self, part: slice) -> npt.NDArray[np.uint8]:
        heads = self.heads[part]
        raw, size = memoryview(heads.tobytes()), heads.itemsize
        pieces: list[Any] = [None] * (3 * len(heads))
        pieces[::3] = [raw[at : at + size] for at in range(0, len(raw), size)]
        pieces[1::3], pieces[2::3] = self.bodies[part], self.tails[part]
        return np.frombuffer(b"".join(pieces), np.uint8)


__all__ = ["Chunk", "Heads", "Matrix", "Pieces"]
