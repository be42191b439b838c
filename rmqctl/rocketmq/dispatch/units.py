"""Units appended to one queue: a simple one, a batch queue, or an extension (spec 3.4, 3.5, 3.6).

Filler units, repeats and wrong order are treated as brokers treat them. Sources: ConsumeQueue.putMessagePositionInfo,
fillPreBlank; MappedFileQueue.getLastMappedFile; BatchConsumeQueue.putBatchMessagePositionInfo; ConsumeQueueExt.put.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.layout import plan_of
from formats.rocketmq.batch_consumequeue import BatchConsumeQueueUnit
from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE, PRE_BLANK, ConsumeQueueUnit
from formats.rocketmq.consumequeue_ext import END_BLANK_SIZE, END_OF_FILE, HEAD_SIZE, ConsumeQueueExtUnit
from rmqctl.rocketmq.dispatch.rules import DispatchRequest
from rmqctl.rocketmq.queues.files import UNIT, Units

UNIT_SIZE = UNIT.itemsize
_UNIT = plan_of(ConsumeQueueUnit).runs[0].packer
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Appended:
    """Bytes to write into the file sequence of a queue.

    Attributes:
        position: byte of the sequence where they go; the file is the one that starts at
            ``position - position % file_size``.
        data: filler units, if the queue is new, and units; it may run over several files.
    """

    position: int
    data: bytes


@dataclass(slots=True)
class QueueState:
    """What a broker remembers of one queue between two units.

    Attributes:
        file_size: bytes of a queue file, a multiple of 20.
        begin: byte of the sequence where the first file starts; -1: the queue has no file.
        end: byte of the sequence after the last unit (write position); 0 without a file.
        max_physical: physical offset after the record of the last unit; -1 initially.
        first: queue offset of the first message, as far as a start and what was put since show: a queue that had no
            file begins after its filler, which the next start no longer knows.
        skips_repeated: a unit that belongs before the end is left out; 3.x appends it.
    """

    file_size: int
    begin: int = -1
    end: int = 0
    max_physical: int = -1
    first: int = 0
    skips_repeated: bool = True

    @property
    def next_offset(self) -> int:
        """Queue offset of the next message as the broker counts it."""
        return self.end // UNIT_SIZE

    def put(self, physical: int, size: int, tags_code: int, queue_offset: int) -> Appended | None:
        """Append the unit of one record; None where the broker ignores it as present or repeated."""
        if self._is_present(physical, size):
            return None
        blank = self._open(queue_offset)
        expected = queue_offset * UNIT_SIZE
        if queue_offset and expected < self.end + len(blank) and self.skips_repeated:
            return None
        position = self.end
        self.max_physical = physical + size
        self.end += len(blank) + UNIT_SIZE
        return Appended(position, blank + _UNIT.pack(physical, size, tags_code))

    def _is_present(self, physical: Any, size: Any) -> Any:
        """Whether a record has a unit already; 3.x asks where it begins, later ones where it ends."""
        return physical + size <= self.max_physical if self.skips_repeated else physical < self.max_physical

    def put_many(self, physical: Ints, size: Ints, tags_code: Ints, queue_offset: Ints) -> list[Appended]:
        """Append the units of records in log order, shape (n,) each; in one piece where nothing is out of order."""
        new = ~np.asarray(self._is_present(physical, size))
        if not new.any():
            return []
        keep = slice(int(np.argmax(new)), None)
        physical, size, tags_code, queue_offset = (c[keep] for c in (physical, size, tags_code, queue_offset))
        blank, position = self._open(int(queue_offset[0])), self.end
        if not self._all_appended(physical + size, queue_offset, position + len(blank)):
            self.end += len(blank)
            found = self._one_by_one(physical, size, tags_code, queue_offset)
            return [Appended(position, blank), *found] if blank else found
        units = units_of(physical, size, tags_code)
        self.max_physical = int(physical[-1] + size[-1])
        self.end += len(blank) + units.nbytes
        return [Appended(position, blank + units.tobytes())]

    def put_run(self, units: Units, queue_offset: int) -> Appended | None:
        """Append units whose queue offsets count up from ``queue_offset`` and whose records ascend, as they are.

        None, and nothing done, where that does not simply continue the queue: `put_many` then says why.
        """
        expected, first_end = queue_offset * UNIT_SIZE, int(units["physical_offset"][0]) + int(units["size"][0])
        if first_end <= self.max_physical or expected < self.end or queue_offset < 0:
            return None
        blank, position = self._open(queue_offset), self.end
        self.max_physical = int(units["physical_offset"][-1]) + int(units["size"][-1])
        self.end = position + len(blank) + units.nbytes
        return Appended(position, blank + units.tobytes())

    def _open(self, queue_offset: int) -> bytes:
        """Create the first file if there is none; the filler that goes in front of the first unit."""
        if self.begin >= 0:
            return b""
        expected = queue_offset * UNIT_SIZE
        # a negative queue offset comes from damage: brokers fail on the file's name and dispatch to none
        self.begin = self.end = max(expected - expected % self.file_size, 0)
        self.first = max(queue_offset, 0)
        return PRE_BLANK * (max(expected - self.begin, 0) // UNIT_SIZE)

    def _all_appended(self, ends: Ints, offsets: Ints, first: int) -> bool:
        """Whether none of the rows is left out, if the first of them is appended at byte ``first``."""
        placed = -(-first // UNIT_SIZE) + np.arange(len(ends))
        in_order = not self.skips_repeated or ((offsets >= placed) | (offsets == 0)).all()
        return bool(in_order and (ends[1:] > ends[:-1]).all())

    def _one_by_one(self, physical: Ints, size: Ints, tags_code: Ints, queue_offset: Ints) -> list[Appended]:
        rows = zip(*(c.tolist() for c in (physical, size, tags_code, queue_offset)), strict=True)
        return [found for row in rows if (found := self.put(*row)) is not None]


def units_of(physical: Ints, size: Ints, tags_code: Ints) -> Units:
    """Units as they lie in a file, shape (n,)."""
    units: npt.NDArray[Any] = np.empty(len(physical), UNIT)
    units["physical_offset"], units["size"], units["tags_code"] = physical, size, tags_code
    return units


# --- appending units to one batch consume queue -----------------------------------------------------


_BATCH_UNIT = plan_of(BatchConsumeQueueUnit).runs[0].packer
NO_COMPACTED_OFFSET = -1


@dataclass(slots=True)
class BatchQueueState:
    """What a broker remembers of one batch queue between two units.

    Attributes:
        end: byte of the file sequence after the last unit.
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
        self.end += _BATCH_UNIT.size
        self.last_physical = request.physical_offset
        self.next_offset = request.base_offset + request.batch_size
        return found


