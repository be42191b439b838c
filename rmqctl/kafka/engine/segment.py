"""The segment that a log is written to: its file and its indexes, entries added as a broker adds them (spec 7, 8)."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from formats.kafka.indexes import AbortedTransaction, OffsetIndexEntry, TimeIndexEntry
from formats.kafka.record_batch import HEADER_SIZE, header_plan
from formats.layout import plan_of
from rmqctl.files.local import LocalFile
from rmqctl.files.writing import Buffer, Disk
from rmqctl.kafka.loading.producers import EndedTransaction
from rmqctl.kafka.log.block import INT_MAX
from rmqctl.kafka.log.indexes import read_offset_index, read_time_index

OFFSET_INDEX, TIME_INDEX, TXN_INDEX, LOG = ".index", ".timeindex", ".txnindex", ".log"
_OFFSET_ENTRY = plan_of(OffsetIndexEntry).runs[0].packer
_TIME_ENTRY = plan_of(TimeIndexEntry).runs[0].packer
_ABORTED = plan_of(AbortedTransaction).runs[0].packer
_MANY = 4096
"""Bytes of entries that wait in memory before they are written."""


class Appended(NamedTuple):
    """What an index keeps of a batch: its last offset, largest timestamp, and bytes."""

    last_offset: int
    max_timestamp: int
    size: int


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A segment that is not written to any more.

    Attributes:
        largest: largest timestamp, ms; that of the file where it has none.
        indexes: bytes of the offset index and of the time index.
    """

    base: int
    size: int
    largest: int
    indexes: tuple[int, int] = (0, 0)


def name_of(base: int, ending: str) -> str:
    """Return the name of a file of a segment."""
    return f"{base:020d}{ending}"


@dataclass
class _IndexFile:
    """An index that is written to: some entries in the file, some still in memory, then zeros."""

    path: Path
    entry: struct.Struct
    room: int
    disk: Disk
    count: int = 0
    fd: int = -1
    waiting: bytearray = field(default_factory=bytearray)

    @property
    def slots(self) -> int:
        return self.room // self.entry.size

    def open(self) -> None:
        """Make the file as long as that of an active segment."""
        self.fd = self.disk.open(self.path, 0)
        if os.fstat(self.fd).st_size < self.slots * self.entry.size:
            self.disk.resize(self.fd, self.slots * self.entry.size)

    def add(self, *fields: int) -> None:
        self.waiting += self.entry.pack(*fields)
        self.count += 1
        if len(self.waiting) >= _MANY:
            self.write()

    def write(self) -> None:
        """Write the entries that wait."""
        if self.waiting:
            self.disk.write(self.fd, self.waiting, self.count * self.entry.size - len(self.waiting))
            self.waiting = bytearray()

    def trim(self) -> None:
        """Write the entries that wait, and leave no room after them."""
        self.write()
        self.disk.resize(self.fd, self.count * self.entry.size)

    def close(self) -> None:
        if self.fd >= 0:
            self.write()
            os.close(self.fd)
            self.fd = -1


