"""One index file: header, slots and chains alone, and its times against the log (spec 4.1, 4.3).

Times are those of the header, and the seconds that each entry keeps. A query by key and time believes both: it passes
a file over by its header, and ends its walk at the first entry that is too old or has a negative difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq.findings.derived import (
    INDEX_BEYOND,
    INDEX_CHAIN,
    INDEX_COUNT,
    INDEX_HEADER,
    INDEX_NEWER,
    INDEX_TIME,
)
from rmqctl.rocketmq.index import IndexFile
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.columns import run_starts
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.state.config import read_checkpoint
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.geometry import ENTRY, HEADER, SLOT_SIZE
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.text import instant

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


def expected_seconds(file: IndexFile, stored: Ints) -> Ints:
    """Return what the entries of records with these store times must keep, shape (n,)."""
    begin = file.header["begin_timestamp"]
    return np.clip((stored - begin) // 1000, 0, _MAX_SECONDS) if begin > 0 else np.zeros(len(stored), np.int64)


def compare_times(file: IndexFile, offset: Ints, difference: Ints, physical: Ints, stored: Ints) -> FileTimes:
    """Compare entries of one file, in order, with the store times of their records.

    The first entry of a file that follows a full one keeps the time since the last record of that (spec 4.4).

    Args:
        offset: of each entry in the file; difference: as it keeps it, in seconds.
        physical, stored: physical offset and store time of its record.
    """
    expected = expected_seconds(file, stored)
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
    """Yield findings of the header's times, and where those are right, of the entries'."""
    header = {**file.header, "index_count": max(file.header["index_count"] - 1, 0)}
    if not any(header.values()):  # of a file made for a message without a key, which has no entry yet
        return
    said = _stored(file, context, times)
    wrong = [f"{name} is {instant(file.header[name])}, but {what}" for name, (right, what) in said.items() if not right]
    begin, end = file.header["begin_timestamp"], file.header["end_timestamp"]
    mostly = "begin_timestamp" not in said and times.wrong * 2 > times.compared > 1
    if mostly:
        wrong.append(
            f"begin_timestamp is {instant(begin)}, but {times.wrong} of {times.compared} entries say otherwise"
        )
    severity = None
    if not wrong and begin > end:
        text = f"times {instant(begin)} to {instant(end)} are not in order"
        if len(said) == 2:
            text += ": the clock was set back; queries by key and time pass this file over"
            severity = Severity.NOTE
        wrong = [text]
    if wrong:
        yield Finding(INDEX_HEADER, file.path, 0, HEADER.packer.size, "; ".join(wrong), severity)
    if not mostly and said.get("begin_timestamp", (True, ""))[0]:
        yield from _runs(file, context, times)


def entry_times(file: IndexFile, context: LogContext, times: FileTimes) -> Iterator[Finding]:
    """Yield findings of the times of entries of a file that ends in another part of the log, which judges its header:
    where most entries are wrong, that is.
    """
    if not times.wrong * 2 > times.compared > 1:
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
                what = f"the {which} record in it, at {physical}, was stored at {instant(stored)}"
                found[name] = stored == file.header[name], what
    return found


def _runs(file: IndexFile, context: LogContext, times: FileTimes) -> Iterator[Finding]:
    for run in times.runs[:_MOST]:
        if all(p in context.odd_times or context.is_damaged(p, p + 1) for p in (run.physical, run.last)):
            continue
        what = f"{run.count} entries keep other times than their records: the first" if run.count > 1 else "the entry"
        message = f"{what} says {run.found} s after the first of the file, its record was stored {run.expected} s after"
        yield Finding(INDEX_TIME, file.path, run.offset, run.count * _ENTRY, message, physical_offset=run.physical)


# --- one index file alone ---------------------------------------------------------------------------


Numbers = npt.NDArray[np.int32]
_CHUNK = 1 << 17


def check_file(
    store: StoreFiles,
    file: IndexFile,
    context: LogContext,
    unsettled: bool,
    times: FileTimes,
    chains: list[Finding] | None = None,
) -> Iterator[Finding]:
    """Yield findings of one file; a file of another length has been named already and is left alone.

    Args:
        unsettled: the header may be older than entries and slots.
        times: what the log said of the times of its entries.
        chains: what :func:`chain_findings` gave where that has run before.
    """
    if not file.is_whole:
        return
    problem = header_problem(file, unsettled=unsettled)
    if problem:
        yield Finding(INDEX_HEADER, file.path, 0, HEADER.packer.size, problem)
        return
    yield from time_findings(file, context, times)
    yield from chain_findings(file, unsettled=unsettled) if chains is None else chains
    yield from _against_log(file, context)
    checkpoint = read_checkpoint(store)
    if context.crashed and checkpoint and file.header["end_timestamp"] > checkpoint[0]["index_msg_timestamp"]:
        ends, said = file.header["end_timestamp"], checkpoint[0]["index_msg_timestamp"]
        message = f"it ends at {instant(ends)}, the checkpoint says {instant(said)}"
        yield Finding(INDEX_NEWER, file.path, 0, 0, message)


def chain_findings(file: IndexFile, *, unsettled: bool) -> list[Finding]:
    """Return findings of the slots and chains of one file, none where its length or header is wrong; needs no log."""
    if not file.is_whole or header_problem(file, unsettled=unsettled):
        return []
    return list(_chains(file, unsettled=unsettled))


def header_problem(file: IndexFile, *, unsettled: bool = False) -> str | None:  # noqa: PLR0911 - one return a rule
    """Return what is wrong with the header, as a sentence; None if nothing is.

    Args:
        unsettled: one entry more than the header says may be written: the header comes last.
    """
    h = file.header
    beyond = file.entries(file.count + 1 + unsettled, 1)
    if 0 <= h["index_count"] < file.geometry.entries and len(beyond) and any(beyond[0].tolist()):
        return f"index_count is {h['index_count']}, but entry {file.count + 1 + unsettled} is written"
    if not any(h.values()):
        return None
    if not 0 <= h["index_count"] <= file.geometry.entries:
        return f"index_count is {h['index_count']}, the file has room for {file.geometry.entries}"
    if not 0 <= h["hash_slot_count"] <= file.geometry.entries:
        return f"hash_slot_count is {h['hash_slot_count']}, the file has {file.geometry.slots} slots"
    if min(h["begin_timestamp"], h["end_timestamp"]) < 0:
        return f"times {instant(h['begin_timestamp'])} to {instant(h['end_timestamp'])} are before 1970"
    if h["begin_phy_offset"] > h["end_phy_offset"] or h["begin_phy_offset"] < 0:
        return f"offsets {h['begin_phy_offset']} to {h['end_phy_offset']} are not in order"
    if file.count and file.physical_at(1) != h["begin_phy_offset"]:
        return f"begin_phy_offset is {h['begin_phy_offset']}, but the first entry points to {file.physical_at(1)}"
    if file.count and file.physical_at(file.count) != h["end_phy_offset"]:
        return f"end_phy_offset is {h['end_phy_offset']}, but the last entry points to {file.physical_at(file.count)}"
    return None


def _chains(file: IndexFile, unsettled: bool) -> Iterator[Finding]:
    """Compare every `previous` and every slot with what putting the entries in order gives."""
    newest = np.zeros(file.geometry.slots, np.int32)
    yield from _wrong_entries(file, newest)
    yield from _slots(file, newest, unsettled)


def _wrong_entries(file: IndexFile, newest: Numbers) -> Iterator[Finding]:
    """Yield the first entries that name another one before them than they should; ``newest`` is filled."""
    found = 0
    for first in range(1, file.count + 1, _CHUNK):
        entries = file.entries(first, min(_CHUNK, file.count + 1 - first))
        hashes = entries["key_hash"].astype(np.int32)
        expected = _previous(hashes % file.geometry.slots, first, newest)
        wrong = np.flatnonzero((entries["previous"] != expected) | (hashes < 0))
        for row in wrong[: _MOST - found].tolist():
            at = file.geometry.entry_at(first + row)
            message = (
                f"entry {first + row} names {int(entries['previous'][row])} as the one before, not {int(expected[row])}"
            )
            yield Finding(INDEX_CHAIN, file.path, at, ENTRY.packer.size, message)
        found += len(wrong)


def _previous(slots: Numbers, first: int, newest: Numbers) -> Numbers:
    """Return the entry before each in its slot; ``newest`` holds the last of each slot and is brought up to date."""
    order = _in_order(slots)
    own, number = slots[order], (first + order).astype(np.int32)
    begins = run_starts(own)
    previous = np.empty_like(number)
    previous[1:] = number[:-1]
    previous[begins] = newest[own[begins]]
    result = np.empty_like(number)
    result[order] = previous
    ends = np.append(begins[1:], len(own)) - 1
    newest[own[ends]] = number[ends]
    return result


def _in_order(values: Numbers) -> Ints:
    """Return what puts values below 2^32 in order, equal ones as they stand: two passes of radix sort over 16 bits
    each.
    """
    low = np.argsort(values.astype(np.uint16), kind="stable")
    high = (values >> 16).astype(np.uint16)[low]
    order: Ints = low[np.argsort(high, kind="stable")]
    return order


def _slots(file: IndexFile, newest: Numbers, unsettled: bool) -> Iterator[Finding]:
    used = found = 0
    for first in range(0, file.geometry.slots, _CHUNK):
        count = min(_CHUNK, file.geometry.slots - first)
        expected = newest[first : first + count]
        filled = int(np.count_nonzero(expected))
        if not filled and file.is_hole(first, count):
            continue
        used, values = used + filled, file.slots(first, count)
        wrong = values != expected
        if unsettled:  # the header may be older than the slots after a kill
            wrong &= values <= file.count
        for row in np.flatnonzero(wrong)[: _MOST - found].tolist():
            at = HEADER.packer.size + SLOT_SIZE * (first + row)
            message = f"slot {first + row} holds {int(values[row])}, its newest entry is {int(expected[row])}"
            yield Finding(INDEX_CHAIN, file.path, at, SLOT_SIZE, message)
        found += int(np.count_nonzero(wrong))
    stated = file.header["hash_slot_count"]
    if not unsettled and not found and stated not in (used, file.count):
        message = f"hash_slot_count is {stated}; {used} slots are in use by {file.count} entries"
        yield Finding(INDEX_COUNT, file.path, HEADER.packer.size - 8, 4, message)


def _against_log(file: IndexFile, context: LogContext) -> Iterator[Finding]:
    end = context.end
    if end is None or not file.count or file.header["end_phy_offset"] < end:
        return
    first = file.first_at_or_after(end)
    count = file.count + 1 - first
    message = f"{count} entries point behind the end of the log at {end}, the last to {file.header['end_phy_offset']}"
    yield Finding(
        INDEX_BEYOND, file.path, file.geometry.entry_at(first), count * ENTRY.packer.size, message,
        physical_offset=file.header["end_phy_offset"],
    )  # fmt: skip
