"""Whether QUEUEOFFSET continues each queue (spec 2.16, 14.25).

Every message of a (topic, queue) carries the next offset of that queue. The expectation of each
queue is carried from block to block in arrays; only breaks are looked at one by one. Prepared and
rollback records of old brokers carry 0 and do not count; an inner batch advances by its INNER_NUM.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from formats.rocketmq.message import TRANSACTION, SysFlag
from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.findings.log import LOG_QUEUE_OFFSET
from rmqctl.rocketmq.log.block import Block, Ints, head_offsets
from rmqctl.rocketmq.log.columns import KeyNumbers, TextIds, pairs_of, properties_of, run_starts, signed
from rmqctl.rocketmq.log.commitlog import LogBlock

_LARGEST = (1 << 63) - 1
_INNER_BATCH = int(SysFlag.INNER_BATCH)
Key = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """First and last record of a queue in one split.

    Attributes:
        first: queue offset of the first record; ``first_at`` is where it lies (file, position, physical offset).
        expected: queue offset that the next record should carry.
        other: the one it should carry if the last break was a single wrong field; -1 if there was none.
        last_physical: physical offset of the last record.
        pending: the break between the first and the second record, if there is one: which of the two
            is wrong only the split before shows.
        second: queue offset of the second record where ``pending`` is set.
    """

    first: int
    first_at: tuple[str, int, int]
    expected: int
    other: int
    last_physical: int
    pending: Finding | None = None
    second: int = -1


@dataclass(slots=True)
class ContinuityPartial:
    """What one split leaves for the join: the span of each queue."""

    spans: dict[Key, QueueSpan] = field(default_factory=dict)


class Continuity:
    """Follows the queue offsets of one split.

    Attributes:
        new_topics: topics that the last block brought, each with a row it stands in.
    """

    def __init__(self, ids: TextIds, numbers: KeyNumbers) -> None:
        self._topics, self._queues = ids, numbers
        self._named = 0
        self._expected = np.zeros(0, np.int64)
        self._other = np.zeros(0, np.int64)
        self._physical = np.zeros(0, np.int64)
        self._first: dict[int, tuple[int, tuple[str, int, int]]] = {}
        self._pending: dict[int, tuple[Finding, int]] = {}
        self.new_topics: list[tuple[bytes, int]] = []

    def topics(self, found: LogBlock) -> Ints:
        """Return the number of each record's topic; keeps which topics are new."""
        topics, names = found.topics(self._topics), self._topics.texts
        first = {n: int(np.argmax(topics == n)) for n in range(self._named, len(names))}
        self.new_topics = [(names[n], row) for n, row in first.items() if topics[row] == n]
        self._named = len(names)
        return topics

    def block(self, found: LogBlock, damaged: list[tuple[int, int]]) -> list[Finding]:
        """Return findings for records that do not continue their queue; a hole with damage in it is none."""
        queue, row = found.by_queue(self._topics, self._queues)
        kinds_of = found.block["sys_flag"] & TRANSACTION
        if kinds_of.any():
            counted = ~np.isin(kinds_of[row], UNQUEUED)
            queue, row = queue[counted], row[counted]
        return self._follow(found.block, queue, row, damaged) if len(row) else []

    def spans(self) -> dict[Key, QueueSpan]:
        """Return the span of each queue seen so far."""
        found = {}
        keys = self._queues.keys()
        for number, (first, place) in self._first.items():
            key = keys[number]
            name = (self._topics.texts[key >> 32], signed(key & 0xFFFFFFFF))
            pending, second = self._pending.get(number, (None, -1))
            expected, other, last = (int(c[number]) for c in (self._expected, self._other, self._physical))
            found[name] = QueueSpan(first, place, expected, other, last, pending, second)
        return found

    def _follow(self, block: Block, queue: Ints, row: Ints, damaged: list[tuple[int, int]]) -> list[Finding]:
        """Return records sorted by queue, those of one queue in log order."""
        starts = run_starts(queue)
        self._grow(block, queue[starts], row[starts])
        offset, step = block["queue_offset"][row], messages_in(block)[row]
        after = offset + step
        expected = np.empty_like(after)
        expected[1:] = after[:-1]
        expected[starts] = self._expected[queue[starts]]
        odd = queue[(offset != expected) & (expected >= 0)]
        broken = np.unique(odd) if len(odd) else odd
        last = np.append(starts[1:], len(queue)) - 1
        plain = last[~np.isin(queue[last], broken)] if len(broken) else last
        self._expected[queue[plain]] = after[plain]
        self._other[queue[plain]] = -1
        self._physical[queue[plain]] = block.physical[row[plain]]
        findings = []
        for number in broken.tolist():
            findings += self._follow_one(block, number, row[queue == number], damaged)
        return findings

    def _follow_one(self, block: Block, number: int, rows: Ints, damaged: list[tuple[int, int]]) -> list[Finding]:
        """Return a queue with a break in this block, record by record."""
        findings = []
        steps, offsets = messages_in(block), block["queue_offset"]
        for row in rows.tolist():
            offset, expected, physical = int(offsets[row]), int(self._expected[number]), block.physical_of(row)
            other = -1
            if expected not in (-1, offset) and offset != self._other[number]:
                other = min(expected + int(steps[row]), _LARGEST)
                before = int(self._physical[number])
                if offset < expected or not _any_between(damaged, before, physical):
                    found = _break(block, row, expected, offset)
                    if before == self._first[number][1][2]:
                        self._pending[number] = found, offset
                    else:
                        findings.append(found)
            self._expected[number], self._other[number] = min(offset + int(steps[row]), _LARGEST), other
            self._physical[number] = physical
        return findings

    def _grow(self, block: Block, queues: Ints, rows: Ints) -> None:
        """Make room for queues seen for the first time, and keep where they begin: each with its first row."""
        known, count = len(self._expected), len(self._queues)
        if count > known:
            for name in ("_expected", "_other", "_physical"):
                setattr(self, name, np.append(getattr(self, name), np.full(count - known, -1, np.int64)))
        elif len(self._first) == count:
            return
        for number, row in zip(queues.tolist(), rows.tolist(), strict=True):
            if number not in self._first:
                place = (block.file, int(block.position[row]), block.physical_of(row))
                self._first[number] = int(block["queue_offset"][row]), place


