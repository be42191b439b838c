"""Names of segments, made from their batches: a whole batch says which offsets it has, a name only claims it.

The segments of a log are put in the order of what their batches say. A name is right if it lies after the segment
before and not after its own first batch; else it is made again, from the names that indexes still have or from the
first batch. A segment whose batches others have, or contradict, is not believed: it goes to quarantine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from formats.kafka.record_batch import Attributes
from rmqctl.files.tree import local_path
from rmqctl.findings import Finding
from rmqctl.kafka.directory.directory import LogDirectory, LogFile, Partition, Segment
from rmqctl.kafka.directory.file_names import FileKind, PartitionName
from rmqctl.kafka.findings.derived import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from rmqctl.kafka.findings.directory import DIRECTORY_NAME, DIRECTORY_ORPHAN
from rmqctl.kafka.findings.log import (
    BATCH_BASE_OFFSET,
    BATCH_OFFSET_GAP,
    BATCH_OFFSET_ORDER,
    SEGMENT_EMPTIED,
    SEGMENT_MISSING,
    SEGMENT_NAME,
)
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.log.block import INT_MAX
from rmqctl.kafka.log.indexes import read_offset_index
from rmqctl.kafka.repair.columns import Columns
from rmqctl.kafka.repair.survey import Survey, is_borne_out, is_timed, longest_ascent, segment_of
from rmqctl.kafka.state.metadata import MetadataImage
from rmqctl.kafka.state.partition_state import PartitionLog, proof_of_end
from rmqctl.kafka.verify.state import is_compacted
from rmqctl.repair.edits import Create, Edit, Quarantine, Step, placed

NAME_KINDS = frozenset({
    BATCH_BASE_OFFSET, BATCH_OFFSET_ORDER, BATCH_OFFSET_GAP, DIRECTORY_NAME, DIRECTORY_ORPHAN,
    SEGMENT_NAME, SEGMENT_MISSING, SEGMENT_EMPTIED, OFFSET_INDEX_ENTRY,
})  # fmt: skip
"""Findings that a segment under a wrong name leaves."""
_FOREIGN_KINDS = NAME_KINDS | {TIME_INDEX_ENTRY}
"""Those that another partition's segment leaves, too, if it has offsets that this one can hold."""
_PIECE = 8 << 20
_MOST = 1 << 48
"""An offset that no log reaches."""
_SHARE = 10
"""Of so many whole batches of a segment all but one must be of the place that its name is made for."""


@dataclass(frozen=True, slots=True, eq=False)
class _Claim:
    """What the batches of a file say of its place.

    Attributes:
        number: of the file in the survey.
        name: the offset in its name, -1 where there is none.
        first, last: offsets of the most of its batches that follow each other.
        rows: of all its batches whose offsets ascend.
        epochs: leader epochs of the first and the last of them, -1 where there is none.
        count: batches, those out of order too.
        is_indexed: whether the offset index of that name leads to them, see :func:`is_borne_out`.
    """

    number: int
    name: int
    first: int
    last: int
    rows: np.ndarray
    epochs: tuple[int, int]
    count: int
    is_indexed: bool | None


def segment_name_steps(
    directory: LogDirectory, findings: Sequence[Finding], room: Callable[[], Path], image: MetadataImage | None
) -> Iterator[Step]:
    """Give segments the names that their batches prove, and move out those that are copies, or of another log.

    Args:
        image: the cluster's metadata, which may say that a partition is compacted.
        room: makes a path at which a file can be built.
    """
    wanted = {finding.file.rpartition("/")[0] for finding in findings if finding.kind in NAME_KINDS}
    for partition in directory.partitions:
        if partition.directory in wanted:
            log = PartitionLog(directory, partition, Checkpoints(directory))
            compacted = is_compacted(partition, log.checkpoints, image)
            yield from _Names(log, directory.partitions, room, compacted=compacted).steps()


