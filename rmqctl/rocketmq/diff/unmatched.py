"""Records of one log that the other does not hold at the same place: kept as columns, matched by queue offset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.columns import TextIds, topic_numbers
from rmqctl.rocketmq.crc import crc32


class Columns(NamedTuple):
    """One row a record, int64, shape (n,) each.

    Attributes:
        seq: number of the record in its log.
        file: number of its file.
        physical, size: where it lies, and its length in bytes.
        topic: number of the topic, the same for both logs.
        body_size: bytes.
        body, properties: CRC-32 of their bytes.
    """

    seq: Ints
    file: Ints
    physical: Ints
    size: Ints
    topic: Ints
    queue_id: Ints
    queue_offset: Ints
    body_size: Ints
    body: Ints
    properties: Ints

    def take(self, rows: Ints) -> Columns:
        """The rows of an index."""
        return Columns(*(column[rows] for column in self))


NO_COLUMNS = Columns(*(np.zeros(0, np.int64) for _ in Columns._fields))
"""No records."""


@dataclass
class Unmatched:
    """Collects records of one log."""

    topics: TextIds
    parts: list[Columns] = field(default_factory=list)

    def add(self, block: Block, rows: Ints, seq: Ints, file: int) -> None:
        """Keep the records ``rows`` of a block, whose numbers in the log are ``seq``."""
        if not len(rows):
            return
        b = block.take(rows)
        self.parts.append(
            Columns(
                seq,
                np.full(len(rows), file, np.int64),
                b.physical,
                b.total_size.astype(np.int64),
                topic_numbers(b, self.topics),
                b["queue_id"].astype(np.int64),
                b["queue_offset"].astype(np.int64),
                b.body_size.astype(np.int64),
                _crcs(b, b.body_at, b.body_size),
                _crcs(b, b.properties_at, b.properties_size),
            )
        )

    def columns(self) -> Columns:
        """Everything kept, in log order."""
        if not self.parts:
            return NO_COLUMNS
        return Columns(*(np.concatenate(column) for column in zip(*self.parts, strict=True)))


def _crcs(block: Block, at: Ints, size: Ints) -> Ints:
    data = memoryview(block.data.data)
    found = [crc32(data[a : a + n]) for a, n in zip(at.tolist(), size.tolist(), strict=True)]
    return np.fromiter(found, np.int64, len(found))


@dataclass(frozen=True, slots=True)
class Joined:
    """Rows of A and B that belong together, and those of each that have no partner; ascending in A and in B."""

    a: Ints
    b: Ints
    only_a: Ints
    only_b: Ints


def join(a: Columns, b: Columns) -> Joined:
    """Match records by topic, queue and queue offset; several of one offset in the order of the log."""
    keys_a, keys_b = _keys(a), _keys(b)
    order = np.concatenate([keys_a, keys_b])
    _, numbers = np.unique(order, axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    _, at_a, at_b = np.intersect1d(numbers[: len(keys_a)], numbers[len(keys_a) :], return_indices=True)
    rows = np.argsort(at_a, kind="stable")
    return Joined(at_a[rows], at_b[rows], _without(len(keys_a), at_a), _without(len(keys_b), at_b))


def _keys(columns: Columns) -> Ints:
    """Topic, queue, queue offset, and which of several with these it is; shape (n, 4)."""
    key = np.column_stack([columns.topic, columns.queue_id, columns.queue_offset])
    if not len(key):
        return np.zeros((0, 4), np.int64)
    order = np.lexsort((columns.physical, *key.T[::-1]))
    ordered = key[order]
    is_new = np.ones(len(key), bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(1)
    starts = np.flatnonzero(is_new)
    rank = np.empty(len(key), np.int64)
    rank[order] = np.arange(len(key)) - starts[np.cumsum(is_new) - 1]
    return np.column_stack([key, rank])


def _without(count: int, rows: Ints) -> Ints:
    keep = np.ones(count, bool)
    keep[rows] = False
    return np.flatnonzero(keep)
