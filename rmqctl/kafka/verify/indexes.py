"""Offset, time and transaction index of a segment, held against its batches.

Batches come in pieces in log order; an entry is judged by the piece that holds what it points to. What is asked of
an offset index is only what holds for every release: an entry points to a batch, and all batches before that one
have lower offsets (spec 7.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rmqctl.files.local import ByteSource
from rmqctl.findings import Finding, FindingKind, Severity
from rmqctl.kafka.directory.directory import LogFile, Segment
from rmqctl.kafka.findings.derived import (
    OFFSET_INDEX_COVERAGE,
    OFFSET_INDEX_ENTRY,
    OFFSET_INDEX_MISSING,
    OFFSET_INDEX_ORDER,
    OFFSET_INDEX_PADDING,
    OFFSET_INDEX_SIZE,
    TIME_INDEX_ENTRY,
    TIME_INDEX_LAST,
    TIME_INDEX_MISSING,
    TIME_INDEX_ORDER,
    TIME_INDEX_PADDING,
    TIME_INDEX_SIZE,
    TXN_INDEX_ABSENT,
    TXN_INDEX_ENTRY,
    TXN_INDEX_SIZE,
    TXN_INDEX_VERSION,
)
from rmqctl.kafka.loading.producers import EndedTransaction
from rmqctl.kafka.log.block import Ints
from rmqctl.kafka.log.indexes import Index, OffsetIndex, TimeIndex, read_offset_index, read_time_index, read_txn_index
from rmqctl.kafka.verify.log import SegmentFacts
from rmqctl.kafka.verify.splits import Headers
from rmqctl.text import instant

EntriesT = TypeVar("EntriesT", bound=Index)
_SHOWN = 5
"""Entries of one index that are named one by one; the rest are counted."""


@dataclass(slots=True)
class IndexSettings:
    """How indexes of a partition are judged.

    Attributes:
        is_clean: the broker was stopped in order, so that indexes of active segments are trimmed.
        deleted: the directory waits to be removed: padding is normal.
        interval: bytes between entries that the partition's other indexes show, by the one with the most, for the
            setting may have changed; too many for a file where none does.
    """

    is_clean: bool
    deleted: bool = False
    interval: int = 1 << 31

    @property
    def is_closed(self) -> bool:
        """Whether the indexes of the active segment got their last entries: those of a deleted topic never do."""
        return self.is_clean and not self.deleted


class SegmentIndexes:
    """The indexes of one segment. Feed :meth:`add` the headers of its splits, then :meth:`finish` once."""

    def __init__(self, segment: Segment, settings: IndexSettings, *, is_last: bool) -> None:
        self.segment, self.settings, self.is_last = segment, settings, is_last
        self.offsets = _read(segment.offset_index, read_offset_index)
        self.times = _read(segment.time_index, read_time_index)
        self._found = np.zeros(0 if self.offsets is None else len(self.offsets), np.bool_)
        self._last_before = -1
        self._max_before = -1
        self._wrong: list[tuple[int, str]] = []
        self._wrong_times: list[tuple[int, str]] = []

    def add(self, headers: Headers) -> None:
        """Hold entries against batches that start in this piece of the segment."""
        if not len(headers):
            return
        last = np.maximum.accumulate(np.maximum(headers["last_offset"], self._last_before))
        largest = np.maximum.accumulate(np.maximum(headers["max_timestamp"], self._max_before))
        if self.offsets is not None and len(self.offsets):
            self._offset_entries(self.offsets, headers, last)
        if self.times is not None and len(self.times):
            self._time_entries(self.times, headers, last, largest)
        self._last_before, self._max_before = int(last[-1]), int(largest[-1])

    def finish(self, facts: SegmentFacts, *, one_by_one: bool) -> Iterator[Finding]:
        """Yield what is wrong with both indexes, once all batches of the segment are known.

        Args:
            one_by_one: batches were appended one by one, so that entries are due at known places.
        """
        if facts.segment.log is not None and facts.segment.log.size == 0 and self.segment.offset_index is None:
            return  # made when the first batch comes
        if not self.is_last and facts.last_offset < 0:
            return  # an emptied segment is one finding
        if self.segment.log is not None:
            yield from self._offset_index(facts, one_by_one=one_by_one)
            yield from self._time_index(facts)

    # --- offset index ---------------------------------------------------------------------------------

    def _offset_entries(self, index: OffsetIndex, headers: Headers, last: Ints) -> None:
        positions, offsets = index.positions, index.offsets(self.segment.base)
        start, stop = int(headers.position[0]), int(headers.position[-1] + headers.size[-1])
        mine = np.flatnonzero((positions >= start) & (positions < stop) & ~self._found)
        rows = np.searchsorted(headers.position, positions[mine])
        inside = np.minimum(rows, len(headers) - 1)
        is_start = headers.position[inside] == positions[mine]
        before = np.where(rows > 0, last[np.maximum(rows - 1, 0)], self._last_before)
        ok = is_start & (before < offsets[mine]) & (offsets[mine] >= headers["base_offset"][inside])
        self._found[mine] = True
        for number in np.flatnonzero(~ok).tolist():
            entry = int(mine[number])
            if is_start[number]:
                message = (
                    f"offset {offsets[entry]} at position {positions[entry]}, where a batch of "
                    f"{headers['base_offset'][inside[number]]} to {headers['last_offset'][inside[number]]} begins"
                )
            else:
                message = f"offset {offsets[entry]} at position {positions[entry]}, where no batch begins"
            self._wrong.append((entry, message))

    def _offset_index(self, facts: SegmentFacts, *, one_by_one: bool) -> Iterator[Finding]:
        file, index = self.segment.offset_index, self.offsets
        if file is None or index is None:
            if facts.end or self.segment.time_index is not None:
                yield _missing(OFFSET_INDEX_MISSING, self.segment, ".index")
            return
        yield from self._shape(file, index, OFFSET_INDEX_SIZE, OFFSET_INDEX_PADDING)
        relative = index["relative_offset"]
        disorder = np.flatnonzero((np.diff(relative) <= 0) | (np.diff(index.positions) <= 0)) + 1
        for entry in np.flatnonzero(~self._found).tolist():
            end = facts.end
            self._wrong.append((entry, f"position {index.positions[entry]} is outside the batches, which end at {end}"))
        offsets, last = index.offsets(self.segment.base), facts.last_offset
        for entry in np.flatnonzero(
            (offsets > last) & self._found
        ).tolist():  # a broker then reads the segment as empty
            self._wrong.append((entry, f"offset {offsets[entry]} is outside the segment, which ends with {last}"))
        if len(disorder):
            yield _of_entries(OFFSET_INDEX_ORDER, file, index, int(disorder[0]), len(disorder))
        elif self._wrong and not facts.damaged:
            yield _worst(OFFSET_INDEX_ENTRY, file, index, self._wrong)
        elif one_by_one and not facts.damaged:
            yield from self._coverage(file, index, facts)

    def _coverage(self, file: LogFile, index: OffsetIndex, facts: SegmentFacts) -> Iterator[Finding]:
        """Find an empty index of a segment in which others of the partition would have entries.

        An entry is due for a batch that starts more than the interval after the one before it, or after the start of
        the broker; the cleaner and followers write many batches at once and so make fewer.
        """
        growing = self.is_last and not self.settings.is_closed
        if not len(index) and not growing and facts.longest_run >= self.settings.interval:
            message = f"it has no entry for {facts.end} bytes of log; others have one each {self.settings.interval}"
            yield Finding(OFFSET_INDEX_COVERAGE, file.name, 0, 0, message)

    # --- time index -----------------------------------------------------------------------------------

    def _time_entries(self, index: TimeIndex, headers: Headers, last: Ints, largest: Ints) -> None:
        offsets, times = index.offsets(self.segment.base), index.timestamps
        rows = np.searchsorted(last, offsets)
        mine = np.flatnonzero((rows < len(headers)) & (offsets > self._last_before))
        at = rows[mine]
        before = np.where(at > 0, largest[np.maximum(at - 1, 0)], self._max_before)
        ok = (headers["max_timestamp"][at] == times[mine]) & (before <= times[mine])
        for number in np.flatnonzero(~ok).tolist():
            entry, row = int(mine[number]), int(at[number])
            message = (
                f"timestamp {instant(int(times[entry]))} at offset {offsets[entry]}, "
                f"whose batch has {instant(int(headers['max_timestamp'][row]))}"
            )
            self._wrong_times.append((entry, message))

    def _time_index(self, facts: SegmentFacts) -> Iterator[Finding]:
        file, index = self.segment.time_index, self.times
        if file is None or index is None:
            if facts.end:
                yield _missing(TIME_INDEX_MISSING, self.segment, ".timeindex")
            return
        yield from self._shape(file, index, TIME_INDEX_SIZE, TIME_INDEX_PADDING)
        disorder = np.flatnonzero((np.diff(index.timestamps) <= 0) | (np.diff(index["relative_offset"]) < 0)) + 1
        offsets = index.offsets(self.segment.base)
        outside = (offsets > facts.last_offset) | (offsets < self.segment.base)
        is_empty = facts.last_offset < 0
        wrong = self._wrong_times
        if not is_empty:
            wrong = wrong + [
                (entry, f"offset {offsets[entry]} is outside the segment, which ends with {facts.last_offset}")
                for entry in np.flatnonzero(outside).tolist()
            ]
        if len(disorder):
            yield _of_entries(TIME_INDEX_ORDER, file, index, int(disorder[0]), len(disorder))
        elif wrong and not facts.damaged:
            yield _worst(TIME_INDEX_ENTRY, file, index, wrong)
        elif not facts.damaged:
            yield from self._last_time(file, index, facts)

    def _last_time(self, file: LogFile, index: TimeIndex, facts: SegmentFacts) -> Iterator[Finding]:
        growing = self.is_last and not self.settings.is_closed
        stated = int(index.timestamps[-1]) if len(index) else -1
        if not growing and facts.max_timestamp != stated and facts.max_timestamp >= 0:
            has = f"its last entry is {instant(stated)}" if len(index) else "it is empty"
            message = f"{has}, the largest timestamp of the segment is {instant(facts.max_timestamp)}"
            yield Finding(TIME_INDEX_LAST, file.name, 0, 0, message)

    def _shape(self, file: LogFile, index: Index, size: FindingKind, padding: FindingKind) -> Iterator[Finding]:
        if index.rest:
            at = len(index.slots) * index.entry_size
            message = f"{file.size} bytes are no whole number of entries of {index.entry_size}"
            yield Finding(size, file.name, at, index.rest, message)
        growing = self.is_last and not self.settings.is_clean
        if index.padding and not growing:
            at = index.count * index.entry_size
            message = f"{index.padding} empty slots follow {index.count} entries"
            severity = Severity.NOTE if self.settings.deleted else None
            yield Finding(padding, file.name, at, file.size - at, message, severity)


def check_txn_index(
    segment: Segment, ended: Sequence[EndedTransaction], *, trusted: bool, prior: bool
) -> Iterator[Finding]:
    """Hold the transaction index of a segment against the transactions that were aborted in it.

    Args:
        ended: aborted transactions whose marker lies in the segment.
        trusted: the log before has no damage, so that the replay is right.
        prior: transactions may have begun before the log does, where the replay does not see them.
    """
    file = segment.txn_index
    wanted = {t.last_offset: t for t in ended}
    if file is None:
        if wanted and trusted:
            yield Finding(
                TXN_INDEX_ABSENT, _name(segment, ".txnindex"), 0, 0,
                f"it is not there; the transactions that end at {_list(sorted(wanted))} were aborted",
            )  # fmt: skip
        return
    source = file.open()
    try:
        index = read_txn_index(source)
    finally:
        source.close()
    if index.rest:
        at = len(index.slots) * index.entry_size
        yield Finding(TXN_INDEX_SIZE, file.name, at, index.rest, f"{index.rest} bytes of an entry at the end")
    names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    for number, row in enumerate(zip(*(index[name].tolist() for name in names), strict=True)):
        version, producer, first, last, stable = row
        at = number * index.entry_size
        if version != 0:
            yield Finding(TXN_INDEX_VERSION, file.name, at, index.entry_size, f"entry {number} has version {version}")
        found = wanted.pop(last, None)
        if not trusted:
            continue
        if found is None or (producer, first, last) != found[:3] or stable > found.last_stable_offset:
            if found is None and prior:
                continue
            stated = f"producer {producer}, offsets {first} to {last}, stable to {stable}"
            seen = "no transaction was aborted there" if found is None else f"in the log: {_described(found)}"
            yield Finding(TXN_INDEX_ENTRY, file.name, at, index.entry_size, f"entry {number} says {stated}; {seen}")
    if wanted and trusted:
        message = f"the transactions that end at {_list(sorted(wanted))} were aborted and are not in it"
        yield Finding(TXN_INDEX_ABSENT, file.name, 0, 0, message)


def intervals_shown(segments: Sequence[Segment]) -> list[int]:
    """Return the smallest distance between entries of each offset index of a partition that has one."""
    found = list[int]()
    for segment in segments:
        index = _read(segment.offset_index, read_offset_index)
        steps = np.diff(index.positions, prepend=0) if index is not None else np.zeros(0, np.int64)
        if (steps > 0).any():
            found.append(int(steps[steps > 0].min()))
    return found


def _described(found: EndedTransaction) -> str:
    return (
        f"producer {found.producer_id}, offsets {found.first_offset} to {found.last_offset}, "
        f"stable to {found.last_stable_offset}"
    )


def _list(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return shown if len(numbers) <= _SHOWN else f"{shown} and {len(numbers) - _SHOWN} more"


def _read(file: LogFile | None, reader: Callable[[ByteSource], EntriesT]) -> EntriesT | None:
    if file is None:
        return None
    source = file.open()
    try:
        return reader(source)
    finally:
        source.close()


def _worst(kind: FindingKind, file: LogFile, index: Index, wrong: list[tuple[int, str]]) -> Finding:
    entry, message = min(wrong)
    more = f"; {len(wrong) - 1} more entries are wrong" if len(wrong) > 1 else ""
    size = (max(wrong)[0] + 1 - entry) * index.entry_size
    return Finding(kind, file.name, entry * index.entry_size, size, f"entry {entry}: {message}{more}")


def _of_entries(kind: FindingKind, file: LogFile, index: Index, entry: int, count: int) -> Finding:
    more = f", and {count - 1} more" if count > 1 else ""
    message = f"entry {entry} is not above the one before it{more}"
    return Finding(kind, file.name, (entry - 1) * index.entry_size, 2 * index.entry_size, message)


def _name(segment: Segment, ending: str) -> str:
    assert segment.log is not None
    return segment.log.name.removesuffix(".log") + ending


def _missing(kind: FindingKind, segment: Segment, ending: str) -> Finding:
    return Finding(kind, _name(segment, ending), 0, 0, "it is not there")