def exchange_steps(directory: LogDirectory, findings: Sequence[Finding], room: Callable[[], Path]) -> Iterator[Step]:
    """Give two segments of different partitions their logs back, where each has that of the other.

    No batch says its topic: each offset index has to lead to the batches of the other, and none to its own. Where one
    has no entry that says so, the batches of the other have to begin with its name, and its own not.

    Args:
        room: makes a path at which a file can be built.
    """
    named = {finding.file.rpartition(".")[0] for finding in findings if finding.kind in NAME_KINDS}
    wanted = (
        {finding.file.rpartition(".")[0] for finding in findings if finding.kind in _FOREIGN_KINDS} if named else ()
    )
    held = list[tuple[Segment, LogFile, Columns]]()
    for partition in directory.partitions:
        for segment in partition.segments:
            log, indexes = segment.log, (segment.offset_index, segment.time_index)
            has_entries = any(index is not None and index.size > 0 for index in indexes)
            if log is not None and log.name.removesuffix(".log") in wanted and has_entries:
                columns = batches_of(segment)
                if is_borne_out(segment.offset_index, segment.base, columns) is not True:
                    held.append((segment, log, columns))

    fits = [
        [n for n, other in enumerate(held) if other is not one and are_exchanged(one[0], one[2], other[0], other[2])]
        for one in held
    ]
    for number, found in enumerate(fits):
        if len(found) != 1 or fits[found[0]] != [number] or found[0] < number:
            continue
        one, other = held[number][1], held[found[0]][1]
        if one.name.rpartition("/")[0] == other.name.rpartition("/")[0]:
            continue  # their names are made from their batches
        if named.isdisjoint({one.name.removesuffix(".log"), other.name.removesuffix(".log")}):
            continue
        edits: list[Edit] = [Quarantine(one.name), Quarantine(other.name)]
        back = [(one, _path(other, room)), (other, _path(one, room))]
        edits += [made for to, path in back for made in placed(to.name, path)]
        what = f"exchange it with {other.name}"
        why = "the offset index of each, or its name, leads to the batches of the other, and not to its own"
        yield Step(SEGMENT_NAME.id, one.name, what, why, tuple(edits))


def batches_of(segment: Segment) -> Columns:
    """Return the whole batches of a segment, whatever their offsets."""
    return Survey(Partition("", PartitionName("", None), [segment]), anywhere=True).columns


def are_exchanged(one: Segment, here: Columns, other: Segment, there: Columns) -> bool:
    """Whether two segments have each other's batches: the index of one says so, and that of the other, or its name.

    Args:
        here, there: the whole batches in the log of each.
    """

    def leads(segment: Segment, own: Columns, elsewhere: Columns) -> bool | None:
        """Whether indexes lead elsewhere, and not to their own batches; None where only the name does."""
        if is_borne_out(segment.offset_index, segment.base, own) is True or not len(elsewhere):
            return False
        found = is_borne_out(segment.offset_index, segment.base, elsewhere)
        if found is None and (timed := is_timed(segment, elsewhere)) is not None:
            return timed and not is_timed(segment, own)
        is_named = not len(own) or own.value("base_offset", 0) != segment.base
        is_named &= elsewhere.value("base_offset", 0) == segment.base
        return None if found is None and is_named else found is True

    found = {leads(one, here, there), leads(other, there, here)}
    return found in ({True}, {True, None})


def _path(file: LogFile, room: Callable[[], Path]) -> Path:
    """Return where the bytes of a file lie on this machine."""
    here = local_path(file.tree, file.name)
    if here is not None:
        return Path(here)
    path, source = room(), file.open()
    try:
        with open(path, "wb") as made:
            made.writelines(source.read_at(at, min(_PIECE, file.size - at)) for at in range(0, file.size, _PIECE))
    finally:
        source.close()
    os.utime(path, ns=(file.mtime_ms * 1_000_000,) * 2)
    return path


