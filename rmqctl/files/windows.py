"""Windows of a part of a file, read one after the other into one buffer; zeros between them are passed over.

The scans of logs of all families read so. What the bytes are, and what follows what, is theirs; which part of the
file was asked for, how much of it to read at a time and where its last byte lies that is not zero is kept here.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rmqctl.files.local import ByteSource

Bytes8 = npt.NDArray[np.uint8]
BEYOND = 64 << 10
"""Bytes read after the end of a split: most records that cross it end there."""
_PAGE = 32 << 10
_HUGE = 2 << 20


class Damage(Protocol):
    """What no record was found in, from a place on."""

    @property
    def position(self) -> int: ...


class Windows:
    """One split of one file.

    Attributes:
        start, stop: the split in bytes.
        size: end of the file; less than first thought where the file shrinks while it is read.
        most: bytes of a window, unless a record needs more.
        last_data: end of the last byte that is not zero, in the windows that held damage.
    """

    def __init__(
        self,
        source: ByteSource,
        *,
        start: int = 0,
        stop: int | None = None,
        size: int | None = None,
        most: int,
        overlap: int,
        slack: int = 0,
    ) -> None:
        """Take a split of a file.

        Args:
            source: the file.
            start, stop: where the split begins and ends; ``stop`` None: at the end of the file.
            size: end of the file where it is known; else the source is asked.
            most: bytes of a window.
            overlap: bytes before the first byte that is not zero in which what holds it may begin.
            slack: bytes of the buffer after each window, whatever they are.
        """
        self.source, self.start, self.most = source, start, most
        self.size = source.size() if size is None else size
        self.stop = self.size if stop is None else min(stop, self.size)
        self.last_data = 0
        self._overlap, self._slack = overlap, slack
        self._buffer = np.empty(0, np.uint8)

    def goes_on(self, position: int, gap: Damage | None) -> bool:
        """Tell whether there is more to read: up to the end of the split, and beyond while damage in it is open.

        Args:
            position: how far the file was read.
            gap: damage whose end was not found yet.
        """
        searching = gap is not None and gap.position >= self.start
        return position < self.size and (position < self.stop or searching)

    def usual(self, position: int) -> int:
        """Return the bytes of a window that begins at a place, where no record needs more.

        Of a hole that reaches to its end only the begin is read: logs are made at full length before they are written.
        """
        left = self.stop - position
        size = min(self.most, left + BEYOND) if left > 0 else self.most
        if min(size, self.size - position) <= _PAGE:
            return size
        held = list(islice(self.source.data_ranges(position, position + size), 2))
        if len(held) > 1:
            return size
        return min(size, (held[0][1] - position if held else 0) + _PAGE)

    def read(self, position: int, need: int) -> Bytes8:
        """Return a window of up to ``need`` bytes in the buffer that all windows share."""
        room = self.room(min(need, self.size - position))
        return room[: self.source.read_into(position, room.data)]

    def room(self, need: int) -> Bytes8:
        """Return the first bytes of the buffer, for those who fill it themselves."""
        if len(self._buffer) < need + self._slack:
            self._buffer = _room(need + self._slack)
        return self._buffer[:need]

    def padded(self, window: Bytes8) -> Bytes8:
        """Return the window that was read last with the slack after it."""
        return self._buffer[: len(window) + self._slack]

    def next(self, window: Bytes8, position: int, after: int, need: int, *, in_damage: bool) -> tuple[int, int]:
        """Return where the next window begins and how many bytes it needs; in damage, zeros are passed over.

        Args:
            window, position: what was read last, and where.
            after: bytes of it that are done with.
            need: bytes that what lies there needs in one window; 0 where none is known.
            in_damage: nothing follows what was found until it is searched for.
        """
        begin = position + after
        if in_damage:
            self._note_data(window, position)
            if need == 0 and not window[after:].any():
                begin = max(begin, self._next_data(position + len(window)) - self._overlap)
        return begin, max(need, self.usual(begin))

    def _note_data(self, window: Bytes8, position: int) -> None:
        end = len(window)
        while end > 0 and not window[max(end - _PAGE, 0) : end].any():
            end -= _PAGE
        if end > 0:
            begin = max(end - _PAGE, 0)
            self.last_data = position + begin + len(window[begin:end].tobytes().rstrip(b"\0"))

    def _next_data(self, position: int) -> int:
        """Return the first byte from ``position`` that is not zero; the end of the file if there is none."""
        for start, end in self.source.data_ranges(position, self.size):
            while start < end:
                data = self.read(start, min(self.most, end - start))
                if not len(data):
                    return self.size
                if data.any():
                    return start + int(np.argmax(data != 0))
                start += len(data)
        return self.size


def _room(size: int) -> Bytes8:
    """Return a buffer; one as large as a usual window lies in huge pages where the system has them."""
    if size < _HUGE:
        return np.empty(size, np.uint8)
    room = np.empty(size + _HUGE, np.uint8)
    start = -room.ctypes.data % _HUGE
    return room[start : start + size]
