"""Reading at a rate, and without a trace in the page cache, for work beside a broker that needs disk and memory itself.

While a :class:`Pace` is in force (:func:`paced`), every read of local files goes through it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

import numpy as np

from rmqctl.files.local import IN_FORCE

_PIECE = 256 << 10
"""Bytes of one request: what is read between two looks at the rate."""
_SLICE = 0.25
"""Seconds of sleep, at most, until the rate is asked for again: it may have been changed."""
_LEAST = 0.001
"""Seconds of sleep, at least: a clock may not show less."""
_PAGE = mmap.PAGESIZE
_AHEAD = 16 << 20
"""Bytes of which is asked at once whether they are in the page cache: where a read comes to pages that somebody has
read, the system may read on by itself, and what it brings would look as if it had been there.
"""


class Pace:
    """Holds what is read to a rate, and drops what a read has brought into the page cache.

    Args:
        rate: bytes a second; 0: as fast as it goes.
        clock, sleep: seconds, of any start.

    Attributes:
        rate: may be changed at any time.
        read: bytes so far, whether they came from the disk or from the cache.
    """

    def __init__(
        self,
        rate: float = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.rate, self.read = rate, 0
        self._clock, self._sleep = clock, sleep
        self._owed, self._at = 0.0, clock()
        self._cache = _Absent()

    def read_into(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        """Fill a buffer from an offset of a file as far as the file goes; return the bytes that were there."""
        done = 0
        while done < len(buffer):
            piece = buffer[done : done + _PIECE - (offset + done) % _PAGE]
            absent = self._cache.within(descriptor, offset + done, len(piece))
            with suppress(OSError):  # no pages that nobody asked for
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            count = os.preadv(descriptor, [piece], offset + done)
            for begin, end in absent:
                with suppress(OSError):
                    os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_DONTNEED)
            if not count:
                break
            done += count
            self._take(count)
        return done

    def read_at(self, descriptor: int, size: int, offset: int) -> bytes:
        """Return up to so many bytes from an offset of a file."""
        size = min(size, max(os.fstat(descriptor).st_size - offset, 0))
        data = bytearray(size)
        return bytes(data[: self.read_into(descriptor, memoryview(data), offset)])

    def _take(self, count: int) -> None:
        """Wait until so many bytes more may have been read: a bucket of the size of one piece, which the rate fills."""
        self.read += count
        self._owed += count
        while True:
            now = self._clock()
            self._owed = max(self._owed - (now - self._at) * self.rate, 0) if self.rate else 0
            self._at = now
            if self._owed <= _PIECE:
                return
            self._sleep(min(max((self._owed - _PIECE) / self.rate, _LEAST), _SLICE))


@contextmanager
def paced(pace: Pace) -> Iterator[None]:
    """Let all local files of this process be read at a pace while the block runs."""
    IN_FORCE.append(pace)
    try:
        yield
    finally:
        IN_FORCE.remove(pace)


def step_aside() -> None:
    """Let this process have the disk and the processors only when nobody else wants them, as far as the system goes."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 19)
    call = {"x86_64": 251, "aarch64": 30}.get(os.uname().machine) if os.uname().sysname == "Linux" else None
    if call is not None:  # ioprio_set(IOPRIO_WHO_PROCESS, this one, IOPRIO_CLASS_IDLE), which the C library lacks
        _system().syscall(call, 1, 0, 3 << 13)


@cache
def _system() -> ctypes.CDLL:
    """Return the C library."""
    return ctypes.CDLL(None)


# --- what is in the page cache ------------------------------------------------------------------------


class _Absent:
    """Which pages of the file that was read last were not in the page cache when its reader came near them."""

    def __init__(self) -> None:
        self._file, self._begin, self._end = (0, 0), 0, 0
        self._ranges: list[tuple[int, int]] = []

    def within(self, descriptor: int, offset: int, size: int) -> list[tuple[int, int]]:
        """Return the ranges of whole pages, in bytes of the file, that a read brings into the page cache."""
        status = os.fstat(descriptor)
        file = status.st_dev, status.st_ino
        begin, end = offset - offset % _PAGE, min(offset + size, status.st_size)
        if file != self._file or not self._begin <= begin or end > self._end:
            self._file, self._begin = file, begin
            self._end = min(max(begin + _AHEAD, end), status.st_size)
            self._ranges = _absent(descriptor, begin, self._end)
        end += -end % _PAGE
        return [(max(low, begin), min(high, end)) for low, high in self._ranges if low < end and high > begin]


def _absent(descriptor: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of pages that are not in the page cache; none where the system does not tell.

    mincore looks at a map of the file and touches no page of it, so that a file that shrinks does no harm. To
    those who may not write the file Linux says that all is there: then nothing is dropped.

    Args:
        begin: in bytes, at the begin of a page; end: at most that of the file.
    """
    size = end - begin
    if size <= 0:
        return []
    there = np.zeros(-(-size // _PAGE), np.uint8)
    try:
        with mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ, offset=begin) as found:
            area = np.frombuffer(found, np.uint8)
            address = ctypes.c_void_p(area.ctypes.data)
            del area  # else the map cannot be closed
            failed = _system().mincore(address, ctypes.c_size_t(size), ctypes.c_void_p(there.ctypes.data))
    except (OSError, ValueError, AttributeError):
        return []
    if failed:
        return []
    edges = np.flatnonzero(np.diff(np.concatenate([[1], there & 1, [1]])))
    return [(begin + low * _PAGE, begin + high * _PAGE) for low, high in edges.reshape(-1, 2).tolist()]