class _Names:
    def __init__(
        self, log: PartitionLog, every: Sequence[Partition], room: Callable[[], Path], *, compacted: bool
    ) -> None:
        partition, self.log, self.compacted = log.partition, log, compacted
        strays = [f for f in partition.files if f.kind is FileKind.LOG and f.meaning.base is None and not f.is_leftover]
        segments = [*(Segment(file.base, log=file) for file in partition.logs), *(Segment(0, log=f) for f in strays)]
        self.partition, self.room = partition, room
        self.others = [other for other in every if other is not partition]
        self.survey = Survey(Partition(partition.directory, partition.name, segments), anywhere=True)
        self.logs = {file.base for file in partition.logs}
        self.indexed = {s.base for s in partition.segments if s.offset_index is not None or s.time_index is not None}

    def steps(self) -> Iterator[Step]:
        claims = [claim for number in range(len(self.survey.files)) if (claim := self._claim(number)) is not None]
        believed = _most_believed(claims)
        believed = [claim for claim in believed if not self._is_among(claim, believed)]
        away = [claim for claim in claims if claim not in believed and self._is_superfluous(claim, believed)]
        moved = self._moved(believed, {claim.name for claim in claims} - {claim.name for claim in away})
        away += [claim for claim in claims if claim not in (*away, *moved) and self._is_foreign(claim, believed)]
        if moved:
            yield self._renamed(moved)
        taken = {self._file(claim.number).name for claim in moved} | {self._named(name) for name in moved.values()}
        if not moved:
            yield from self._empty(claims)
        for claim in away:
            file = self._file(claim.number)
            if file.name not in taken:
                why = f"its {claim.count:,} whole batches, of offsets {claim.first} to {claim.last}, "
                why += "stand in other segments, contradict them, or are of no place in this log"
                yield Step(SEGMENT_NAME.id, file.name, "move out", why, (Quarantine(file.name),))

    def _file(self, number: int) -> LogFile:
        return self.survey.files[number]

    def _named(self, base: int) -> str:
        return f"{self.partition.directory}/{base:020d}.log".lstrip("/")

    def _claim(self, number: int) -> _Claim | None:
        """Return what the batches of a file say; None where none is whole."""
        columns, file = self.survey.columns, self._file(number)
        rows = np.flatnonzero(columns["segment"] == number)
        if not (count := len(rows)):
            return None
        rows = rows[longest_ascent(columns["base_offset"][rows])]
        base, last = columns["base_offset"][rows], columns["last_offset"][rows]
        breaks = np.flatnonzero(base[1:] != last[:-1] + 1) + 1
        begins, ends = np.r_[0, breaks], np.r_[breaks, len(rows)] - 1
        best = int(np.argmax(ends - begins))
        modern = columns["partition_leader_epoch"][rows][columns["magic"][rows] >= 2]
        epochs = (int(modern[0]), int(modern[-1])) if len(modern) else (-1, -1)
        name = -1 if file.meaning.base is None else file.base
        index = next((s.offset_index for s in self.partition.segments if s.base == name), None)
        own = np.flatnonzero(columns["segment"] == number)
        is_indexed = is_borne_out(index, name, columns.take(own))
        return _Claim(number, name, int(base[begins[best]]), int(last[ends[best]]), rows, epochs, count, is_indexed)

    def _moved(self, believed: Sequence[_Claim], taken: set[int]) -> dict[_Claim, int]:
        """Return segments whose names are not right, with those that are.

        Args:
            taken: names of segments that hold batches.
        """
        moved, doubtful = dict[_Claim, int](), dict[_Claim, int]()
        for claim, name, is_proven in self._targets(believed):
            (moved if is_proven else doubtful)[claim] = name
        while away := [claim for claim in doubtful if claim.name in moved.values()]:  # another has its place
            moved |= {claim: doubtful.pop(claim) for claim in away}
        while bad := [claim for claim, name in moved.items() if name in taken - {one.name for one in moved}]:
            for claim in bad:
                del moved[claim]
        return moved

    def _targets(self, believed: Sequence[_Claim]) -> Iterator[tuple[_Claim, int, bool]]:
        """Yield segments whose names do not seem right, with those that are, and whether their batches prove it.

        One batch alone may have a damaged base offset: it counts if it touches a neighbour, begins at a name, has
        another name than its indexes, or an offset that its segment cannot hold and that is no damage.
        """
        bounds = [-1, *(claim.last for claim in believed)]
        following = [*(claim.first for claim in believed[1:]), 1 << 63]
        epochs = [-1, *(claim.epochs[1] for claim in believed)]
        for claim, low, after, epoch in zip(believed, bounds, following, epochs, strict=False):
            base, position = (self.survey.columns[name][claim.rows] for name in ("base_offset", "position"))
            if _SHARE * np.count_nonzero((base > low) & (base < after)) < (_SHARE - 1) * claim.count:
                continue  # batches of several segments lie in it
            row = int(np.flatnonzero(base > low)[0])
            first, is_first = int(base[row]), int(position[row]) == 0
            if claim.name == first and is_first:
                continue
            least = max(low, claim.last - INT_MAX - 1)  # a segment holds no offset further from its name
            known = max((name for name in self.indexed if least < name <= first), default=-1)
            known = known if known >= 0 else max((name for name in self.logs if least < name <= first), default=-1)
            is_right = claim.name == known or (known < 0 and least < claim.name <= claim.first)
            is_proven = claim.count > 1 and claim.is_indexed is not False
            is_proven |= low + 1 == claim.first or claim.last + 1 == after or known == claim.first
            is_proven |= is_first and self._is_indexed_from(claim, first)
            is_proven |= known in self.indexed and claim.name not in self.indexed
            is_proven |= is_first and self._is_told(claim, row, low + 1)
            if not is_right and not 0 <= claim.epochs[0] < epoch and not self._is_of_another(claim):
                yield claim, known if known >= 0 else first if is_first or low < 0 else low + 1, is_proven

    def _is_indexed_from(self, claim: _Claim, base: int) -> bool:
        """Whether the offset index of a segment's name leads to its batches, if its offsets begin at another one."""
        index = next((s.offset_index for s in self.partition.segments if s.base == claim.name), None)
        rows = np.flatnonzero(self.survey.columns["segment"] == claim.number)
        return is_borne_out(index, base, self.survey.columns.take(rows)) is True

    def _is_told(self, claim: _Claim, row: int, following: int) -> bool:
        """Whether a lone batch has an offset that its segment cannot hold, and nothing proves that it follows others.

        Where offsets are missing anywhere, nothing proves that it is of this log at all.

        Args:
            row: of the batch among those of the segment.
            following: the offset after those before it.
        """
        batch = self.survey.batch(int(claim.rows[row]))
        if claim.count > 1 or self.compacted or is_held(claim.name, batch.base_offset):
            return False
        segment = self._segment(claim)
        offsets = batch.base_offset, batch.last_offset
        return segment is not None and is_told(self.log, segment, following, offsets, batch.epoch)

    def _is_superfluous(self, claim: _Claim, believed: Sequence[_Claim]) -> bool:
        """Whether a segment has nothing that could belong to the log: copies, and what others contradict.

        Batches that follow each other are of one log, so one of them that is contradicted speaks for all.
        """
        if claim.count < 2:
            return False  # its base offset may be the damaged one
        columns = self.survey.columns
        there = np.concatenate([one.rows for one in believed]) if believed else np.zeros(0, np.int64)
        there = there[np.argsort(columns["base_offset"][there], kind="stable")]
        rows = np.flatnonzero(columns["segment"] == claim.number)
        base, last = columns["base_offset"][rows], columns["last_offset"][rows]
        at = np.searchsorted(np.maximum.accumulate(columns["last_offset"][there]), base)
        contradicted = np.append(columns["base_offset"][there], np.iinfo(np.int64).max)[at] <= last
        begins = np.flatnonzero(np.append(True, base[1:] != last[:-1] + 1))
        return bool(np.logical_or.reduceat(contradicted, begins).all())

    def _is_outside(self, claim: _Claim) -> bool:
        """Whether no batch of a segment has an offset that its name, or an index that denies it, lets it have."""
        after = min((name for name in self.logs if name > claim.name), default=1 << 63)
        index = next((s.offset_index for s in self.partition.segments if s.base == claim.name), None)
        if claim.is_indexed is False and index is not None:
            with closing(index.open()) as source:
                after = min(after, int(read_offset_index(source).offsets(claim.name).max()) + 1)
        base = self.survey.columns["base_offset"][self.survey.columns["segment"] == claim.number]
        return claim.name >= 0 and not ((claim.name <= base) & (base < after)).any()

    def _is_among(self, claim: _Claim, others: Sequence[_Claim]) -> bool:
        """Whether a segment that belongs elsewhere by its batches lies there among those of another one."""
        bases = [self.survey.columns["base_offset"][other.rows] for other in others if other is not claim]
        among = any(base[0] < claim.first and (base > claim.last).sum() > 1 for base in bases)
        return among and self._is_outside(claim)

    def _is_foreign(self, claim: _Claim, believed: Sequence[_Claim]) -> bool:
        """Whether all of a segment belongs elsewhere, and its offset index or others say not in this log."""
        if not self.compacted and self._is_one_of_another(claim):
            return True
        if self._is_a_bit_off(claim):
            return False
        is_denied = claim.is_indexed is False or claim not in believed or self._is_of_another(claim)
        return self._is_outside(claim) and is_denied

    def _segment(self, claim: _Claim) -> Segment | None:
        """Return the segment in whose log a claim's batches lie."""
        return next((one for one in self.partition.segments if one.log is self._file(claim.number)), None)

    def _is_a_bit_off(self, claim: _Claim) -> bool:
        """Whether the only batch of a segment is a bit from its name, with which it ends where the log did."""
        batch = self.survey.batch(int(claim.rows[0]))
        segment = self._segment(claim)
        changed = batch.base_offset ^ claim.name
        if claim.count > 1 or batch.position or segment is None or changed.bit_count() != 1:
            return False
        return bool(proof_of_end(self.log, segment, 0, claim.name + claim.last - claim.first, batch.epoch))

    def _is_one_of_another(self, claim: _Claim) -> bool:
        """Whether another partition has a whole segment, under the name that it begins with and does not have here."""
        first = self.survey.batch(int(claim.rows[0]))
        if first.position or claim.name in {-1, first.base_offset}:
            return False
        base = self.survey.columns["base_offset"][self.survey.columns["segment"] == claim.number]
        others = [other for other in self.others if any(log.base == first.base_offset for log in other.logs)]
        return not (base == claim.name).any() and self._is_of_another(claim, others)

    def _is_of_another(self, claim: _Claim, others: Sequence[Partition] | None = None) -> bool:
        """Whether another partition has the first and the last batch with records of a segment.

        Args:
            others: the partitions that count; None: all others.
        """
        is_data = self.survey.columns["attributes"][claim.rows] & int(Attributes.CONTROL) == 0
        is_data &= self.survey.columns["records_count"][claim.rows] != 0
        ends = [self.survey.batch(row) for row in claim.rows[is_data][[0, -1]].tolist()] if is_data.any() else []
        for other in (self.others if others is None else others) if ends else ():
            found = segment_of(other, ends[0].base_offset)
            if found is not None and all(found.has(one.base_offset, self.survey.bytes_of(one)) for one in ends):
                return True
        return False

    def _renamed(self, moved: dict[_Claim, int]) -> Step:
        """Return one step for all, since a file may have the name that another should have."""
        files = {claim: self._file(claim.number) for claim in moved}
        there = {file.name: number for number, file in enumerate(self.survey.files)}
        wanted = [self._named(name) for name in moved.values()]
        others = [name for name in wanted if name in there and name not in {file.name for file in files.values()}]
        away: list[Edit] = [Quarantine(name) for name in [*(file.name for file in files.values()), *others]]
        back: list[Edit] = []
        for (_, file), name in zip(files.items(), wanted, strict=True):
            back += placed(name, _path(file, self.room))
        sizes = {file.name: file.size for file in self.survey.files}
        free = [file.name for file in files.values() if file.name not in wanted]
        back += [Create(name) for name, other in zip(free, others, strict=False) if not sizes[other]]
        first = next(iter(files.values()))
        names = ", ".join(
            f"{file.name} as {name.rpartition('/')[2]}" for file, name in zip(files.values(), wanted, strict=True)
        )
        count = sum(claim.count for claim in moved)
        why = f"the offsets of {count:,} whole {'batch' if count == 1 else 'batches'}, which no other segment has"
        return Step(SEGMENT_NAME.id, first.name, f"give it its right name: {names}", why, (*away, *back))

    def _empty(self, claims: Sequence[_Claim]) -> Iterator[Step]:
        """Give empty segments whose names lie among the offsets of others that of an index, or the log's end."""
        end = max((claim.last for claim in claims), default=-1) + 1
        free = {name for name in self.indexed - self.logs if not any(c.first < name <= c.last for c in claims)}
        for file in self.partition.logs:
            is_among = any(claim.first < file.base <= claim.last for claim in claims)
            if file.size or (file.base in self.indexed and not is_among):
                continue
            is_last = file is self.partition.logs[-1]
            name = (
                next(iter(free)) if len(free) == 1 else end if is_last and is_among and end not in self.logs else None
            )
            if name is not None:
                what = f"give it its right name: {file.name} as {name:020d}.log"
                why = "it is empty; " + ("an index has that name" if name in free else f"the log goes to {end - 1}")
                yield Step(SEGMENT_NAME.id, file.name, what, why, (Quarantine(file.name), Create(self._named(name))))
            elif is_among:
                why = "it is empty, and another segment has its offsets"
                yield Step(SEGMENT_NAME.id, file.name, "move out", why, (Quarantine(file.name),))


