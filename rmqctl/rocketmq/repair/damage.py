"""What is wrong with the log, place by place: the findings of `verify` with what a repair needs to know beside.

How queue offsets run through the log shows where they break, and which record strayed (spec 2.16).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from formats.rocketmq.message import TRANSACTION, SysFlag
from formats.rocketmq.property_crc import NAME, SIZE
from rmqctl.findings import Finding
from rmqctl.repair.crc_correction import LONGEST_BURST, span_of
from rmqctl.rocketmq.dispatch.continuity import messages_in
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.findings.log import (
    LOG_BAD_RECORD,
    LOG_BLANK,
    LOG_BODY_CRC,
    LOG_COMPRESSION,
    LOG_PHYSICAL_OFFSET,
    LOG_PORT,
    LOG_PROPERTIES_LOST,
    LOG_PROPERTY_CRC,
    LOG_QUEUE_OFFSET,
    LOG_STALE_TAIL,
    LOG_STORE_TIME,
    LOG_TOPIC,
    LOG_TORN_TAIL,
)
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.columns import KeyNumbers, TextIds, signed
from rmqctl.rocketmq.log.commitlog import CommitLog, LogBlock, LogState, walk_file
from rmqctl.rocketmq.log.record import SMALLEST, LogReader, physical_of
from rmqctl.rocketmq.repair.placeholder import Setting
from rmqctl.rocketmq.repair.queue_references import QueueReference, Range
from rmqctl.rocketmq.store.files import StoreFile, StoreFiles
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.driver import Verification
from rmqctl.rocketmq.verify.log import LogChecker, LogJoin
from rmqctl.rocketmq.verify.missing import MissingUnits
from rmqctl.rocketmq.verify.queues import QueueChecker
from rmqctl.rocketmq.verify.splits import Split

_FEW_BYTES = 3
_FAR = 1 << 32
_ALL = (1 << 64) - 1
Key = tuple[str, int]
SOURCE = "the queue offsets of the records around it"


@dataclass(frozen=True, slots=True)
class Break:
    """Two records of a queue, one after the other in the log, whose offsets do not follow.

    Attributes:
        expected, offset: what the second should carry, and what it does.
        after, before: physical offsets of the first and the second record.
    """

    topic: str
    queue_id: int
    expected: int
    offset: int
    after: int
    before: int

    @property
    def missing(self) -> int:
        """Queue offsets between the two that no record carries; negative for a repeat."""
        return self.offset - self.expected


@dataclass(slots=True)
class Run:
    """A queue so far: next offset, last record, how many records there were, and the first one with its offset."""

    next: int
    last: int
    count: int
    first: int
    first_offset: int


@dataclass(slots=True)
class Holes:
    """How queue offsets run through a stretch of the log.

    Attributes:
        breaks: each queue's in log order.
        unqueued: records that say they get no queue unit and carry a queue offset that may be theirs.
        runs: the queues so far.
    """

    breaks: list[Break] = field(default_factory=list)
    unqueued: list[QueueReference] = field(default_factory=list)
    runs: dict[Key, Run] = field(default_factory=dict)

    def join(self, other: Holes) -> None:
        """Add the next stretch of the log."""
        self.unqueued += [c for c in other.unqueued if c.queue_offset or (c.topic, c.queue_id) not in self.runs]
        for key, run in other.runs.items():
            known = self.runs.get(key)
            if known is None:
                self.runs[key] = replace(run)
                continue
            if run.first_offset != known.next:
                self.breaks.append(Break(*key, known.next, run.first_offset, known.last, run.first))
            known.next, known.last, known.count = run.next, run.last, known.count + run.count
        self.breaks += other.breaks

    @property
    def holes(self) -> list[Break]:
        """Breaks with queue offsets missing."""
        return [b for b in self.breaks if b.missing > 0]

    def doubtful(self, begin: int) -> frozenset[int]:
        """Physical offsets of records that the others of their queue do not bear out: only these may a unit contradict.

        One after a hole is borne out by the next record of the queue, where that goes on from it. Of two that carry the
        same offset, one after the other, neither is, nor is the only one of a queue where another lacks its first.

        Args:
            begin: physical offset at which the log begins; where it is 0, every queue begins at 0.
        """
        by_first = {(b.topic, b.queue_id, b.after): b for b in self.breaks}
        unfollowed = {b.after for b in self.breaks} | {run.last for run in self.runs.values()}
        found = {b.before for b in self.breaks if b.missing < 0 or b.before in unfollowed}
        for own in self.breaks:
            following = by_first.get((own.topic, own.queue_id, own.before))
            if following is not None and _joins(own, following):
                found.discard(following.before)
        after = {b.after for b in self.breaks}
        found |= {b.after for b in self.breaks if b.missing == -1}
        found |= {r.first for r in self.runs.values() if r.first in after}
        if begin == 0:
            late = {key: run for key, run in self.runs.items() if run.first_offset > 0}
            found |= {run.first for run in late.values()}
            alone: dict[int, list[tuple[Key, Run]]] = {}
            for key, run in self.runs.items():
                if run.count == 1:
                    alone.setdefault(run.next, []).append((key, run))
            for lacking, other in late.items():
                near = (run for key, run in alone.get(other.first_offset, []) if _is_near(key, lacking))
                found |= {run.first for run in near if run.first < other.first}
        return frozenset(found)

    def beside(self) -> frozenset[tuple[str, int, int]]:
        """Topic, queue and queue offset of the places in front of a record or after one that no other record takes."""
        found = {(b.topic, b.queue_id, offset) for b in self.breaks for offset in (b.expected, b.offset - 1)}
        for key, run in self.runs.items():
            found |= {(*key, offset) for offset in (run.next, run.first_offset - 1)}
        return frozenset(found)

    def strayed(self) -> dict[int, QueueReference]:
        """Return records whose topic, queue or queue offset is proven wrong by the records around, with the right ones.

        Only single records count: both neighbours in the queue must agree on what is missing.
        """
        found: dict[int, list[QueueReference]] = {}
        by_first = {(b.topic, b.queue_id, b.after): b for b in self.breaks}
        for own in self.breaks:
            following = by_first.get((own.topic, own.queue_id, own.before))
            if _is_flipped(own) or (following is not None and _joins(own, following)):
                found.setdefault(own.before, []).append(_claim((own.topic, own.queue_id), own.expected, own.before))
            elif following is not None and following.offset == own.expected:
                homes = self._homes((own.topic, own.queue_id), own.offset, own.before)
                found.setdefault(own.before, []).extend(homes)
        for lost in self.unqueued:
            found.setdefault(lost.physical, []).extend(lost for hole in self.holes if _is_in(lost, hole))
        for lost in self._at_ends():
            found.setdefault(lost.physical, []).append(lost)
        for key, run in self.runs.items():
            if run.count == 1:
                homes = self._homes(key, run.next - 1, run.first)
                found.setdefault(run.first, []).extend(homes)
        return {physical: claims[0] for physical, claims in found.items() if len(claims) == 1}

    @property
    def overshot(self) -> list[Break]:
        """The last records of queues whose offset is more than a log of this length can ever have given out."""
        last = {run.last for run in self.runs.values()}
        return [b for b in self.holes if b.before in last and b.expected >= 0 and b.missing > b.before // SMALLEST]

    def _at_ends(self) -> Iterator[QueueReference]:
        """Yield records without a unit after the last of their queue, with the queue offsets that are due there."""
        due = {key: run.next for key, run in self.runs.items()}
        for lost in self.unqueued:
            key = lost.topic, lost.queue_id
            if lost.queue_offset and due.get(key) == lost.queue_offset and lost.physical > self.runs[key].last:
                due[key] += 1
                yield lost

    def _homes(self, key: Key, offset: int, physical: int) -> Iterator[QueueReference]:
        """Queues in which exactly this record is missing at this place, but for its topic or its queue id."""
        for hole in self.holes:
            fits = hole.missing == 1 and hole.expected == offset and hole.after < physical < hole.before
            if fits and _is_near(key, (hole.topic, hole.queue_id)):
                yield _claim((hole.topic, hole.queue_id), offset, physical)


class HoleFinder:
    """Follows the queue offsets of a stretch of the log, block by block."""

    def __init__(self, ids: TextIds) -> None:
        self._breaks: list[Break] = []
        self._unqueued: list[QueueReference] = []
        self._ids = ids
        self._runs: dict[tuple[int, int], Run] = {}

    def found(self) -> Holes:
        """Return what was found, with queues by name."""
        return Holes(self._breaks, self._unqueued, {self._name(key): run for key, run in self._runs.items()})

    def block(self, found: LogBlock) -> None:
        """Look at the records of one block."""
        block = found.block
        if not len(block):
            return
        in_place = block["physical_offset"] == block.physical  # others say nothing about the order of the log here
        unqueued = np.isin(block["sys_flag"] & TRANSACTION, UNQUEUED)
        if unqueued.any():
            self._note_unqueued(found, np.flatnonzero(unqueued & in_place & (block["queue_offset"] >= 0)))
        rows = np.flatnonzero(~unqueued & in_place)
        if not len(rows):
            return
        topics, queues = found.topics(self._ids)[rows], block["queue_id"][rows].astype(np.int64)
        order = np.lexsort((queues, topics))
        rows, topics, queues = rows[order], topics[order], queues[order]
        offset, after = block["queue_offset"][rows], block["queue_offset"][rows] + messages_in(block)[rows]
        first = np.flatnonzero(np.r_[True, (topics[1:] != topics[:-1]) | (queues[1:] != queues[:-1])])
        expected, physical = np.r_[0, after[:-1]], block.physical[rows]
        before = np.r_[0, physical[:-1]]
        for start, stop in zip(first.tolist(), [*first[1:].tolist(), len(rows)], strict=True):
            key = int(topics[start]), int(queues[start])
            low = int(offset[start])
            run = self._runs.setdefault(key, Run(low, -1, 0, int(physical[start]), low))
            expected[start], before[start] = run.next, run.last
            run.next, run.last, run.count = int(after[stop - 1]), int(physical[stop - 1]), run.count + stop - start
        for i in np.flatnonzero(offset != expected).tolist():
            name = self._name((int(topics[i]), int(queues[i])))
            self._breaks.append(Break(*name, int(expected[i]), int(offset[i]), int(before[i]), int(physical[i])))

    def _note_unqueued(self, found: LogBlock, rows: Ints) -> None:
        """Offset 0 is what brokers write into them; it may be their own only before the queue has a message."""
        for row in rows.tolist():
            key = int(found.topics(self._ids)[row]), int(found.block["queue_id"][row])
            offset = int(found.block["queue_offset"][row])
            if offset or key not in self._runs:
                self._unqueued.append(_claim(self._name(key), offset, found.block.physical_of(row)))

    def _name(self, key: tuple[int, int]) -> Key:
        return self._ids.texts[key[0]].decode("utf-8", "surrogateescape"), signed(key[1] & 0xFFFFFFFF)


def _is_in(lost: QueueReference, hole: Break) -> bool:
    """Whether a record lies where its own queue misses its own offset."""
    is_own = (lost.topic, lost.queue_id) == (hole.topic, hole.queue_id)
    return is_own and hole.expected <= lost.queue_offset < hole.offset and hole.after < lost.physical < hole.before


def _joins(own: Break, following: Break) -> bool:
    """Whether the record after goes on where the one with the first break should have ended."""
    return following.offset - own.expected == following.expected - own.offset


def _is_flipped(own: Break) -> bool:
    """Whether an offset that no queue reaches is a few flipped bits away from the one that was due."""
    pattern = (own.offset ^ own.expected) & _ALL
    is_absurd = own.expected >= 0 and (own.missing > _FAR or own.offset < 0)
    return is_absurd and span_of(pattern.to_bytes(8, "big")) <= LONGEST_BURST


def _claim(key: Key, offset: int, physical: int) -> QueueReference:
    return QueueReference(*key, offset, physical, source=SOURCE)


def _is_near(one: Key, other: Key) -> bool:
    """Whether two queues differ in the queue id only, or in a few bytes of the topic only."""
    a, b = (key[0].encode("utf-8", "surrogateescape") for key in (one, other))
    if a == b:
        return one[1] != other[1]
    return one[1] == other[1] and len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) <= _FEW_BYTES


# --- what is wrong with the log ---------------------------------------------------------------------


_GAPS = (LOG_BAD_RECORD, LOG_TORN_TAIL, LOG_BLANK)
_RECORDS = (
    LOG_BODY_CRC, LOG_PROPERTY_CRC, LOG_PHYSICAL_OFFSET, LOG_PROPERTIES_LOST,
    LOG_STORE_TIME, LOG_COMPRESSION, LOG_TOPIC, LOG_QUEUE_OFFSET, LOG_PORT,
)  # fmt: skip
_COMPRESSED = int(SysFlag.COMPRESSED)
_BLANK = 8
_FEW_UNFLAGGED = 4
"""More bodies of a topic that are compressed and do not say so are the work of a producer, not of damage."""


@dataclass(slots=True)
class LogGap:
    """A range of the log that holds no record.

    Attributes:
        begin, end: physical offsets.
        setting: what a record in its place takes over from its neighbour.
        ends_file: the range reaches to the end of its file, and a later file has data.
        is_tail: nothing sound follows it.
    """

    finding: Finding
    file: StoreFile
    begin: int
    end: int
    setting: Setting
    ends_file: bool = False
    is_tail: bool = False

    @property
    def limit(self) -> int:
        """Where the range ends in which records may have been; at the end of the log that is the end of the file."""
        return self.file.base + self.file.size if self.is_tail else self.end


@dataclass(slots=True)
class LogDamage:
    """All that a walk over the log has shown.

    Attributes:
        gaps: ascending.
        records: findings about records that are whole, by physical offset.
        blanks: blank records that state a wrong size.
        stale: old records after the end of the log.
        missing: records whose queue unit is not there, or wrong.
        holes: places with queue offsets that no record carries.
        strayed: records that the ones around prove to belong elsewhere, with the right place.
        doubtful: records that the others of their queue do not bear out, by physical offset.
        beside: places in queues next to a record that no record takes.
        misplaced: runs of records that lie elsewhere than they say.
        rooms: what is left of files after their blank records.
        order: how queue offsets run through the records that lie where they say.
        unqueued: whole records whose flags say that they get no queue unit, with their own queue offset.
        compressions: how many compressed records name each type.
        end: physical offset after the last record, 0 without one.
        last_time: its store time, ms.
    """

    gaps: list[LogGap] = field(default_factory=list)
    records: dict[int, list[Finding]] = field(default_factory=dict)
    blanks: list[Finding] = field(default_factory=list)
    stale: list[Finding] = field(default_factory=list)
    missing: MissingUnits = field(default_factory=MissingUnits)
    holes: list[Break] = field(default_factory=list)
    strayed: dict[int, QueueReference] = field(default_factory=dict)
    doubtful: frozenset[int] = frozenset()
    beside: frozenset[tuple[str, int, int]] = frozenset()
    misplaced: list[LogGap] = field(default_factory=list)
    rooms: list[Range] = field(default_factory=list)
    order: Holes = field(default_factory=Holes)
    unqueued: list[QueueReference] = field(default_factory=list)
    compressions: Counter[int] = field(default_factory=Counter)
    end: int = 0
    last_time: int = 0

    def ranges(self) -> Iterable[Range]:
        """Ranges of the log of which it matters which units point there, as to the records of ``missing``."""
        yield from ((g.begin, g.limit) for g in (*self.gaps, *self.misplaced))
        yield from self.stale_ranges()
        yield from ((at, at + 1) for at in {*self.records, *self.strayed, *(c.physical for c in self.unqueued)})
        yield from ((at, at + 1) for at in self.doubtful)

    def stale_ranges(self) -> Iterator[Range]:
        """Where old records lie after the end of the log."""
        for finding in self.stale:
            begin = finding.physical_offset or 0
            yield begin, begin + finding.size

    def note(self, findings: Iterable[Finding]) -> None:
        """Note what is wrong with whole records."""
        for finding in findings:
            if finding.kind in _RECORDS and finding.physical_offset is not None:
                self.records.setdefault(finding.physical_offset, []).append(finding)


@dataclass(slots=True)
class Sight:
    """What one split of the log shows of damage.

    Attributes:
        file: that the split is of.
        damage: without what only the whole log shows.
        in_front: gaps and misplaced records that no record of the split lies in front of.
        setting: of its last record; None without one.
    """

    file: StoreFile
    damage: LogDamage
    holes: Holes
    in_front: list[LogGap]
    setting: Setting | None


class DamageWitness:
    """Goes along when a split of the log is checked, and takes the evidence that a repair needs."""

    def __init__(self, split: Split, ids: TextIds) -> None:
        self.context, self._holes = split.context, HoleFinder(ids)
        self._found, self._in_front = LogDamage(), list[LogGap]()
        self._last: bytes | None = None

    def block(self, found: LogBlock, findings: list[Finding]) -> None:
        """Take a block of the split and what its checks say."""
        block = found.block
        self._holes.block(found)
        self._misplaced(findings, block)
        self._found.rooms += [(block.base + b.position + _BLANK, block.base + b.end) for b in block.blanks]
        resumed = {g.position for g in block.gaps if g.resumed}
        blanks = {b.position for b in block.blanks}
        for finding in findings:
            if finding.kind is LOG_BLANK and finding.offset in blanks:
                self._found.blanks.append(finding)
            elif finding.kind in _GAPS:
                self._gap(finding, block, finding.offset in resumed)
            elif finding.kind is LOG_STALE_TAIL:
                self._found.stale.append(finding)
        self._found.note(findings)
        if len(block):
            flags = block["sys_flag"]
            self._found.compressions.update((flags[(flags & _COMPRESSED) != 0] >> 8 & 7).tolist())
            self._last = self._in_place(block, len(block))
            self._found.end = int(block.physical[-1] + block.total_size[-1])
            self._found.last_time = int(block["store_timestamp"][-1])

    def sight(self) -> Sight:
        """Return what the split has shown."""
        last = setting_of(self._last) if self._last is not None else None
        return Sight(self.context.file, self._found, self._holes.found(), self._in_front, last)

    def _misplaced(self, findings: list[Finding], block: Block) -> None:
        """Take the records that say they lie elsewhere, those that follow each other as one run."""
        stated, found = block["physical_offset"], self._found.misplaced
        by_place = {f.physical_offset: f for f in findings if f.kind is LOG_PHYSICAL_OFFSET}
        for row in np.flatnonzero(stated != block.physical).tolist():
            begin = block.physical_of(row)
            end = begin + int(block.total_size[row])
            if found and found[-1].end == begin:
                found[-1].end = end
            elif begin in by_place:
                record = self._in_place(block, row)
                setting = setting_of(record or self._in_place(block, len(block)) or block.raw(row))
                found.append(LogGap(by_place[begin], self.context.file, begin, end, setting))
                if record is None:
                    self._in_front.append(found[-1])

    def _in_place(self, block: Block, row: int) -> bytes | None:
        """Return the last record in front of a row that lies where it says."""
        rows = np.flatnonzero(block["physical_offset"][:row] == block.physical[:row])
        return block.raw(int(rows[-1])) if len(rows) else self._last

    def _gap(self, finding: Finding, block: Block, resumed: bool) -> None:
        file = self.context.file
        begin = file.base + finding.offset
        ends_file = not resumed and self.context.followed
        end = file.base + file.size if ends_file else begin + finding.size
        record = self._in_place(block, int(np.searchsorted(block.position, finding.offset)))
        known = record or (block.raw(0) if len(block) else None)
        setting = setting_of(known) if known else Setting()
        gap = LogGap(finding, file, begin, end, setting, ends_file, not resumed and not ends_file)
        self._found.gaps.append(gap)
        if record is None:
            self._in_front.append(gap)


def survey(store: StoreFiles) -> LogDamage:
    """Walk over the whole log once."""
    ids = TextIds()
    queues = QueueChecker(store, LogContext.of(store), ids, KeyNumbers())
    sights, state, join = [], LogState(), LogJoin()
    log = CommitLog(store.log_files, crashed=store.has_abort)
    for number, context in enumerate(log.contexts()):
        if gap := log.gap_before(number):
            join.gap(gap)
        checker, witness = LogChecker(ids=ids), DamageWitness(Split(context, 0, None), ids)
        for found in walk_file(context, state):
            witness.block(found, checker.block(found))
            queues.block(found)
        sights.append(witness.sight())
        join.add(checker.finish())
        if state.stale:
            break
    return _joined(store, sights, join, queues.partial().missing)


def seen(store: StoreFiles, verification: Verification) -> LogDamage | None:
    """Return what a verification has shown that :class:`DamageWitness` went along with; no other walk is needed then.

    None where it does not show the log as it lies: a file cannot be read, or was looked at under another name.

    Args:
        store: that was verified.
    """
    names = {(file.name, file.base) for file in store.log_files}
    sights: list[Sight | None] = verification.sights
    whole = [sight for sight in sights if sight is not None and (sight.file.name, sight.file.base) in names]
    return _joined(store, whole, verification.log, verification.missing) if len(whole) == len(sights) else None


def _joined(store: StoreFiles, sights: Iterable[Sight], log: LogJoin, missing: MissingUnits) -> LogDamage:
    """Join what the splits of a log show, in their order."""
    found, holes = LogDamage(missing=missing), Holes()
    last: Setting | None = None
    for sight in sights:
        own = sight.damage
        for gap in sight.in_front:
            gap.setting = last or gap.setting
        found.gaps += own.gaps
        for run in own.misplaced:
            if found.misplaced and found.misplaced[-1].end == run.begin and found.misplaced[-1].file == run.file:
                found.misplaced[-1].end = run.end
            else:
                found.misplaced.append(replace(run))
        found.rooms += own.rooms
        found.blanks += own.blanks
        found.stale += own.stale
        for findings in own.records.values():
            found.note(findings)
        found.compressions += own.compressions
        if sight.setting is not None:
            last, found.end, found.last_time = sight.setting, own.end, own.last_time
        holes.join(sight.holes)
    found.note(log.of_records(_FEW_UNFLAGGED))
    found.holes, found.strayed, found.unqueued = holes.holes, holes.strayed(), holes.unqueued
    begin = store.log_files[0].base if store.log_files else 0
    found.doubtful, found.beside = holes.doubtful(begin), holes.beside()
    found.gaps, found.order = _merged(found.gaps), holes
    _without_front(store, found.gaps)
    return found


def _without_front(store: StoreFiles, gaps: list[LogGap]) -> None:
    """Give gaps that no record lies in front of the setting of the next record that lies where it says."""
    gaps = [gap for gap in gaps if not gap.setting.store_timestamp]
    with LogReader(store.log_files if gaps else []) as log:
        for gap in gaps:
            places = (gap.end, *(file.base for file in log.files if file.base > gap.end))
            found = ((at, raw) for at in places if (raw := log.record(at)) is not None)
            record = next((raw for at, raw in found if physical_of(raw) == at), None)
            gap.setting = setting_of(record) if record is not None else gap.setting


def _merged(gaps: list[LogGap]) -> list[LogGap]:
    """One gap for what reaches to the end of a file, however many findings it has."""
    kept: list[LogGap] = []
    for gap in sorted(gaps, key=lambda g: g.begin):
        if kept and kept[-1].ends_file and gap.begin < kept[-1].end:
            continue
        kept.append(gap)
    return kept


def setting_of(record: bytes) -> Setting:
    """Return what a placeholder takes over from a record."""
    from formats.rocketmq.message import decode_record

    fields, _ = decode_record(record)
    has_crc = record[-SIZE:].startswith(NAME)
    if len(fields["store_ip"]) != 4:
        return Setting(fields["store_timestamp"], property_crc=has_crc)
    return Setting(fields["store_timestamp"], fields["store_ip"], fields["store_port"], has_crc)
