"""What a broker's start makes of one queue: units behind the log are cut, missing ones made (spec 3.4, 6.6, 6.7)."""

from __future__ import annotations

from rmqctl.rocketmq.geometry import geometry_of
from rmqctl.rocketmq.query.queue_view import QueueView, fillers
from rmqctl.rocketmq.query.units import UNIT_SIZE, Unit, UnitFile
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES
from rmqctl.rocketmq.undispatched import TailUnit

_NEW = "(made at the start of a broker)"


def recover(view: QueueView) -> None:
    """Turn the files as they lie on disk into those after a start of the broker.

    Raises:
        OSError: a file cannot be read.
    """
    view.is_sound = False
    view.log_end = view.started.log_end
    _cut_behind_log(view)
    if not view.files:
        view.is_batch = view.store.tree.stat(f"{BATCH_QUEUES}/{view.topic}") is not None
    for unit in view.started.coming_units(view.topic, view.queue_id):
        append(view, unit)


def _cut_behind_log(view: QueueView) -> None:
    """Drop units from the end as long as they point behind the log; a file of which none is left is deleted."""
    while view.files:
        file = view.files[-1]
        had = file.stored
        while file.stored and _is_behind(file.unit(file.stored - 1), view.log_end):
            file.stored -= 1
        if file.stored or not had:
            return
        view.files.pop().close()


def _is_behind(unit: Unit, end: int) -> bool:
    return unit.physical_offset >= end and not unit.is_filler


def append(view: QueueView, unit: TailUnit) -> None:
    """Dispatch one record to the queue (ConsumeQueue.putMessagePositionInfo, spec 3.4)."""
    last = view.last_unit()
    if last is not None and unit.physical + unit.size <= last.physical_offset + last.size:
        return
    new = Unit(unit.offset, unit.physical, unit.size, None, view.log.store_timestamp(unit.physical), unit.count)
    if view.is_batch:
        _file_with_room(view, 0).added.append(new)
        return
    file = _file_with_room(view, unit.offset * UNIT_SIZE)
    position = file.base + len(file) * UNIT_SIZE
    if unit.offset and unit.offset * UNIT_SIZE < position:
        return
    file.mtime_ms = None
    file.added.append(Unit(position // UNIT_SIZE, new.physical_offset, new.size, None, new.store_timestamp))


def _file_with_room(view: QueueView, expected: int) -> UnitFile:
    """The last file, or a new one behind it; the first of all begins where the unit belongs."""
    if view.files and len(view.files[-1]) < view.files[-1].capacity:
        return view.files[-1]
    geometry = geometry_of(view.store)
    size = geometry.batch_queue_file_size if view.is_batch else geometry.queue_file_size
    begin = expected - expected % size
    if view.files:
        last = view.files[-1]
        begin = last.base + last.capacity * last.unit_size
    kind = BATCH_QUEUES if view.is_batch else QUEUES
    name = f"{kind}/{view.topic}/{view.queue_id}/{begin:020d} {_NEW}"
    file = UnitFile(name, begin, size // view.unit_size, 0, None, view.is_batch)
    if not view.files and not view.is_batch:
        file.added.extend(fillers(begin, (expected - begin) // UNIT_SIZE))
    view.files.append(file)
    return file
