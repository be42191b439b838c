"""The queue unit of a record: what a consumer needs to get the message (spec 3.1, 3.6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmqctl.rocketmq.dispatch.request import TRANSACTION, UNQUEUED
from rmqctl.rocketmq.query.records import Record
from rmqctl.rocketmq.queue_files import BATCH_UNIT, UNIT, Queue
from rmqctl.rocketmq.rocksdb_queues import rocksdb_units
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, QueueFiles, RocketMQStore


@dataclass(frozen=True, slots=True)
class RecordUnit:
    """Where a record's unit should be, and what is there.

    Attributes:
        queue_offset: of the record.
        found: half a sentence about what stands in its place.
        file: looked at, "" where there is none.
        is_there: a unit leads to the record.
        has_queue: the queue has files at all.
        wanted: brokers make a unit for such a record.
    """

    topic: str
    queue_id: int
    queue_offset: int
    found: str
    file: str = ""
    is_there: bool = False
    has_queue: bool = True
    wanted: bool = True


def unit_of(store: RocketMQStore, record: Record) -> RecordUnit:
    """The unit of a record in the queue it names.

    Raises:
        OSError: a file of the queue cannot be read.
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    topic, queue_id, offset = record.topic, record.fields["queue_id"], record.fields["queue_offset"]
    if record.fields["sys_flag"] & TRANSACTION in UNQUEUED:
        return RecordUnit(topic, queue_id, offset, "such a record gets none", wanted=False)
    if store.in_database(topic):
        there = any(
            (u.topic, u.queue_id, u.physical_offset) == (topic, queue_id, record.physical_offset)
            for u in rocksdb_units(store)
        )
        return RecordUnit(topic, queue_id, offset, f"{'a' if there else 'no'} unit in RocksDB", is_there=there)
    for kind, dtype in ((BATCH_QUEUES, BATCH_UNIT), (QUEUES, UNIT)):
        queue = Queue.open(QueueFiles(kind, topic, queue_id, f"{kind}/{topic}/{queue_id}", store.tree), dtype)
        if queue.files:
            return _in_batch_queue(queue, record) if dtype is BATCH_UNIT else _in_queue(queue, record)
    return RecordUnit(topic, queue_id, offset, "the queue has no files", has_queue=False)


def _in_queue(queue: Queue, record: Record) -> RecordUnit:
    """The unit at the record's queue offset, else the one elsewhere in the queue that leads to it."""
    offset, name = record.fields["queue_offset"], "/".join(map(str, queue.key))
    position = offset * queue.dtype.itemsize
    file = next((f.name for f in queue.files if f.base <= position < f.base + f.size), "")
    unit = queue.unit_at(position)
    if unit is None:
        found = f"no file of queue {name} holds the place of its unit"
    elif not unit["size"][0]:
        found = f"nothing is written where queue {name} should hold its unit"
    elif int(unit["physical_offset"][0]) == record.physical_offset:
        return RecordUnit(*queue.key, offset, f"unit {offset} of queue {name} leads to it", file, is_there=True)
    else:
        found = f"unit {offset} of queue {name} leads to offset {int(unit['physical_offset'][0])}"
    elsewhere = _leading_to(queue, record.physical_offset)
    if elsewhere is None:
        return RecordUnit(*queue.key, offset, found, file)
    found = f"unit {elsewhere} of queue {name} leads to it, though it says its queue offset is {offset}"
    return RecordUnit(*queue.key, offset, found, file, is_there=True)


def _leading_to(queue: Queue, physical: int) -> int | None:
    """The number of a unit that leads to an offset, wherever it is in the queue."""
    for file in queue.files:
        for first, units in queue.chunks(file):
            rows = np.flatnonzero((units["physical_offset"] == physical) & queue.valid(units))
            if len(rows):
                return file.base // queue.dtype.itemsize + first + int(rows[0])
    return None


def _in_batch_queue(queue: Queue, record: Record) -> RecordUnit:
    offset, number = record.fields["queue_offset"], _leading_to(queue, record.physical_offset)
    if number is None:
        return RecordUnit(*queue.key, offset, "no unit of the batch queue leads to it")
    return RecordUnit(*queue.key, offset, f"unit {number} of the batch queue leads to it", is_there=True)


__all__ = ["RecordUnit", "unit_of"]
