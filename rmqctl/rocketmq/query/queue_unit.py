"""The queue unit of a record: what a consumer needs to get the message (spec 3.1, 3.6)."""

from __future__ import annotations

from dataclasses import dataclass

from rmqctl.rocketmq.query.records import Record
from rmqctl.rocketmq.queue_files import BATCH_UNIT, UNIT, Queue
from rmqctl.rocketmq.rocksdb_queues import rocksdb_units
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, QueueFiles, RocketMQStore

_PREPARED, _ROLLBACK = 0x4, 0xC


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
    if record.fields["sys_flag"] & _ROLLBACK in {_PREPARED, _ROLLBACK}:
        return RecordUnit(topic, queue_id, offset, "such a record gets none", wanted=False)
    if store.is_rocksdb:
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
    offset = record.fields["queue_offset"]
    position = offset * queue.dtype.itemsize
    file = next((f.name for f in queue.files if f.base <= position < f.base + f.size), "")
    unit = queue.unit_at(position)
    if unit is None:
        found, there = "no file of the queue holds its place", False
    elif not unit["size"][0]:
        found, there = "nothing is written in its place", False
    else:
        physical = int(unit["physical_offset"][0])
        found, there = f"the unit in its place leads to offset {physical}", physical == record.physical_offset
    return RecordUnit(*queue.key, offset, found, file, is_there=there)


def _in_batch_queue(queue: Queue, record: Record) -> RecordUnit:
    offset = record.fields["queue_offset"]
    for file in queue.files:
        for _, units in queue.chunks(file):
            if (units["physical_offset"][queue.valid(units)] == record.physical_offset).any():
                return RecordUnit(*queue.key, offset, "a unit leads to it", file.name, is_there=True)
    return RecordUnit(*queue.key, offset, "no unit of the batch queue leads to it")


__all__ = ["RecordUnit", "unit_of"]