def messages_in(block: Block) -> Ints:
    """How many messages each record stands for, and advances its queue by: 1, or the INNER_NUM of an inner batch."""
    counts = np.ones(len(block), np.int64)
    inner = np.flatnonzero(block["sys_flag"] & _INNER_BATCH)
    if len(inner):
        for row, count in inner_counts(block, inner):
            counts[row] = count
    return counts


def inner_counts(block: Block, rows: Ints) -> Iterator[tuple[int, int]]:
    """INNER_NUM of inner batch records that carry a readable one."""
    part = block.take(rows)
    pairs = pairs_of(properties_of(part)).named(b"INNER_NUM")
    for i in range(len(pairs)):
        text = pairs.value(i)
        if text.isdigit() and len(text) < 6:
            yield int(rows[pairs.owner[i]]), int(text)


def _any_between(damaged: list[tuple[int, int]], begin: int, end: int) -> bool:
    """Whether a damaged range overlaps ``[begin, end)``; the ranges are ascending."""
    at = bisect_left(damaged, (begin, 0))
    return (at > 0 and damaged[at - 1][1] > begin) or (at < len(damaged) and damaged[at][0] < end)


def _break(block: Block, row: int, expected: int, found: int) -> Finding:
    offset = int(block.position[row] + head_offsets("queue_offset")[block.variant[row]])
    place = block.file, offset, block.physical_of(row)
    return break_finding(block.topic(row), int(block["queue_id"][row]), place, expected, found)


def break_finding(topic: bytes, queue_id: int, place: tuple[str, int, int], expected: int, found: int) -> Finding:
    """Return the finding for a record at ``place`` (file, offset of the field, physical offset of the record)."""
    repeated = found < expected
    what = "the offset was given before" if repeated else f"{found - expected} messages are missing in between"
    return Finding(
        LOG_QUEUE_OFFSET,
        place[0],
        place[1],
        8,
        f"the queue should go on with {expected}, but the record carries {found}: {what}, or the field is wrong",
        Severity.WARNING if repeated and found == 0 else None,
        physical_offset=place[2],
        topic=topic.decode("utf-8", "replace"),
        queue_id=queue_id,
        queue_offset=found,
    )


class ContinuityJoin:
    """Breaks between splits, which are given in log order; what is kept grows with the queues, not with the splits."""

    def __init__(self) -> None:
        self._last: dict[Key, QueueSpan] = {}

    def add(self, partial: ContinuityPartial, damaged: list[tuple[int, int]]) -> Iterator[Finding]:
        """Yield the breaks in front of the next split.

        Args:
            damaged: ranges up to the end of this split, ascending; a hole with damage in it is no break.
        """
        for key, span in partial.spans.items():
            before, first_wrong = self._last.get(key), False
            if before is not None and span.first not in (before.expected, before.other):
                file, position, physical = span.first_at
                first_wrong = span.second == before.expected + 1
                if span.first < before.expected or not _any_between(damaged, before.last_physical, physical):
                    place = file, position + int(head_offsets("queue_offset")[0]), physical
                    yield break_finding(key[0], key[1], place, before.expected, span.first)
                if span.last_physical == physical:  # of one record that may be wrong, the next shows
                    other = min(before.expected + span.expected - span.first, _LARGEST)
                    span = replace(span, other=other)
            if span.pending is not None and not first_wrong:
                yield span.pending
            self._last[key] = span


__all__ = ["Continuity", "ContinuityPartial", "KeyNumbers", "QueueSpan", "break_finding", "messages_in"]
__all__ += ["ContinuityJoin", "signed"]
