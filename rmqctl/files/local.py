"""The one interface of all files, a size and bytes at an offset, and local files read by position.

Reads may come back short: a file that shrinks or vanishes while it is read gives fewer bytes, never a signal. (A
memory map of such a file would kill the process.) Holes of sparse files and pages of zeros are skipped, not read, and
left out of journals and copies. Where many small pieces of few files are read, the last file stays open.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

bytes(31 << 20)
"""Asked for and given back untouched: from then on glibc keeps freed memory up to this size for the next window and
what is made from it. Else it takes it from the system again for each window, which costs as much as the CRCs.
"""


class PositionedReader(Protocol):
    """What reads local files in the place of the system, see :class:`rmqctl.files.pace.Pace`."""

    def read_at(self, descriptor: int, size: int, offset: int) -> bytes:
        """Return up to so many bytes from an offset of a file."""
        ...

    def read_into(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        """Fill a buffer from an offset of a file as far as the file goes; return the bytes that were there."""
        ...


IN_FORCE: list[PositionedReader] = []
"""Readers that every read of local files goes through; the last one counts."""


def pread(descriptor: int, size: int, offset: int) -> bytes:
    """Like ``os.pread``, by the reader that is in force."""
    return IN_FORCE[-1].read_at(descriptor, size, offset) if IN_FORCE else os.pread(descriptor, size, offset)


def preadv(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Like ``os.preadv`` with one buffer, by the reader that is in force."""
    return IN_FORCE[-1].read_into(descriptor, buffer, offset) if IN_FORCE else os.preadv(descriptor, [buffer], offset)


class ByteSource(Protocol):
    """A file that can be read at any offset."""

    @property
    def name(self) -> str:
        """What to call the file in messages: its path as the user gave it."""
        ...

    def size(self) -> int:
        """Bytes in the file now; a growing file gives a larger number later."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer at the end of the file, empty after it."""
        ...

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``offset``; return the number of bytes that were there."""
        ...

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Parts of ``[start, end)`` that may hold something but zeros, ascending."""
        ...

    def close(self) -> None:
        """Release what the source holds; reading afterwards is an error."""
        ...


