"""Building index files from key hashes, many at a time (spec 4.3, 4.4).

The chains need no sort: the table of slots is read and written for a batch of entries at once, and only slots that
occur twice in a batch, a few among many, are put in order. Memory is the table of slots and one batch.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.dispatch.dispatched import IndexColumns
from rmqctl.rocketmq.dispatch.index import IndexHead
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.store.geometry import ENTRY, IndexGeometry

BATCH = 1 << 15
"""Entries put at once: so few that slots hardly repeat in a batch, so many that a call costs little an entry."""
_MAX_SECONDS = (1 << 31) - 1
Slots = npt.NDArray[np.int32]
Entries = npt.NDArray[np.void]


class IndexSink(Protocol):
    """Takes the bytes of index files, one file after the other."""

    def entries(self, first: int, entries: Entries) -> None:
        """Entries of the current file from number ``first`` on; ascending."""
        ...

    def close(self, head: IndexHead, slots: Slots) -> None:
        """The current file is complete; the next entries go to a new one."""
        ...


class NoIndexSink:
    """Takes nothing: only the headers are wanted."""

    def entries(self, first: int, entries: Entries) -> None:
        """Forget the entries."""

    def close(self, head: IndexHead, slots: Slots) -> None:
        """Forget the file."""


class IndexSeries:
    """The index files that dispatch fills.

    Attributes:
        heads: headers of all files from the first one put to, in order; the last is still open.

    Args:
        counts_slots: `DispatchRules.counts_slots`.
        head, slots: the last file that is there already, if entries go on in it.
    """

    def __init__(
        self,
        geometry: IndexGeometry,
        *,
        counts_slots: bool,
        sink: IndexSink | None = None,
        head: IndexHead | None = None,
        slots: Slots | None = None,
    ) -> None:
        self.geometry, self._counts_slots, self._sink = geometry, counts_slots, sink or NoIndexSink()
        self.heads = [head.copy()] if head else []
        self._slots = np.zeros(geometry.slots, np.int32) if slots is None else slots.astype(np.int32)

    def add(self, columns: IndexColumns) -> None:
        """Put the keys of records that follow each other in the log."""
        if not len(columns.keys):
            return
        head = self._last()
        keep = not_yet(columns, head.end_phy_offset)
        keys, hashes = columns.keys, columns.hashes
        if not keep.all():
            hashes = hashes[np.repeat(keep, keys)]
            keys = np.where(keep, keys, 0)
        physical, times = np.repeat(columns.physical, keys), np.repeat(columns.store_timestamp, keys)
        done = 0
        while done < len(hashes):
            head = self._last()
            count = min(BATCH, len(hashes) - done, self.geometry.entries - head.index_count)
            part = slice(done, done + count)
            self._put(head, hashes[part], physical[part], times[part])
            done += count
        if len(hashes) and columns.physical[-1] > physical[-1]:
            self._last()  # a record without keys behind the last entry finds the file full, too

    def finish(self) -> None:
        """Close the last file."""
        if self.heads:
            self._sink.close(self.heads[-1], self._slots)

    def _last(self) -> IndexHead:
        """The file that the next entry goes to: a new one if there is none, or the last is full."""
        if self.heads and not self.heads[-1].is_full(self.geometry):
            return self.heads[-1]
        if self.heads:
            self._sink.close(self.heads[-1], self._slots)
            self._slots.fill(0)
        self.heads.append(self.heads[-1].successor() if self.heads else IndexHead())
        return self.heads[-1]

    def _put(self, head: IndexHead, hashes: npt.NDArray[np.int32], physical: Ints, times: Ints) -> None:
        """Put one batch into a file that has room for it."""
        number, count = head.index_count, len(hashes)
        entries = np.empty(count, ENTRY.dtype)
        entries["key_hash"], entries["physical_offset"] = hashes, physical
        first = head.difference(int(times[0]))
        previous = chain(self._slots, hashes % np.int32(self.geometry.slots), number)
        new = int(np.count_nonzero(previous == 0)) if self._counts_slots else count
        _note(head, count, new, physical, times)
        seconds = np.clip((times - head.begin_timestamp) // 1000, 0, _MAX_SECONDS) if head.begin_timestamp > 0 else 0
        entries["time_difference"], entries["previous"] = seconds, previous
        if number <= 1:
            entries["time_difference"][0] = first  # counted from the time that the file before ended
        self._sink.entries(number, entries)


def _note(head: IndexHead, count: int, new: int, physical: Ints, times: Ints) -> None:
    """What `count` puts change in a header."""
    head.put(int(physical[0]), int(times[0]), new_slot=False)
    head.index_count += count - 1
    head.hash_slot_count += new
    head.end_phy_offset, head.end_timestamp = int(physical[-1]), int(times[-1])


def not_yet(columns: IndexColumns, end: int) -> npt.NDArray[np.bool_]:
    """Which records are not left out as indexed already: those before the last one put (`<`, spec 4.3)."""
    physical = columns.physical
    if (physical[1:] >= physical[:-1]).all():
        keep: npt.NDArray[np.bool_] = physical >= end
        return keep
    keep = np.ones(len(physical), bool)
    for row, (place, keys) in enumerate(zip(physical.tolist(), columns.keys.tolist(), strict=True)):
        keep[row] = place >= end
        if place >= end and keys:
            end = place
    return keep


def chain(table: Slots, slots: Slots, number: int) -> Slots:
    """Number of the entry before each one in its slot, 0 for none, shape (n,); brings the table up to date.

    Args:
        table: newest entry of each slot, shape (slots,); changed.
        slots: slot of each entry; they have the numbers ``number``, ``number + 1``, ...
    """
    numbers = np.arange(number, number + len(slots), dtype=np.int32)
    previous = table[slots]
    previous[(previous < 0) | (previous > numbers)] = 0
    table[slots] = numbers  # of entries with one slot the last is kept
    early = np.flatnonzero(table[slots] != numbers)
    if len(early):
        last = np.unique(table[slots[early]] - np.int32(number))
        rows = np.concatenate([early, last])
        order = rows[np.lexsort((rows, slots[rows]))]
        same = slots[order[1:]] == slots[order[:-1]]
        previous[order[1:][same]] = numbers[order[:-1][same]]
    return previous
