"""Batches that lie elsewhere than their offsets say go back there: exchanged, misdirected, in what was destroyed.

Of all whole batches of a log those are in place that lie in the segment of their offsets and in order, as many offsets
as can be. Another one has a place if its offsets are missing there, its leader epoch fits, and it touches a batch, or
another one with a place, or lies beside such a one in another segment: a base offset, which no CRC covers, is hardly
damaged so that it does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from formats.kafka.record_batch import Attributes
from rmqctl.kafka.findings.log import BATCH_OFFSET_ORDER
from rmqctl.kafka.log.block import INT_MAX, Flags, Ints
from rmqctl.kafka.log.scan import Extent, whole_in
from rmqctl.kafka.repair.log import LogMender
from rmqctl.kafka.repair.survey import Survey, a_bit_off
from rmqctl.repair.edits import Create, Edit, Quarantine, Step, changes

_COLUMNS = ("segment", "position", "size", "base_offset", "last_offset", "partition_leader_epoch", "magic")
_SHOWN = 4
_PIECE = 8 << 20
_MOST_BESIDE = 256


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of a segment; `row` of the batch that they are, -1 for what is none."""

    segment: int
    begin: int
    end: int
    row: int = -1


def order_steps(mender: LogMender, *, compacted: bool) -> Iterator[Step]:
    """Yield one step for all batches of a log that go to the places of their offsets.

    Args:
        mender: of a survey that found batches of any offset.
        compacted: offsets may be missing between batches.
    """
    inner = list(_inside(mender.survey))
    if inner or len(mender.survey.in_place) < len(mender.survey):
        yield from _Order(mender, inner, compacted=compacted).steps()


