"""What of a partition's log is sound, what is damaged, and between which offsets the damage lies.

The batches of all segments in log order, as columns; damage as byte ranges between them. Frames are believed only where
their neighbours agree: what `verify` blames on a header (offsets, epoch, magic) is damage here, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from formats.kafka.checkpoint import LeaderEpoch
from formats.kafka.record_batch import MAGIC_AT, Attributes, header_plan
from rmqctl.findings import Finding, FindingKind
from rmqctl.kafka.directory.directory import LogFile, Partition, Segment
from rmqctl.kafka.findings.log import (
    BATCH_BASE_OFFSET,
    BATCH_CRC,
    BATCH_CUT,
    BATCH_LEADER_EPOCH,
    BATCH_LENGTH,
    BATCH_MAGIC,
    BATCH_OFFSET_GAP,
    BATCH_OFFSET_ORDER,
    BATCH_ROOM,
    BATCH_SIZE,
    BATCH_TORN_TAIL,
    BATCH_WRAPPER,
    BATCH_ZERO_END,
    BATCH_ZEROS,
    SEGMENT_EMPTIED,
    SEGMENT_MISSING,
    SEGMENT_NAME,
)
from rmqctl.kafka.log.block import INT_MAX, Flags, GapKind, Ints, sequences
from rmqctl.kafka.log.gaps import kind_of_gap
from rmqctl.kafka.log.indexes import read_offset_index, read_time_index
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.repair.columns import Chunk, Columns
from rmqctl.kafka.verify.splits import Headers, headers_of

HEADER_KINDS = frozenset({BATCH_OFFSET_ORDER, BATCH_BASE_OFFSET, BATCH_LEADER_EPOCH, BATCH_MAGIC, BATCH_WRAPPER})
"""What neighbours, or messages inside, say of a batch whose CRC is right."""
LEAST_BESIDE, _MOST_LOOKED = 16, 1 << 18
"""Bytes beside batches that have to be equal in two places; those after an index entry in which one is looked for."""
_OUT_OF_ORDER = frozenset({BATCH_OFFSET_ORDER, BATCH_BASE_OFFSET})
LOG_KINDS = HEADER_KINDS | {
    BATCH_CRC, BATCH_SIZE, BATCH_ZEROS, BATCH_CUT, BATCH_LENGTH, BATCH_ROOM,
    BATCH_TORN_TAIL, BATCH_ZERO_END, BATCH_OFFSET_GAP, SEGMENT_MISSING, SEGMENT_EMPTIED,
    SEGMENT_NAME,
}  # fmt: skip
"""Findings for which the log of a partition is mended."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The header of one batch, and where it lies.

    Attributes:
        segment: number of its segment.
    """

    segment: int
    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    epoch: int
    attributes: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def end(self) -> int:
        """Where the next one begins, in bytes."""
        return self.position + self.size

    @property
    def is_marker(self) -> bool:
        """Whether it says that it ends a transaction."""
        wanted = Attributes.TRANSACTIONAL | Attributes.CONTROL
        return self.attributes & wanted == wanted and self.producer_id >= 0


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of one segment that are no sound batch.

    Attributes:
        kind: of the finding.
        begin, end: bytes into the file of the segment.
        stated: the header as it stands, where the frame can be followed; None for other bytes.
        frame_ok: only the header is in doubt: the CRC matches.
        is_room: zeros at the end of a file that were never written.
        is_copy: a whole batch of another partition, of no offset of this log.
    """

    segment: int
    begin: int
    end: int
    kind: FindingKind
    message: str
    stated: Batch | None = None
    frame_ok: bool = False
    is_room: bool = False
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """Damage without a sound batch between, in one segment.

    Attributes:
        begin, end: bytes into the file.
        first, beyond: the offsets that are missing there: from ``first`` to before ``beyond``; -1: nobody knows.
        before, after: the sound batches around it in the log, None at its ends.
        parts: what it is made of, in order.
    """

    segment: int
    begin: int
    end: int
    first: int
    beyond: int
    before: Batch | None
    after: Batch | None
    parts: tuple[Damage, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.begin

    @property
    def count(self) -> int:
        """Offsets that are missing."""
        return max(self.beyond - self.first, 0) if self.beyond >= 0 else 0

    @property
    def is_tail(self) -> bool:
        """Whether nothing sound follows in the whole log."""
        return self.after is None


class Survey:
    """The log of one partition.

    Attributes:
        files: the ``.log`` files, ascending; a segment's number is its place here.
        columns: fields of the sound batches in log order; ``segment``, ``position``, ``size`` and ``magic`` too.
        damages: in log order.

    Args:
        findings: what is blamed on headers.
        anywhere: after damage, batches are looked for whose offsets the segment cannot have, too.
    """

    def __init__(self, partition: Partition, findings: Iterable[Finding] = (), *, anywhere: bool = False) -> None:
        self.partition, self.files, self.anywhere = partition, partition.logs, anywhere
        blamed, self._of_epochs = dict[tuple[str, int], Finding](), set[tuple[str, int]]()
        for finding in findings:
            if finding.kind in HEADER_KINDS:
                blamed.setdefault((finding.file, finding.offset), finding)
            if finding.kind is BATCH_LEADER_EPOCH:
                self._of_epochs.add((finding.file, finding.offset))
        self._blamed = {place for place, finding in blamed.items() if finding.kind in _OUT_OF_ORDER}
        self.damages: list[Damage] = []
        self.columns = Columns(
            chunk for number, file in enumerate(self.files) for chunk in self._read(number, file, blamed)
        )
        self.damages.sort(key=lambda damage: (damage.segment, damage.begin))
        if any(finding.kind in _OUT_OF_ORDER for finding in blamed.values()):
            self._set_aside(blamed)

    def __len__(self) -> int:
        return len(self.columns)

    def _read(self, number: int, file: LogFile, blamed: dict[tuple[str, int], Finding]) -> Iterator[Chunk]:
        extent = Extent(file.name, None if self.anywhere else file.base, size=max(file.size, 0))
        with closing(file.open()) as source:
            for block in scan(source, extent):
                yield from self._of_block(number, file, headers_of(block, records=False), blamed)

    def _of_block(
        self, number: int, file: LogFile, headers: Headers, blamed: dict[tuple[str, int], Finding]
    ) -> Iterator[Chunk]:
        places = [at for (name, at), found in blamed.items() if name == file.name and found.kind not in _OUT_OF_ORDER]
        sound = headers.crc_ok & ~np.isin(headers.position, places)
        sound[[*headers.wrappers]] = False
        for row in np.flatnonzero(~sound).tolist():
            at, whole = int(headers.position[row]), bool(headers.crc_ok[row])
            finding = blamed.get((file.name, at)) if whole else None
            kind = BATCH_CRC if finding is None else finding.kind
            text = "its CRC does not match" if finding is None else finding.message
            if row in headers.wrappers:
                kind, text = BATCH_WRAPPER, f"the last message inside has offset {headers.wrappers[row]}"
            batch = header_of(number, headers, row)
            self.damages.append(Damage(number, at, batch.end, kind, text, batch, frame_ok=whole))
        for gap in headers.gaps:
            kind = kind_of_gap(gap, is_last=number + 1 == len(self.files), growing=False)
            is_room = gap.why is GapKind.ZERO_TAIL
            self.damages.append(Damage(number, gap.position, gap.end, kind, gap.detail, is_room=is_room))
        found = headers if sound.all() else headers.take(sound)
        columns = {"position": found.position, "size": found.size, "magic": found.magic, **found.columns}
        yield from Columns.packed(columns | {"segment": np.full(len(found), number, np.int64)})

    def _set_aside(self, blamed: dict[tuple[str, int], Finding]) -> None:
        """Take batches that are not in place for damage, and those that are blamed although nothing beside them is."""
        keep = np.zeros(len(self), np.bool_)
        keep[self.in_place] = True
        among = self.in_place
        found = {row: finding for place, finding in blamed.items() if (row := self._row_at(*place)) is not None}
        beside = keep.copy()
        beside[1:] &= keep[:-1]
        beside[:-1] &= keep[1:]
        doubtful = {row for row, finding in found.items() if beside[row] and finding.kind in _OUT_OF_ORDER}
        for row in sorted({*np.flatnonzero(~keep).tolist(), *doubtful}):
            finding, batch = found.get(row), self.batch(row)
            text = (
                f"offsets {batch.base_offset} to {batch.last_offset} are out of order"
                if finding is None
                else finding.message
            )
            if not keep[row] and self.twin_of(batch, among=among) is not None:
                text = f"the batch of {batch.base_offset} to {batch.last_offset} stands in the log twice"
            kind, keep[row] = BATCH_OFFSET_ORDER if finding is None else finding.kind, False
            self.damages.append(Damage(batch.segment, batch.position, batch.end, kind, text, batch, frame_ok=True))
        self.columns = self.columns.take(np.flatnonzero(keep))
        self.damages.sort(key=lambda damage: (damage.segment, damage.begin))

    def set_copies_aside(self, others: Iterable[Partition], epochs: Sequence[LeaderEpoch]) -> None:
        """Take batches for bytes without an offset of this log that are copies of other partitions' batches.

        Another one has it byte for byte, no sound batch beside it goes on with its offsets, and the epoch checkpoint
        denies its leader epoch; or what is damaged beside it is there beside it, too.
        """
        if not self.damages:
            return
        others = [one for one in others if one.directory != self.partition.directory]
        rows = [row for row in self._alone(epochs) if self._is_copied(self.batch(row), others)] if epochs else []
        rows = sorted({*rows, *self._brought(others)})
        placed = {damage: damage.stated for damage in self.damages if damage.frame_ok}
        doubted = [(damage, one) for damage, one in placed.items() if one is not None and one.magic >= 2]
        copies = [d for d, one in doubted if not has_epoch(one, epochs) and self._is_copied(one, others)]
        for batch in [*self.batches(np.array(rows, np.int64)), *(d.stated for d in copies if d.stated is not None)]:
            text = f"the batch of {batch.base_offset} to {batch.last_offset} is a copy of another partition's"
            place = batch.segment, batch.position, batch.end
            self.damages.append(Damage(*place, BATCH_OFFSET_ORDER, text, is_copy=True))
        if rows:
            self.columns = self.columns.take(np.setdiff1d(np.arange(len(self)), rows))
        self.damages = sorted(
            (damage for damage in self.damages if damage not in copies), key=lambda one: (one.segment, one.begin)
        )

    def _alone(self, epochs: Sequence[LeaderEpoch]) -> list[int]:
        """Rows of batches that none beside them goes on from or leads to, of epochs that the checkpoint denies."""
        base, last, own, position, size = (
            self.columns[name] for name in ("base_offset", "last_offset", "segment", "position", "size")
        )
        starts, ends = (np.array([getattr(file, name) for file in self.files]) for name in ("base", "size"))
        goes_on = np.append(self._joins(own) & (base[1:] == last[:-1] + 1), False)
        fits = goes_on | np.append(False, goes_on[:-1]) | ((position == 0) & (base == starts[own]))
        fits |= (position + size == ends[own]) & (last + 1 == np.append(starts, -1)[own + 1])
        rows = np.flatnonzero(~fits & (self.columns["magic"] >= 2)).tolist()
        return [row for row in rows if not has_epoch(self.batch(row), epochs)]

    def _brought(self, others: Sequence[Partition]) -> Iterator[int]:
        """Rows of batches that came with bytes of another partition, cut off before them or after them.

        They follow each other, and go on from none and lead to none beside them; the other partition has each, and next
        to the first or the last what is damaged here.
        """
        base, last, own, position, size = (
            self.columns[name] for name in ("base_offset", "last_offset", "segment", "position", "size")
        )
        begins = {(damage.segment, damage.end): damage for damage in self.damages if not damage.is_room}
        ends = {(damage.segment, damage.begin): damage for damage in self.damages if not damage.is_room}
        breaks = np.flatnonzero(~(self._joins(own) & (base[1:] == last[:-1] + 1))) + 1
        for first, beyond in pairwise([0, *breaks.tolist(), len(self)] if len(self) else []):
            final = beyond - 1
            file, at, end = self.files[int(own[first])], int(position[first]), int(position[final] + size[final])
            before, after = begins.get((int(own[first]), at)), ends.get((int(own[first]), end))
            if (before is None and after is None) or (at == 0 and base[first] == file.base):
                continue
            following = next((one.base for one in self.files[int(own[first]) + 1 :]), -1)
            if end == file.size and last[final] + 1 == following:
                continue
            if (before is None or after is None) and self._is_indexed(first, beyond):
                continue
            run = list(self.batches(np.arange(first, beyond)))
            beside = [self.batch(row) for row in (first - 1, beyond) if 0 <= row < len(self)]
            if any(self._is_brought(run, before, after, other) for other in others if not self._is_in(other, beside)):
                yield from range(first, beyond)

    def _is_indexed(self, first: int, beyond: int) -> bool:
        """Whether the offset index of the log leads to batches of one segment, and to nothing else between them.

        Such a run is the log's own, and no other partition is read for it. What came with whole bytes of a partition
        that is laid out alike has it, too, and is cut off on both sides then.
        """
        file = self.files[int(self.columns["segment"][first])]
        segment = next(one for one in self.partition.segments if one.log is file)
        if segment.offset_index is None:
            return False
        position, base, last = (self.columns[name][first:beyond] for name in ("position", "base_offset", "last_offset"))
        positions, _, leads = _entries_leading(segment.offset_index, segment.base, position, base, last)
        inside = (positions >= position[0]) & (positions <= position[-1])
        return bool(inside.any() and leads[inside].all())

    def _is_in(self, other: Partition, batches: Sequence[Batch]) -> bool:
        """Whether a partition has one of some batches, too: then it may be written as this one is."""
        for batch in batches:
            if (place := _place_of(other, batch)) is not None:
                with closing(place[0].open()) as source:
                    if source.read_at(place[1], batch.size) == self.bytes_of(batch):
                        return True
        return False

    def _is_brought(self, run: Sequence[Batch], before: Damage | None, after: Damage | None, other: Partition) -> bool:
        """Whether a partition has batches in this order, and beside them the same bytes as are damaged here."""
        first, final = run[0], run[-1]
        place = _place_of(other, first)
        if place is None:
            return False
        file, at = place
        size = final.end - first.position
        low = min(before.end - before.begin, LEAST_BESIDE, at) if before is not None else 0
        high = min(after.end - after.begin, LEAST_BESIDE) if after is not None else 0
        with closing(file.open()) as source:
            there = source.read_at(at - low, low + size + high)
        here = self.raw(first.segment, first.position - low, final.end + high)
        if there[low : low + size] != here[low : low + size]:
            return False
        sides = [(there[:low], here[:low]), (there[low + size :], here[low + size :])]
        return any(len(one) == LEAST_BESIDE and any(one) and one == two for one, two in sides)

    def _is_copied(self, batch: Batch, others: Iterable[Partition]) -> bool:
        """Whether another partition has a batch, byte for byte."""
        wanted = self.bytes_of(batch)
        found = (segment_of(one, batch.base_offset) for one in others)
        return any(there is not None and there.has(batch.base_offset, wanted) for there in found)

    @cached_property
    def in_place(self) -> Ints:
        """Rows of batches in the range of their segment and in order, as many offsets as can be, ascending.

        Batches that follow some which other segments, or more in a row, contradict, or which lie before the
        log's first segment, are left out with these: they are of another log.
        """
        c, names = self.columns, ("base_offset", "last_offset", "segment")
        if all(self._fit(*part).all() and (part[0][1:] > part[1][:-1]).all() for _, part in c.stretches(*names)):
            return np.arange(len(self))
        base, last, own = (c[name] for name in names)
        fits = self._fit(base, last, own)
        rows = np.flatnonzero(fits)
        weight = 2 * np.maximum(last - base + 1, 1)
        weight[[row for place in self._blamed if (row := self._row_at(*place)) is not None]] -= 1
        joins = self._joins(own)
        weight[self._elsewhere(base, last, own, joins)[0]] = 1
        weight[[row for place in self._of_epochs if (row := self._row_at(*place)) is not None]] = 1
        chain = rows[_heaviest_ascent(base[rows], last[rows], weight[rows])]
        run = np.append(0, np.cumsum(~(joins & (base[1:] == last[:-1] + 1))))
        for outside in (np.flatnonzero(~fits), rows):
            foreign = self._contradicted(np.setdiff1d(outside, chain), chain, run, rows)
            if (is_foreign := np.isin(run[rows], run[foreign])).any():
                rows = rows[~is_foreign]  # others may have been in their shade
                chain = rows[_heaviest_ascent(base[rows], last[rows], weight[rows])]
        return chain

    def _contradicted(self, outside: Ints, chain: Ints, run: Ints, rows: Ints) -> list[int]:
        """Return batches that are not in place, of a run that is in part, of whose offsets the log has others.

        Args:
            outside: those that may be; such as could be in place count if more follow each other where the others are.
            run: a number for batches that follow each other.
            rows: of the batches that may be in place.
        """
        base, last = (self.columns[name] for name in ("base_offset", "last_offset"))
        outside = outside[np.isin(run[outside], run[chain])]
        if not len(outside):
            return []
        at, count = np.searchsorted(last[chain], base[outside]), np.bincount(run[rows], minlength=len(run))
        is_taken = np.append(base[chain], np.iinfo(np.int64).max)[at] <= last[outside]
        against = run[chain[np.minimum(at, len(chain) - 1)]]
        is_taken &= ~np.isin(outside, rows) | (count[run[outside]] < count[against])
        outside = outside[is_taken | (base[outside] < self.files[0].base)]
        return [row for row in outside.tolist() if self.twin_of(self.batch(row), among=chain) is None]

    def _elsewhere(self, base: Ints, last: Ints, own: Ints, joins: Flags) -> tuple[Ints, Ints]:
        """Rows of batches for which those on both sides, or the segment's name, leave room elsewhere; and where.

        Args:
            joins: whether each batch but the first begins where the one before ends, shape (n - 1,).
        """
        starts = np.array([file.base for file in self.files], np.int64)[own]
        is_first = self.columns["position"] == 0
        low = np.where(is_first, starts, np.append(-1, last[:-1] + 1))
        fits = (is_first | np.append(False, joins)) & np.append(joins, False)
        rows = np.flatnonzero(fits & (low + (last - base) + 1 == np.append(base[1:], -1)) & (base != low))
        return rows, low[rows]

    def _joins(self, own: Ints) -> Flags:
        """Whether each batch but the first begins where the one before ends, shape (n - 1,)."""
        position = self.columns["position"]
        joins: Flags = (own[1:] == own[:-1]) & (position[1:] == (position + self.columns["size"])[:-1])
        return joins

    @cached_property
    def bits_off(self) -> Ints:
        """Rows of batches with one wrong bit in the base offset, if the batches on both sides are right."""
        base, last, own = (self.columns[name] for name in ("base_offset", "last_offset", "segment"))
        rows, right = self._elsewhere(base, last, own, self._joins(own))
        wrong = base[rows] ^ right
        return rows[wrong & (wrong - 1) == 0]

    def _fit(self, base: Ints, last: Ints, own: Ints) -> Flags:
        """Which batches have offsets of their segments, shape (n,).

        Args:
            own: numbers of their segments.
        """
        bases = np.array([file.base for file in self.files], np.int64)
        following = np.append(bases[1:], np.iinfo(np.int64).max)
        fits: Flags = (base >= bases[own]) & (last - bases[own] <= INT_MAX) & (base < following[own]) & (last >= base)
        return fits

    def batch(self, row: int) -> Batch:
        """Return a sound batch by its row."""
        return Batch(*(self.columns.value(name, row) for name in (*_FIRST, *_REST)))

    def batches(self, rows: Ints) -> Iterator[Batch]:
        """Yield sound batches by their rows, ascending."""
        return (Batch(*fields) for fields in self.columns.rows((*_FIRST, *_REST), rows))

    def around(self, segment: int, position: int) -> tuple[Batch | None, Batch | None]:
        """Return the sound batches before and after a place."""
        at = self.row_from(segment, position)
        before = self.batch(at - 1) if at else None
        return before, self.batch(at) if at < len(self) else None

    def row_from(self, segment: int, position: int) -> int:
        """Return the row of the first sound batch at a place or after it."""
        low, high = (self.columns.search("segment", segment, side) for side in ("left", "right"))
        return low + bisect_left(range(low, high), position, key=lambda row: self.columns.value("position", row))

    def _row_at(self, file: str, position: int) -> int | None:
        """Return the row of the sound batch that begins at a place of a file."""
        segment = next((number for number, one in enumerate(self.files) if one.name == file), None)
        row = len(self) if segment is None else self.row_from(segment, position)
        is_there = row < len(self) and self.columns.value("position", row) == position
        return row if is_there and self.columns.value("segment", row) == segment else None

    @cached_property
    def misses_offsets(self) -> bool:
        """Whether offsets are missing in or between batches that touch, as compaction leaves them.

        A batch without records counts where it has a producer, for which the cleaner keeps it, and no control batch of
        nobody goes on after it: all others are bridges (`repair.bridge`).
        """
        names = (
            "base_offset", "last_offset", "segment", "position", "size", "magic", "records_count", "attributes",
            "producer_id",
        )  # fmt: skip
        is_short = False
        for _, (base, last, own, position, size, magic, count, attributes, producer) in self.columns.stretches(*names):
            is_control = attributes & Attributes.CONTROL != 0
            short = (magic >= 2) & (count < last - base + 1) & ~is_control & ((count > 0) | (producer >= 0))
            touch = (own[1:] == own[:-1]) & (position[1:] == position[:-1] + size[:-1])
            goes_on = touch & (base[1:] == last[:-1] + 1)
            short[:-1] &= (count[:-1] > 0) | ~(goes_on & is_control[1:] & (producer[1:] < 0))
            if short[:-1].any() or (touch & ~goes_on).any():
                return True
            is_short = bool(short[-1])
        return is_short

    def raw(self, segment: int, begin: int, end: int) -> bytes:
        """Bytes of a segment."""
        source = self.files[segment].open()
        try:
            return source.read_at(begin, end - begin)
        finally:
            source.close()

    def bytes_of(self, batch: Batch) -> bytes:
        """Return the bytes of a batch."""
        return self.raw(batch.segment, batch.position, batch.end)

    def ranges(self) -> Iterator[Range]:
        """Yield the damage with what lies around it, in log order."""
        for parts in self._joined():
            segment, begin, end = parts[0].segment, parts[0].begin, parts[-1].end
            before, after = self.around(segment, begin)
            base = self.files[segment].base
            first = max(base, before.last_offset + 1) if before is not None else base
            following = self.files[segment + 1].base if segment + 1 < len(self.files) else None
            if after is not None and after.segment == segment:
                beyond = after.base_offset
            elif after is not None and following is not None:
                beyond = min(following, base + INT_MAX + 1)  # a segment has no room for more
            else:
                beyond = -1
            yield Range(segment, begin, end, first, beyond, before, after, parts)

    def hole_before(self, segment: int, position: int) -> Range:
        """Return the offsets that are missing before a batch, or before a segment, where no byte of them is left."""
        before, after = self.around(segment, position)
        first = before.last_offset + 1 if before is not None else self.files[0].base
        beyond = after.base_offset if position and after is not None else self.files[segment].base
        return Range(segment, position, position, first, beyond, before, after, ())

    def _joined(self) -> Iterator[tuple[Damage, ...]]:
        """Damage that touches, together."""
        held: list[Damage] = []
        for damage in self.damages:
            if held and (damage.segment != held[-1].segment or damage.begin > held[-1].end):
                yield tuple(held)
                held = []
            held.append(damage)
        if held:
            yield tuple(held)

    def has(self, base_offset: int, data: bytes) -> bool:
        """Whether a sound batch begins with an offset and with some bytes."""
        rows = np.flatnonzero(self.columns["base_offset"] == base_offset)
        return any(self.bytes_of(self.batch(row)).startswith(data) for row in rows.tolist())

    def twin_of(self, batch: Batch, among: Ints | None = None) -> Batch | None:
        """Another sound batch with the same bytes, where there is one.

        Args:
            among: rows that count; None: all.
        """
        same = (self.columns["base_offset"] == batch.base_offset) & (self.columns["size"] == batch.size)
        rows = np.flatnonzero(same) if among is None else among[same[among]]
        wanted = self.bytes_of(batch) if len(rows) else b""
        return next((found for row in rows.tolist() if self.bytes_of(found := self.batch(row)) == wanted), None)


def has_epoch(batch: Batch, epochs: Sequence[LeaderEpoch]) -> bool:
    """Whether a checkpoint has the leader epoch of a batch at its offset, or none."""
    known = [entry.epoch for entry in epochs if entry.start_offset <= batch.base_offset]
    return not known or known[-1] == batch.epoch


def _place_of(partition: Partition, batch: Batch) -> tuple[LogFile, int] | None:
    """Return where a partition has a batch with the offset and the size of another, as its offset index leads there."""
    held = [one for one in partition.segments if one.log is not None and one.base <= batch.base_offset]
    file = held[-1].log if held else None
    if file is None:
        return None
    start = 0
    if (index := held[-1].offset_index) is not None:
        with closing(index.open()) as source:
            found = read_offset_index(source)
        entry = int(np.searchsorted(found.offsets(held[-1].base), batch.base_offset, "right")) - 1
        start = int(found.positions[entry]) if entry >= 0 else 0
    with closing(file.open()) as source:
        extent = Extent(file.name, held[-1].base, start, start + _MOST_LOOKED, max(file.size, 0), chained=True)
        for block in scan(source, extent):
            same = (block["base_offset"] == batch.base_offset) & (block.size == batch.size) & block.crc_ok
            if same.any():
                return file, int(block.position[np.flatnonzero(same)[0]])
    return None


def segment_of(partition: Partition, offset: int) -> Survey | None:
    """Survey the segment of a partition to which an offset belongs by the names; None where there is none."""
    segments = [one for one in partition.segments if one.log is not None and one.base <= offset]
    return Survey(Partition(partition.directory, partition.name, segments[-1:])) if segments else None


_FIRST = ("segment", "position", "size", "magic", "base_offset", "last_offset")
_REST = (
    "partition_leader_epoch", "attributes", "max_timestamp", "producer_id", "producer_epoch", "base_sequence",
    "records_count",
)  # fmt: skip


def header_of(segment: int, headers: Headers, row: int) -> Batch:
    """Return the header of a row."""
    return Batch(
        segment,
        int(headers.position[row]),
        int(headers.size[row]),
        int(headers.magic[row]),
        int(headers["base_offset"][row]),
        int(headers["last_offset"][row]),
        *(int(headers[name][row]) for name in _REST),
    )


def is_borne_out(index: LogFile | None, base: int, columns: Columns, besides: int | None = None) -> bool | None:
    """Whether most entries of an offset index lead to batches that have their offsets.

    None where few do, or most would if all batches lay so many bytes elsewhere, as where bytes were put in or taken
    out, or it has fewer than two: one may be damaged itself.

    Args:
        base: of the segment.
        columns: of the whole batches of its log, ascending by position.
        besides: position whose entry does not count.
    """
    if index is None or not len(columns):
        return None
    batches = [columns[name] for name in ("position", "base_offset", "last_offset")]
    positions, offsets, leads = _entries_leading(index, base, *batches)
    counts = positions != besides
    leads = leads[counts]
    if not len(leads):
        return None
    if 2 * leads.sum() >= len(leads):
        return True
    is_known = len(leads) > 1 and not leads.any() and not _are_moved(positions[counts], offsets[counts], *batches)
    return False if is_known else None


def _are_moved(positions: Ints, offsets: Ints, position: Ints, first: Ints, last: Ints) -> bool:
    """Whether the batches with the offsets of most index entries all lie as many bytes from where those lead.

    Args:
        positions, offsets: of the entries.
        position, first, last: positions of the batches, and their offsets; at least one.
    """
    ordered = np.argsort(first, kind="stable")
    at = np.searchsorted(first[ordered], offsets, "right") - 1
    rows = ordered[np.maximum(at, 0)]
    _, agreed = np.unique((position[rows] - positions)[(at >= 0) & (offsets <= last[rows])], return_counts=True)
    most = int(agreed.max(initial=0))
    return most > 1 and 2 * most >= len(offsets)


def is_timed(segment: Segment, columns: Columns) -> bool | None:
    """Whether the entries of a time index have the times of the batches with their offsets; None where it has none.

    Args:
        columns: of whole batches.
    """
    if segment.time_index is None:
        return None
    with closing(segment.time_index.open()) as source:
        found = read_time_index(source)
    wanted = zip(found.offsets(segment.base).tolist(), found.timestamps.tolist(), strict=True)
    entries = {(offset, time) for offset, time in wanted if time > 0}
    base, last, time = (columns[name] for name in ("base_offset", "last_offset", "max_timestamp"))
    matched = sum(bool(((base <= offset) & (offset <= last) & (time == at)).any()) for offset, at in entries)
    return 2 * matched > len(entries) if entries else None


def _entries_leading(index: LogFile, base: int, position: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints, Flags]:
    """Return positions and offsets of the entries of an offset index, and whether each leads to a batch that has its.

    Args:
        base: of the segment.
        position, first, last: positions of the batches, ascending, and their offsets; at least one.
    """
    with closing(index.open()) as source:
        found = read_offset_index(source)
    positions, offsets = found.positions, found.offsets(base)
    at = np.minimum(np.searchsorted(position, positions), len(position) - 1)
    leads: Flags = (position[at] == positions) & (first[at] <= offsets) & (offsets <= last[at])
    return positions, offsets, leads


def is_in_sequence(data: bytes, columns: Columns, before: int, after: int) -> bool:
    """Whether a batch of magic 2 has an epoch and sequence numbers between those that its producer gave around it.

    True where it has no producer, or no other batch has that one (`ProducerAppendInfo.checkProducerEpoch`,
    ``checkSequence``).

    Args:
        before, after: the others are the rows in front of the one, and those from the other on.
    """
    head = header_plan().unpack_from(data)[0]
    first, last = head["base_sequence"], int(sequences(head["base_sequence"], head["last_offset_delta"]))
    if head["producer_id"] < 0:
        return True
    mine, epoch = columns["producer_id"] == head["producer_id"], columns["producer_epoch"]
    low, high = _beside(mine, before, after)
    if any(epoch[row] > head["producer_epoch"] for row in low) or any(
        epoch[row] < head["producer_epoch"] for row in high
    ):
        return False
    if first < 0:
        return True
    low, high = _beside(mine & (epoch == head["producer_epoch"]) & (columns["base_sequence"] >= 0), before, after)
    steps = [first - columns.value("last_sequence", row) for row in low]
    steps += [columns.value("base_sequence", row) - last for row in high]
    return all(0 < step & INT_MAX < 1 << 30 for step in steps)  # they wrap


def may_go_on(log: Survey, data: bytes) -> bool:
    """Whether a log may go on with a batch after its last one, whose offsets are before it.

    Not by an older leader epoch, by times of another clock, or by an earlier time where all times of its last segment
    ascend. Those of markers are a broker's.
    """
    head, columns = header_plan().unpack_from(data)[0], log.columns
    if data[MAGIC_AT] < 2 or not len(log) or columns.value("magic", len(log) - 1) < 2:
        return True
    clock = head["attributes"] ^ columns.value("attributes", len(log) - 1)
    if clock & Attributes.LOG_APPEND_TIME or head["partition_leader_epoch"] < columns["partition_leader_epoch"].max():
        return False
    times = columns["max_timestamp"][columns["attributes"] & int(Attributes.CONTROL) == 0]
    is_ordered = len(times) > 1 and bool((times[1:] >= times[:-1]).all())
    return not is_ordered or bool(head["attributes"] & Attributes.CONTROL) or head["max_timestamp"] >= int(times[-1])


def a_bit_off(number: int, low: int, high: int) -> list[int]:
    """Return the numbers from ``low`` to ``high`` that differ from one in one bit, without the sign."""
    return [other for bit in range(63) if low <= (other := number ^ 1 << bit) <= high]


def _beside(wanted: Flags, before: int, after: int) -> tuple[list[int], list[int]]:
    """Return the last row that is wanted in front of one, and the first from another on, if there are such."""
    rows = np.flatnonzero(wanted)
    return rows[rows < before][-1:].tolist(), rows[rows >= after][:1].tolist()


def longest_ascent(numbers: Ints) -> Ints:
    """Places of the longest sequence of numbers that ascends; of equal numbers the first."""
    if (numbers[1:] > numbers[:-1]).all():
        return np.arange(len(numbers))
    ends, rows = list[int](), list[int]()
    before = np.full(len(numbers), -1, np.int64)
    for row, number in enumerate(numbers.tolist()):
        at = bisect_left(ends, number)
        if at < len(ends) and ends[at] == number:
            continue
        before[row] = rows[at - 1] if at else -1
        ends[at : at + 1], rows[at : at + 1] = [number], [row]
    found, row = list[int](), rows[-1] if rows else -1
    while row >= 0:
        found.append(row)
        row = int(before[row])
    return np.array(found[::-1], np.int64)


def _heaviest_ascent(base: Ints, last: Ints, weight: Ints) -> Ints:
    """Places of the batches that follow each other in order and have the most weight together."""
    if (base[1:] > last[:-1]).all():
        return np.arange(len(base))
    ends = np.unique(last)
    tree = np.full(len(ends) + 1, -1, np.int64)  # of Fenwick: the place with the most up to an end
    weight, before = weight.copy(), np.full(len(base), -1, np.int64)
    limits, slots = np.searchsorted(ends, base).tolist(), (np.searchsorted(ends, last) + 1).tolist()
    for row, (limit, slot) in enumerate(zip(limits, slots, strict=True)):
        best, at = -1, limit
        while at:
            if tree[at] >= 0 and (best < 0 or weight[tree[at]] > weight[best]):
                best = int(tree[at])
            at &= at - 1
        weight[row] += weight[best] if best >= 0 else 0
        before[row] = best
        while slot < len(tree):
            if tree[slot] < 0 or weight[row] > weight[tree[slot]]:
                tree[slot] = row
            slot += slot & -slot
    found, row = list[int](), int(np.argmax(weight)) if len(weight) else -1
    while row >= 0:
        found.append(row)
        row = int(before[row])
    return np.array(found[::-1], np.int64)
