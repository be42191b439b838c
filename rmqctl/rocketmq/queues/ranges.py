"""Where queues and the log begin and end, from the files as they lie (spec 3.9, 6.3, 6.6).

The messages of one queue are counted as the broker of its release counts them; the smallest offset of a simple queue
is what a broker computes when it starts (correctMinOffset). The end of the log is found without reading it all, from
the last unit of the queues on.

With ``rocksdbCQDoubleWriteEnable`` (5.3.1 and later) a broker writes queue files beside a RocksDB database, and reads
the files. A store that was moved to RocksDB keeps the files as they were on that day (spec 1, 10.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from formats.rocketmq.message import Magic
from rmqctl.rocketmq.log.commitlog import CommitLog, FileContext, LogState, resume_state, walk_file
from rmqctl.rocketmq.log.record import MAGIC_AT, LogReader
from rmqctl.rocketmq.queues.files import BATCH_UNIT, RECOVERED_FILES, Queue, Units, is_pre_blank, queues_of
from rmqctl.rocketmq.store.files import QUEUES, StoreFile, StoreFiles

Physical = Callable[[int], int]
"""Physical offset in the unit of a number of the queue's first file."""


def minimum_4(physical: Physical, count: int, first: int, log_begin: int) -> int:
    """Up to 4.9.8: the first unit of the first file that is not before the log, else 0.

    Args:
        count: units of the first file that count.
        first: queue offset of its first unit.
    """
    return next((first + number for number in range(count) if physical(number) >= log_begin), 0)


def minimum_5(physical: Physical, count: int, first: int, last: int, end: int, log_begin: int) -> int:
    """From 5.0.0 on: the same by bisection; the next offset where every message has expired.

    Args:
        count, first: as for :func:`minimum_4`.
        last: physical offset in the last unit of the queue.
        end: next queue offset.
    """
    if last < log_begin:
        return end  # the queue keeps its counter
    if not count or (first == 0 and physical(0) >= log_begin):
        return 0
    found = first_live(physical, count, log_begin)
    return 0 if found is None else first + found


def first_live(physical: Physical, count: int, log_begin: int) -> int | None:
    """Return the broker's halving, step for step: the first unit not before the log; it may miss where offsets do not
    ascend.

    Args:
        count: units to look at, at least one.
    """
    low, high = 0, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        offset = physical(middle)
        low, high = (middle if offset <= log_begin else low), (middle if offset >= log_begin else high)
    return next((number for number in range(low, high + 1) if physical(number) >= log_begin), None)


# --- the messages of one queue ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogRange:
    """The log that queues point into.

    Attributes:
        begin, end: physical offsets of its first byte and after its last record.
        is_5: the store was last written by a 5.x broker.
    """

    begin: int
    end: int
    is_5: bool


@dataclass(slots=True)
class QueueRange:
    """What a queue holds.

    Attributes:
        key: topic and queue id.
        min_offset, max_offset: first message and next offset, as the broker answers.
        messages: messages whose record is still in the log; those of inner batches count.
        bytes: of their records.
        first, last: physical offsets of the first and last of these records, -1 without one.
        dispatched: physical offset after the last record that has a unit, expired ones too; -1 without one.
    """

    key: tuple[str, int]
    min_offset: int = 0
    max_offset: int = 0
    messages: int = 0
    bytes: int = 0
    first: int = -1
    last: int = -1
    dispatched: int = -1


def queue_range(queue: Queue, log: LogRange) -> QueueRange:
    """Return the range of one queue; units that point after the end of the log do not count."""
    found = QueueRange(queue.key)
    end = _add_up(found, queue, log)
    if queue.dtype is BATCH_UNIT:
        found.min_offset = _batch_minimum(queue, end, log)
    else:
        found.max_offset = end // queue.dtype.itemsize
        found.min_offset = _minimum_5(queue, end, log.begin) if log.is_5 else _minimum_4(queue, end, log.begin)
    return found


def _add_up(found: QueueRange, queue: Queue, log: LogRange) -> int:
    """Count the units of all files; returns where they end, in bytes of the file sequence.

    Units at the end that point after the log are left out. One in the middle only makes no message: a broker
    that loads the queue looks for the end in the last files.
    """
    end = 0
    for number, file in enumerate(queue.files):
        recovered = number >= len(queue.files) - RECOVERED_FILES
        used, goes_on = _file(found, queue, file, log, recovered=recovered)
        end = end if used is None else file.base + used * queue.dtype.itemsize
        if not goes_on:
            break
    return end


