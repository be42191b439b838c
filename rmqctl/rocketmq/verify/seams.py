"""What of the log in front of a part is known when the part is judged: it is looked at alone, and says what all would.

The last records in front are read as the part is. Of a queue that has none among them its units are asked, which takes
two small reads; only where they do not prove that the queue goes on is more of the log read, backwards, up to a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from formats.rocketmq.message import decode_record
from rmqctl.rocketmq.dispatch.continuity import ContinuityPartial, Key, QueueSpan
from rmqctl.rocketmq.findings.log import LOG_STORE_TIME
from rmqctl.rocketmq.log.commitlog import FileContext
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import UNIT, Queue
from rmqctl.rocketmq.store.files import QUEUES, QueueFiles
from rmqctl.rocketmq.verify.driver import AllPartials
from rmqctl.rocketmq.verify.log import LogJoin, LogPartial
from rmqctl.rocketmq.verify.splits import Job, Split, SplitCheck, SplitPartials
from rmqctl.rocketmq.verify.store_times import EDGE

FIRST, MOST = 1 << 20, 256 << 20
"""Bytes in front of a part that are read: always, and at most where something may be wrong; then so many at a time."""
STEP = 64 << 20
_AROUND, _MOST_PLACES = 1 << 16, 1024
"""Bytes in front of a place elsewhere that are looked at, and how many such stretches."""
_ENOUGH = 2
"""Records of a queue in front by which the next is judged: one alone may be wrong itself."""


@dataclass(slots=True)
class PartPartials(AllPartials):
    """The same, with what each split leaves of the log."""

    each: list[LogPartial] = field(default_factory=list)

    def add(self, partials: SplitPartials) -> None:
        self.each.append(partials.log)
        AllPartials.add(self, partials)


class Front:
    """The log in front of a part.

    Args:
        job: as the part is checked; its queues and index are left alone.
        contexts: files of the log in front of the part.
        has_units: whether files tell where the records of a queue lie.
    """

    def __init__(self, job: Job, contexts: list[FileContext], *, has_units: bool) -> None:
        self.job, self.has_units = job, has_units
        self._splits = _backwards(contexts)
        self._read: list[LogPartial] = []
        self._seen: Counter[Key] = Counter()
        self._spans: dict[Key, QueueSpan] = {}
        self._size = self._records = 0

    def joined(self, part: PartPartials, wants_more: Callable[[LogJoin], bool]) -> LogJoin:
        """Return the log up to the end of a part, of which only findings in the part are kept.

        Args:
            wants_more: whether what is known of the log up to the end of the part may be too little.
        """
        while (self._size < FIRST or self._records < EDGE) and self._size < MOST and self._back():
            pass
        unsure = {key for key, span in _firsts(part.each).items() if not self._goes_on(key, span)}
        while any(self._seen[key] < _ENOUGH for key in unsure) and self._size < MOST and self._back():
            pass
        join = self._join(part)
        while wants_more(join) and self._size < MOST and self._back():
            join = self._join(part)
        return join

    def _join(self, part: PartPartials) -> LogJoin:
        join = LogJoin()
        known = LogPartial(continuity=ContinuityPartial(self._spans))
        for partial in [known, *reversed(self._read)]:
            join.add(partial)
        join.begin(part.log.damaged)
        for partial in part.each:
            join.add(partial)
        return join

    def _back(self) -> bool:
        """Read the next split, backwards; whether there was one."""
        split = next(self._splits, None)
        if split is None:
            return False
        check = SplitCheck(self.job, split)
        for _ in check.findings():  # that of another part
            pass
        partial = check.partials.log
        self._read.append(partial)
        self._size += (split.stop or split.context.file.size) - split.start
        self._records += partial.records
        for key, span in partial.continuity.spans.items():
            self._seen[key] += 1 if span.first_at[2] == span.last_physical else _ENOUGH
        return True

    # --- queues whose last record lies far in front ---------------------------------------------------

    def _goes_on(self, key: Key, first: QueueSpan) -> bool:
        """Whether the first record of a queue in the part is known to be the next one of its queue."""
        for partial in self._read:
            if (span := partial.continuity.spans.get(key)) is not None:
                return span.expected == first.first and first.pending is None
        if not self.has_units or key[0] in self.job.context.batch_topics:
            return True
        before = self._in_front(key, first)
        if before is not None and before >= 0:
            self._spans[key] = QueueSpan(first.first - 1, ("", 0, before), first.first, -1, before)
        return before is not None

    def _in_front(self, key: Key, first: QueueSpan) -> int | None:
        """Return where the record in front of a record lies, as its unit and the record itself say: its physical
        offset, -1 where the log has none, None where that is not sure.
        """
        topic, number = key[0].decode("utf-8", "replace"), first.first
        path = f"{QUEUES}/{topic}/{key[1]}"
        queue = Queue.open(QueueFiles(QUEUES, topic, key[1], path, self.job.store.tree))
        try:
            own = queue.unit_at(number * UNIT.itemsize)
            if own is None or int(own["physical_offset"][0]) != first.first_at[2]:
                return None
            unit = queue.unit_at((number - 1) * UNIT.itemsize) if number else None
            if unit is None:
                return -1
            with LogReader(self.job.context.log_files) as log:
                return _record_at(log, int(unit["physical_offset"][0]), key, number - 1)
        except OSError:
            return None


def damage_at(job: Job, contexts: list[FileContext], places: Collection[int]) -> tuple[set[tuple[int, int]], set[int]]:
    """Return what is damaged around places of the log outside of the part: physical ranges, and physical offsets of
    records whose store time looks wrong. Of very many places the last ones count as damaged.
    """
    ranges, odd, looked = set[tuple[int, int]](), set[int](), 0
    for context in contexts:
        file = context.file
        inside = sorted(place - file.base for place in places if file.base <= place < file.base + file.size)
        while inside:
            begin, stop = max(inside[0] - _AROUND, 0), inside[0] + 1
            while inside and inside[0] <= stop + _AROUND:
                stop = inside.pop(0) + 1
            looked += 1
            if looked > _MOST_PLACES:
                ranges.add((file.base + begin, file.base + file.size))
                break
            check = SplitCheck(job, Split(context, begin, stop))
            found = list(check.findings())
            ranges.update(check.partials.log.damaged)
            odd.update(f.physical_offset for f in found if f.kind is LOG_STORE_TIME and f.physical_offset is not None)
    return ranges, odd


def _record_at(log: LogReader, physical: int, key: Key, number: int) -> int | None:
    """Return a physical offset where it is that of a record of a queue, -1 in front of the log, else None."""
    if physical < log.min_offset:
        return -1
    raw = log.record(physical)
    if raw is None:
        return None
    fields, _ = decode_record(raw)
    return physical if (fields["topic"], fields["queue_id"], fields["queue_offset"]) == (*key, number) else None


def _firsts(partials: Collection[LogPartial]) -> Mapping[Key, QueueSpan]:
    """The first span of each queue."""
    found: dict[Key, QueueSpan] = {}
    for partial in partials:
        for key, span in partial.continuity.spans.items():
            found.setdefault(key, span)
    return found


def _backwards(contexts: list[FileContext]) -> Iterator[Split]:
    """Yield splits of files from their end to their begin, the first a small one."""
    size = FIRST
    for context in reversed(contexts):
        stop: int | None = None
        end = context.file.size
        while end > 0:
            begin = max(end - size, 0)
            yield Split(context, begin, stop)
            stop = end = begin
            size = STEP


__all__ = ["Front", "PartPartials", "damage_at"]
