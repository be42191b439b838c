"""What is wrong with the log, place by place: the findings of `verify` with what a repair needs to know beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from formats.rocketmq.message import SysFlag
from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.block import Block
from rmqctl.rocketmq.columns import TextIds
from rmqctl.rocketmq.commitlog import CommitLog
from rmqctl.rocketmq.mend.claims import Claim, Range
from rmqctl.rocketmq.mend.holes import Break, HoleFinder
from rmqctl.rocketmq.mend.placeholder import Setting
from rmqctl.rocketmq.queue_numbers import KeyNumbers
from rmqctl.rocketmq.store import RocketMQStore, StoreFile
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.log import LogChecker, LogPartial
from rmqctl.rocketmq.verify.property_crc import NAME
from rmqctl.rocketmq.verify.queue_rest import Missing
from rmqctl.rocketmq.verify.queues import QueueChecker
from rmqctl.rocketmq.verify.store_times import TimesJoin

_GAPS = (kinds.LOG_BAD_RECORD, kinds.LOG_TORN_TAIL, kinds.LOG_BLANK)
_RECORDS = (
    kinds.LOG_BODY_CRC, kinds.LOG_PROPERTY_CRC, kinds.LOG_PHYSICAL_OFFSET, kinds.LOG_PROPERTIES_LOST,
    kinds.LOG_STORE_TIME, kinds.LOG_COMPRESSION, kinds.LOG_TOPIC, kinds.LOG_QUEUE_OFFSET,
)  # fmt: skip
_COMPRESSED = int(SysFlag.COMPRESSED)
_FEW_UNFLAGGED = 4
"""More bodies of a topic that are compressed and do not say so are the work of a producer, not of damage."""


@dataclass(slots=True)
class Gap:
    """A range of the log that holds no record.

    Attributes:
        begin, end: physical offsets.
        ends_file: the range reaches to the end of its file, and a later file has data.
        is_tail: nothing sound follows it.
        setting: what a record in its place takes over from its neighbour.
    """

    finding: Finding
    file: StoreFile
    begin: int
    end: int
    ends_file: bool
    is_tail: bool
    setting: Setting


@dataclass(slots=True)
class LogDamage:
    """All that a walk over the log has shown.

    Attributes:
        gaps: ascending.
        records: findings about records that are whole, by physical offset.
        blanks: blank records that state a wrong size.
        stale: old records behind the end of the log.
        missing: records whose queue unit is not there, or wrong.
        holes: places with queue offsets that no record carries.
        strayed: records that the ones around prove to belong elsewhere, with the right place.
        doubtful: records that the others of their queue do not bear out, by physical offset.
        beside: places in queues next to a record that no record takes.
        unqueued: whole records whose flags say that they get no queue unit, with their own queue offset.
        compressions: how many compressed records name each type.
        end: physical offset behind the last record, 0 without one.
        last_time: its store time, ms.
    """

    gaps: list[Gap] = field(default_factory=list)
    records: dict[int, list[Finding]] = field(default_factory=dict)
    blanks: list[Finding] = field(default_factory=list)
    stale: list[Finding] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    holes: list[Break] = field(default_factory=list)
    strayed: dict[int, Claim] = field(default_factory=dict)
    doubtful: frozenset[int] = frozenset()
    beside: frozenset[tuple[str, int, int]] = frozenset()
    unqueued: list[Claim] = field(default_factory=list)
    compressions: Counter[int] = field(default_factory=Counter)
    end: int = 0
    last_time: int = 0

    def ranges(self) -> Iterable[Range]:
        """Ranges of the log of which it matters which units point there."""
        yield from ((g.begin, g.end) for g in self.gaps)
        yield from ((at, at + 1) for at in {*self.records, *self.strayed, *(c.physical for c in self.unqueued)})
        yield from ((at, at + 1) for at in {*self.doubtful, *(m.physical for m in self.missing)})


def survey(store: RocketMQStore) -> LogDamage:
    """Walk over the whole log once.

    Raises:
        OSError: a file cannot be read.
    """
    return _Survey(store).run()


class _Survey:
    def __init__(self, store: RocketMQStore) -> None:
        self.store, self.found = store, LogDamage()
        self.log = CommitLog(store.log_files, crashed=store.has_abort)
        self._files = {f.name: f for f in store.log_files}
        self._followed = {c.file.name: c.followed for c in self.log.contexts()}
        self._last: bytes | None = None

    def run(self) -> LogDamage:
        ids = TextIds()
        checker, holes = LogChecker(ids=ids), HoleFinder(ids)
        queues = QueueChecker(self.store, LogContext.of(self.store), ids, KeyNumbers())
        for found in self.log.walk():
            findings = checker.block(found)
            queues.block(found)
            holes.block(found)
            self._sort(findings, found.block)
            self._note(found.block)
        self._sort_late(checker.finish())
        self.found.missing, self.found.holes = queues.partial().missing, holes.holes
        self.found.strayed, self.found.unqueued = holes.strayed(), holes.unqueued
        self.found.doubtful, self.found.beside = holes.doubtful(self.log.min_offset), holes.beside()
        self._merge()
        return self.found

    def _sort_late(self, partial: LogPartial) -> None:
        """What no block judges alone: bodies without the flag of their topic, store times at the ends of the log."""
        for topic, bodies in partial.unflagged.items():
            if topic in partial.compressing and bodies.count <= _FEW_UNFLAGGED:
                for finding in bodies.findings(is_usual=True):
                    self.found.records.setdefault(finding.physical_offset or 0, []).append(finding)
        times = TimesJoin()
        for finding in [*times.add(partial.times), *times.end()]:
            self.found.records.setdefault(finding.physical_offset or 0, []).append(finding)

    def _sort(self, findings: list[Finding], block: Block) -> None:
        resumed = {g.position for g in block.gaps if g.resumed}
        blanks = {b.position for b in block.blanks}
        for finding in findings:
            if finding.kind is kinds.LOG_BLANK and finding.offset in blanks:
                self.found.blanks.append(finding)
            elif finding.kind in _GAPS:
                self._gap(finding, block, finding.offset in resumed)
            elif finding.kind is kinds.LOG_STALE_TAIL:
                self.found.stale.append(finding)
            elif finding.kind in _RECORDS and finding.physical_offset is not None:
                self.found.records.setdefault(finding.physical_offset, []).append(finding)

    def _gap(self, finding: Finding, block: Block, resumed: bool) -> None:
        file = self._files[finding.file]
        begin = file.base + finding.offset
        ends_file = not resumed and self._followed[file.name]
        end = file.base + file.size if ends_file else begin + finding.size
        setting = self._setting(block, finding.offset)
        self.found.gaps.append(Gap(finding, file, begin, end, ends_file, not resumed and not ends_file, setting))

    def _setting(self, block: Block, position: int) -> Setting:
        """From the record in front of a gap, or, at the begin of the log, from the one behind."""
        before = int(np.searchsorted(block.position, position)) - 1
        if before >= 0:
            return setting_of(block.raw(before))
        if self._last is not None:
            return setting_of(self._last)
        return setting_of(block.raw(0)) if len(block) else Setting()

    def _note(self, block: Block) -> None:
        if len(block):
            flags = block["sys_flag"]
            self.found.compressions.update((flags[(flags & _COMPRESSED) != 0] >> 8 & 7).tolist())
            self._last = block.raw(len(block) - 1)
            self.found.end = int(block.physical[-1] + block.total_size[-1])
            self.found.last_time = int(block["store_timestamp"][-1])

    def _merge(self) -> None:
        """One gap for what reaches to the end of a file, however many findings it has."""
        kept: list[Gap] = []
        for gap in sorted(self.found.gaps, key=lambda g: g.begin):
            if kept and kept[-1].ends_file and gap.begin < kept[-1].end:
                continue
            kept.append(gap)
        self.found.gaps = kept


def setting_of(record: bytes) -> Setting:
    """What a placeholder takes over from a record."""
    from formats.rocketmq.message import decode_record

    fields, _ = decode_record(record)
    has_crc = record[-20:].startswith(NAME)
    if len(fields["store_ip"]) != 4:
        return Setting(fields["store_timestamp"], property_crc=has_crc)
    return Setting(fields["store_timestamp"], fields["store_ip"], fields["store_port"], has_crc)
