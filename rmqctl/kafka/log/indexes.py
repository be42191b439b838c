"""The derived files of a segment as columns: offset, time and transaction index, producer snapshot.

No reader raises on bytes: entries are taken up to where zeros begin, and what stands after that is
counted, not hidden. Whether entries agree with the log is the business of ``verify``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from formats.kafka.indexes import AbortedTransaction, OffsetIndexEntry, TimeIndexEntry, entry_dtype
from formats.kafka.producer_snapshot import CRC_FROM, VERSION, ProducerEntry, SnapshotHead, producer_dtype
from formats.layout import StructPlan, plan_of
from rmqctl.files.local import ByteSource, without_room
from rmqctl.kafka.log.block import Ints

MAX_INDEX = 1 << 30
"""Bytes of an index file that are read; a broker's are 10 MiB by default."""
_SMALL = 1 << 16
MAX_SNAPSHOT = 64 << 20
"""Bytes of a producer snapshot that is read: a million producers."""


@dataclass(frozen=True)
class Index:
    """Entries of an index file.

    Attributes:
        slots: all whole entries of the file as stored, zeros too.
        count: entries before the padding: up to the last slot that is not zero.
        rest: bytes after the last whole slot.
    """

    slots: npt.NDArray[np.void]
    count: int
    rest: int

    @property
    def padding(self) -> int:
        """Slots of zeros at the end: room of an active segment, or a trim that was lost."""
        return len(self.slots) - self.count

    @property
    def entry_size(self) -> int:
        """Bytes of an entry."""
        return self.slots.dtype.itemsize

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, name: str) -> Ints:
        """Return a field of the entries, shape (count,)."""
        return self.slots[name][: self.count].astype(np.int64)


class OffsetIndex(Index):
    """``.index``: which batch lies where."""

    def offsets(self, base: int) -> Ints:
        """Absolute offsets of the entries, given the segment's base offset."""
        return self["relative_offset"] + base

    @property
    def positions(self) -> Ints:
        """Where the batches start in the ``.log`` file, bytes."""
        return self["position"]


class TimeIndex(Index):
    """``.timeindex``: the largest timestamp so far, and where it is."""

    def offsets(self, base: int) -> Ints:
        """Absolute offsets of the entries, given the segment's base offset."""
        return self["relative_offset"] + base

    @property
    def timestamps(self) -> Ints:
        return self["timestamp"]


class TxnIndex(Index):
    """``.txnindex``: aborted transactions that end in the segment."""


def read_offset_index(source: ByteSource) -> OffsetIndex:
    """Return the entries of a ``.index`` file."""
    return OffsetIndex(*_slots(source, OffsetIndexEntry))


def read_time_index(source: ByteSource) -> TimeIndex:
    """Return the entries of a ``.timeindex`` file. A first entry of timestamp 0 and offset 0 counts, as it is legal."""
    return TimeIndex(*_slots(source, TimeIndexEntry))


def read_txn_index(source: ByteSource) -> TxnIndex:
    """Return the entries of a ``.txnindex`` file. Zeros count as entries, for this file is never padded; of a large one
    that ends in them only the first does.
    """
    slots, filled, rest = _slots(source, AbortedTransaction)
    return TxnIndex(slots, len(slots) if slots.nbytes <= _SMALL else min(filled + 1, len(slots)), rest)


def _slots(source: ByteSource, schema: Any) -> tuple[npt.NDArray[np.void], int, int]:
    dtype = entry_dtype(schema)
    size = min(source.size(), MAX_INDEX)
    data = used_part(source, size)
    whole = size // dtype.itemsize
    used = len(without_room(data[: whole * dtype.itemsize]))
    if len(data) == size:
        slots = np.frombuffer(data, dtype, whole)
    else:  # the system gives zeros without writing them
        slots = np.zeros(whole, dtype)
        data = data[: whole * dtype.itemsize]
        slots.view(np.uint8)[: len(data)] = bytearray(data)
    return slots, min(-(-used // dtype.itemsize), whole), size - whole * dtype.itemsize


def used_part(source: ByteSource, size: int) -> bytes:
    """Return the first ``size`` bytes of a file, of a large one only those before the room that was never written."""
    if size <= _SMALL:
        return source.read_at(0, size)
    end = max((end for _, end in source.data_ranges(0, size)), default=0)
    return source.read_at(0, min(end, size))


@dataclass(frozen=True)
class ProducerSnapshot:
    """A ``.snapshot`` file.

    Attributes:
        data: its bytes.
        problem: why a broker would not use it, "" where it would.
    """

    data: bytes
    problem: str

    @cached_property
    def head(self) -> dict[str, int]:
        """Version, CRC and number of entries; empty where the file is too short."""
        plan = _head_plan()
        return plan.unpack_from(self.data)[0] if len(self.data) >= plan.runs[0].packer.size else {}

    @cached_property
    def entries(self) -> npt.NDArray[np.void]:
        """The producers, fields of :data:`~formats.kafka.producer_snapshot.ProducerEntry`, as many as are whole."""
        return _producers(self.data, self.head.get("count", 0))

    @property
    def is_good(self) -> bool:
        """Whether a broker would use it."""
        return not self.problem

    @property
    def crc_ok(self) -> bool:
        """Whether the CRC-32C matches."""
        return bool(self.head) and crc32c(self.data[CRC_FROM:]) == self.head["crc"]

    def rows(self) -> list[dict[str, int]]:
        """Return the producers as mappings, in the order stored."""
        names = self.entries.dtype.names or ()
        return [dict(zip(names, row, strict=True)) for row in self.entries.tolist()]


def read_producer_snapshot(source: ByteSource) -> ProducerSnapshot:
    """Return the producer state in a ``.snapshot`` file."""
    size = source.size()
    if size > MAX_SNAPSHOT:
        head = source.read_at(0, _head_plan().runs[0].packer.size)
        return ProducerSnapshot(head, f"it has {size} bytes, and {MAX_SNAPSHOT} is the most that is read of a snapshot")
    data = source.read_at(0, size)
    found = ProducerSnapshot(data, "")
    return ProducerSnapshot(data, _problem(found))


@cache
def _head_plan() -> StructPlan:
    return plan_of(SnapshotHead)


def _producers(data: bytes, count: int) -> npt.NDArray[np.void]:
    dtype, head = producer_dtype(), _head_plan().runs[0].packer.size
    whole = max(len(data) - head, 0) // dtype.itemsize
    return np.frombuffer(data, dtype, min(max(count, 0), whole), min(head, len(data)))


def _problem(found: ProducerSnapshot) -> str:
    if not found.head:
        return f"it has {len(found.data)} bytes, too few for a snapshot"
    if found.head["version"] != VERSION:
        return f"version {found.head['version']} is unknown"
    if not found.crc_ok:
        return f"stored CRC-32C {found.head['crc']}, computed {crc32c(found.data[CRC_FROM:])}"
    if len(found.entries) != found.head["count"]:
        return f"{found.head['count']} entries are stated, {len(found.entries)} are there"
    return ""


__all__ = [
    "Index", "OffsetIndex", "ProducerEntry", "ProducerSnapshot", "TimeIndex", "TxnIndex", "read_offset_index",
    "read_producer_snapshot", "read_time_index", "read_txn_index",
]  # fmt: skip
