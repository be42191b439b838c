"""Checks of the commit log alone: CRCs, queue offsets, store times, topics, properties, compression.

One :class:`LogChecker` looks at one split of the log. Splits are checked in any order, in any
process; what spans them is kept as a small :class:`LogPartial` and joined in log order by
:class:`LogJoin`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from formats.rocketmq.message import TRANSACTION
from rmqctl.findings import Finding, FindingKind, Severity
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.continuity import Continuity, ContinuityJoin, ContinuityPartial, messages_in
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.findings.log import (
    LOG_BODY_CRC,
    LOG_EMPTY_BODY,
    LOG_PHYSICAL_OFFSET,
    LOG_PORT,
    LOG_PROPERTIES_LOST,
    LOG_QUEUE_OFFSET,
    LOG_SIZE,
    LOG_STORE_TIME,
    LOG_TOPIC,
    LOG_V2,
)
from rmqctl.rocketmq.log.block import Block, Ints, head_offsets
from rmqctl.rocketmq.log.columns import KeyNumbers, TextIds, Texts
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.log.crc import body_crcs, property_crc_findings, reserved_findings
from rmqctl.rocketmq.log.record import can_be_topic
from rmqctl.rocketmq.log.stand_ins import stand_ins
from rmqctl.rocketmq.state.releases import FIRST_WITH_EMPTY_BODIES
from rmqctl.rocketmq.store.files import is_offset
from rmqctl.rocketmq.verify.compression import Unflagged, compressing_topics, compression_findings, unflagged_bodies
from rmqctl.rocketmq.verify.store_times import StoreTimes, TimesJoin, TimesPartial
from rmqctl.text import number_of, text_or_base64

DEFAULT_MAX_MESSAGE = 4 << 20
RECORD_MARGIN = 64 << 10
FIRST_WITH_V2 = Release(5, 1, 0)
MISPLACING = (LOG_QUEUE_OFFSET, LOG_PHYSICAL_OFFSET, LOG_TOPIC)
_HARMLESS = (LOG_STORE_TIME, LOG_SIZE, LOG_PORT)
_LARGEST_PORT = 0xFFFF


@dataclass(slots=True)
class LogPartial:
    """What one split leaves for the join: counts, ranges that cannot be trusted, and queue ends.

    Attributes:
        damaged: physical ranges ``(begin, end)`` that findings cover, ascending.
        misplaced: records whose topic, queue offset or own offset is wrong: their unit lies elsewhere.
        v2, empty: file, position and physical offset of the first V2 record, and of the first message without a body.
        unflagged: zlib bodies that do not say so; compressing: topics with zlib bodies that do.
        whole: of the records those whose body has its CRC, where it was computed; at_home: of these, those that lie
            where they say, by the name of their file.
        placeholders: of the messages those that stand for destroyed ones, and fillers.
    """

    records: int = 0
    whole: int = 0
    at_home: int = 0
    messages: int = 0
    placeholders: int = 0
    bytes: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)
    misplaced: list[int] = field(default_factory=list)
    continuity: ContinuityPartial = field(default_factory=ContinuityPartial)
    times: TimesPartial = field(default_factory=TimesPartial)
    end: int | None = None
    v2: tuple[str, int, int] | None = None
    v2_count: int = 0
    empty: tuple[str, int, int] | None = None
    empty_count: int = 0
    stale: bool = False
    unflagged: dict[str, Unflagged] = field(default_factory=dict)
    compressing: set[str] = field(default_factory=set)


class LogChecker:
    """Checks of the records of one split.

    Args:
        bodies: also compute the CRC of every body and look at compression.
        max_message: largest body a broker of this store accepts, in bytes.
        ids, queues: numbers of topics and queues, where other checks of the split use them too.
    """

    def __init__(
        self,
        *,
        bodies: bool = True,
        max_message: int = DEFAULT_MAX_MESSAGE,
        ids: TextIds | None = None,
        queues: KeyNumbers | None = None,
    ) -> None:
        self.bodies, self.max_message = bodies, max_message
        self.partial = LogPartial()
        self._times = StoreTimes()
        self._continuity = Continuity(ids or TextIds(), queues or KeyNumbers())

    def block(self, found: LogBlock) -> list[Finding]:
        """Return findings of one block, those of the walk included, by offset."""
        block, findings = found.block, list(found.findings)
        if not len(block):
            self._note_damage(found, findings)
            return findings
        self._continuity.topics(found)
        findings += self._topics(block)
        findings += [*_sizes(block, self.max_message), *_ports(block)]
        if self.bodies:
            findings += [*_body_crc(block), *self._compression(block), *_properties(block, found.properties)]
        self._note(block, {f.physical_offset for f in findings if f.kind is LOG_BODY_CRC})
        self._note_damage(found, findings)
        breaks = self._continuity.block(found, self.partial.damaged)
        self._note_damage(found, breaks)
        findings += breaks
        late, own = _parted(self._times.block(block), block.file)
        return late + sorted(findings + own, key=lambda f: f.offset)

    def finish(self) -> LogPartial:
        """Return what this split leaves for the join."""
        self.partial.times = self._times.partial
        self.partial.continuity.spans = self._continuity.spans()
        return self.partial

    def _compression(self, block: Block) -> list[Finding]:
        """Return what is sure; what may be a producer's own work is left to the join."""
        self.partial.compressing |= compressing_topics(block)
        for topic, bodies in unflagged_bodies(block, self.max_message).items():
            self.partial.unflagged.setdefault(topic, Unflagged()).add(bodies)
        return compression_findings(block, self.max_message)

    def _topics(self, block: Block) -> list[Finding]:
        """Names that no broker would accept, each looked at once."""
        findings = []
        for text, row in self._continuity.new_topics:
            if not can_be_topic(text):
                findings.append(topic_finding(block, row, text))
        return findings

    def _note(self, block: Block, broken: Collection[int | None]) -> None:
        """Count a block, in which the records at some physical offsets have broken bodies."""
        partial = self.partial
        partial.records += len(block)
        name = block.file.rpartition("/")[2]
        is_misnamed = not is_offset(name) or int(name) != block.base
        whole = ~np.isin(block.physical, np.array([at for at in broken if at is not None], np.int64))
        partial.whole += int(np.count_nonzero(whole))
        if not is_misnamed:
            partial.at_home += int(np.count_nonzero(whole & (block["physical_offset"] == block.physical)))
        counts = messages_in(block)
        partial.messages += int(counts.sum())
        partial.placeholders += int(counts[stand_ins(block)].sum())
        partial.bytes += int(block.total_size.sum())
        partial.end = int(block.physical[-1] + block.total_size[-1])
        v2 = np.flatnonzero(block.variant & 4)
        partial.v2_count += len(v2)
        partial.v2 = partial.v2 or _place_of(block, v2)
        empty = np.flatnonzero(block.body_size == 0)
        empty = empty[~np.isin(block["sys_flag"][empty] & TRANSACTION, UNQUEUED)] if len(empty) else empty
        partial.empty_count += len(empty)
        partial.empty = partial.empty or _place_of(block, empty)

    def _note_damage(self, found: LogBlock, findings: Iterable[Finding]) -> None:
        base = found.block.base
        ranges = []
        for finding in findings:
            if finding.level is not Severity.NOTE and finding.kind not in _HARMLESS:
                begin = finding.physical_offset if finding.physical_offset is not None else base + finding.offset
                ranges.append((begin, max(base + finding.offset + finding.size, begin + 1)))
            if finding.kind in MISPLACING and finding.physical_offset is not None:
                self.partial.misplaced.append(finding.physical_offset)
        self.partial.damaged = sorted([*self.partial.damaged, *ranges]) if ranges else self.partial.damaged


