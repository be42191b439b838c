"""The messages that units of a queue lead to, as rows, and why one is not there; and the unit that leads to a record
(spec 3.1, 3.6).

The common filters are applied to records that were read one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from formats.rocketmq.message import TRANSACTION
from rmqctl.explain import Trace, TraceStep
from rmqctl.files.local import BytesSource
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.dump.record import RecordRows, RowOptions
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.query import steps
from rmqctl.rocketmq.query.queue_view import QueueView
from rmqctl.rocketmq.query.records import Absence, Record, RecordReader
from rmqctl.rocketmq.query.units import Unit
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue
from rmqctl.rocketmq.queues.rocksdb import rocksdb_units
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, QueueFiles, StoreFiles


def passing(records: Iterable[Record], wanted: Filter) -> list[Record]:
    """Return the records that pass every filter, in order."""
    return [record for record in records if _passes(record, wanted)]


def _passes(record: Record, wanted: Filter) -> bool:
    """Whether a record passes, as a block of its own at the place where it lies: one set of rules for every command."""
    for block in scan(BytesSource(record.raw, record.file), Extent(record.file, record.physical_offset)):
        chosen = wanted.select(block)
        if len(block):
            return chosen is None or len(chosen) > 0
    return False


# --- the queue unit of a record ---------------------------------------------------------------------


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
        position: byte of the unit in the file; None where it is not there, or not in its place.
    """

    topic: str
    queue_id: int
    queue_offset: int
    found: str
    file: str = ""
    is_there: bool = False
    has_queue: bool = True
    wanted: bool = True
    position: int | None = None


def unit_of(store: StoreFiles, record: Record) -> RecordUnit:
    """Return the unit of a record in the queue it names.

    Raises:
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
    """Return the unit at the record's queue offset, else the one elsewhere in the queue that leads to it."""
    offset, name = record.fields["queue_offset"], "/".join(map(str, queue.key))
    position = offset * queue.dtype.itemsize
    own = next((f for f in queue.files if f.base <= position < f.base + f.size), None)
    file = own.name if own is not None else ""
    unit = queue.unit_at(position)
    if unit is None:
        found = f"no file of queue {name} holds the place of its unit"
    elif not unit["size"][0]:
        found = f"nothing is written where queue {name} should hold its unit"
    elif int(unit["physical_offset"][0]) == record.physical_offset:
        inside = None if own is None else position - own.base
        found = f"unit {offset} of queue {name} leads to it"
        return RecordUnit(*queue.key, offset, found, file, is_there=True, position=inside)
    else:
        found = f"unit {offset} of queue {name} leads to offset {int(unit['physical_offset'][0])}"
    elsewhere = _leading_to(queue, record.physical_offset)
    if elsewhere is None:
        return RecordUnit(*queue.key, offset, found, file)
    found = f"unit {elsewhere} of queue {name} leads to it, though it says its queue offset is {offset}"
    return RecordUnit(*queue.key, offset, found, file, is_there=True)


def _leading_to(queue: Queue, physical: int) -> int | None:
    """Return the number of a unit that leads to an offset, wherever it is in the queue."""
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


# --- the messages that units of a queue lead to -----------------------------------------------------


Row = dict[str, Any]
_INNER_QUEUES = b"INNER_MULTI_DISPATCH"


class UnitMessages:
    """Reads the records of units.

    Attributes:
        trace: takes note of records that cannot be read.
    """

    def __init__(self, view: QueueView, show: RowOptions, trace: Trace) -> None:
        self.view, self.trace = view, trace
        self._reader = RecordReader(view.log, trace, strict=show.strict)
        self._rows = RecordRows(show)

    def record(self, unit: Unit) -> Record | Absence:
        """Return the record of a unit, or why there is none."""
        return self._reader.at(unit.physical_offset, unit.size)

    def row(self, record: Record) -> Row:
        """Return the object of the contract."""
        return self._rows.row(record.fields, record.file, record.position)

    def why_not(self, unit: Unit) -> TraceStep | None:
        """Return the reason why a unit gives no message, or another one than it should; None where all is well."""
        if unit.is_filler:
            return steps.FILLER_UNIT.conclude(
                topic=self.view.topic, queue_id=self.view.queue_id, queue_offset=unit.queue_offset
            )
        found = self.record(unit)
        if isinstance(found, Absence):
            return self._absent(unit, found)
        wrong = self._mismatch(unit, found)
        if not wrong:
            return None
        place = {"topic": self.view.topic, "queue_id": self.view.queue_id, "queue_offset": unit.queue_offset}
        return steps.UNIT_MISMATCH.conclude(found.file, physical_offset=unit.physical_offset, found=wrong, **place)

    def _absent(self, unit: Unit, absence: Absence) -> TraceStep:
        log = self.view.log
        return absence.miss.conclude(
            absence.file,
            wanted=f"unit {unit.queue_offset} of queue {self.view.name}",
            physical_offset=unit.physical_offset,
            found=absence.found,
            min_offset=log.min_offset,
            end=min(self.view.log_end, log.max_offset),
        )

    def _mismatch(self, unit: Unit, record: Record) -> str:
        """Half a sentence about a record that is not the unit's; extra queues of a record count (spec 3.7)."""
        fields = record.fields
        if fields["total_size"] != unit.size:
            return f"a record of {fields['total_size']} bytes begins, not of {unit.size}"
        if self.view.topic.encode() in record.properties.get(_INNER_QUEUES, b"").split(b","):
            return ""
        if (record.topic, fields["queue_id"]) != (self.view.topic, self.view.queue_id):
            return f"a record of {record.topic}/{fields['queue_id']} begins"
        if fields["queue_offset"] != unit.queue_offset and not self.view.is_batch:
            return f"a record begins that says it has queue offset {fields['queue_offset']}"
        return ""
