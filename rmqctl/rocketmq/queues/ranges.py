"""The messages of one queue: offsets as the broker of its release counts them, number, bytes, ends (spec 3.9, 6.6).

The smallest queue offset of a simple queue as a broker computes it when it starts (correctMinOffset, spec 3.9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rmqctl.rocketmq.queues.files import BATCH_UNIT, Queue, Units, is_pre_blank
from rmqctl.rocketmq.store.files import StoreFile

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


_RECOVERED_FILES = 3


@dataclass(frozen=True, slots=True)
class LogRange:
    """The log that queues point into.

    Attributes:
        begin, end: physical offsets of its first byte and behind its last record.
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
        dispatched: physical offset behind the last record that has a unit, expired ones too; -1 without one.
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
    """Return the range of one queue; units that point behind the end of the log do not count.

    Raises:
        OSError: a file of the queue cannot be read.
    """
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

    Units at the end that point behind the log are left out. One in the middle only makes no message: a broker
    that loads the queue looks for the end in the last files.
    """
    end = 0
    for number, file in enumerate(queue.files):
        recovered = number >= len(queue.files) - _RECOVERED_FILES
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
    """Return the first base offset, behind the units of the first file whose record is before the log; -1 without a
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