def damaged_records(findings: Iterable[Finding]) -> set[int]:
    """Return physical offsets of records that are damaged by what findings say; a wrong queue offset is none."""
    harmless = (*_HARMLESS, LOG_QUEUE_OFFSET)
    wrong = (f for f in findings if f.level is not Severity.NOTE and f.kind not in harmless)
    return {f.physical_offset for f in wrong if f.physical_offset is not None}


def _place_of(block: Block, rows: Ints) -> tuple[str, int, int] | None:
    """File, position and physical offset of the first of some records; None without one."""
    return (block.file, int(block.position[rows[0]]), int(block.physical[rows[0]])) if len(rows) else None


def _parted(findings: Iterable[Finding], file: str) -> tuple[list[Finding], list[Finding]]:
    """Those of earlier files, and those of this one."""
    found = list(findings)
    return [f for f in found if f.file != file], [f for f in found if f.file == file]


def _record_finding(
    kind: FindingKind, block: Block, row: int, offset: int, size: int, message: str, severity: Severity | None = None
) -> Finding:
    topic = block.topic(row).decode("utf-8", "replace")
    return Finding(
        kind, block.file, offset, size, message, severity, physical_offset=block.physical_of(row), topic=topic
    )


def topic_finding(block: Block, row: int, text: bytes) -> Finding:
    """Return the finding for a topic that no broker accepts; offset and size are those of the topic."""
    at, said = int(block.topic_at[row]) + block.start, text_or_base64(text)
    named = said if isinstance(said, str) else text
    return _record_finding(LOG_TOPIC, block, row, at, len(text), f"the topic is {named!r}")