def batch_unit(request: DispatchRequest) -> bytes:
    """Return the 46 bytes of a record's unit."""
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
    return _BATCH_UNIT.pack(*values)


# --- appending units to the extension of one consume queue ------------------------------------------


_END = END_OF_FILE.to_bytes(2, "big", signed=True)
_MAX_SIZE = 0x7FFF


@dataclass(slots=True)
class ExtState:
    """Where the next extension unit of a queue goes.

    Attributes:
        file_size: bytes of an extension file.
        end: byte of the file sequence after the last unit.
    """

    file_size: int
    end: int = 0

    def put(self, tags_code: int, store_timestamp: int, bitmap: bytes = b"") -> tuple[int, list[Appended]]:
        """Append a unit.

        Returns its address, which the queue unit carries as tags code, and the bytes to write. Where the unit is
        too long for any file the address is the plain tags code, as brokers store it then.
        """
        size = HEAD_SIZE + len(bitmap)
        if size > min(self.file_size - END_BLANK_SIZE, _MAX_SIZE):
            return tags_code, []
        found = []
        left = self.file_size - self.end % self.file_size
        if size > left - END_BLANK_SIZE:
            found.append(Appended(self.end, _END))
            self.end += left
        unit = {"size": size, "tags_code": tags_code, "store_timestamp": store_timestamp, "bitmap": bitmap}
        found.append(Appended(self.end, ConsumeQueueExtUnit.build(unit)))
        self.end += size
        return found[-1].position + EXT_ADDRESS_BASE, found
