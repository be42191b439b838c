"""The messages that units of a queue lead to, as rows, and why one is not there."""

from __future__ import annotations

from typing import Any

from rmqctl.rocketmq.query import steps
from rmqctl.rocketmq.query.queue_view import QueueView
from rmqctl.rocketmq.query.records import Absence, Record, RecordReader
from rmqctl.rocketmq.query.steps import Step, Trace
from rmqctl.rocketmq.query.units import Unit
from rmqctl.rocketmq.rows.record import RecordRows
from rmqctl.rocketmq.rows.show import Show

Row = dict[str, Any]
_INNER_QUEUES = b"INNER_MULTI_DISPATCH"


class UnitMessages:
    """Reads the records of units.

    Attributes:
        trace: is told of records that cannot be read.
    """

    def __init__(self, view: QueueView, show: Show, trace: Trace) -> None:
        self.view, self.trace = view, trace
        self._reader = RecordReader(view.log, trace, strict=show.strict)
        self._rows = RecordRows(show)

    def record(self, unit: Unit) -> Record | Absence:
        """The record of a unit, or why there is none.

        Raises:
            OSError: the log cannot be read.
        """
        return self._reader.at(unit.physical_offset)

    def row(self, record: Record) -> Row:
        """The object of the contract."""
        return self._rows.row(record.fields, record.file, record.position)

    def why_not(self, unit: Unit) -> Step | None:
        """The reason why a unit gives no message, or another one than it should; None where all is well."""
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

    def _absent(self, unit: Unit, absence: Absence) -> Step:
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