def _body_crc(block: Block) -> list[Finding]:
    stored, computed = block["body_crc"].astype(np.int64), body_crcs(block)
    bad = np.flatnonzero((stored != computed) & (block.body_size > 0))
    return [body_crc_finding(block, int(i), int(stored[i]), int(computed[i])) for i in bad]


def body_crc_finding(block: Block, row: int, stored: int, computed: int) -> Finding:
    """Return the finding for a body that does not match its CRC; offset and size are those of the body."""
    at, size = block.body_of(row) + block.start, int(block.body_size[row])
    found = _record_finding(LOG_BODY_CRC, block, row, at, size, f"stored {stored}, computed {computed}")
    return replace(found, queue_id=int(block["queue_id"][row]), queue_offset=int(block["queue_offset"][row]))


def _ports(block: Block) -> list[Finding]:
    """Hosts whose port is none; offset and size are those of the port."""
    found = []
    for name in ("born_port", "store_port"):
        ports = block[name]
        for row in np.flatnonzero((ports < 0) | (ports > _LARGEST_PORT)).tolist():
            at = int(block.position[row] + head_offsets(name)[block.variant[row]])
            message = f"the {name.replace('_port', '')} host has port {int(ports[row])}"
            found.append(_record_finding(LOG_PORT, block, row, at, 4, message))
    return found


def _sizes(block: Block, max_message: int) -> list[Finding]:
    large = np.flatnonzero((block.body_size > max_message) | (block.total_size > max_message + RECORD_MARGIN))
    return [
        _record_finding(
            LOG_SIZE,
            block,
            int(i),
            int(block.position[i]),
            int(block.total_size[i]),
            f"the record has {int(block.total_size[i])} bytes, its body {int(block.body_size[i])}",
        )
        for i in large
    ]


def _properties(block: Block, texts: Texts) -> list[Finding]:
    reserved = reserved_findings(block, texts)
    known = {finding.physical_offset for finding in reserved}
    damaged = [f for f in damaged_properties(block, texts) if f.physical_offset not in known]
    return [*damaged, *reserved, *property_crc_findings(block)]


def damaged_properties(block: Block, texts: Texts) -> Iterator[Finding]:
    """Properties with zero bytes: no encoder writes that, and the body CRC does not cover them."""
    if texts.data.all():
        return
    zeros = np.flatnonzero(texts.data == 0)
    for row in np.unique(np.searchsorted(texts.start, zeros, side="right") - 1).tolist():
        text, at = texts[row], int(block.properties_at[row]) + block.start
        first = text.find(0)
        message = f"the properties text of {len(text)} bytes holds zero bytes from byte {first} on"
        yield _record_finding(LOG_PROPERTIES_LOST, block, row, at + first, len(text) - first, message)


def gap_range(gap: Finding) -> tuple[int, int]:
    """Return the physical range that a finding about missing files covers."""
    begin = gap.physical_offset or 0
    return begin, begin + gap.size


