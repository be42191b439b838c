"""What several copies of a partition have together, and what each of them lacks of it.

The leader epochs of all copies make one chain: a later epoch begins where its leader wrote first, and whatever an
earlier epoch has from there on was superseded (KIP-101). Of the batches that the chain allows, the union takes for
each offset the one with the most records; of equal ones that of the copy named first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from rmqctl.kafka.block import Flags, Ints
from rmqctl.kafka.directory import LogFile
from rmqctl.kafka.replication.copies import Batches, Copy, EpochChain


class Union:
    """The best that some copies of a partition give together.

    Attributes:
        chain: the leader epochs of all.
        copy: number of the copy of each batch taken, shape (n,).
        batches: those, ascending by offset; files are numbered within their copy.
        conflicts: batches of which another copy has one with the same offsets and epoch, as many records, and other
            bytes; the copy named first counts.
        overlapping: batches that hold records of their own, but overlap with better ones.
    """

    def __init__(self, copies: Sequence[Copy]) -> None:
        self.copies = copies
        written = max((int(copy.batches.epoch.max(initial=-1)) for copy in copies), default=-1)
        self.chain = EpochChain(
            entry for copy in copies for entry in copy.chain.entries if entry[0] <= written
        )  # a leader that has written nothing supersedes nothing
        self.valid = [self._allowed(copy.batches) for copy in copies]
        parts = [copy.batches.take(valid) for copy, valid in zip(copies, self.valid, strict=True)]
        number = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        every = joined(parts)
        order = np.lexsort((number, -every.count, every.last, every.base))
        number, every = number[order], every.take(order)
        same = np.zeros(len(every), bool)
        same[1:] = (every.base[1:] == every.base[:-1]) & (every.last[1:] == every.last[:-1])
        equal = same.copy()
        equal[1:] &= (every.count[1:] == every.count[:-1]) & (every.crc[1:] != every.crc[:-1])
        self.conflicts = int(equal.sum())
        number, every = number[~same], every.take(~same)
        rows = _apart(every)
        self.overlapping = 0
        if len(rows) < len(every):
            rest = np.setdiff1d(np.arange(len(every)), rows)
            self.overlapping = int((~covered(every.take(rest), every.take(rows), epochs=False)).sum())
        self.copy, self.batches = number[rows], every.take(rows)

    def _allowed(self, batches: Batches) -> Flags:
        """Which batches belong to the epoch that the chain has at their offset."""
        return (batches.epoch < 0) | (self.chain.at(batches.base) == batches.epoch)

    def superseded(self, number: int) -> Batches:
        """Return the batches of a copy that a leader of a later epoch has overwritten."""
        return self.copies[number].batches.take(~self.valid[number])

    @cached_property
    def committed(self) -> int:
        """All below this offset was committed, as far as a copy says."""
        return max((copy.high_watermark for copy in self.copies), default=0)

    def lacking(self, number: int) -> Batches:
        """Return the batches of the union that a broker does not serve after it started on a copy.

        Offsets that were deleted or compacted there on purpose are none, nor those that were overwritten.
        """
        copy, found = self.copies[number], self.batches
        missing = ~covered(found, copy.served) & (found.last >= copy.deleted_to)
        in_order = (found.last < copy.cleaned_to) & ~_at_damage(found, copy.served, copy.files)
        return found.take(missing & ~in_order)

    def overwritten(self, number: int) -> Batches:
        """Batches of other copies that are superseded although their broker knew them to be committed."""
        parts = []
        for other, copy in enumerate(self.copies):
            lost = self.superseded(other)
            lost = lost.take(lost.last < copy.high_watermark)
            parts.append(lost.take(~covered(lost, self.copies[number].served)))
        every = joined(parts)
        _, first = np.unique(every.keys(), return_index=True)
        return every.take(first)

    @cached_property
    def holes(self) -> list[tuple[int, int]]:
        """Offsets, first and last, that were written, as far as the copies show, and that no copy has any more.

        Where one copy has the batches on both sides next to each other, it was compacted, or nothing ever stood there.
        """
        b = self.batches
        rows = np.flatnonzero(b.base[1:] != b.last[:-1] + 1)
        at = b.take(rows + 1)
        is_lost = np.ones(len(rows), bool)
        for copy in self.copies:
            is_lost &= _at_damage(at, copy.batches, copy.files, before=True)
        rows = rows[is_lost]
        return list(zip((b.last[rows] + 1).tolist(), (b.base[rows + 1] - 1).tolist(), strict=True))


def joined(parts: Sequence[Batches]) -> Batches:
    """Batches of several parts, one after the other."""
    return Batches(*(np.concatenate([getattr(part, name) for part in parts]) for name in Batches.__slots__))


def covered(batches: Batches, by: Batches, *, epochs: bool = True) -> Flags:
    """Which batches lie, first offset to last, in batches of another copy, of the same epoch where that counts.

    Args:
        by: ascending by offset, without overlaps.
    """
    if not len(by):
        return np.zeros(len(batches), bool)
    first = np.searchsorted(by.last, batches.base, "left")
    final = np.searchsorted(by.base, batches.last, "right") - 1
    inside = (first < len(by)) & (final >= first)
    first, final = np.minimum(first, len(by) - 1), np.maximum(final, 0)
    inside &= (by.base[first] <= batches.base) & (by.last[final] >= batches.last)
    gaps = np.concatenate([[0], np.cumsum(by.base[1:] != by.last[:-1] + 1)])
    inside &= gaps[first] == gaps[final]
    if epochs:
        inside &= (by.epoch[first] == batches.epoch) & (by.epoch[final] == batches.epoch)
    return inside


def _at_damage(batches: Batches, b: Batches, files: Sequence[LogFile], *, before: bool = False) -> Flags:
    """Which batches belong where a copy has lost bytes, not where it was compacted.

    Args:
        b: the batches of the copy, in its ``files``.
        before: the place before each batch is meant, which the copy may have itself.
    """
    if not len(b):
        return np.ones(len(batches), bool)
    sizes = np.array([file.size for file in files], np.int64)
    follows = (b.file[1:] == b.file[:-1]) & (b.position[1:] == b.position[:-1] + b.size[:-1])
    ends = b.position[:-1] + b.size[:-1] == sizes[b.file[:-1]]
    place = np.cumsum(sizes > 0)[b.file]  # compaction leaves empty files, too
    follows |= (place[1:] == place[:-1] + 1) & (b.position[1:] == 0) & ends
    broken = np.concatenate([[True], ~follows, [True]])
    broken[0] = bool(b.position[0] != 0)
    return broken[np.searchsorted(b.base, batches.base, "left" if before else "right")]


def _apart(batches: Batches) -> Ints:
    """Rows of batches that do not overlap and hold the most records together; they are sorted by offset."""
    low, high = batches.base, batches.last
    if (low[1:] > high[:-1]).all():
        return np.arange(len(batches))
    order = np.lexsort((-low, high))
    ends, best, chosen = list[int](), [0], list[tuple[int, int]]()  # (row or -1, how many intervals before count)
    for row in order.tolist():
        before = bisect_right(ends, int(low[row]) - 1)
        gain = best[before] + max(int(batches.count[row]), 1)
        ends.append(int(high[row]))
        if gain > best[-1]:
            best.append(gain)
            chosen.append((row, before))
        else:
            best.append(best[-1])
            chosen.append((-1, len(chosen)))
    rows, at = list[int](), len(chosen)
    while at:
        row, before = chosen[at - 1]
        if row >= 0:
            rows.append(row)
        at = before
    return np.array(rows[::-1], np.int64)
