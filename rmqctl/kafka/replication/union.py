"""What several copies of a partition have together, and what each of them lacks of it.

The copy with the batch of the latest leader epoch shows the log of the last leader that wrote. Leader epochs only grow
along a log, so a batch of another copy that could not stand in that log was superseded, as a follower would cut it
(KIP-101, KIP-279). Of the batches that are left each offset is taken from the copy with the most records there; where
they are equal, from the one named first. Checkpoints of leader epochs supersede nothing: they are claims.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from rmqctl.kafka.log.block import Flags, Ints
from rmqctl.kafka.replication.copies import Batches, Copy


class Union:
    """The best that some copies of a partition give together.

    Attributes:
        copies: those, with leader epochs that other copies of the same batches contradict set right.
        valid: which batches of each copy no later leader has superseded.
        copy: number of the copy of each batch taken, shape (n,).
        batches: those, ascending by offset; files are numbered within their copy.
        conflicts: batches of which another copy has one with the same offsets and epoch, as many records, and other
            bytes; the copy named first counts.
        overlapping: batches that hold records of their own, but overlap with better ones.
    """

    def __init__(self, copies: Sequence[Copy]) -> None:
        self.copies = _agreed(_without_strays(copies))
        self.valid = _lineage([copy.batches for copy in self.copies])
        parts = [copy.batches.take(valid) for copy, valid in zip(self.copies, self.valid, strict=True)]
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
        in_order = (found.last < copy.cleaned_to) & ~_at_damage(found, copy.served, copy)
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

        Where one copy has the batches on both sides next to each other, it was compacted, or nothing ever stood there:
        unless another one has destroyed bytes in each such place, and nothing else says that there was compaction.
        What high watermarks prove to have been committed was written, too: after the end it is gone where no copy has
        it among what a later leader has overwritten.
        """
        b = self.batches
        first = np.concatenate([[self._start], b.last + 1])
        beyond = b.base
        end, first = int(first[-1]), first[:-1]
        is_lost = first < beyond
        inner = np.flatnonzero(is_lost)
        at = b.take(inner)
        touches, broken = np.zeros(len(at), bool), np.zeros(len(at), bool)
        for copy, valid in zip(self.copies, self.valid, strict=True):
            held = copy.batches.take(valid)
            if len(held):
                is_known = np.isin(at.base, held.base) & ~((copy.start > self._start) & (at.base == held.base[0]))
                is_damaged = _at_damage(at, held, copy, before=True)
                touches |= is_known & ~is_damaged
                broken |= is_damaged & (at.base <= held.base[-1])
        is_compacted = any(copy.is_thinned for copy in self.copies) or bool((touches & ~broken).any())
        is_lost[inner] = ~touches | (not is_compacted)
        rows = np.flatnonzero(is_lost)
        return [*zip(first[rows].tolist(), (beyond[rows] - 1).tolist(), strict=True), *self._after(end)]

    def _after(self, end: int) -> Iterator[tuple[int, int]]:
        """Yield the offsets from the end on, first and last, that were committed, and that no copy has in any batch."""
        end = max(end, self._end) if any(copy.is_compacted for copy in self.copies) else end
        others = (copy.batches for copy in self.copies)
        held = sorted((base, last) for b in others for base, last in zip(b.base.tolist(), b.last.tolist(), strict=True))
        for base, last in [*held, (self.committed, self.committed)]:
            if end < min(base, self.committed):
                yield end, min(base, self.committed) - 1
            end = max(end, last + 1)

    @property
    def _start(self) -> int:
        """The first offset that the copies begin with; below it all was deleted on purpose, or nobody knows."""
        deleted_to = max((copy.deleted_to for copy in self.copies), default=0)
        written = any(len(copy.batches) for copy in self.copies)
        starts = [copy.start for copy in self.copies if copy.files and (len(copy.batches) or not written)]
        return max(min(starts, default=0), deleted_to)

    @property
    def _end(self) -> int:
        """The end offset that no copy has lost anything before, as far as its files show."""
        ends = [int(copy.batches.last[-1]) + 1 for copy in self.copies if len(copy.batches)]
        ends += [copy.files[-1].base for copy in self.copies if copy.is_compacted and not copy.damage]
        return max(ends, default=0)


def _alone(b: Batches) -> Flags:
    """Which batches go on from none, and lead to none, of those beside them."""
    breaks = b.base[1:] != b.last[:-1] + 1
    return (np.concatenate([[True], breaks]) & np.concatenate([breaks, [True]]))[: len(b)]


def _without_strays(copies: Sequence[Copy]) -> list[Copy]:
    """Return copies without batches at a base offset that no neighbour bears out, and that another copy proves wrong.

    That copy has the very batch at another offset, and a different one at this, or its neighbours bear that out.
    """
    found = list(copies)
    for number, copy in enumerate(copies):
        b = copy.batches
        apart = _alone(b)
        others = [other.batches for n, other in enumerate(copies) if n != number]
        wrong = np.zeros(len(b), bool)
        for other in others:
            for row in np.flatnonzero(apart & np.isin(b.crc, other.crc)).tolist():
                same = (other.crc == b.crc[row]) & (other.size == b.size[row]) & (other.epoch == b.epoch[row])
                here = (other.base <= b.last[row]) & (other.last >= b.base[row])
                is_known = here.any() or (same & ~_alone(other)).any()
                wrong[row] |= bool(same.any() and is_known and not (same & here).any())
        if wrong.any():
            found[number] = replace(copy, batches=b.take(~wrong), kept=copy.kept[~wrong])
    return found


