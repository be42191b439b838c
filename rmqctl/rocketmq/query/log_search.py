"""Messages found by reading the log: what no index holds is found too. One scan, divided among processes.

The bytes of a key are searched in each window as they stand, at the speed of the C library; only records that hold
them are taken apart (and inner batches, whose bodies may be compressed).
"""

from __future__ import annotations

import ctypes
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from formats.rocketmq.message import SysFlag
from rmqctl.findings import Finding, Severity
from rmqctl.parallel import Ordered, most_processes
from rmqctl.rocketmq.log.block import Block, Bytes8, Ints
from rmqctl.rocketmq.log.columns import properties_of
from rmqctl.rocketmq.log.commitlog import CommitLog, resume_state, walk_file
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.query.records import KEYS, UNIQUE_KEY, Record
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.verify.splits import SPLIT_ALONE, SPLIT_SIZE, Split, splits_of, unreadable

Find = Callable[[Bytes8, bytes, int], int]


def _memmem() -> Find | None:
    """``memmem(3)``, which where it exists passes over a window about twice as fast as ``bytes.find``."""
    if sys.platform == "win32":
        return None
    try:
        call = ctypes.CDLL(None).memmem
    except (AttributeError, OSError):
        return None
    call.restype = ctypes.c_void_p
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)

    def find(data: Bytes8, text: bytes, start: int) -> int:
        begin, left = data.ctypes.data, len(data) - start
        at = call(begin + start, left, text, len(text)) if left > 0 else None
        return -1 if at is None else int(at) - begin

    return find


def find_in_copy(data: Bytes8, text: bytes, start: int) -> int:
    """Find a text by ``bytes.find`` in a copy of the bytes; -1 where it is not."""
    at = data[start:].tobytes().find(text)
    return at if at < 0 else at + start


find: Find = _memmem() or find_in_copy
"""Index of the first byte of ``text`` in one-dimensional contiguous ``data`` at or after ``start``, -1 without one."""


# --- messages found by reading the log --------------------------------------------------------------


Progress = Callable[[int], object]
MANY_PROCESSES_FROM = 256 << 20
"""Bytes of log from which a second process gives more than its start costs."""
_AHEAD = 3
"""Parts for each process that are worked on, or done, before they are taken."""
_SMALL_PART = 4
_INNER_BATCH = int(SysFlag.INNER_BATCH)


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for.

    Attributes:
        wanted: the filters, key and tag included.
        places: the properties of which one must hold the key; ``wanted.key`` alone looks in both.
    """

    wanted: Filter
    places: tuple[bytes, ...] = (KEYS, UNIQUE_KEY)


@dataclass(slots=True)
class Found:
    """What a part of the log holds.

    Attributes:
        records: those looked for, in log order.
        findings: damage met, warnings and errors.
        end: physical offset after the last record, None without one.
        stale: the log ended here, at records that a cut left.
    """

    records: list[Record] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    end: int | None = None
    stale: bool = False


def search_log(
    store: StoreFiles, search: Search, *, processes: int | None = None, progress: Progress | None = None
) -> Iterator[Found]:
    """Yield the parts of the log in order, each with what was looked for.

    Args:
        processes: default: :func:`most_processes` for a log worth it.
        progress: called with the bytes done since its last call.

    Raises:
        OSError: a directory of the log cannot be read; a file that cannot be is a finding.
    """
    log = CommitLog(store.log_files, crashed=store.has_abort)
    size = sum(f.size for f in store.log_files)
    processes = processes or (most_processes() if size >= MANY_PROCESSES_FROM else 1)
    parts = splits_of(log.contexts(), SPLIT_SIZE if processes > 1 else SPLIT_ALONE)
    splits = [s for s in parts if _is_wanted(s, search.wanted)]
    for split, found in zip(splits, _results(splits, search, min(processes, len(splits))), strict=False):
        yield found
        if progress is not None:
            progress((split.stop or split.context.file.size) - split.start)
        if found.stale:
            return


def _is_wanted(split: Split, wanted: Filter) -> bool:
    base, file = split.context.file.base, split.context.file
    stop = file.size if split.stop is None else split.stop
    after = wanted.from_offset is not None and base + stop <= wanted.from_offset
    return not after and (wanted.to_offset is None or base + split.start < wanted.to_offset)


def _results(splits: list[Split], search: Search, processes: int) -> Iterator[Found]:
    if processes <= 1:
        yield from (search_split(split, search) for split in splits)
        return
    shared: Ordered[Split, Found] = Ordered(_Searcher(search), processes, _AHEAD * processes, keeps=True)
    yield from shared.results(splits)


@dataclass(frozen=True, slots=True)
class _Searcher:
    """Makes what works on splits in a process; can be pickled."""

    search: Search

    def __call__(self) -> Callable[[Split], Found]:
        return lambda split: search_split(split, self.search)


def search_split(split: Split, search: Search) -> Found:
    """Return the records of one part of the log; a file that cannot be read is a finding."""
    found = Found()
    try:
        state = resume_state(split.context, split.start)
        for part in walk_file(split.context, state, start=split.start, stop=split.stop):
            found.findings += [f for f in part.findings if f.level is not Severity.NOTE]
            found.records += _matches(part.block, search)
        found.end, found.stale = state.end, state.stale
    except OSError as error:
        found.findings.append(unreadable(split.context.file.name, error))
    return found


def _matches(block: Block, search: Search) -> list[Record]:
    if not len(block):
        return []
    wanted = search.wanted
    text = max((t.encode("utf-8", "surrogateescape") for t in (wanted.key, wanted.tag) if t), key=len, default=b"")
    if text:
        rows = _holding(block, text)
        if not len(rows):
            return []
        block = block.take(rows)
    chosen = wanted.select(block)
    block = block if chosen is None else block.take(chosen)
    records = (_record(block, row, strict=wanted.strict) for row in range(len(block)))
    return [r for r in records if wanted.key is None or _is_in_place(r, wanted.key, search.places)]


def _holding(block: Block, text: bytes) -> Ints:
    """Rows of the records that hold the bytes in their properties, perhaps others, and of all inner batches; ascending.

    Where properties are a small part of the records they are copied out and searched alone.
    """
    data, begin, end = block.data, block.at, block.at + block.total_size
    if int(block.properties_size.sum()) * _SMALL_PART < len(data):
        texts = properties_of(block)
        data, begin, end = texts.data, texts.start[:-1], texts.start[1:]
    found, at = list[int](), find(data, text, 0)
    if at >= 0:
        begins, ends = begin.tolist(), end.tolist()
        while at >= 0:
            row = bisect_right(begins, at) - 1
            inside = row >= 0 and at < ends[row]
            if inside:
                found.append(row)
            at = find(data, text, ends[row] if inside else at + 1)
    batches = np.flatnonzero((block["sys_flag"] & _INNER_BATCH) != 0)
    return np.union1d(np.array(found, np.int64), batches) if found else batches


def _record(block: Block, row: int, *, strict: bool) -> Record:
    position = int(block.position[row])
    return Record(block.base + position, block.file, position, block.raw(row), block.record(row), strict)


def _is_in_place(record: Record, key: str, places: tuple[bytes, ...]) -> bool:
    """Whether one of the places holds the key; an inner batch has passed the filter by one of its messages."""
    if record.fields["sys_flag"] & _INNER_BATCH:
        return True
    return (KEYS in places and record.has_key(key)) or (UNIQUE_KEY in places and record.has_unique_key(key))
