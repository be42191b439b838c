"""Appending units to one batch consume queue (spec 3.6; BatchConsumeQueue.putBatchMessagePositionInfo)."""

from __future__ import annotations

from dataclasses import dataclass

from formats.layout import plan_of
from formats.rocketmq.batch_consumequeue import BatchConsumeQueueUnit
from rmqctl.rocketmq.dispatch.queue_units import Appended
from rmqctl.rocketmq.dispatch.request import DispatchRequest

_UNIT = plan_of(BatchConsumeQueueUnit).runs[0].packer
NO_COMPACTED_OFFSET = -1


@dataclass(slots=True)
class BatchQueueState:
    """What a broker remembers of one batch queue between two units.

    Attributes:
        end: byte of the file sequence behind the last unit.
        last_physical: physical offset of the record of the last unit; -1 initially.
        next_offset: queue offset of the next message; 0 initially.
    """

    end: int = 0
    last_physical: int = -1
    next_offset: int = 0

    def put(self, request: DispatchRequest) -> Appended | None:
        """Append the unit of one record.

        None where the broker ignores it: it is present already, or has no readable INNER_BASE and INNER_NUM.
        """
        if request.base_offset < 0 or request.batch_size < 0 or request.physical_offset <= self.last_physical:
            return None
        found = Appended(self.end, batch_unit(request))
        self.end += _UNIT.size
        self.last_physical = request.physical_offset
        self.next_offset = request.base_offset + request.batch_size
        return found


def batch_unit(request: DispatchRequest) -> bytes:
    """The 46 bytes of a record's unit."""
    values = (
        request.physical_offset,
        request.size,
        request.tags_code,
        request.store_timestamp,
        request.base_offset,
        request.batch_size,
        NO_COMPACTED_OFFSET,
        0,
    )
    return _UNIT.pack(*values)
