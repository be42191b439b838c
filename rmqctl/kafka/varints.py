"""Zig-zag numbers of varying length, thousands at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rmqctl.kafka.block import Bytes8, Flags, Ints

_STOPS = np.uint64(0x8080808080808080)
_GROUPS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
_FOLDS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)
_LONGEST = 8


class Varints:
    """Reads numbers at many places of one buffer, which must go on for 8 bytes after the last place."""

    def __init__(self, data: Bytes8) -> None:
        self.pairs = np.ndarray((len(data) - 1,), "<u2", data, 0, (1,))
        self.words = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))

    def unsigned(self, at: Ints) -> tuple[Ints, Ints]:
        """Numbers before the zig-zag is undone, and how many bytes each takes; 0 bytes: longer than 8.

        Numbers of one and of two bytes, which most are, take a few operations.
        """
        pairs = self.pairs[at]
        more = pairs & 0x80
        if not more.any():
            return (pairs & 0x7F).astype(np.int64), np.ones(len(at), np.int64)
        if not ((pairs & 0x8080) == 0x8080).any():
            more >>= 7
            low, high = pairs & 0x7F, (pairs >> 8) * more
            return (low + (high << 7)).astype(np.int64), more + np.int64(1)
        return self._long(at)

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
        return words.view(np.int64), size


def unzigzag(numbers: Ints) -> Ints:
    """Signed numbers of those that are zig-zag coded, 0 1 2 3: 0 -1 1 -2."""
    return (numbers >> 1) ^ -(numbers & 1)


def takes_more_than(size: Ints, most: int) -> Flags:
    """Which numbers are of no size that is read: none, or more than ``most`` bytes."""
    return (size == 0) | (size > most)


__all__ = ["Varints", "npt", "takes_more_than", "unzigzag"]
