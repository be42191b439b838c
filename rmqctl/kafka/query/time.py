"""The offset that a broker answers for a time: ListOffsets, by the indexes as it reads them (spec 8.3, 12)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from formats.kafka.record_batch import Attributes, Codec
from rmqctl.explain import Trace
from rmqctl.kafka.directory.directory import Segment
from rmqctl.kafka.directory.releases import COMPARED
from rmqctl.kafka.log.block import Block
from rmqctl.kafka.log.indexes import TimeIndex, read_time_index
from rmqctl.kafka.log.records import Records, records_of
from rmqctl.kafka.query.offset import index_entry
from rmqctl.kafka.query.steps import NO_TIMESTAMP, NONE_IN_SEGMENT, NONE_THAT_LATE, TIME_INDEX_WRONG
from rmqctl.kafka.rows import record_row
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.release import Release

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
SPECIAL = {"latest": LATEST, "earliest": EARLIEST, "max-timestamp": MAX_TIMESTAMP}
"""Words for times -> the numbers that stand for them in the protocol."""
WITH_RECORD_OF_LARGEST = Release(3, 8, 0)
"""The first release that looks for the record with the largest timestamp when it is asked (KAFKA-16310)."""


class Found(NamedTuple):
    """A record that answers: its group and its number there; and offset and timestamp answered if they are others."""

    records: Records
    row: int
    answer: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class TimeAnswer:
    """An offset for a time; -1 and -1: no record is that late.

    Attributes:
        record: the record at the offset, where there is one.
        steps: what was looked at, empty where nothing was to be explained.
    """

    time: int
    offset: int
    timestamp: int
    record: dict[str, Any] | None
    steps: tuple[dict[str, Any], ...] = ()

    def rows(self, topic: str, partition: int) -> list[dict[str, Any]]:
        """Return the answer, its record, then the steps."""
        place = {"topic": topic, "partition": partition}
        answer = {"kind": "time_answer"} | place
        answer |= {"time": self.time, "offset": self.offset, "timestamp": self.timestamp}
        return [answer, *([self.record] if self.record else []), *self.steps]


def offset_for_time(
    log: PartitionLog, time: int | str, release: Release = COMPARED[-1], *, explain: bool = False
) -> TimeAnswer:
    """Answer one time for one partition.

    Args:
        time: epoch ms, or one of :data:`SPECIAL`.
        release: whose broker is asked.
    """
    steps = Trace(on=explain)
    number = SPECIAL[time] if isinstance(time, str) else time
    if number == LATEST:
        end = log.replayed.log_end_offset
        steps.found(f"the log ends before offset {end}")
        return TimeAnswer(number, end, -1, None, tuple(steps.rows()))
    if number == EARLIEST:
        steps.found(f"the log starts at offset {log.loaded.log_start_offset}")
        return TimeAnswer(number, log.loaded.log_start_offset, -1, None, tuple(steps.rows()))
    found = _largest(log, release, steps) if number == MAX_TIMESTAMP else _at_or_after(log, number, steps)
    if explain and number >= 0:
        _compare(log, number, -1 if found is None else int(found.records.offset[found.row]), steps)
    if found is None:
        return TimeAnswer(number, -1, -1, None, tuple(steps.rows()))
    record = record_row(found.records, found.row, log.partition)
    offset, timestamp = found.answer or (record["offset"], record["timestamp"])
    return TimeAnswer(number, offset, timestamp, record, tuple(steps.rows()))


def _at_or_after(log: PartitionLog, time: int, steps: Trace) -> Found | None:
    """Return the first record with a timestamp of ``time`` or later in the first segment that should hold one."""
    for segment in log.served:
        assert segment.log is not None
        index = time_index_of(segment)
        largest, known_by = largest_timestamp(log, segment, index)
        if largest < time:
            steps.add(segment.log.name, "largest timestamp", f"{largest}, {known_by}: earlier than {time}")
            continue
        steps.add(
            segment.log.name, "largest timestamp", f"{largest}, {known_by}: the first segment that reaches {time}"
        )
        found = _search(log, segment, index, time, steps)
        if found is None:
            steps.conclude(NONE_IN_SEGMENT, segment.log.name)
        else:
            offset = int(found.records.offset[found.row])
            steps.found(f"offset {offset} is the first of that time or later", segment.log.name)
        return found
    steps.conclude(NONE_THAT_LATE, time=time)
    return None


def _search(log: PartitionLog, segment: Segment, index: TimeIndex | None, time: int, steps: Trace) -> Found | None:
    position = 0
    if index is not None and segment.time_index is not None:
        number = int(np.searchsorted(index.timestamps, time, side="right")) - 1
        start = int(index.offsets(segment.base)[number]) if number >= 0 else segment.base
        what = f"entry {number}" if number >= 0 else f"{len(index)} entries"
        steps.add(segment.time_index.name, what, f"search from offset {start}")
        position = index_entry(segment, max(start, log.loaded.log_start_offset), steps)
    end = log.replayed.log_end_offset
    for block in _blocks(log, segment):
        keep = (block["max_timestamp"] >= time) & (block.position >= position)
        for records in records_of(block.take(keep)):
            hit = np.flatnonzero((records.timestamp >= time) & (records.offset >= log.loaded.log_start_offset))
            if len(hit):
                return Found(records, int(hit[0])) if records.offset[hit[0]] < end else None
    return None


def _compare(log: PartitionLog, time: int, answer: int, steps: Trace) -> None:
    """Say where the first record of a time or later is, if a broker answers otherwise because of its indexes."""
    first = -1
    for _, block in log.blocks(log.loaded.log_start_offset):
        for records in records_of(block.take(block["max_timestamp"] >= time)):
            hit = np.flatnonzero((records.timestamp >= time) & (records.offset >= log.loaded.log_start_offset))
            if len(hit) and first < 0:
                first = int(records.offset[hit[0]])
        if first >= 0:
            break
    if first != answer:
        what = (
            f"offset {first} is the first of that time or later" if first >= 0 else "no record is of that time or later"
        )
        steps.before_conclusion("", "the whole log", f"{what}; by its indexes a broker answers {answer}")


def _largest(log: PartitionLog, release: Release, steps: Trace) -> Found | None:
    """Return the first record with the largest timestamp.

    Before 3.8 (KAFKA-16310) a broker answers what it noted when a batch came. That is the last offset of a batch
    which is compressed or has LogAppendTime, and with 3.7 of every batch (``LogValidator``).
    """
    best, where = -1, None
    for segment in log.served:
        assert segment.log is not None
        index = time_index_of(segment)
        largest = largest_timestamp(log, segment, index)[0] if segment.log.size else -1
        steps.add(segment.log.name, "largest timestamp", str(largest))
        if largest > best:
            best, where = largest, segment
    if where is None:
        steps.conclude(NO_TIMESTAMP)
        return None
    for block in _blocks(log, where):
        times = block["max_timestamp"]
        for records in records_of(block.take(times == best)):
            hit = np.flatnonzero(records.timestamp == best)
            if not len(hit):
                continue
            row = int(hit[0])
            batch = int(records.batch[row])
            if _is_noted_whole(records.block, batch, release):
                end = int(records.block["last_offset"][batch])
                *_, records = records_of(records.block.take(np.array([batch])))
                row = len(records) - 1
                steps.found(f"offset {end} is the last of the batch that has the largest timestamp {best}", block.file)
                return Found(records, row, (end, best))
            steps.found(f"offset {records.offset[row]} is the first with the largest timestamp {best}", block.file)
            return Found(records, row)
    steps.conclude(TIME_INDEX_WRONG, time=best)
    return None


def _is_noted_whole(block: Block, batch: int, release: Release) -> bool:
    """Whether a broker notes the last offset of a batch with its largest timestamp, and not that of the record."""
    if release >= WITH_RECORD_OF_LARGEST:
        return False
    compressed = block["codec"][batch] != Codec.NONE
    return bool(release[:2] == (3, 7) or compressed or block.flag(Attributes.LOG_APPEND_TIME)[batch])


def _blocks(log: PartitionLog, segment: Segment) -> Iterator[Block]:
    """Yield the batches of one segment."""
    for owner, block in log.blocks(segment.base):
        if owner is not segment:
            return
        yield block


def time_index_of(segment: Segment) -> TimeIndex | None:
    """Return the time index that a broker reads, made again where it makes it again; None where there is none."""
    if segment.time_index is None:
        return None
    source = segment.time_index.open()
    try:
        return read_time_index(source)
    finally:
        source.close()


def largest_timestamp(log: PartitionLog, segment: Segment, index: TimeIndex | None) -> tuple[int, str]:
    """Return what a broker takes for the largest timestamp of a segment, and how it knows."""
    assert segment.log is not None
    if index is not None and len(index):
        if segment.base in log.loaded.recovered:
            return int(index.timestamps[-1]), "by the batches, since the time index is made again"
        return int(index.timestamps[-1]), "by the last entry of the time index"
    return segment.log.mtime_ms, "by the modification time of the file, since no time index entry is there"
