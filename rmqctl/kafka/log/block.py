"""What a scan of a segment yields: a window of bytes and where its batches lie, with headers as columns.

Columns are gathered when first asked for. Batches of magic 0 and 1 (one message each) answer the same
questions; what they lack has the value that Kafka's own reader gives: -1, false.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from formats.errors import DecodeError
from formats.kafka import message_set
from formats.kafka.record_batch import Attributes, header_dtype
from rmqctl.kafka.log.legacy import read_message, unwrap

Ints = npt.NDArray[np.int64]
Bytes8 = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

SLACK = 16
"""Bytes after a window that may be read, so that a varint at its end needs no care."""
INT_MAX = 2147483647
_OLD_NAMES = {"batch_length": "message_size"}
_OLD_ATTRIBUTES = int(Attributes.CODEC | Attributes.LOG_APPEND_TIME)


class GapKind(StrEnum):
    """Why bytes are not a batch."""

    ZEROS = "zeros"
    ZERO_TAIL = "zero-tail"
    SIZE = "size"
    MAGIC = "magic"
    CRC = "crc"
    CUT = "cut"


@dataclass(slots=True)
class Gap:
    """A stretch of a segment that holds no batch the chain could read.

    Attributes:
        position, end: bytes into the file; a proven batch starts at ``end``, or the file ends there.
        why: what the chain met at ``position``; ``ZERO_TAIL`` is room never written, not damage.
        detail: one sentence with expected and found.
        resumed: a batch that proves itself by its CRC follows at ``end``.
        stated: bytes of the batch that the frame at ``position`` states, None where no frame is readable.
    """

    position: int
    end: int
    why: GapKind
    detail: str
    resumed: bool = False
    stated: int | None = None


class Batches(Protocol):
    """Batches in file order as columns, whether their bytes are here or not; see :class:`Block` for what they mean."""

    @property
    def position(self) -> Ints: ...
    @property
    def size(self) -> Ints: ...
    @property
    def magic(self) -> Ints: ...
    @property
    def crc_ok(self) -> Flags: ...
    @property
    def has_legacy(self) -> bool: ...
    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> Ints: ...
    def flag(self, bit: Attributes) -> Flags: ...
    def take(self, keep: npt.NDArray[Any], /) -> Batches: ...


@dataclass
class Block:
    """Batches that start in one window of one file, in file order.

    The window is reused for the next block: :meth:`copy` what must live longer.

    Attributes:
        file: name of the file, relative to the log directory.
        start: position in the file of ``data[0]``, in bytes.
        data: the window, uint8; :attr:`padded` is the same with some bytes more.
        at: where each batch starts in ``data``, shape (n,).
        size: bytes of each batch from its first to its last, shape (n,).
        magic: as stored, shape (n,); above 2 is read as 2, as brokers do.
        crc_ok: the CRC matches (CRC-32C, or CRC-32 of magic 0 and 1), shape (n,).
        gaps: what else was met; positions in the file, interleaved with the batches.
    """

    file: str
    start: int
    data: Bytes8
    at: Ints
    size: Ints
    magic: Ints
    crc_ok: Flags
    gaps: list[Gap] = field(default_factory=list)
    _padded: Bytes8 | None = None

    @staticmethod
    def empty(file: str, start: int, gaps: list[Gap]) -> Block:
        """Return a block without batches."""
        none = np.zeros(0, np.int64)
        return Block(file, start, np.zeros(0, np.uint8), none, none, none, none.astype(np.bool_), gaps)

    def __len__(self) -> int:
        return len(self.at)

    @property
    def position(self) -> Ints:
        """Where each batch starts in the file, in bytes, shape (n,)."""
        return self.at + self.start

    @property
    def padded(self) -> Bytes8:
        """The window with at least ``SLACK`` bytes after it, whatever they are."""
        if self._padded is None:
            self._padded = np.concatenate([self.data, np.zeros(SLACK, np.uint8)])
        return self._padded

    @cached_property
    def is_legacy(self) -> Flags:
        """Which batches are messages of magic 0 or 1."""
        return self.magic < 2

    @cached_property
    def has_legacy(self) -> bool:
        """Whether any batch is a message of magic 0 or 1."""
        return bool(self.is_legacy.any())

    @cached_property
    def _columns(self) -> dict[str, Ints]:
        return {}

    def __getitem__(self, name: str) -> Ints:
        """Return a column by name, shape (n,).

        Fields of :data:`~formats.kafka.record_batch.RecordBatchHeader`, and ``last_offset``,
        ``last_sequence``, ``codec``. For magic 0 and 1: ``base_offset`` and ``records_count`` are those of the
        inner messages (-1 where they cannot be read), ``base_timestamp`` is ``max_timestamp``.

        Raises:
            KeyError: there is no such column.
        """
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._derived(name)
        return column

    def flag(self, bit: Attributes) -> Flags:
        """Which batches have a bit of their attributes set."""
        return (self["attributes"] & int(bit)) != 0

    def _derived(self, name: str) -> Ints:
        if name == "last_offset":
            return self._last_offset()
        if name == "last_sequence":
            return sequences(self["base_sequence"], self["last_offset_delta"])
        if name == "codec":
            return self["attributes"] & int(Attributes.CODEC)
        if not self.has_legacy:
            return self._heads[name].astype(np.int64)
        return self._mixed(name)

    @property
    def frame_offset(self) -> Ints:
        """The first field of each batch: base offset of magic 2, offset of a message, shape (n,)."""
        return self._frames["offset"].astype(np.int64)

    def _last_offset(self) -> Ints:
        found = self.frame_offset
        found[~self.is_legacy] += self._heads["last_offset_delta"]
        return found

    @cached_property
    def _heads(self) -> npt.NDArray[np.void]:
        """Headers of the batches of magic 2, as stored."""
        at = self.at[~self.is_legacy] if self.has_legacy else self.at
        return _records(self.data, at, header_dtype())

    @cached_property
    def _frames(self) -> npt.NDArray[np.void]:
        """The head of every batch, read as a message of magic 0: that far all messages are alike."""
        return _records(self.data, self.at, message_set.head_plan(0).runs[0].dtype)

    def _mixed(self, name: str) -> Ints:
        """Return a header field where some batches, or all, are messages of magic 0 or 1."""
        legacy, modern = self.is_legacy, ~self.is_legacy
        found = np.zeros(len(self), np.int64)
        found[modern] = self._heads[name]
        found[legacy] = self._legacy(name)[legacy]
        return found

    def _legacy(self, name: str) -> Ints:
        """Return a field of messages of magic 0 and 1; what stands in rows of magic 2 means nothing."""
        match name:
            case "base_offset" | "records_count":
                found = self._inner_range[2 if name == "records_count" else 0]
            case "batch_length" | "crc" | "magic" | "attributes":
                found = self._frames[_OLD_NAMES.get(name, name)].astype(np.int64)
            case "base_timestamp" | "max_timestamp":
                found = self._legacy_timestamp()
            case "last_offset_delta":
                found = self.frame_offset - self["base_offset"]
            case _:
                found = np.full(len(self), -1, np.int64)
        return found & _OLD_ATTRIBUTES if name == "attributes" else found

    @property
    def proven_last(self) -> Ints:
        """Last offset of each batch, of wrappers of magic 0 that which the last message inside states, shape (n,).

        The CRC covers what is inside, not the offset of the wrapper, which is the one that brokers go by.
        """
        found = self["last_offset"]
        wrapped = (self.magic == 0) & (self["codec"] != 0) & self.crc_ok
        return np.where(wrapped, self._inner_range[1], found) if wrapped.any() else found

    @cached_property
    def _inner_range(self) -> tuple[Ints, Ints, Ints]:
        """First and last offset and number of the messages inside each message; -1 of them where it cannot be read."""
        first, count = self.frame_offset, np.ones(len(self), np.int64)
        last = first.copy()
        for row in np.flatnonzero(self.is_legacy & (self["codec"] != 0)).tolist():
            raw = self.raw(row)
            try:
                inner = unwrap(raw, read_message(raw, 0, len(raw)))
                first[row], last[row], count[row] = inner.first, inner.last, len(inner)
            except DecodeError:
                count[row] = -1
        return first, last, count

    def _legacy_timestamp(self) -> Ints:
        found, dated = np.full(len(self), -1, np.int64), np.flatnonzero(self.magic == 1)
        heads = _records(self.data, self.at[dated], message_set.head_plan(1).runs[0].dtype)
        found[dated] = heads["timestamp"]
        return found

    def raw(self, index: int) -> bytes:
        """Return the bytes of one batch, copied."""
        at = int(self.at[index])
        return self.data[at : at + int(self.size[index])].tobytes()

    def take(self, keep: npt.NDArray[Any] | slice) -> Block:
        """Return a block of only the batches of an index or boolean array, or a slice; gaps stay."""
        return Block(
            self.file, self.start, self.data, self.at[keep], self.size[keep], self.magic[keep], self.crc_ok[keep],
            self.gaps, self._padded,
        )  # fmt: skip

    def copy(self) -> Block:
        """Return a block with the same batches and a copy of their bytes."""
        return Block(
            self.file, self.start, self.data.copy(), self.at, self.size, self.magic, self.crc_ok, list(self.gaps)
        )


def are_thinned(found: Batches) -> bool:
    """Whether sound batches show that compaction has worked on them: fewer records than offsets, or a horizon."""
    sound = found.crc_ok & (found.magic >= 2)
    short = np.clip(found["records_count"], 0, None) < found["last_offset_delta"] + 1
    return bool((sound & (found.flag(Attributes.DELETE_HORIZON) | (short & ~_bridges(found)))).any())


def has_bridges(found: Batches) -> bool:
    """Whether any sound batch stands for destroyed ones, as repair writes it; so do those of raft in its own log."""
    return bool((found.crc_ok & (found.magic >= 2) & _bridges(found)).any())


def _bridges(found: Batches) -> Flags:
    return found.flag(Attributes.CONTROL) & (found["producer_id"] < 0)


def _records(data: Bytes8, at: Ints, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Return records of a fixed layout at byte offsets, which must all end inside ``data``."""
    if not len(at):
        return np.zeros(0, dtype)
    rows = np.ndarray((len(data) - dtype.itemsize + 1,), f"V{dtype.itemsize}", data, 0, (1,))  # quicker than fields
    return rows[at].view(dtype)


def stated_records(batches: Batches) -> Ints:
    """Return how many records the headers state, shape (n,): never more than a batch has offsets (spec 2)."""
    counts = np.clip(batches["records_count"], 0, None)
    offsets = np.clip(batches["last_offset"] - batches["base_offset"] + 1, 0, None)
    return np.where(batches.magic < 2, counts, np.minimum(counts, offsets))


def sequences(base: Ints, delta: Ints) -> Ints:
    """Sequence numbers some records on: they wrap from ``INT_MAX`` to 0; -1 stays -1 (spec 2)."""
    found = base + delta
    found = np.where(found > INT_MAX, found - INT_MAX - 1, found)
    return np.where(base < 0, -1, found)
