"""Appending units to the extension of one consume queue (spec 3.5; ConsumeQueueExt.put)."""

from __future__ import annotations

from dataclasses import dataclass

from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE
from formats.rocketmq.consumequeue_ext import END_BLANK_SIZE, END_OF_FILE, HEAD_SIZE, ConsumeQueueExtUnit
from rmqctl.rocketmq.dispatch.queue_units import Appended

_END = END_OF_FILE.to_bytes(2, "big", signed=True)
_MAX_SIZE = 0x7FFF


@dataclass(slots=True)
class ExtState:
    """Where the next extension unit of a queue goes.

    Attributes:
        file_size: bytes of an extension file.
        end: byte of the file sequence behind the last unit.
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