class LogJoin:
    """Adds up what the splits leave, in log order; of a sound split nothing is kept but counts and ends.

    Attributes:
        records, messages: in all splits; those of inner batches count one by one as messages.
        whole, at_home, placeholders: as of :class:`LogPartial`.
        end: physical offset after the last record; None without one.
        damaged: physical ranges that cannot be trusted, ascending, missing files among them.
        misplaced: as of :class:`LogPartial`.
    """

    def __init__(self) -> None:
        self.records = self.messages = self.whole = self.at_home = self.placeholders = 0
        self.end: int | None = None
        self.damaged: list[tuple[int, int]] = []
        self.misplaced: list[int] = []
        self._steps: list[Finding] = []
        self._times = TimesJoin()
        self._breaks: list[Finding] = []
        self._continuity = ContinuityJoin()
        self._v2: tuple[str, int, int] | None = None
        self._v2_count = 0
        self._empty: tuple[str, int, int] | None = None
        self._empty_count = 0
        self._unflagged: dict[str, Unflagged] = {}
        self._compressing: set[str] = set()

    def gap(self, finding: Finding) -> None:
        """Files are missing in front of the next split."""
        insort(self.damaged, gap_range(finding))

    def lose(self, begin: int, end: int) -> None:
        """Lose a physical range after the last split: the file was cut."""
        insort(self.damaged, (begin, end))

    def begin(self, damaged: Iterable[tuple[int, int]]) -> None:
        """Begin what is looked at: of what was added before only counts, where the log ended and what shows how it goes
        on are left.

        Args:
            damaged: ranges of what is looked at, files missing in front of it among them.
        """
        self._steps, self._breaks, self._unflagged = [], [], {}
        self._v2 = self._empty = None
        self._v2_count = self._empty_count = 0
        self._times.forget_future()
        for found in damaged:
            insort(self.damaged, found)

    def add(self, partial: LogPartial) -> None:
        """Take what the next split leaves."""
        self._steps += self._times.add(partial.times)
        for found in partial.damaged:
            insort(self.damaged, found)
        self._breaks += self._continuity.add(partial.continuity, self.damaged)
        for topic, bodies in partial.unflagged.items():
            self._unflagged.setdefault(topic, Unflagged()).add(bodies)
        self._compressing |= partial.compressing
        self.records += partial.records
        self.whole += partial.whole
        self.at_home += partial.at_home
        self.messages += partial.messages
        self.placeholders += partial.placeholders
        self.misplaced += partial.misplaced
        self.end = self.end if partial.end is None else partial.end
        self._v2, self._v2_count = self._v2 or partial.v2, self._v2_count + partial.v2_count
        self._empty, self._empty_count = self._empty or partial.empty, self._empty_count + partial.empty_count

    @property
    def last_time(self) -> int | None:
        """Store time of the last record, in ms; None without one."""
        return self._times.last

    @property
    def newest_time(self) -> int | None:
        """The latest in front of a clock step, or the last: one record alone far ahead does not count."""
        return max((t for t in (self._times.newest, self._times.last) if t is not None), default=None)

    def of_records(self, most_unflagged: int) -> Iterator[Finding]:
        """Yield of that what is wrong with single records: store times, queue offsets, lost flags of compression.

        Args:
            most_unflagged: more bodies of a topic that are compressed and do not say so are its producer's own work.
        """
        yield from self._steps
        yield from self._times.end()
        yield from self._breaks
        for topic, bodies in self._unflagged.items():
            if topic in self._compressing and bodies.count <= most_unflagged:
                yield from bodies.findings(is_usual=True)

    def findings(
        self, as_release: Release | None = None, written_by: Release | None = None, *, goes_on: bool = False
    ) -> Iterator[Finding]:
        """Yield what only shows across splits: clock steps and queue offsets at the seams, V2 records, empty bodies.

        Args:
            as_release: the release the store is meant for; one before 5.1.0 cannot read V2 records.
            written_by: the latest release that can have written it, where it is meant for no certain one.
            goes_on: records follow, and the first of them shows what is wrong with the last one here.
        """
        yield from self._steps
        yield from () if goes_on else self._times.end()
        yield from self._breaks
        yield from self._times.future()
        for topic, bodies in self._unflagged.items():
            yield from bodies.findings(is_usual=topic in self._compressing)
        if self._v2:
            message = f"{self._v2_count} records with a two-byte topic length, the first one here"
            reader = as_release or written_by
            unreadable = reader is not None and reader < FIRST_WITH_V2
            severity = Severity.WARNING if unreadable else None
            yield Finding(LOG_V2, self._v2[0], self._v2[1], 0, message, severity, physical_offset=self._v2[2])
        if self._empty:
            message = f"{number_of(self._empty_count, 'message')} without a body, the first one here"
            release = as_release or written_by
            stalls = release is not None and release < FIRST_WITH_EMPTY_BODIES
            file, position, physical = self._empty
            severity = Severity.WARNING if stalls else None
            yield Finding(LOG_EMPTY_BODY, file, position, 0, message, severity, physical_offset=physical)