def is_held(name: int, offset: int) -> bool:
    """Whether a segment of a name can hold an offset."""
    return name <= offset <= name + INT_MAX


def is_told(log: PartitionLog, segment: Segment, following: int, offsets: tuple[int, int], epoch: int) -> bool:
    """Whether a whole batch, alone in its segment, is believed over the name, which cannot hold its offsets.

    It is not where its base offset is a bit from one that it ought to have, is larger than any that a log reaches, or
    what lies beside the log proves where it ends.

    Args:
        segment: of the batch.
        following: the offset after the batches before it.
        offsets: its first and its last.
        epoch: its leader epoch.
    """
    first, last = offsets
    if not 0 <= first < _MOST:
        return False
    for right in (segment.base, following):
        if (first ^ right).bit_count() == 1 or proof_of_end(log, segment, 0, right + last - first, epoch):
            return False
    return True


def _most_believed(claims: Sequence[_Claim]) -> list[_Claim]:
    """Return the segments that do not contradict each other: the most that begin at their names, then most batches.

    One to which its offset index leads counts as two.
    """
    ordered = sorted(claims, key=lambda claim: (claim.last, claim.first))
    lasts = np.array([claim.last for claim in ordered], np.int64)
    best, chosen = [(0, 0)], list[int]()
    for number, claim in enumerate(ordered):
        before = min(int(np.searchsorted(lasts, claim.first)), number)
        exact, count = best[before]
        is_exact = claim.name == claim.first
        worth = exact + is_exact + (is_exact and claim.is_indexed is True), count + claim.count
        chosen.append(before if worth > best[number] else -1)
        best.append(max(worth, best[number]))
    found, number = list[_Claim](), len(ordered)
    while number:
        if chosen[number - 1] >= 0:
            found.append(ordered[number - 1])
            number = chosen[number - 1]
        else:
            number -= 1
    return found[::-1]
