"""A sequence of fixed-size files that is appended to: the engine's MappedFileQueue (spec 1.1 to 1.3).

Files are made sparse at their full length. Nothing is memory-mapped: a positioned write reports a
full disk, a store into a map kills the process. What a killed process wrote stays in the page cache
either way. Nor would a map be faster: single records stored into windows of 4 MiB with their room
allocated ahead took as long as positioned writes (ext4 of Linux 6.18), as each page costs a fault.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rmqctl.errors import IOFailure
from rmqctl.files.writing import Buffer, Disk
from rmqctl.rocketmq.store.files import OFFSET_DIGITS

NEARLY_FULL = 0.85
"""diskSpaceCleanForciblyRatio of a broker."""


@dataclass(slots=True)
class MappedFile:
    """One file.

    Attributes:
        base: offset of its first byte in the sequence.
        fd: open for reading and writing; -1 when closed.
    """

    path: Path
    base: int
    fd: int = -1


class MappedFiles:
    """The files of one directory, or of several for a multi-path log.

    Args:
        directories: where files are made; a file for offset ``o`` goes to number ``o / size`` modulo their number,
            of those whose disk is not nearly full.
        file_size: bytes of each file.
        files: those that are there, ascending.
        full: used part of a disk from which on a directory gets no more files, unless all are so full.
        ahead: with each new file make the one after it too (AllocateMappedFileService).
    """

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[Path],
        file_size: int,
        files: Sequence[MappedFile],
        *,
        ahead: bool = False,
        full: float = NEARLY_FULL,
    ) -> None:
        self._full = full
        self.disk, self.directories, self.file_size = disk, sorted(directories, key=str), file_size
        self.files, self._ahead = list(files), ahead
        self._last: MappedFile | None = None
        self._changes = threading.RLock()

    @classmethod
    def load(
        cls,
        disk: Disk,
        directories: Sequence[Path],
        file_size: int,
        *,
        ahead: bool = False,
        full: float = NEARLY_FULL,
    ) -> MappedFiles:
        """Return the files that are there now, by name."""
        found = []
        for directory in directories:
            if directory.is_dir():
                found += [MappedFile(p, int(p.name)) for p in directory.iterdir() if _is_offset(p.name)]
        return cls(disk, directories, file_size, sorted(found, key=lambda f: f.base), ahead=ahead, full=full)

    @property
    def min_offset(self) -> int:
        """Offset of the first byte of the oldest file; 0 without a file."""
        return self.files[0].base if self.files else 0

    def write(self, offset: int, data: Buffer) -> None:
        """Write within one file, which is made if it is not there.

        Raises:
            IOFailure: the system refuses; nothing counts as written.
        """
        file = self.file_at(offset)
        self.disk.write(file.fd if file.fd >= 0 else self._fd(file), data, offset - file.base)

    def write_through(self, offset: int, data: Buffer) -> bool:
        """Write bytes onto the disk; False where that did not work in one go: then write and sync them."""
        file = self.file_at(offset)
        return self.disk.write_through(self._fd(file), data, offset - file.base)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes within one file; fewer at its end, none where no file is."""
        file = self.find(offset)
        return (
            self.disk.read(self._fd(file), min(size, file.base + self.file_size - offset), offset - file.base)
            if file
            else b""
        )

    def find(self, offset: int) -> MappedFile | None:
        """Return the file that holds an offset."""
        if not self.files or offset < self.files[0].base:
            return None
        at = (offset - self.files[0].base) // self.file_size
        file = self.files[at] if at < len(self.files) else self.files[-1]
        if file.base <= offset < file.base + self.file_size:
            return file
        return next((f for f in self.files if f.base <= offset < f.base + self.file_size), None)

    def file_at(self, offset: int) -> MappedFile:
        """Return the file that holds an offset; made, at full length, if it is not there."""
        last = self._last
        if last is not None and last.base <= offset < last.base + self.file_size:
            return last
        base = offset - offset % self.file_size
        with self._changes:  # a writer and a commit may come here together
            file = self.find(offset) or self._add(base)
            if self._ahead and self.find(base + self.file_size) is None:
                with suppress(IOFailure):  # reported when the file is needed
                    self._add(base + self.file_size)
            self._last = file
        return file

    def _add(self, base: int) -> MappedFile:
        directories = self._with_room()
        directory = directories[base // self.file_size % len(directories)]
        path = directory / f"{base:0{OFFSET_DIGITS}d}"
        file = MappedFile(path, base, self.disk.open(path, self.file_size))
        self.files = sorted([*self.files, file], key=lambda f: f.base)  # a new list: a flush may go through the old one
        return file

    def _with_room(self) -> list[Path]:
        """Return the directories that new files go to (MultiPathMappedFileQueue.tryCreateMappedFile)."""
        if len(self.directories) == 1:
            return self.directories
        return [d for d in self.directories if self.disk.used(d) <= self._full] or self.directories

    def _fd(self, file: MappedFile) -> int:
        if file.fd < 0:
            with self._changes:
                if file.fd < 0:
                    file.fd = self.disk.open(file.path, self.file_size)
        return file.fd

    def sync(self, begin: int, end: int) -> None:
        """Make the bytes ``[begin, end)`` survive a power failure.

        Raises:
            IOFailure: the disk fails; what of it is safe is unknown.
        """
        for file in self._between(begin, end):
            self.disk.sync(self._fd(file))

    def forget(self, begin: int, end: int) -> None:
        """Have the system drop ``[begin, end)`` from its memory; it is on the disk."""
        for file in self._between(begin, end):
            if file.fd >= 0:
                first, last = max(begin - file.base, 0), min(end - file.base, self.file_size)
                self.disk.forget(file.fd, first, last)

    def _between(self, begin: int, end: int) -> Iterator[MappedFile]:
        for file in reversed(self.files):
            if file.base + self.file_size <= begin:
                return
            if file.base < end:
                yield file

    def remove_from(self, offset: int) -> None:
        """Delete the files that start at an offset or after it."""
        for file in [f for f in self.files if f.base >= offset]:
            self.remove(file)

    def remove(self, file: MappedFile) -> None:
        """Delete one file."""
        with self._changes:
            self._close(file)
            self._last = None
            self.disk.remove(file.path)
            self.files = [f for f in self.files if f is not file]

    def close_files(self, before: int) -> None:
        """Close the descriptors of files that end at an offset or in front of it; they open again when needed."""
        for file in self.files:
            if file.base + self.file_size <= before:
                self._close(file)

    def close(self) -> None:
        """Close all files."""
        for file in self.files:
            self._close(file)

    @staticmethod
    def _close(file: MappedFile) -> None:
        if file.fd >= 0:
            os.close(file.fd)
            file.fd = -1


def _is_offset(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) >= OFFSET_DIGITS