class ActiveSegment:
    """The last segment of a log, open for writing.

    Attributes:
        base: offset in its name.
        size: bytes of its log.
        largest: largest timestamp so far, and the last offset of the first batch that has it.
        first_timestamp: largest timestamp of the first append, ms; None before it.
        created: when it was made, ms.
        unindexed: bytes since the last batch that has an entry. Brokers forget it when they start, so that many short
            runs would leave a segment without entries.
    """

    def __init__(
        self, directory: Path, base: int, room: int, interval: int, disk: Disk, created: int, suffix: str = ""
    ) -> None:
        self.suffix = suffix
        self.directory, self.base, self.interval, self.disk = directory, base, interval, disk
        self.size, self.created = 0, created
        self.largest = (-1, -1)
        self.first_timestamp: int | None = None
        self.unindexed = 0
        self._last_time = -1
        self._allocated = 0
        self._offsets = _IndexFile(self.path(OFFSET_INDEX), _OFFSET_ENTRY, room, disk)
        self._times = _IndexFile(self.path(TIME_INDEX), _TIME_ENTRY, room, disk)
        self._log = -1
        self._is_ended = self._has_aborted = False

    def path(self, ending: str) -> Path:
        """Return the path of one of its files."""
        return self.directory / f"{name_of(self.base, ending)}{self.suffix}"

    @classmethod
    def create(
        cls, directory: Path, base: int, room: int, interval: int, disk: Disk, created: int, suffix: str = ""
    ) -> ActiveSegment:
        """Make the files of a new segment, in place of any that have their names.

        Args:
            suffix: of its files, while they are made.
        """
        made = cls(directory, base, room, interval, disk, created, suffix)
        for ending in (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX):
            disk.remove(made.path(ending))
        made._open()
        return made

    @classmethod
    def reopen(cls, directory: Path, base: int, room: int, interval: int, disk: Disk, created: int) -> ActiveSegment:
        """Go on with a segment whose files a recovery has left right."""
        made = cls(directory, base, room, interval, disk, created)
        for path, read, index in (
            (made.path(OFFSET_INDEX), read_offset_index, made._offsets),
            (made.path(TIME_INDEX), read_time_index, made._times),
        ):
            if path.exists():
                source = LocalFile(path, path.name)
                try:
                    found = read(source)
                finally:
                    source.close()
                index.count = len(found)
                if index is made._offsets and len(found):
                    made.unindexed = -int(found["position"][-1])
                if index is made._times and len(found):
                    made._last_time = int(found["timestamp"][-1])
                    made.largest = made._last_time, base + int(found["relative_offset"][-1])
        made._open()
        made.size = os.fstat(made._log).st_size
        made.unindexed += made.size
        if made.size:
            made.first_timestamp = header_plan().unpack_from(disk.read(made._log, HEADER_SIZE, 0))[0]["max_timestamp"]
        return made

    def _open(self) -> None:
        self._log = self.disk.open(self.path(LOG), 0)
        self._offsets.open()
        self._times.open()

    def preallocate(self, size: int) -> None:
        """Make the log as long as it may become, until the segment ends."""
        self._allocated = size
        self.disk.resize(self._log, size)

    # --- appending ------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether one of its indexes has no room for an entry; one slot of the time index is kept for the last."""
        return self._offsets.count >= self._offsets.slots or self._times.count >= self._times.slots - 1

    @property
    def slots_left(self) -> int:
        """Entries that both indexes have room for."""
        return min(self._offsets.slots - self._offsets.count, self._times.slots - 1 - self._times.count)

    def fits(self, last_offset: int) -> bool:
        """Whether an offset can be indexed here."""
        return 0 <= last_offset - self.base <= INT_MAX

    def append(self, data: Buffer, batches: Sequence[Appended]) -> None:
        """Write batches at the end.

        Raises:
            IOFailure: the system refuses; the segment is as it was then.
        """
        try:
            self.disk.write(self._log, data, self.size)
        except BaseException:
            self.disk.resize(self._log, self.size)
            self.disk.resize(self._log, max(self.size, self._allocated))
            raise
        if self.size == 0:
            self.first_timestamp = max(batch.max_timestamp for batch in batches)
        for last, time, size in batches:
            if time > self.largest[0]:
                self.largest = time, last
            if self.unindexed > self.interval:
                self._offsets.add(last - self.base, self.size)
                self._add_time()
                self.unindexed = 0
            self.size += size
            self.unindexed += size

    def _add_time(self) -> None:
        time, offset = self.largest
        if time > self._last_time and self._times.count < self._times.slots:
            self._times.add(time, offset - self.base)
            self._last_time = time

    def add_aborted(self, ended: EndedTransaction) -> None:
        """Write an aborted transaction into the transaction index."""
        path = self.path(TXN_INDEX)
        fd = self.disk.open(path, 0)
        try:
            entry = (0, ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
            self.disk.write(fd, _ABORTED.pack(*entry), os.fstat(fd).st_size)
        finally:
            os.close(fd)
        self._has_aborted = True

    # --- ending ---------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Bring the log to the disk, and the indexes of a segment that was ended: no start makes those again."""
        if self._is_ended:
            for index in (self._offsets, self._times):
                self.disk.sync_data(index.fd)
            if self._has_aborted:
                self.disk.sync_file(self.path(TXN_INDEX))
        self.disk.sync(self._log)

    def end(self) -> ClosedSegment:
        """Take no more batches: a last entry of the time index, all files trimmed. They stay open for a sync."""
        self._add_time()
        if self._allocated > self.size:
            self.disk.resize(self._log, self.size)
        self._offsets.trim()
        self._times.trim()
        self._is_ended = True
        return self.as_closed()

    def close(self) -> None:
        """Close the files as they are; those of a segment that was not ended look as a killed broker leaves them."""
        self._offsets.close()
        self._times.close()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def as_closed(self) -> ClosedSegment:
        """Return what is known of it."""
        return ClosedSegment(self.base, self.size, self.largest[0], (self._offsets.count * 8, self._times.count * 12))