def _file(
    found: QueueRange, queue: Queue, file: StoreFile, log: LogRange, *, recovered: bool
) -> tuple[int | None, bool]:
    """Count one file: number of its units up to the last one inside the log, and whether the queue may go on.

    The number is None where units are written but none lies inside the log: a broker deletes such a file.

    Args:
        recovered: one of the files that a broker looks at when it loads the queue; the queue ends at the first
            unit of these that is not valid.
    """
    expected, used = 0, None
    for first, units in queue.chunks(file):
        if recovered and first > expected:
            break
        written = _valid_prefix(queue, units) if recovered else len(units)
        torn, units = written < len(units), units[:written]
        inside = np.flatnonzero((units["physical_offset"] < log.end) | is_pre_blank(units))
        used = first + int(inside[-1]) + 1 if len(inside) else used
        _count(found, units[inside], log.begin, batch=queue.dtype is BATCH_UNIT)
        expected = first + len(units)
        if torn:
            break
    goes_on = not recovered or expected == file.size // queue.dtype.itemsize
    return used if expected else 0, goes_on


def _valid_prefix(queue: Queue, units: Units) -> int:
    """How many units lie in front of the first that does not count as written."""
    valid = queue.valid(units)
    return len(units) if valid.all() else int(np.argmin(valid))


def _count(found: QueueRange, units: Units, log_begin: int, *, batch: bool) -> None:
    real = np.flatnonzero(_real(units))
    if not len(real):
        return
    last = units[real[-1]]
    found.dispatched = max(found.dispatched, int(last["physical_offset"]) + int(last["size"]))
    if batch:
        found.max_offset = int(last["base_offset"]) + int(last["batch_size"])
    live = real[units["physical_offset"][real] >= log_begin]
    if not len(live):
        return
    found.first = int(units["physical_offset"][live[0]]) if found.first < 0 else found.first
    found.last = int(units["physical_offset"][live[-1]])
    found.bytes += int(units["size"][live].sum(dtype=np.int64))
    found.messages += int(units["batch_size"][live].sum(dtype=np.int64)) if batch else len(live)


def _real(units: Units) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which units stand for a record: neither filler nor empty."""
    rows: np.ndarray[tuple[int], np.dtype[np.bool_]] = (units["size"] > 0) & ~is_pre_blank(units)
    return rows


def _first_file(queue: Queue, end: int) -> Units:
    """Return the units of the first file that lie in front of ``end``."""
    file, size = queue.files[0], queue.dtype.itemsize
    return queue.read(file, 0, max(min(end, file.base + file.size) - file.base, 0) // size)


def _minimum_4(queue: Queue, end: int, begin: int) -> int:
    """``correctMinOffset`` up to 4.9.8: the first unit of the first file that is not before the log, else 0."""
    live = np.flatnonzero(_first_file(queue, end)["physical_offset"] >= begin)
    return queue.files[0].base // queue.dtype.itemsize + int(live[0]) if len(live) else 0


def _minimum_5(queue: Queue, end: int, begin: int) -> int:
    """``correctMinOffset`` from 5.0.0 on, as it comes out when the broker starts."""
    size, base = queue.dtype.itemsize, queue.files[0].base
    last = queue.unit_at(end - size) if end else None
    if last is None or not len(last):
        return 0
    physical = _first_file(queue, end)["physical_offset"]
    return minimum_5(
        lambda n: int(physical[n]), len(physical), base // size, int(last["physical_offset"][0]), end // size, begin
    )


def _batch_minimum(queue: Queue, end: int, log: LogRange) -> int:
    """Return the first base offset, after the units of the first file whose record is before the log; -1 without a
    unit.
    """
    units = _first_file(queue, end)
    if not len(units):
        return -1
    old = units["physical_offset"] < log.begin
    count = int(np.argmin(old)) if not old.all() else len(units)
    if not count:
        return int(units["base_offset"][0])
    return int(units["base_offset"][count - 1]) + int(units["batch_size"][count - 1])


# --- where the log ends ----------------------------------------------------------------------------


_SAMPLE = 64
_BLANK = int(Magic.BLANK).to_bytes(4, "big", signed=True)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log.

    Attributes:
        offset: where the next record would be written; the start of the log when it has no record.
        store_timestamp: of the last record, ms; None without a record.
    """

    offset: int
    store_timestamp: int | None = None


