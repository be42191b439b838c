"""Which offset of a batch queue belongs to a time (BatchConsumeQueue.getOffsetInQueueByTime, spec 8.2)."""

from __future__ import annotations

from rmqctl.rocketmq.query.queue_view import QueueView
from rmqctl.rocketmq.query.steps import Trace
from rmqctl.rocketmq.query.time import Boundary
from rmqctl.rocketmq.query.units import UnitFile


def batch_offset_by_time(view: QueueView, time: int, boundary: Boundary, trace: Trace) -> int:
    """The base offset of the batch that a broker answers, -1 where nothing fits; not limited yet.

    Raises:
        OSError: a file cannot be read.
    """
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
    """The last file that begins at the time or before it, else the first."""
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
