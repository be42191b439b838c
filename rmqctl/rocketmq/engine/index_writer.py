"""Index files as dispatch fills them (spec 4.3, 4.4; IndexService, IndexFile).

Entries are written as they are made. Header and slots stay in memory until :meth:`IndexWriter.flush`,
which writes the header in front of the slots, and once soon after a file was begun: without either nothing in
it tells how many slots it has. A file that a kill leaves between the two is younger than the
checkpoint says, so recovery deletes it. Slots ahead of the header would make chains that lead to themselves.

Writing the checkpoint file (spec 5; StoreCheckpoint).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from formats.layout import plan_of
from formats.rocketmq.checkpoint import FILE_SIZE
from formats.rocketmq.checkpoint import Checkpoint as CheckpointLayout
from rmqctl.files.writing import Disk
from rmqctl.rocketmq.dispatch.dispatched import IndexColumns
from rmqctl.rocketmq.dispatch.index import HEADER_SIZE, IndexHead
from rmqctl.rocketmq.dispatch.index_series import Entries, IndexSeries, Slots
from rmqctl.rocketmq.index.files import next_name
from rmqctl.rocketmq.store.geometry import SLOT_SIZE, IndexGeometry

_RUN = plan_of(CheckpointLayout).runs[0]
NAME = "checkpoint"
_CHUNK = 1 << 16
"""Bytes of entries that are looked at a time."""


@dataclass(slots=True)
class Checkpoint:
    """What the checkpoint says; the fields of `formats.rocketmq.checkpoint`."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    @classmethod
    def load(cls, root: Path) -> Checkpoint:
        """From the file; zeros where it has none.

        Raises:
            OSError: the file cannot be read.
        """
        path = root / NAME
        data = path.read_bytes() if path.exists() else b""
        values = _RUN.packer.unpack(data[: _RUN.packer.size].ljust(_RUN.packer.size, b"\0"))
        return cls(**dict(zip(_RUN.names, values, strict=True)))

    def note_flushed(self, store_timestamp: int) -> None:
        """All messages stored until then are on the disk, ms."""
        self.physic_msg_timestamp = max(store_timestamp, self.physic_msg_timestamp)

    def pack(self) -> bytes:
        """The used bytes of the file."""
        return _RUN.packer.pack(*(getattr(self, f.name) for f in fields(self)))

    def save(self, root: Path, disk: Disk) -> None:
        """Write the file through to the disk.

        Raises:
            IOFailure: it cannot be written.
        """
        fd = disk.open(root / NAME, FILE_SIZE)
        try:
            disk.write(fd, self.pack(), 0)
            disk.sync(fd)
        finally:
            os.close(fd)


# --- index files as dispatch fills them -------------------------------------------------------------


_PAGE_SLOTS = 1024


class IndexWriter:
    """The index files of a store that is written to; the sink of its `IndexSeries`.

    Attributes:
        names: index files there are, ascending.
        series: headers and slots in memory.
    """

    def __init__(
        self, directory: Path, geometry: IndexGeometry, disk: Disk, checkpoint: Checkpoint, *, counts_slots: bool
    ) -> None:
        """
        Args:
            counts_slots: `DispatchRules.counts_slots`.

        Raises:
            OSError: the newest file cannot be read.
        """
        self.directory, self.geometry, self.disk, self.checkpoint = directory, geometry, disk, checkpoint
        self.names = sorted(p.name for p in directory.iterdir() if p.name.isdigit()) if directory.is_dir() else []
        self._fd, self._keeps_open, self._is_bare = -1, False, False
        self._changed = np.zeros(-(-geometry.slots // _PAGE_SLOTS), np.bool_)
        head, slots = self._load() if self.names else (None, None)
        self.series = IndexSeries(geometry, counts_slots=counts_slots, sink=self, head=head, slots=slots)

    def _load(self) -> tuple[IndexHead, Slots]:
        """Header and slots of the newest file, which entries go on in."""
        self._fd = self.disk.open(self.directory / self.names[-1], self.geometry.file_size)
        head = IndexHead.parse(os.pread(self._fd, HEADER_SIZE, 0))
        self._clear_after(max(head.index_count, 1))
        data = os.pread(self._fd, self.geometry.slots * SLOT_SIZE, HEADER_SIZE)
        return head, np.frombuffer(data, ">i4").astype(np.int32)

    def _clear_after(self, number: int) -> None:
        """Zero the entries from a number on: what a kill left ahead of the header is made again, or not at all."""
        at = self.geometry.entry_at(number)
        while at < self.geometry.file_size:
            piece = os.pread(self._fd, min(_CHUNK, self.geometry.file_size - at), at)
            if not piece.strip(b"\0"):
                return
            self.disk.write(self._fd, bytes(len(piece)), at)
            at += len(piece)

    def add(self, columns: IndexColumns) -> None:
        """Put the keys of records that follow each other in the log.

        Raises:
            IOFailure: a file cannot be made or written.
        """
        self.series.add(columns)
        if self.series.heads and self._fd < 0:  # made for a record without keys
            self._open(int(columns.store_timestamp[-1]))
        if self._is_bare:
            self.flush()

    def entries(self, first: int, entries: Entries) -> None:
        """Write entries of the current file."""
        if self._fd < 0:
            self._open(self.series.heads[-1].begin_timestamp)
        self._changed[entries["key_hash"] % self.geometry.slots // _PAGE_SLOTS] = True
        self.disk.write(self._fd, entries.tobytes(), self.geometry.entry_at(first))

    def close(self, head: IndexHead, slots: Slots) -> None:
        """Write header and slots of the current file; one that is complete goes to the disk and is closed.

        The checkpoint says so at once, else a recovery would delete the file (IndexService.flush).
        """
        self._is_bare = False
        self.disk.write(self._fd, head.pack(), 0)
        for begin, end in _runs(self._changed):
            piece = slots[begin * _PAGE_SLOTS : end * _PAGE_SLOTS].astype(">i4").tobytes()
            self.disk.write(self._fd, piece, HEADER_SIZE + begin * _PAGE_SLOTS * SLOT_SIZE)
        self._changed[:] = False
        if not self._keeps_open:
            self.disk.sync(self._fd)
            self.checkpoint.index_msg_timestamp = head.end_timestamp
            self.release()
            self.checkpoint.save(self.directory.parent, self.disk)

    def flush(self, *, sync: bool = False) -> None:
        """Write what is only in memory.

        Raises:
            IOFailure: the file cannot be written.
        """
        if self._fd < 0:
            return
        self._keeps_open = True
        try:
            self.series.finish()
        finally:
            self._keeps_open = False
        if sync:
            self.disk.sync(self._fd)

    def release(self) -> None:
        """Close the current file without writing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self, milliseconds: int) -> None:
        name = next_name(self.names[-1] if self.names else "", milliseconds)
        self._fd = self.disk.open(self.directory / name, self.geometry.file_size)
        self.names.append(name)
        self._is_bare = True


def _runs(changed: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Stretches of changed pages."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], changed, [False])).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
