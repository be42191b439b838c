"""Where a file holds data: holes and pages of zeros are left out of journals and copies."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

PAGE = 4096
_WINDOW = 1 << 20


def data_extents(fd: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Offset and size of the pages in ``[begin, end)`` that are not all zeros, ascending, none above 1 MiB.

    Raises:
        OSError: the file cannot be read there.
    """
    for low, high in _allocated(fd, begin, end):
        at = low
        while at < high:
            stop = min(high, at - at % _WINDOW + _WINDOW)
            yield from _filled(os.pread(fd, stop - at, at), at)
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
    """Runs of pages with something in them."""
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