class _Order:
    def __init__(self, mender: LogMender, inner: Sequence[tuple[int, ...]], *, compacted: bool) -> None:
        self.mender, self.survey, self.compacted = mender, mender.survey, compacted
        self.outer = len(self.survey)
        rows = np.array(inner, np.int64).reshape(-1, len(_COLUMNS))
        named = {name: np.concatenate([self.survey.columns[name], rows[:, n]]) for n, name in enumerate(_COLUMNS)}
        self.segment, self.position, self.size = named["segment"], named["position"], named["size"]
        self.base, self.last, self.epoch = named["base_offset"], named["last_offset"], named["partition_leader_epoch"]
        self.epoch = np.where(named["magic"] >= 2, self.epoch, -1)
        self.bases = np.array([file.base for file in self.survey.files], np.int64)

    def steps(self) -> Iterator[Step]:
        if not len(self.base):
            return
        chain = self.survey.in_place
        moved = self._with_places(chain)
        if not moved:
            return
        kept = np.array(sorted([*chain.tolist(), *moved], key=lambda row: int(self.base[row])), np.int64)
        target = np.searchsorted(self.bases, self.base, "right") - 1
        edits = list[Edit]()
        for number in range(len(self.survey.files)):
            before = self._pieces(number)
            after = self._arranged(before, number, kept, set(moved), target)
            if after != before:
                edits += self._written(number, after)
        if not edits:
            return
        shown = [
            f"{self.base[row]} to {self.last[row]} from {self.position[row]} of {self._name(row)}"
            for row in moved[:_SHOWN]
        ]
        more = f" and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else ""
        count = f"{len(moved):,} {'batch' if len(moved) == 1 else 'batches'}"
        what = f"put {count} in the place of their offsets: {', '.join(shown)}{more}"
        why = "they are whole by their CRCs, their offsets are missing there, and batches or each other touch them"
        first = next(edit.file for edit in edits)
        yield Step(BATCH_OFFSET_ORDER.id, first, what, why, tuple(edits))

    def _name(self, row: int) -> str:
        return self.survey.files[int(self.segment[row])].name.rpartition("/")[2]

    # --- which are in place, and which have one ---------------------------------------------------------

    def _hole(self, rows: Ints, chain: Ints) -> tuple[Ints, Flags]:
        """Return before which row of a chain others belong, and whether their offsets are taken."""
        at = np.searchsorted(self.last[chain], self.base[rows])
        after = np.append(self.base[chain], np.iinfo(np.int64).max)[at]
        return at, after <= self.last[rows]

    def _with_places(self, chain: Ints) -> list[int]:
        """Return the rows beside a chain whose offsets are missing in it, and that touch something there; ascending."""
        others = np.setdiff1d(np.arange(len(self.base)), chain)
        others = others[np.argsort(self.base[others], kind="stable")]
        at, taken = self._hole(others, chain)
        found, lonely, beyond = list[int](), dict[int, int](), np.append(self.base[chain], -1)
        lasts, epochs = np.append(self.bases[0] - 1, self.last[chain]), np.append(-1, self.epoch[chain])
        following = np.append(self.epoch[chain], np.iinfo(np.int64).max)
        fits = ~taken & (self.base[others] >= self.bases[0]) & ~self._contradicted(chain, others[taken])[others]
        fits &= (self.epoch[others] < 0) | (self.epoch[others] >= epochs[at])
        fits &= (self.epoch[others] < 0) | (following[at] < 0) | (self.epoch[others] <= following[at])
        exchanged = set[int]()
        if self.compacted:
            turned = self._is_turned(chain, at, others)
            fits &= (self._is_room(chain, at, others) | turned) & ~np.isin(others, self.survey.bits_off)
            exchanged.update(others[turned].tolist())
        else:
            fits &= ~np.isin(others, self._at_home_but_a_bit(others[fits], chain))
        pairs = zip(at[fits].tolist(), others[fits].tolist(), strict=True)
        for hole, members in groupby(pairs, key=lambda pair: pair[0]):
            low, kept, alone = int(lasts[hole]), list[int](), list[int]()
            for group in self._touching([row for _, row in members]):
                first, last = int(self.base[group[0]]), int(self.last[group[-1]])
                several = len(group) > 1 and hole < len(chain) and (not self.compacted or self._is_broken(chain, hole))
                touches = several or first == low + 1 or last + 1 == beyond[hole] or self._fills(chain, hole, group)
                (kept if touches or exchanged.issuperset(group) else alone).extend(group)
            sources = {int(self.segment[row]) for row in kept}
            kept += [row for row in alone if self.segment[row] in sources and self._is_away(row)]
            found += sorted(kept, key=lambda row: int(self.base[row]))
            lonely |= {row: hole for row in alone if row not in kept}
        return sorted([*found, *self._crossed(chain, lonely)], key=lambda row: int(self.base[row]))

    def _crossed(self, chain: Ints, lonely: dict[int, int]) -> list[int]:
        """Return batches that lie where the offsets of others are missing which lie where theirs are.

        Nothing of that is so where their base offsets are damaged. In a compacted log offsets are missing anywhere.

        Args:
            lonely: rows of batches with the holes of their offsets.
        """
        if self.compacted:
            return []
        places = list(zip(self.segment[chain].tolist(), self.position[chain].tolist(), strict=True))
        ways = {row: (bisect_left(places, (self.segment[row], self.position[row])), lonely[row]) for row in lonely}
        taken = set(ways.values())
        return [row for row, (lies, belongs) in ways.items() if lies != belongs and (belongs, lies) in taken]

    def _is_room(self, chain: Ints, at: Ints, rows: Ints) -> Flags:
        """Whether bytes are between the batches of a chain where others belong, or these touch one of them.

        In a compacted log offsets are missing anywhere.
        """
        ends = self.position + self.size
        before, after = chain[np.maximum(at - 1, 0)], chain[np.minimum(at, len(chain) - 1)]
        is_inside = (at > 0) & (at < len(chain)) & (self.segment[before] == self.segment[after])
        room = ~is_inside | (ends[before] != self.position[after])
        room |= (self.segment[rows] == self.segment[before]) & (self.position[rows] == ends[before])
        touches: Flags = room | ((self.segment[rows] == self.segment[after]) & (ends[rows] == self.position[after]))
        return touches

    def _at_home_but_a_bit(self, rows: Ints, chain: Ints) -> list[int]:
        """Return those of some rows that lie at home by those around, which leave offsets a bit from theirs.

        Nothing but whole batches lies there, and they have just as many offsets as are missing. Where many base offsets
        are damaged, one may be just what another has lost. Of two that are exchanged each has the other's.
        """
        claimed, found, known = set(self.base[rows].tolist()), list[int](), set[int]()
        is_kept = np.zeros(self.outer, np.bool_)
        is_kept[chain[chain < self.outer]] = True
        follows = self._begins()
        for row in rows[rows < self.outer].tolist():
            if row in known:
                continue
            first = final = row
            while first and not is_kept[first - 1] and follows[first]:
                first -= 1
            while final + 1 < self.outer and not is_kept[final + 1] and follows[final + 1]:
                final += 1
            known.update(range(first, final + 1))
            spans = (self.last - self.base + 1)[first : final + 1] if final - first < _MOST_BESIDE else np.zeros(0)
            low = (
                int(self.last[first - 1]) + 1
                if first and self.position[first]
                else int(self.bases[self.segment[first]])
            )
            is_closed = final + 1 < self.outer and bool(follows[first] and follows[final + 1])
            if not is_closed or low + spans.sum() != self.base[final + 1]:
                continue
            right = low + np.cumsum(spans) - spans
            for one, offset in zip(range(first, final + 1), right.tolist(), strict=True):
                if offset not in claimed and (int(self.base[one]) ^ offset).bit_count() == 1:
                    found.append(one)
        return found

    def _begins(self) -> Flags:
        """Which batches begin where the one before ends, or at the begin of a segment."""
        position, segment = self.position[: self.outer], self.segment[: self.outer]
        ends = position + self.size[: self.outer]
        touches = (segment[1:] == segment[:-1]) & (position[1:] == ends[:-1])
        found: Flags = np.append(False, touches) | (position == 0)
        return found

    def _fills(self, chain: Ints, at: int, group: Sequence[int]) -> bool:
        """Whether bytes that are no batch lie between two of a chain, just as many as some batches have."""
        if not 0 < at < len(chain) or self.segment[chain[at - 1]] != self.segment[chain[at]]:
            return False
        return bool(self.position[chain[at]] - self._end(chain[at - 1]) == self.size[list(group)].sum())

    def _is_broken(self, chain: Ints, at: int) -> bool:
        """Whether bytes that are no batch of a chain lie before one of it, in its segment or after the one before."""
        if at and self.segment[chain[at - 1]] == self.segment[chain[at]]:
            return bool(self.position[chain[at - 1]] + self.size[chain[at - 1]] != self.position[chain[at]])
        first, end = (int(self.segment[chain[at - 1]]), self._end(chain[at - 1])) if at else (0, 0)
        files = self.survey.files[first : int(self.segment[chain[at]])]
        return sum(file.size for file in files) + int(self.position[chain[at]]) != end

    def _end(self, row: int) -> int:
        return int(self.position[row] + self.size[row])

    def _is_turned(self, chain: Ints, at: Ints, rows: Ints) -> Flags:
        """Whether a batch between two of a chain lies on the wrong side of one, and exchanged with it goes on.

        By its time, or by its offsets, if none that it can have where it lies is a bit from its own: no CRC covers a
        base offset, which may be damaged rather than the place.
        """
        is_between = (at > 0) & (at < len(chain)) & (rows < self.outer)
        found, rows = np.flatnonzero(is_between), rows[is_between]
        before, after = chain[at[is_between] - 1], chain[at[is_between]]
        ends, columns = self.position + self.size, self.survey.columns
        is_marker = columns["attributes"] & int(Attributes.CONTROL) != 0
        time = np.where(is_marker, -1, columns["max_timestamp"])  # markers have that of a broker
        lies = (self.segment[rows] == self.segment[before]) & (ends[rows] == self.position[before])
        lies |= (self.segment[rows] == self.segment[after]) & (ends[after] == self.position[rows])
        goes_on = (time[before] <= time[rows]) & ((time[rows] <= time[after]) | (time[after] < 0)) & (time[rows] >= 0)
        joins = (self.last[before] + 1 == self.base[rows]) | (self.last[rows] + 1 == self.base[after])
        turned = np.zeros(len(at), np.bool_)
        turned[found] = lies & (goes_on | joins)
        for n in np.flatnonzero(lies & joins & ~goes_on).tolist():
            turned[found[n]] = not self._may_be_a_bit_off(int(rows[n]))
        return turned

    def _may_be_a_bit_off(self, row: int) -> bool:
        """Whether the batches on both sides of one leave it offsets a bit from its own."""
        low = int(self.last[row - 1]) + 1 if row else int(self.bases[0])
        span = int(self.last[row] - self.base[row])
        high = int(self.base[row + 1]) - 1 - span if row + 1 < self.outer else low + INT_MAX
        return bool(a_bit_off(int(self.base[row]), low, high))

    def _is_away(self, row: int) -> bool:
        """Whether a batch lies in another segment than that of its offsets."""
        return bool(np.searchsorted(self.bases, self.base[row], "right") - 1 != self.segment[row])

    def _contradicted(self, chain: Ints, rows: Ints) -> Flags:
        """Which batches touch and go on from, or lead to, such of which the log has others: all are of another log."""
        ordered = np.lexsort((self.position, self.segment))
        before, after = ordered[:-1], ordered[1:]
        follows = (self.segment[after] == self.segment[before]) & (self.base[after] == self.last[before] + 1)
        follows &= self.position[after] == self.position[before] + self.size[before]
        run = np.empty(len(ordered), np.int64)
        run[ordered] = np.append(0, np.cumsum(~follows))
        there = chain[chain < self.outer]
        foreign = [row for row in rows.tolist() if row >= self.outer or self._is_alone(row, there)]
        return np.isin(run, run[foreign])

    def _is_alone(self, row: int, there: Ints) -> bool:
        """Whether the log has no other batch with these bytes."""
        return self.survey.twin_of(self.survey.batch(row), among=there) is None

    def _touching(self, rows: Sequence[int]) -> Iterator[list[int]]:
        """Yield rows that follow each other without a hole, together; of two for one offset the first."""
        group = list[int]()
        for row in rows:
            if group and self.base[row] <= self.last[group[-1]]:
                continue
            if group and self.base[row] != self.last[group[-1]] + 1:
                yield group
                group = []
            group.append(row)
        if group:
            yield group

    # --- the bytes of a segment -------------------------------------------------------------------------

    def _pieces(self, number: int) -> list[_Piece]:
        """A segment as it is."""
        found, at = list[_Piece](), 0
        for row in np.flatnonzero(self.segment[: self.outer] == number).tolist():
            begin, end = int(self.position[row]), int(self.position[row] + self.size[row])
            if at < begin:
                found.append(_Piece(number, at, begin))
            found.append(_Piece(number, begin, end, row))
            at = end
        size = self.survey.files[number].size
        return [*found, _Piece(number, at, size)] if at < size else found

    def _arranged(
        self, pieces: Sequence[_Piece], number: int, kept: Ints, moved: set[int], target: Ints
    ) -> list[_Piece]:
        """A segment with the batches that belong in it, and without those that lie in it and do not.

        Where offsets are missing beside a batch that goes, its bytes stay: they are bridged like all that is destroyed.
        """
        place = {row: n for n, row in enumerate(kept.tolist())}
        out = [piece for piece in pieces if piece.row not in moved]
        coming = [row for row in kept.tolist() if row in moved and target[row] == number]
        for row in coming:
            out.insert(self._index(out, row, place, kept), self._piece(row))
        touching = np.append(self.base[kept][1:] == self.last[kept][:-1] + 1, True)
        full = np.append(0, np.cumsum(~touching))  # equal at two rows: nothing is missing from one to the other

        def is_missing(index: int) -> bool:
            """Whether offsets are missing at a place of the new order."""
            before = next((p.row for p in reversed(out[:index]) if p.row in place), None)
            after = next((p.row for p in out[index:] if p.row in place), None)
            if before is None or after is None:
                end = self.last[before] + 1 if before is not None else self.bases[number]
                limit = self.base[after] if after is not None else next(iter(self.bases[number + 1 :]), end)
                return bool(end != limit)
            return bool(full[place[before]] != full[place[after]])

        for piece in pieces:
            if piece.row in moved and not self.compacted:
                index = next(
                    (
                        n
                        for n, p in enumerate(out)
                        if p.segment == number and p.row not in moved and p.begin >= piece.end
                    ),
                    len(out),
                )
                if is_missing(index):
                    out.insert(index, _Piece(number, piece.begin, piece.end))
        arrived, inner = set(coming), self._inner(number)
        for n in range(len(out) - 1, 0, -1):
            piece = out[n]
            beside = {out[n - 1].row, out[n + 1].row if n + 1 < len(out) else -1}
            holds = any(piece.begin <= at < piece.end for at in inner)
            if piece.row < 0 and beside & arrived and n + 1 < len(out) and not holds and not is_missing(n):
                del out[n]  # destroyed bytes whose batches are all there again
        return out

    def _inner(self, number: int) -> list[int]:
        rows = np.flatnonzero(self.segment[self.outer :] == number) + self.outer
        return self.position[rows].tolist()

    def _piece(self, row: int) -> _Piece:
        begin = int(self.position[row])
        return _Piece(int(self.segment[row]), begin, begin + int(self.size[row]), row)

    def _index(self, out: Sequence[_Piece], row: int, place: dict[int, int], kept: Ints) -> int:
        """Return where in a segment a batch goes: after the one before it, or before the one that it touches.

        Where another one lay between bytes that are none, and offsets are missing on both sides, it goes there.
        """
        where = {piece.row: n for n, piece in enumerate(out) if piece.row >= 0}
        at = place[row]
        before = int(kept[at - 1]) if at else -1
        after = int(kept[at + 1]) if at + 1 < len(kept) else -1
        follows = before >= 0 and self.last[before] + 1 == self.base[row]
        if after in where and not follows and self.last[row] + 1 == self.base[after]:
            return where[after]
        index = where[before] + 1 if before in where else 0
        lay_between = [piece.row < 0 for piece in out[index : index + 2]] == [True, True]
        return index + 1 if lay_between and not follows else index

    def _written(self, number: int, pieces: Sequence[_Piece]) -> Iterator[Edit]:
        """Yield the edits that give a segment these bytes: those that differ, or a file made again where bytes move."""
        file = self.survey.files[number]
        if sum(piece.end - piece.begin for piece in pieces) == file.size:
            yield from self.mender.timed(file.name, self._in_place_edits(number, pieces))
            return
        path = self.mender.room()
        with open(path, "wb") as made:
            for piece in pieces:
                starts = range(piece.begin, piece.end, _PIECE)
                made.writelines(self.survey.raw(piece.segment, at, min(at + _PIECE, piece.end)) for at in starts)
        yield from self.mender.timed(file.name, (Quarantine(file.name), Create(file.name, source=path)))

    def _in_place_edits(self, number: int, pieces: Sequence[_Piece]) -> Iterator[Edit]:
        name, to = self.survey.files[number].name, 0
        for piece in pieces:
            size = piece.end - piece.begin
            if (piece.segment, piece.begin) != (number, to):
                new = self.survey.raw(piece.segment, piece.begin, piece.end)
                yield from changes(name, to, self.survey.raw(number, to, to + size), new)
            to += size


def _inside(survey: Survey) -> Iterator[tuple[int, ...]]:
    """Yield the whole batches that begin inside of those whose CRC does not match, as rows of :data:`_COLUMNS`."""
    done = 0, 0
    for damage in survey.damages:
        if damage.stated is None or damage.frame_ok:
            continue
        begin = max(damage.begin, done[1]) if damage.segment == done[0] else damage.begin
        with closing(survey.files[damage.segment].open()) as source:
            block = whole_in(source, Extent("", start=begin, stop=damage.end))
        for row in range(len(block)):
            fields = (int(block[name][row]) for name in _COLUMNS[3:6])
            yield damage.segment, int(block.position[row]), int(block.size[row]), *fields, int(block.magic[row])
            done = damage.segment, int(block.position[row] + block.size[row])
