"""Times of an index file against the log: those of the header, and the seconds that each entry keeps (spec 4.1, 4.3).

A query by key and time believes both: it passes a file over by its header, and ends its walk at the first entry that
is too old or has a negative difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.block import Ints
from rmqctl.rocketmq.index_files import IndexFile
from rmqctl.rocketmq.index_geometry import ENTRY, HEADER
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.queue_numbers import run_starts
from rmqctl.rocketmq.verify.context import LogContext

_MAX_SECONDS = (1 << 31) - 1
_MOST = 64
_ENTRY = ENTRY.packer.size


@dataclass(frozen=True, slots=True)
class WrongRun:
    """Neighbouring entries whose time difference is not that of their record.

    Attributes:
        offset: of the first entry in the file; count: entries.
        physical, last: of the first and the last entry's record.
        found, expected: the first entry's difference, in seconds.
    """

    offset: int
    count: int
    physical: int
    last: int
    found: int
    expected: int

    @property
    def end(self) -> int:
        """Where the last entry ends, in bytes."""
        return self.offset + self.count * _ENTRY


@dataclass(slots=True)
class FileTimes:
    """What the log said of the entries of one file.

    Attributes:
        compared: entries whose record was there; wrong: how many of them keep another time.
        runs: of those that are wrong, at most 64 of a split.
        strangers: physical offsets of entries without their record.
    """

    compared: int = 0
    wrong: int = 0
    runs: list[WrongRun] = field(default_factory=list)
    strangers: set[int] = field(default_factory=set)

    def add(self, other: FileTimes) -> None:
        """Add what the next split says; runs that meet become one."""
        self.compared, self.wrong = self.compared + other.compared, self.wrong + other.wrong
        self.strangers |= other.strangers
        for run in other.runs:
            if self.runs and self.runs[-1].end == run.offset:
                self.runs[-1] = replace(self.runs[-1], count=self.runs[-1].count + run.count, last=run.last)
            else:
                self.runs.append(run)


def compare_times(file: IndexFile, offset: Ints, difference: Ints, physical: Ints, stored: Ints) -> FileTimes:
    """Compare entries of one file, in order, with the store times of their records.

    The first entry of a file that follows a full one keeps the time since the last record of that (spec 4.4).

    Args:
        offset: of each entry in the file; difference: as it keeps it, in seconds.
        physical, stored: physical offset and store time of its record.
    """
    begin = file.header["begin_timestamp"]
    expected = np.clip((stored - begin) // 1000, 0, _MAX_SECONDS) if begin > 0 else np.zeros(len(stored), np.int64)
    wrong = difference != expected
    wrong &= (offset != file.geometry.entry_at(1)) | (difference < 0)
    rows = np.flatnonzero(wrong)
    runs = []
    if len(rows):
        starts = run_starts(offset[rows] - _ENTRY * np.arange(len(rows)))
        counts = np.diff(np.append(starts, len(rows)))
        for start, count in zip(rows[starts][:_MOST].tolist(), counts.tolist(), strict=False):
            at, kept, right = (int(column[start]) for column in (offset, difference, expected))
            places = int(physical[start]), int(physical[start + count - 1])
            runs.append(WrongRun(at, count, *places, kept, right))
    return FileTimes(len(offset), len(rows), runs)


def time_findings(file: IndexFile, context: LogContext, times: FileTimes) -> Iterator[Finding]:
    """Findings of the header's times, and where those are right, of the entries'.

    Raises:
        OSError: a file of the log cannot be read.
    """
    if not any(file.header.values()):
        return
    said = _stored(file, context, times)
    wrong = [f"{name} is {file.header[name]}, but {what}" for name, (right, what) in said.items() if not right]
    begin, end = file.header["begin_timestamp"], file.header["end_timestamp"]
    mostly = "begin_timestamp" not in said and times.wrong * 2 > times.compared > 1
    if mostly:
        wrong.append(f"begin_timestamp is {begin}, but {times.wrong} of {times.compared} entries say otherwise")
    severity = None
    if not wrong and begin > end:
        text = f"times {begin} to {end} are not in order"
        if len(said) == 2:
            text += ": the clock was set back; queries by key and time pass this file over"
            severity = Severity.NOTE
        wrong = [text]
    if wrong:
        yield Finding(kinds.INDEX_HEADER, file.path, 0, HEADER.packer.size, "; ".join(wrong), severity)
    if not mostly and said.get("begin_timestamp", (True, ""))[0]:
        yield from _runs(file, context, times)


def _stored(file: IndexFile, context: LogContext, times: FileTimes) -> dict[str, tuple[bool, str]]:
    """Of each time of the header that the log knows: whether it is right, and what the log says."""
    found = {}
    end = context.limit if context.end is None else context.end
    with LogReader(context.log_files) as log:
        for name, place, which in (
            ("begin_timestamp", "begin_phy_offset", "first"),
            ("end_timestamp", "end_phy_offset", "last"),
        ):
            physical = file.header[place]
            if not context.min_offset <= physical < end or physical in times.strangers:
                continue
            if context.is_damaged(physical, physical + 1) or physical in context.odd_times:
                continue
            stored = log.store_timestamp(physical)
            if stored is not None:
                what = f"the {which} record in it, at {physical}, was stored at {stored}"
                found[name] = stored == file.header[name], what
    return found


def _runs(file: IndexFile, context: LogContext, times: FileTimes) -> Iterator[Finding]:
    for run in times.runs[:_MOST]:
        if all(p in context.odd_times or context.is_damaged(p, p + 1) for p in (run.physical, run.last)):
            continue
        what = f"{run.count} entries keep other times than their records: the first" if run.count > 1 else "the entry"
        message = f"{what} says {run.found} s after the first of the file, its record was stored {run.expected} s after"
        yield Finding(
            kinds.INDEX_TIME, file.path, run.offset, run.count * _ENTRY, message, physical_offset=run.physical
        )


__all__ = ["FileTimes", "WrongRun", "compare_times", "time_findings"]
