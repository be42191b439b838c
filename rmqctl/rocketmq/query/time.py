"""Which queue offset belongs to a time: the answer of a broker of each release family (spec 8.2).

Up to 5.1.0 the file is chosen by its modification time, and the nearer of two neighbours is the answer. From 5.1.1 on
files are chosen by the times of their first and last message, and a boundary type says which neighbour is meant.
Sources: ConsumeQueue.getOffsetInQueueByTime, MappedFileQueue.getMappedFileByTime and getConsumeQueueMappedFileByTime,
DefaultMessageStore.getOffsetInQueueByTime (which limits the answer to [min, max] from 5.0.0 on).

Batch queues have rules of their own (BatchConsumeQueue.getOffsetInQueueByTime). As rows the answers come queue by
queue: the offset, the message there, the times of its neighbours.
"""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field
from enum import StrEnum

from rmqctl.explain import Trace
from rmqctl.release import Release
from rmqctl.rocketmq.dump.record import RowOptions
from rmqctl.rocketmq.query.messages import Row
from rmqctl.rocketmq.query.queue_view import QueueView
from rmqctl.rocketmq.query.units import UNIT_SIZE, Unit, UnitFile

BOUNDARIES_SINCE = Release(5, 1, 1)
"""First release with boundary types; before it the nearer neighbour is the answer."""


class Boundary(StrEnum):
    """Which of the messages around a time is meant (BoundaryType)."""

    LOWER = "lower"
    UPPER = "upper"


def offset_by_time(view: QueueView, time: int, boundary: Boundary = Boundary.LOWER, trace: Trace | None = None) -> int:
    """Return the queue offset that a broker of the view's release answers for a time in ms.

    Args:
        boundary: counts from 5.1.1 on.
        trace: takes note of what was looked at.
    """
    trace = trace or Trace(on=False)
    if view.store.in_database(view.topic):
        return _offset_in_database(view, time, boundary, trace)
    if view.is_batch:
        found = batch_offset_by_time(view, time, boundary, trace)
    elif view.release < BOUNDARIES_SINCE:
        found = _nearest(view, time, trace)
    else:
        found = _bounded(view, time, boundary, trace)
    limited = max(min(max(found, view.min_offset), view.max_offset), 0) if view.is_5 else found
    if limited != found:
        trace.add("", f"offset {found}", f"limited to [{view.min_offset}, {view.max_offset}]: {limited}")
    return limited


# --- up to 5.1.0 ------------------------------------------------------------------------------------


def _nearest(view: QueueView, time: int, trace: Trace) -> int:
    file = _file_by_mtime(view, time, trace)
    if file is None or not len(file):
        return 0
    low, high = _floor(view, file), len(file) - 1
    left, right = -1, -1  # unit numbers
    left_time, right_time = -1, -1
    while high >= low:
        middle = _middle(low, high)
        unit = file.unit(middle)
        if unit.physical_offset < view.log_begin:
            trace.add(file.name, f"unit {unit.queue_offset}", "its record is before the log; goes right")
            low, left = middle + 1, middle
            continue
        stored = view.store_time(unit)
        _note(trace, file, unit.queue_offset, stored, time)
        if stored < 0:
            return 0
        if stored == time:
            return file.base // UNIT_SIZE + middle
        if stored > time:
            high, right, right_time = middle - 1, middle, stored
        else:
            low, left, left_time = middle + 1, middle, stored
    if left_time == -1:
        return _at(file, right)
    if right_time == -1:
        return _at(file, left)
    trace.add(file.name, "neighbours", f"{left_time} and {right_time}; the nearer one is the answer, the left on a tie")
    return _at(file, right if abs(time - left_time) > abs(time - right_time) else left)


def _file_by_mtime(view: QueueView, time: int, trace: Trace) -> UnitFile | None:
    """Return the first file that was modified at the time or later, else the last; one that a start writes is new."""
    now = int(clock.time() * 1000)
    for file in view.files:
        modified = now if file.mtime_ms is None else file.mtime_ms
        if modified >= time:
            trace.add(file.name, "modification time", f"{file.mtime_ms or 'now'}: not before {time}; searched")
            return file
        trace.add(file.name, "modification time", f"{file.mtime_ms or 'now'}: before {time}; passed over")
    return view.files[-1] if view.files else None


