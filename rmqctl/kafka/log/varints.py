"""Zig-zag numbers of varying length, thousands at a time."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqctl.kafka.log.block import Bytes8, Flags, Ints

_STOPS = np.uint64(0x8080808080808080)
_GROUPS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
_FOLDS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)
_FAR = 1 << 40


class Varints:
    """Reads numbers at many places of one buffer, which must go on for 8 bytes after the last place."""

    def __init__(self, data: Bytes8) -> None:
        self.pairs = np.ndarray((len(data) - 1,), "<u2", data, 0, (1,))
        self.words = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))

    def read(self, at: Ints) -> tuple[Ints, Ints]:
        """Return the number at each place, and how many bytes it takes; 0 bytes: more than 8.

        Numbers of one or two bytes, which most are, come out of a table.
        """
        values, sizes, _ = _tables()
        pairs = self.pairs[at]
        value, size = values[pairs].astype(np.int64), sizes[pairs].astype(np.int64)
        if not size.all():
            rows = np.flatnonzero(size == 0)
            value[rows], size[rows] = self._long(at[rows])
        return value, size

    def spans(self, at: Ints) -> Ints:
        """How many bytes a length and what it counts take together; very many where the length makes no sense."""
        _, _, spans = _tables()
        span = spans[self.pairs[at]].astype(np.int64)
        if not span.all():
            rows = np.flatnonzero(span == 0)
            value, size = self._long(at[rows])
            span[rows] = np.where((value < 0) | takes_more_than(size, 4), _FAR, value + size)
        return span

    def _long(self, at: Ints) -> tuple[Ints, Ints]:
        words = self.words[at]
        stop = ~words & _STOPS
        lowest = stop & (~stop + _ONE)
        mask = lowest | (lowest - _ONE)
        words &= mask
        words &= _GROUPS
        for low, high, shift in _FOLDS:
            words = (words & low) | ((words & high) >> shift)
        size = np.bitwise_count(mask).astype(np.int64) >> 3
        size[stop == 0] = 0
        numbers = words.view(np.int64)
        return (numbers >> 1) ^ -(numbers & 1), size


def takes_more_than(size: Ints, most: int) -> Flags:
    """Which numbers are of no size that is read: none, or more than ``most`` bytes."""
    return (size == 0) | (size > most)


@cache
def _tables() -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Of every two bytes: the number they hold, its bytes (0: more than two), and both together as a span."""
    pairs = np.arange(1 << 16, dtype=np.int64)
    first, second = pairs & 0xFF, pairs >> 8
    two = first >= 0x80
    number = np.where(two, (first & 0x7F) | (second << 7), first)
    value = (number >> 1) ^ -(number & 1)
    size = np.where(two, np.where(second >= 0x80, 0, 2), 1)
    span = np.where((size == 0) | (value < 0), 0, value + size)
    return value.astype(np.int16), size.astype(np.uint8), span.astype(np.int16)
