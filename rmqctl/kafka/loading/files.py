"""The files of a partition as a start changes them, while those on disk stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from rmqctl.files.local import ByteSource, BytesSource
from rmqctl.files.tree import Entry, Tree
from rmqctl.kafka.directory.directory import LogFile, Partition
from rmqctl.kafka.directory.file_names import meaning_of

MAX_TEXT = 64 << 20
"""Bytes that are read of a file that should be a small text."""
_PIECE = 1 << 20


class StartFails(Exception):
    """What makes the start of a broker fail, or a log directory go offline.

    Attributes:
        message: one sentence, as the broker's own log would say it.
        offline: it is an I/O failure for the broker, which only takes the directory offline.
    """

    def __init__(self, message: str, *, offline: bool = False) -> None:
        super().__init__(message)
        self.message, self.offline = message, offline


@dataclass(frozen=True, slots=True)
class Content:
    """What a file of the view holds: the first bytes of a file on disk, or bytes of its own; then zeros up to a size.

    Attributes:
        stored: the file on disk, None for bytes of its own.
        kept: bytes of the file on disk.
        size: bytes in all.
    """

    stored: LogFile | None
    data: bytes
    kept: int
    size: int

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes in order; the same cuts for contents of one size."""
        source = self.stored.open() if self.stored is not None else BytesSource(self.data)
        try:
            for at in range(0, self.size, _PIECE):
                size = min(_PIECE, self.size - at)
                yield source.read_at(at, min(size, max(self.kept - at, 0))).ljust(size, b"\0")
        finally:
            source.close()

    def equals(self, other: Content) -> bool:
        """Whether both hold the same bytes."""
        if self.size != other.size:
            return False
        if self.stored is not None and self.stored is other.stored and self.kept == other.kept:
            return True
        return all(mine == theirs for mine, theirs in zip(self.pieces(), other.pieces(), strict=True))


@dataclass(frozen=True)
class _Made:
    """The tree of a file that a start made."""

    files: PartitionFiles
    name: str
    root = ""

    def open(self, path: str) -> ByteSource:
        return self.files.open(self.name)

    def entries(self, path: str, *, sizes: bool = True) -> list[Entry]:
        return []

    def stat(self, path: str) -> Entry | None:
        return None

    def child(self, path: str) -> Tree:
        return self


@dataclass(frozen=True, slots=True)
class Changes:
    """How the files of a partition differ after a start: names relative to its directory, sorted."""

    deleted: list[str]
    created: list[str]
    changed: list[str]


class PartitionFiles:
    """A view of the files of one partition that can be changed; nothing on disk is.

    Attributes:
        partition: as it lies on disk.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.before: dict[str, Content] = {}
        for file in partition.files:
            with suppress(FileNotFoundError):  # a broker that runs has renamed it, or retention has taken it
                self.before[file.name.rpartition("/")[2]] = _stored(file)
        self._now = dict(self.before)

    def names(self) -> list[str]:
        """Names of all files that are there now, sorted."""
        return sorted(self._now)

    def __contains__(self, name: str) -> bool:
        return name in self._now

    def __getitem__(self, name: str) -> Content:
        return self._now[name]

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return self._now[name].size

    def open(self, name: str) -> ByteSource:
        """Return the bytes of a file; those of one on disk go on to its own end, so that :meth:`size` says where to
        stop.
        """
        content = self._now[name]
        if content.stored is not None and content.kept == content.size:
            return content.stored.open()
        return BytesSource(b"".join(content.pieces()), name)

    def file(self, name: str) -> LogFile | None:
        """Return a file as one of a directory: that on disk, as far as it is kept; None where there is none."""
        content = self._now.get(name)
        if content is None:
            return None
        stored, size = content.stored, content.size
        if stored is not None and content.kept == size:
            return stored if size == stored.size else replace(stored, size=size)
        place = "/".join(filter(None, (self.partition.directory, name)))
        return LogFile(_Made(self, name), place, meaning_of(name), size)

    def read(self, name: str, most: int | None = None) -> bytes:
        """All bytes of a small file, or the first of them, in whole pieces."""
        pieces = self._now[name].pieces()
        return b"".join(pieces if most is None else islice(pieces, -(-most // _PIECE)))

    def put(self, name: str, data: bytes, size: int | None = None) -> None:
        """Write a file of these bytes, zeros up to ``size`` after them."""
        self._now[name] = Content(None, data, len(data), len(data) if size is None else size)

    def resize(self, name: str, size: int) -> None:
        """Cut a file, or add zeros to it."""
        content = self._now[name]
        self._now[name] = replace(content, kept=min(content.kept, size), size=size)

    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is none to remove."""
        self._now.pop(name, None)

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, over one that has it."""
        self._now[to] = self._now.pop(name)

    def changes(self) -> Changes:
        """Return what differs from the files on disk; names that end with ``.deleted`` are left out."""
        names = [n for n in sorted({*self.before, *self._now}) if not n.endswith(".deleted")]
        return Changes(
            [n for n in names if n not in self._now],
            [n for n in names if n not in self.before],
            [n for n in names if n in self._now and n in self.before and not self._now[n].equals(self.before[n])],
        )


def _stored(file: LogFile) -> Content:
    size = file.size
    if size < 0:
        source = file.open()
        size = source.size()
        source.close()
    return Content(file, b"", size, size)