# --- from 5.1.1 on ----------------------------------------------------------------------------------


def _bounded(view: QueueView, time: int, boundary: Boundary, trace: Trace) -> int:
    file = _file_by_message_times(view, time, boundary, trace)
    if file is None or not len(file):
        return 0
    floor, ceiling = _floor(view, file), len(file) - 1
    edge = _beyond_edges(view, file, (floor, ceiling), time, boundary, trace)
    if edge is not None:
        return edge
    low, high, left, right = floor, ceiling, -1, -1
    while high >= low:
        middle = _middle(low, high)
        unit = file.unit(middle)
        if unit.physical_offset < view.log_begin:
            trace.add(file.name, f"unit {unit.queue_offset}", "its record is before the log; goes right")
            low, left = middle + 1, middle
            continue
        stored = view.store_time(unit)
        _note(trace, file, unit.queue_offset, stored, time)
        if stored < 0:
            return 0
        if stored == time:
            return _at(file, _last_equal(view, file, middle, (floor, ceiling), time, boundary))
        if stored > time:
            high, right = middle - 1, middle
        else:
            low, left = middle + 1, middle
    return _at(file, right if boundary is Boundary.LOWER else left)


def _file_by_message_times(view: QueueView, time: int, boundary: Boundary, trace: Trace) -> UnitFile | None:
    """LOWER: the first file whose last message is not before the time, else the last; UPPER: the last that begins."""
    if boundary is Boundary.LOWER:
        for file in view.files[:-1]:
            stop = _time_of(view, file, file.capacity - 1)
            if stop >= time:
                trace.add(file.name, "last message", f"stored at {stop}: not before {time}; searched")
                return file
            trace.add(file.name, "last message", f"stored at {stop}: before {time}; passed over")
        return view.files[-1] if view.files else None
    for file in reversed(view.files):
        start = _time_of(view, file, 0)
        if start <= time:
            trace.add(file.name, "first message", f"stored at {start}: not after {time}; searched")
            return file
        trace.add(file.name, "first message", f"stored at {start}: after {time}; passed over")
    return None


def _time_of(view: QueueView, file: UnitFile, number: int) -> int:
    """Store time of a unit's message; -1 where there is none or it cannot be read."""
    if not 0 <= number < len(file):
        return -1
    stored = view.store_time(file.unit(number))
    return stored if stored > 0 else -1


def _beyond_edges(
    view: QueueView, file: UnitFile, edges: tuple[int, int], time: int, boundary: Boundary, trace: Trace
) -> int | None:
    """Return the answer for a time outside the file, None for one inside."""
    floor, ceiling = edges
    last = view.store_time(file.unit(ceiling))
    if last < time:
        trace.add(file.name, f"unit {_at(file, ceiling)}", f"the last one is stored at {last}: before {time}")
        return _at(file, ceiling + 1 if boundary is Boundary.LOWER else ceiling)
    first = view.store_time(file.unit(floor)) if floor < len(file) else -1
    if first > time:
        trace.add(file.name, f"unit {_at(file, floor)}", f"the first one is stored at {first}: after {time}")
        return file.base // UNIT_SIZE if boundary is Boundary.LOWER else 0
    return None


def _last_equal(
    view: QueueView, file: UnitFile, found: int, edges: tuple[int, int], time: int, boundary: Boundary
) -> int:
    """From a unit of exactly this time to the first (LOWER) or last (UPPER) of those next to it with the same time."""
    step = -1 if boundary is Boundary.LOWER else 1
    while edges[0] <= found + step <= edges[1] and view.store_time(file.unit(found + step)) == time:
        found += step
    return found


# --- both ---------------------------------------------------------------------------------------------


