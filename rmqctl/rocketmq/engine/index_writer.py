"""Index files as dispatch writes them (spec 4.3, 4.4; IndexService, IndexFile).

The header, the slot table and entries not yet written are kept in memory; :meth:`IndexWriter.flush`
writes entries first, then the slots that changed, the header last, so that a file never counts an
entry that is not there.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.dispatch.index_put import HEADER_SIZE, IndexHead, put_key
from rmqctl.rocketmq.engine.checkpoint import Checkpoint
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.index_geometry import SLOT_SIZE, IndexGeometry

_PAGE_SLOTS = 1024
_READ = 8 << 20
_MAX_WAITING = 4 << 20
NAME_DIGITS = 17


class IndexWriter:
    """The newest index file, and those that follow it.

    Attributes:
        files: index files there are, by name.
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
        self._counts_slots = counts_slots
        names = [p.name for p in directory.iterdir() if p.name.isdigit()] if directory.is_dir() else []
        self.files = sorted(names)
        self._file: _File | None = None
        if self.files:
            self._file = _File.load(directory / self.files[-1], geometry, disk)

    def put(self, key_hashes: tuple[int, ...], physical: int, store_timestamp: int, *, indexed: bool = True) -> None:
        """Put the keys of one record, which may be none: the file is made all the same.

        Args:
            indexed: False for rollback records.

        Raises:
            IOFailure: a file cannot be made or written.
        """
        file = self._writable(store_timestamp)
        if physical < file.head.end_phy_offset or not indexed:
            return
        for key_hash in key_hashes:
            file = self._writable(store_timestamp)
            file.put(key_hash, physical, store_timestamp, counts_slots=self._counts_slots)

    def _writable(self, store_timestamp: int) -> _File:
        file = self._file
        if file is not None and not file.head.is_full(self.geometry):
            return file
        head = IndexHead()
        if file is not None:
            head = file.head.successor()
            file.flush(sync=True)
            file.close()
            self.checkpoint.index_msg_timestamp = file.head.end_timestamp
        name = self._name(store_timestamp)
        self.files.append(name)
        self._file = _File(self.directory / name, self.geometry, self.disk, head)
        return self._file

    def _name(self, store_timestamp: int) -> str:
        """Local time of the record that makes the file, moved on until it is behind all names there are."""
        last = self.files[-1] if self.files else ""
        while (name := _time_name(store_timestamp)) <= last:
            store_timestamp += 1
            if _time_name(store_timestamp + 3_600_000) <= last:  # clock set back: go on behind the last name
                return f"{int(last) + 1:0{NAME_DIGITS}d}"
        return name

    def flush(self, *, sync: bool = False) -> None:
        """Write what is only in memory.

        Raises:
            IOFailure: the file cannot be written.
        """
        if self._file is not None:
            self._file.flush(sync=sync)

    def close(self) -> None:
        """Close the newest file without writing."""
        if self._file is not None:
            self._file.close()


class _File:
    """The index file that is written to."""

    def __init__(self, path: Path, geometry: IndexGeometry, disk: Disk, head: IndexHead) -> None:
        self.head, self.geometry, self.disk = head, geometry, disk
        self.slots = np.zeros(geometry.slots, ">i4")
        self._fd = disk.open(path, geometry.file_size)
        self._first = head.index_count
        self._entries: list[bytes] = []
        self._changed = np.zeros(-(-geometry.slots // _PAGE_SLOTS), np.bool_)
        self._bytes = memoryview(self.slots.view(np.uint8).data)
        self._dirty = True

    @classmethod
    def load(cls, path: Path, geometry: IndexGeometry, disk: Disk) -> _File:
        """The file as it lies on disk."""
        head = IndexHead.parse(path.read_bytes()[:HEADER_SIZE]) if path.stat().st_size < _READ else _head(path)
        found = cls(path, geometry, disk, head)
        at, size = 0, geometry.slots * SLOT_SIZE
        while at < size:
            data = os.pread(found._fd, min(_READ, size - at), HEADER_SIZE + at)
            found._bytes[at : at + len(data)] = data
            at += max(len(data), 1)
        found._dirty = False
        return found

    def put(self, key_hash: int, physical: int, store_timestamp: int, *, counts_slots: bool) -> None:
        """Put one key; the file is not full."""
        found = put_key(
            self.head, self.geometry, key_hash, physical, store_timestamp, self._read_slot, counts_slots=counts_slots
        )
        self._entries.append(found.entry)
        at = found.slot_at - HEADER_SIZE
        self._bytes[at : at + SLOT_SIZE] = found.slot
        self._changed[at // SLOT_SIZE // _PAGE_SLOTS] = True
        self._dirty = True
        if len(self._entries) * len(found.entry) > _MAX_WAITING:
            self.flush(sync=False)

    def _read_slot(self, at: int) -> bytes:
        return bytes(self._bytes[at - HEADER_SIZE : at - HEADER_SIZE + SLOT_SIZE])

    def flush(self, *, sync: bool) -> None:
        if self._dirty:
            if self._entries:
                self.disk.write(self._fd, [b"".join(self._entries)], self.geometry.entry_at(self._first))
            for begin, end in _runs(self._changed):
                piece = self._bytes[begin * _PAGE_SLOTS * SLOT_SIZE : end * _PAGE_SLOTS * SLOT_SIZE]
                self.disk.write(self._fd, [piece], HEADER_SIZE + begin * _PAGE_SLOTS * SLOT_SIZE)
            self.disk.write(self._fd, [self.head.pack()], 0)
            self._first, self._entries, self._dirty = self.head.index_count, [], False
            self._changed[:] = False
        if sync:
            self.disk.sync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def _head(path: Path) -> IndexHead:
    with path.open("rb") as file:
        return IndexHead.parse(file.read(HEADER_SIZE))


def _runs(changed: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Stretches of changed pages."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], changed, [False])).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _time_name(milliseconds: int) -> str:
    """A file name: local time with milliseconds."""
    moment = datetime.fromtimestamp(milliseconds // 1000).astimezone()
    return f"{moment:%Y%m%d%H%M%S}{milliseconds % 1000:03d}"