class BytesSource:
    """Bytes in memory with the same interface, for tests and for records taken out of other formats."""

    def __init__(self, data: bytes, name: str = "<memory>") -> None:
        self._data = data
        self.name = name

    def size(self) -> int:
        return len(self._data)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + max(size, 0)]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        piece = self.read_at(offset, len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        end = min(end, len(self._data))
        if start < end:
            yield start, end

    def close(self) -> None:
        pass


# --- local files by positioned reads ----------------------------------------------------------------


_GONE = (errno.ESTALE, errno.ENXIO)
READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe must not make us wait


def opened(path: str) -> int:
    """Return a descriptor that reads a file; a link in a circle leads nowhere, as one to a name that is not there.

    Raises:
        OSError: the file cannot be opened.
    """
    try:
        return os.open(path, READ)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise FileNotFoundError(errno.ENOENT, error.strerror, path) from error


class LocalFile:
    """A file of this machine.

    The descriptor is opened at the first read and kept; a file that is cut or deleted meanwhile
    reads short. A store has thousands of files, so :meth:`close` early.

    Raises:
        OSError: the file cannot be opened or read (no permission, I/O error).
    """

    def __init__(self, path: str | Path, name: str | None = None) -> None:
        self.path = os.fspath(path)
        self.name = name or self.path
        self._fd: int | None = None

    def _descriptor(self) -> int:
        if self._fd is None:
            self._fd = opened(self.path)
        return self._fd

    def size(self) -> int:
        return os.fstat(self._descriptor()).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        fd, parts = self._descriptor(), []
        while size > 0 and (part := pread(fd, min(size, 1 << 30), offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        fd, done = self._descriptor(), 0
        while done < len(buffer) and (n := preadv(fd, buffer[done:], offset + done)):
            done += n
        return done

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        fd, end = self._descriptor(), min(end, self.size())
        while start < end:
            try:
                data = os.lseek(fd, start, os.SEEK_DATA)
                hole = os.lseek(fd, data, os.SEEK_HOLE)
            except OSError as error:
                if error.errno in _GONE:  # ENXIO: only a hole is left
                    return
                hole, data = end, start  # a file system that cannot tell
            if data >= end:
                return
            yield data, min(hole, end)
            start = hole

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __getstate__(self) -> tuple[str, str]:
        return self.path, self.name

    def __setstate__(self, state: tuple[str, str]) -> None:
        self.path, self.name = state
        self._fd = None


# --- where a file holds data ------------------------------------------------------------------------


PAGE = 4096
_ZEROS = bytes(PAGE)
_WINDOW = 1 << 20


def without_room(data: bytes) -> bytes:
    """Return bytes without the zeros at their end; page by page, quicker than ``rstrip`` where there are many."""
    end = len(data)
    while end >= PAGE and data[end - PAGE : end] == _ZEROS:
        end -= PAGE
    begin = max(end - PAGE, 0)
    return data[: begin + len(data[begin:end].rstrip(b"\0"))]


def data_extents(fd: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Offset and size of the pages in ``[begin, end)`` that are not all zeros, ascending, none above 1 MiB.

    Raises:
        OSError: the file cannot be read there.
    """
    for low, high in _allocated(fd, begin, end):
        at = low
        while at < high:
            stop = min(high, at - at % _WINDOW + _WINDOW)
            yield from _filled(pread(fd, stop - at, at), at)
            at = stop


def _allocated(fd: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges that the file system has blocks for; all of it where it cannot tell."""
    at = begin
    while at < end:
        try:
            low = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            yield at, end
            return
        high = os.lseek(fd, low, os.SEEK_HOLE)
        if low < end:
            yield low, min(high, end)
        at = high


def _filled(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield runs of pages with something in them."""
    if not data.strip(b"\0"):
        return
    start = -1
    for low in range(0, len(data), PAGE):
        if data.count(0, low, low + PAGE) < min(PAGE, len(data) - low):
            start = low if start < 0 else start
        elif start >= 0:
            yield at + start, low - start
            start = -1
    if start >= 0:
        yield at + start, len(data) - start


# --- reading many small pieces of few files ---------------------------------------------------------


class Reader:
    """Keeps one file open; :meth:`close` when done."""

    def __init__(self) -> None:
        self._path = ""
        self._fd = -1

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Bytes of a file; fewer at its end."""
        if path != self._path:
            self.close()
            self._fd, self._path = os.open(path, os.O_RDONLY | os.O_CLOEXEC), path
        return pread(self._fd, size, offset)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._path = -1, ""

    def __del__(self) -> None:
        self.close()


# --- bytes that lie over those of a file -------------------------------------------------------------


class WrittenRanges:
    """Non-overlapping runs of bytes, ascending; runs that touch are one."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._runs: list[bytearray] = []

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return ((start, bytes(run)) for start, run in zip(self._starts, self._runs, strict=True))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def put(self, offset: int, data: bytes) -> None:
        """Write over what is there."""
        if not data:
            return
        first, last = self._touching(offset, offset + len(data))
        if first == last:
            self._starts.insert(first, offset)
            self._runs.insert(first, bytearray(data))
            return
        start, run = self._starts[first], self._runs[first]
        if offset < start:
            run[0:0] = bytes(start - offset)
            start = self._starts[first] = offset
        for at, other in zip(self._starts[first + 1 : last], self._runs[first + 1 : last], strict=True):
            run.extend(bytes(at - start - len(run)))
            run += other
        del self._starts[first + 1 : last], self._runs[first + 1 : last]
        run.extend(bytes(max(offset - start - len(run), 0)))
        run[offset - start : offset - start + len(data)] = data

    def lay_over(self, offset: int, buffer: bytearray | memoryview) -> None:
        """Write the runs over a buffer that holds the bytes from `offset` on."""
        end = offset + len(buffer)
        first, last = self._touching(offset, end)
        for start, run in zip(self._starts[first:last], self._runs[first:last], strict=True):
            low, high = max(start, offset), min(start + len(run), end)
            if low < high:
                buffer[low - offset : high - offset] = run[low - start : high - start]

    @property
    def end(self) -> int:
        """Where the last run ends, 0 without one."""
        return self._starts[-1] + len(self._runs[-1]) if self._starts else 0

    def spans(self, begin: int = 0, end: int | None = None) -> list[tuple[int, int]]:
        """Begin and end of each run that overlaps or touches ``[begin, end)``; default: of all."""
        first, last = self._touching(begin, self.end if end is None else end)
        runs = zip(self._starts[first:last], self._runs[first:last], strict=True)
        return [(start, start + len(run)) for start, run in runs]

    def clip(self, size: int) -> None:
        """Drop what lies at `size` or after it."""
        while self._starts and self._starts[-1] >= size:
            self._starts.pop()
            self._runs.pop()
        if self._starts:
            del self._runs[-1][size - self._starts[-1] :]

    def _touching(self, begin: int, end: int) -> tuple[int, int]:
        """First and last + 1 of the runs that overlap or touch ``[begin, end)``."""
        first = bisect_right(self._starts, begin)
        if first and self._starts[first - 1] + len(self._runs[first - 1]) >= begin:
            first -= 1
        last = bisect_right(self._starts, end)
        return first, max(first, last)