def log_end(store: StoreFiles) -> LogEnd:
    """Return the end of the store's log. Reads the part of one file after the last record that a queue knows."""
    files = store.log_files
    for context in _from_the_end(files):
        state = _walked(context, late_start(store, context.file))
        if state is not None and state.end is not None:
            return LogEnd(_after_blank(files, context.file, state.end), state.store_timestamp)
    return LogEnd(files[0].base if files else 0)


def last_record(store: StoreFiles) -> bytes | None:
    """Return the bytes of the log's last record, None where it has none. Reads as little as :func:`log_end`."""
    for context in _from_the_end(store.log_files):
        last: bytes | None = None
        start = late_start(store, context.file)
        for part in walk_file(context, resume_state(context, start), start=start):
            if len(part.block):
                last = part.block.raw(len(part.block) - 1)
        if last is not None:
            return last
    return None


def _from_the_end(files: list[StoreFile]) -> Iterator[FileContext]:
    """Files that may hold the last record, the last of them first."""
    contexts = CommitLog(files, crashed=True).contexts()
    return reversed([c for c in contexts if c.followed] + [c for c in contexts if not c.followed][:1])


def last_unit(queue: Queue) -> Units | None:
    """Return the last written unit of a queue, one row; None when it has none. Units are taken as without holes."""
    for file in reversed(queue.files[-2:]):
        count = written_units(queue, file)
        if count:
            return queue.read(file, count - 1, 1)
    return None


def written_units(queue: Queue, file: StoreFile) -> int:
    """Units in front of the zero tail of a file, by bisection."""
    size = queue.dtype.itemsize
    low, high = 0, file.size // size
    source = file.open()
    try:
        while low < high:
            middle = (low + high) // 2
            unit = source.read_at(middle * size, size).ljust(size, b"\0")
            if np.frombuffer(unit, queue.dtype)["size"][0]:
                low = middle + 1
            else:
                high = middle
    finally:
        source.close()
    return low


def _walked(context: FileContext, start: int) -> LogState | None:
    """Return what has been seen after a walk over the rest of a file; None where no record of the log lies there."""
    state = resume_state(context, start)
    before = state.records
    for _ in walk_file(context, state, start=start):
        pass
    return state if state.records > before else None


def late_start(store: StoreFiles, file: StoreFile, sample: int = _SAMPLE) -> int:
    """Return a place in a file where a record is known to begin: the last one that a sample of queues points to."""
    latest = 0
    if store.has_rocksdb:
        return latest
    with LogReader([file]) as log:
        for queue in islice(queues_of(store.queues(QUEUES)), sample):
            unit = last_unit(queue)
            place = int(unit["physical_offset"][0]) if unit is not None and len(unit) else -1
            if latest < place - file.base - file.lead and log.record(place) is not None:
                latest = place - file.base - file.lead
    return latest


def _after_blank(files: list[StoreFile], file: StoreFile, end: int) -> int:
    """Return the start of the next file where a blank record ends this one (the broker goes on there, spec 6.3)."""
    if file is files[-1]:
        return end
    source = file.open()
    try:
        is_blank = source.read_at(end - file.base + MAGIC_AT, 4) == _BLANK
    finally:
        source.close()
    return file.base + file.size if is_blank else end


# --- queue files beside a rocksdb database ----------------------------------------------------------


MOST_LAG_MS = 60_000
"""No broker dispatches later than this; queues that lack more than a minute of messages are no longer written."""


def file_queues_are_kept(store: StoreFiles, most_lag_ms: int = MOST_LAG_MS) -> bool:
    """Whether the queue files of a store with a RocksDB database reach to the end of the log, or lag a little."""
    reached = -1
    for queue in queues_of(store.queues(QUEUES)):
        unit = last_unit(queue)
        if unit is not None and len(unit) and not is_pre_blank(unit)[0]:
            reached = max(reached, int(unit["physical_offset"][0]) + int(unit["size"][0]))
    if reached < 0:
        return False
    end = log_end(store)
    if reached >= end.offset or end.store_timestamp is None:
        return True
    with LogReader(store.log_files) as log:
        following, file = log.store_timestamp(reached), log.file_of(reached)
        if following is None and file is not None:  # a blank record ends this file
            following = log.store_timestamp(file.base + file.size)
    return following is not None and end.store_timestamp - following <= most_lag_ms
