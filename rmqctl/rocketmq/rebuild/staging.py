"""Writing queue files and index files to a directory of their own, in the layout of a store."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from rmqctl.rocketmq.dispatch.dispatched import Key
from rmqctl.rocketmq.dispatch.index_put import HEADER_SIZE, IndexHead
from rmqctl.rocketmq.dispatch.index_series import Entries, Slots
from rmqctl.rocketmq.dispatch.queue_units import Appended
from rmqctl.rocketmq.index_geometry import SLOT_SIZE, IndexGeometry
from rmqctl.rocketmq.store import INDEX

BUFFERED = 32 << 20
"""Bytes of queue units held back, over all queues."""
_LARGE = 4096
_SLOTS_AT_ONCE = 1 << 16
OFFSET_DIGITS = 20


def queue_path(kind: str, key: Key) -> str:
    """Directory of a queue, relative to the root of a store."""
    topic, queue_id = key
    return f"{kind}/{os.fsdecode(topic)}/{queue_id}"


@dataclass(slots=True)
class QueueFilesWriter:
    """Queue files below a directory (a `QueueSink`): appended to from a buffer, sparse, at full length.

    Attributes:
        root: stands for the root of the store.
        file_sizes: bytes of a file by kind of queue.
        files: what was written, relative to the root.
    """

    root: Path
    file_sizes: dict[str, int]
    files: set[str] = field(default_factory=set)
    _held: dict[tuple[str, Key], list[Appended]] = field(default_factory=dict)
    _made: set[str] = field(default_factory=set)
    _size: int = 0

    def write(self, kind: str, key: Key, found: Appended) -> None:
        """Take bytes of a queue.

        Raises:
            OSError: they cannot be written.
        """
        self._held.setdefault((kind, key), []).append(found)
        self._size += len(found.data)
        if self._size >= BUFFERED:
            self.flush()

    def read(self, kind: str, key: Key, position: int, size: int) -> bytes:
        """Bytes of a queue that were flushed, within one file.

        Raises:
            OSError: they cannot be read.
        """
        base = position - position % self.file_sizes[kind]
        with (self.root / queue_path(kind, key) / f"{base:0{OFFSET_DIGITS}d}").open("rb") as file:
            return os.pread(file.fileno(), size, position - base)

    def flush_large(self) -> None:
        """Write what is held back where that is a page or more of each queue: there is time, and less to do at the end.

        Raises:
            OSError: it cannot be written.
        """
        if self._size >= _LARGE * len(self._held):
            self.flush()

    def flush(self) -> None:
        """Write what is held back.

        Raises:
            OSError: it cannot be written.
        """
        for (kind, key), pieces in self._held.items():
            for position, data in _joined(pieces):
                self._write(kind, queue_path(kind, key), position, data)
        self._held.clear()
        self._size = 0

    def _write(self, kind: str, path: str, position: int, data: bytes) -> None:
        size, done = self.file_sizes[kind], 0
        while done < len(data):
            begin = position + done
            base = begin - begin % size
            part = data[done : done + base + size - begin]
            out = self._open(f"{path}/{base:0{OFFSET_DIGITS}d}", size)
            try:
                os.pwrite(out, part, begin - base)
            finally:
                os.close(out)
            done += len(part)

    def _open(self, name: str, size: int) -> int:
        path = f"{self.root}/{name}"
        if name in self.files:
            return os.open(path, os.O_RDWR)
        directory = os.path.dirname(path)
        if directory not in self._made:
            Path(directory).mkdir(parents=True, exist_ok=True)
            self._made.add(directory)
        out = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self.files.add(name)
        os.truncate(out, size)
        return out


def _joined(pieces: list[Appended]) -> list[tuple[int, bytes]]:
    """The pieces with those that follow each other put together."""
    found: list[tuple[int, list[bytes]]] = []
    end = -1
    for piece in pieces:
        if piece.position != end:
            found.append((piece.position, []))
        found[-1][1].append(piece.data)
        end = piece.position + len(piece.data)
    return [(position, b"".join(parts)) for position, parts in found]


class IndexFilesWriter:
    """Index files below a directory (an `IndexSink`), numbered in the order of the log.

    Attributes:
        heads: header of each file; :meth:`path` is where it lies.
    """

    def __init__(self, root: Path, geometry: IndexGeometry) -> None:
        self.root, self.geometry = root, geometry
        self.heads: list[IndexHead] = []
        self._out: int | None = None

    def path(self, number: int) -> Path:
        """Where file ``number`` is staged; its name in a store is for others to give."""
        return self.root / INDEX / f"{number:017d}"

    def entries(self, first: int, entries: Entries) -> None:
        """Write entries of the current file.

        Raises:
            OSError: they cannot be written.
        """
        os.pwrite(self._file(), entries.tobytes(), self.geometry.entry_at(first))

    def close(self, head: IndexHead, slots: Slots) -> None:
        """Write slots and header of the current file, and close it.

        Raises:
            OSError: they cannot be written.
        """
        out = self._file()
        for first in range(0, len(slots), _SLOTS_AT_ONCE):
            part = slots[first : first + _SLOTS_AT_ONCE]
            if part.any():
                os.pwrite(out, part.astype(">i4").tobytes(), HEADER_SIZE + first * SLOT_SIZE)
        os.pwrite(out, head.pack(), 0)
        os.close(out)
        self.heads.append(head.copy())
        self._out = None

    def _file(self) -> int:
        if self._out is None:
            path = self.path(len(self.heads))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._out = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            os.truncate(self._out, self.geometry.file_size)
        return self._out


__all__ = ["IndexFilesWriter", "QueueFilesWriter", "queue_path"]
