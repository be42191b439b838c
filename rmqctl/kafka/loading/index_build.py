"""The offset and time index of a segment, made from its batches as brokers do when they recover it (spec 13.3)."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from formats.kafka.indexes import OffsetIndexEntry, TimeIndexEntry, entry_dtype
from rmqctl.kafka.log.block import INT_MAX, Batches, Ints


class OffsetNotIncreasing(Exception):
    """An entry would have an offset that is not above the one before: brokers then give the segment up."""


class OffsetOutOfRange(Exception):
    """A batch ends below the segment's base offset, or 2^31 or more above it: brokers then split the segment."""


class IndexBuilder:
    """Entries for the batches seen so far.

    Attributes:
        offsets, positions: entries of the offset index: absolute last offset and position of a batch.
        times: entries of the time index: largest timestamp so far in ms, absolute last offset of its batch.
        times_before: entries that the time index had when it was last asked to take one, before the end.
    """

    def __init__(self, base: int, interval: int) -> None:
        self.base, self.interval = base, interval
        self.offsets: list[int] = []
        self.positions: list[int] = []
        self.times: list[tuple[int, int]] = []
        self.times_before = 0
        self._indexed = 0
        self._largest = (-1, -1)

    def add(self, block: Batches) -> None:
        """Go on with the batches of a block.

        Raises:
            OffsetNotIncreasing: as it says; the entries before it are there.
            OffsetOutOfRange: as it says.
        """
        if not len(block):
            return
        last, times = block["last_offset"], block["max_timestamp"]
        outside = np.flatnonzero((last < self.base) | (last - self.base > INT_MAX))
        count = int(outside[0]) if len(outside) else len(block)
        self._add(block.position[:count], last[:count], times[:count])
        if len(outside):
            raise OffsetOutOfRange

    def _add(self, position: Ints, last: Ints, times: Ints) -> None:
        if not len(position):
            return
        running = np.maximum.accumulate(np.concatenate([[self._largest[0]], times]))
        higher = np.concatenate([[-1], np.where(running[1:] > running[:-1], np.arange(len(times)), -1)])
        holder = np.maximum.accumulate(higher)[1:]
        rows = self._rows(position)
        offsets, times_there = last[rows], running[1:][rows]
        held = np.where(holder[rows] >= 0, last[holder[rows]], self._largest[1])
        if self._ascends(offsets, held):
            self.offsets += offsets.tolist()
            self.positions += position[rows].tolist()
            self._times(times_there, held)
        else:
            columns = offsets.tolist(), position[rows].tolist(), times_there.tolist(), held.tolist()
            for offset, place, time, of in zip(*columns, strict=True):
                if self.offsets and offset <= self.offsets[-1]:
                    raise OffsetNotIncreasing
                self.offsets.append(offset)
                self.positions.append(place)
                self.times_before = len(self.times)
                self._time(time, of)
        self._largest = int(running[-1]), int(last[holder[-1]]) if holder[-1] >= 0 else self._largest[1]

    def _rows(self, position: Ints) -> Ints:
        """Return which batches get an entry: those more than the interval after the one that got the last."""
        if position[0] - self._indexed > self.interval and (np.diff(position) > self.interval).all():
            self._indexed = int(position[-1])
            return np.arange(len(position))
        rows, at, places = list[int](), 0, position.tolist()
        while (at := bisect_right(places, self._indexed + self.interval, at)) < len(places):
            rows.append(at)
            self._indexed = places[at]
        return np.array(rows, np.int64)

    def _ascends(self, offsets: Ints, held: Ints) -> bool:
        """Whether new entries of both indexes follow those that are there, and each other, in the order of offsets."""
        before = [self.offsets[-1]] if self.offsets else offsets[:1] - 1
        first = [self.times[-1][1]] if self.times else held[:1]
        return bool((np.diff(offsets, prepend=before) > 0).all() and (np.diff(held, prepend=first) >= 0).all())

    def _times(self, times: Ints, offsets: Ints) -> None:
        """Add the entries of the time index whose time is larger than all before; the times never fall."""
        higher = times > np.append(self.times[-1][0] if self.times else -1, times[:-1])
        self.times += zip(times[higher].tolist(), offsets[higher].tolist(), strict=True)
        if len(times):
            self.times_before = len(self.times) - int(higher[-1])

    def finish(self) -> None:
        """Add the last entry of the time index, as for a segment that is closed.

        Raises:
            OffsetNotIncreasing: the largest timestamp stands below an entry that is there.
        """
        self._time(*self._largest)

    def _time(self, time: int, offset: int) -> None:
        if self.times and offset < self.times[-1][1]:
            raise OffsetNotIncreasing
        if time > (self.times[-1][0] if self.times else -1):
            self.times.append((time, offset))

    def overfull(self, room: int) -> str:
        """Return which index was to take an entry when it was full, its ending; "" for none.

        Of the time index the last slot is kept for the close of the segment (``TimeIndex.isFull``).

        Args:
            room: bytes of each index (``segment.index.bytes``).
        """
        if self.offsets and self.times_before >= room // TimeIndexEntry.sizeof() - 1:
            return ".timeindex"
        return ".index" if len(self.offsets) > room // OffsetIndexEntry.sizeof() else ""

    def offset_index(self) -> bytes:
        """Return the entries of the ``.index`` file, without padding."""
        found = np.zeros(len(self.offsets), entry_dtype(OffsetIndexEntry))
        found["relative_offset"] = np.array(self.offsets, np.int64) - self.base
        found["position"] = self.positions
        return found.tobytes()

    def time_index(self) -> bytes:
        """Return the entries of the ``.timeindex`` file, without padding."""
        found = np.zeros(len(self.times), entry_dtype(TimeIndexEntry))
        if self.times:
            times = np.array(self.times, np.int64)
            found["timestamp"], found["relative_offset"] = times[:, 0], times[:, 1] - self.base
        return found.tobytes()