def _agreed(copies: Sequence[Copy]) -> list[Copy]:
    """Return copies in which no batch has a leader epoch that other copies of the same batch prove to be damaged.

    No CRC covers the epoch. One that a single batch alone shows, and no checkpoint, gives way to that of another copy;
    so does one that was set right by its neighbours.
    """
    seen, listed = dict[int, set[_Key]](), {epoch for copy in copies for epoch in copy.listed}
    for copy in copies:
        b = copy.batches
        epochs, first, count = np.unique(b.epoch, return_index=True, return_counts=True)
        for epoch, row, rows in zip(epochs.tolist(), first.tolist(), count.tolist(), strict=True):
            seen.setdefault(epoch, set()).update([_key(b, row)] if rows == 1 else [_key(b, row), (-1, -1, -1)])
    alone = {epoch for epoch, keys in seen.items() if epoch >= 0 and len(keys) == 1 and epoch not in listed}
    found = list(copies)
    for number, copy in enumerate(copies):
        b = copy.batches
        for row in np.flatnonzero((b.epoch != b.stored_epoch) | np.isin(b.epoch, [*alone])).tolist():
            others = [other.batches for n, other in enumerate(copies) if n != number]
            stated = (
                {int(o.epoch[at]) for o in others for at in _rows_of(o, _key(b, row))} - {int(b.epoch[row])} - alone
            )
            if stated:
                found[number] = _restated(found[number], row, min(stated))
    return found


_Key = tuple[int, int, int]


def _key(b: Batches, row: int) -> _Key:
    return int(b.base[row]), int(b.last[row]), int(b.crc[row])


def _rows_of(b: Batches, key: _Key) -> list[int]:
    at = int(np.searchsorted(b.base, key[0]))
    return [at] if at < len(b) and _key(b, at) == key else []


def _restated(copy: Copy, row: int, epoch: int) -> Copy:
    """Return a copy in which a batch counts in another epoch, where that goes with the batches beside it."""
    changed = copy.batches.epoch.copy()
    changed[row] = epoch
    is_ordered = (np.diff(changed[max(row - 1, 0) : row + 2]) >= 0).all()
    return replace(copy, batches=replace(copy.batches, epoch=changed)) if is_ordered else copy


def _lineage(parts: Sequence[Batches]) -> list[Flags]:
    """Which batches of each copy can stand in one log, that of the latest leader.

    Epochs only grow along a log. What the copy with the latest epoch has counts; of the others in turn what goes with
    it.
    """
    valid = [part.epoch < 0 for part in parts]  # messages of magic 0 and 1 state none
    base, last, epoch = (np.zeros(0, np.int64) for _ in range(3))  # of all that counts, each ascending
    rest = list(range(len(parts)))
    while rest:
        fits = {number: _fits(parts[number], base, last, epoch) for number in rest}
        best = max(rest, key=lambda number: int(parts[number].epoch[fits[number]].max(initial=-1)))
        rest.remove(best)
        valid[best] |= fits[best]
        taken = parts[best].take(fits[best])
        base, last, epoch = (
            np.sort(np.concatenate(pair)) for pair in ((base, taken.base), (last, taken.last), (epoch, taken.epoch))
        )
    return valid


def _fits(part: Batches, base: Ints, last: Ints, epoch: Ints) -> Flags:
    """Which batches come after all of an earlier epoch and before all of a later one.

    Args:
        base, last, epoch: of batches that count, ascending; their epochs grow with their offsets.
    """
    low, high = np.concatenate([[-1], epoch]), np.concatenate([epoch, [np.iinfo(np.int64).max]])
    fits = low[np.searchsorted(base, part.last, "right")] <= part.epoch
    fits &= part.epoch <= high[np.searchsorted(last, part.base, "left")]
    return fits & (part.epoch >= 0)


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


def _at_damage(batches: Batches, b: Batches, copy: Copy, *, before: bool = False) -> Flags:
    """Which batches belong where a copy has lost bytes, not where it was compacted.

    Args:
        b: batches of the copy.
        before: the place before each batch is meant, which the copy may have itself.
    """
    if not len(b):
        return np.ones(len(batches), bool)
    sizes = np.array([file.size for file in copy.files], np.int64)
    follows = (b.file[1:] == b.file[:-1]) & (b.position[1:] == b.position[:-1] + b.size[:-1])
    ends = b.position[:-1] + b.size[:-1] == sizes[b.file[:-1]]
    place = np.cumsum(sizes > 0)[b.file]  # compaction leaves empty files, too
    meets = (place[1:] == place[:-1] + 1) & (b.position[1:] == 0) & ends
    follows |= meets & (copy.is_compacted | (b.base[1:] == b.last[:-1] + 1))
    is_first = bool(b.position[0] == 0 and place[0] == 1 and (copy.is_compacted or b.base[0] == copy.start))
    broken = np.concatenate([[not is_first], ~follows, [True]])
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