def _floor(view: QueueView, file: UnitFile) -> int:
    """Return the number of the first unit of a file that is searched: the queue's smallest offset where it lies in the
    file.
    """
    return max(view.min_offset - file.base // UNIT_SIZE, 0)


def _middle(low: int, high: int) -> int:
    return (low + high) // 2


def _at(file: UnitFile, number: int) -> int:
    """Return the queue offset of a unit number as a broker computes it; -1, for none, is one byte before the file."""
    if number == -1:
        return max(file.base - 1, 0) // UNIT_SIZE
    return file.base // UNIT_SIZE + number


def _note(trace: Trace, file: UnitFile, offset: int, stored: int, time: int) -> None:
    if not trace.on:
        return
    way = "cannot be read: the answer is 0" if stored < 0 else "equal" if stored == time else "goes right"
    way = "goes left" if stored > time else way
    trace.add(file.name, f"unit {offset}", f"stored at {stored}; {way}")


# --- which offset of a batch queue belongs to a time ------------------------------------------------


def batch_offset_by_time(view: QueueView, time: int, boundary: Boundary, trace: Trace) -> int:
    """Return the base offset of the batch that a broker answers, -1 where nothing fits; not limited yet."""
    file = _file(view, time)
    if file is None:
        return -1
    last = file.unit(len(file) - 1)
    trace.add(file.name, f"batch {last.queue_offset}", f"the last one of the file is stored at {_time(file, -1)}")
    if time >= _time(file, -1):
        return last.queue_offset
    found = _search(file, time, boundary)
    return -1 if found is None else file.unit(found).queue_offset


def _file(view: QueueView, time: int) -> UnitFile | None:
    """Return the last file that begins at the time or before it, else the first."""
    filled = [file for file in view.files if len(file)]
    fits = [file for file in filled if _time(file, 0) <= time]
    return fits[-1] if fits else filled[0] if filled else None


def _time(file: UnitFile, number: int) -> int:
    return file.unit(number % len(file)).store_timestamp or 0


def _search(file: UnitFile, time: int, boundary: Boundary) -> int | None:
    """``binarySearchRight`` as it is; it can give a batch on the wrong side of the time."""
    left, right = 0, len(file) - 1
    while left <= right:
        middle = (left + right) // 2
        stored = _time(file, middle)
        if middle == right:
            return middle if stored >= time else None
        if middle == left:
            if stored >= time:
                return middle
            left = middle + 1
        elif boundary is Boundary.LOWER:
            left, right = (middle + 1, right) if stored < time else (left, middle)
        else:
            left, right = (middle, right) if stored <= time else (left, middle - 1)
    return None


# --- the answers to a question by time --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimeQuestion:
    """What is asked.

    Attributes:
        time: epoch ms.
        boundary: counts from 5.1.1 on.
        explain: add the steps, and the sentence that says why the answer is what it is.
    """

    time: int
    boundary: Boundary = Boundary.LOWER
    explain: bool = False
    show: RowOptions = field(default_factory=RowOptions)


@dataclass(frozen=True, slots=True)
class TimeAnswer:
    """One queue's answer.

    Attributes:
        queue_offset: as the broker answers it; the end of the queue where all messages are older.
        unit: of the message there, None where there is none.
        previous, stored, next: store times of the message in front of it, its own and the one after, ms.
    """

    view: QueueView
    question: TimeQuestion
    queue_offset: int
    unit: Unit | None
    previous: int | None
    stored: int | None
    next: int | None

    def row(self) -> Row:
        """Return the JSON object of the contract."""
        bounded = self.view.release >= BOUNDARIES_SINCE
        return {
            "kind": "time_answer",
            "topic": self.view.topic,
            "queue_id": self.view.queue_id,
            "time": self.question.time,
            "queue_offset": self.queue_offset,
            "boundary": str(self.question.boundary) if bounded else "nearest",
            "min_offset": self.view.min_offset,
            "max_offset": self.view.max_offset,
            "previous_store_timestamp": self.previous,
            "store_timestamp": self.stored,
            "next_store_timestamp": self.next,
        }


def answer_of(view: QueueView, question: TimeQuestion, trace: Trace | None = None) -> TimeAnswer:
    """Return the answer of one queue, with what lies around it."""
    offset = offset_by_time(view, question.time, question.boundary, trace)
    unit = unit_at(view, offset)
    following = offset + (unit.count if unit else 1)
    around = (unit_at(view, offset - 1), unit, unit_at(view, following))
    previous, stored, after = (None if u is None else _stored(view, u) for u in around)
    return TimeAnswer(view, question, offset, unit, previous, stored, after)


def unit_at(view: QueueView, offset: int) -> Unit | None:
    """Return the unit of a message; None outside the queue and for fillers."""
    if not view.min_offset <= offset < view.max_offset:
        return None
    place = view.at(offset)
    unit = place[0].unit(place[1]) if place else None
    return None if unit is None or unit.is_filler else unit


def _stored(view: QueueView, unit: Unit) -> int | None:
    stored = view.store_time(unit)
    return stored if stored >= 0 else None


# --- in RocksDB ----------------------------------------------------------------------------------------


_DATABASE_BOUNDARIES_SINCE = Release(5, 3, 0)
"""First release whose RocksDB queues know boundary types; 5.2.0 answers with the nearer neighbour."""


def _offset_in_database(view: QueueView, time: int, boundary: Boundary, trace: Trace) -> int:
    """Return what a broker with RocksDB queues answers (``binarySearchInCQByTime``); not limited to [min, max].

    Raises:
        MissingExtra: the package rocksdict is not installed.
    """
    if not view.files or not view.max_offset:
        return 0
    file = view.files[0]
    floor, ceiling = view.min_offset - file.base // UNIT_SIZE, len(file) - 1
    nearest = view.release < _DATABASE_BOUNDARIES_SINCE
    edge = None if nearest else _beyond_database_edges(file, (floor, ceiling), time, boundary)
    if edge is not None:
        trace.add(file.name, f"offset {edge}", f"{time} lies outside the times of the queue")
        return edge
    return _search_database(view, file, (floor, ceiling), time, boundary, trace, nearest=nearest)


def _beyond_database_edges(file: UnitFile, edges: tuple[int, int], time: int, boundary: Boundary) -> int | None:
    floor, ceiling = edges
    last = file.unit(ceiling)
    if last.size and (last.store_timestamp or 0) < time:
        return last.queue_offset + (1 if boundary is Boundary.LOWER else 0)
    first = file.unit(floor) if floor <= ceiling else last
    if floor <= ceiling and first.size and (first.store_timestamp or 0) > time:
        return first.queue_offset if boundary is Boundary.LOWER else 0
    return None


def _search_database(
    view: QueueView,
    file: UnitFile,
    edges: tuple[int, int],
    time: int,
    boundary: Boundary,
    trace: Trace,
    *,
    nearest: bool,
) -> int:
    (low, high), left, right = edges, None, None
    while high >= low:
        unit = file.unit((low + high) // 2)
        middle, stored = (low + high) // 2, unit.store_timestamp
        trace.add(file.name, f"unit {unit.queue_offset}", f"stored at {stored}" if unit.size else "is not there")
        if not unit.size or unit.physical_offset < view.log_begin:
            low, left = middle + 1, unit if unit.size else left
        elif stored is None or stored < 0:
            return 0
        elif stored == time:
            return unit.queue_offset if nearest else _last_equal_in_database(file, middle, edges, time, boundary)
        elif stored > time:
            high, right = middle - 1, unit
        else:
            low, left = middle + 1, unit
    if nearest:
        return _nearer(left, right, time)
    chosen = right if boundary is Boundary.LOWER else left
    return -1 if chosen is None else chosen.queue_offset


def _nearer(left: Unit | None, right: Unit | None, time: int) -> int:
    if left is None or right is None:
        only = left or right
        return -1 if only is None else only.queue_offset
    nearer = right if time - (left.store_timestamp or 0) > (right.store_timestamp or 0) - time else left
    return nearer.queue_offset


def _last_equal_in_database(file: UnitFile, found: int, edges: tuple[int, int], time: int, boundary: Boundary) -> int:
    step = -1 if boundary is Boundary.LOWER else 1
    while edges[0] <= found + step <= edges[1] and file.unit(found + step).store_timestamp == time:
        found += step
    return file.unit(found).queue_offset
