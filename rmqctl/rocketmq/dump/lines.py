"""Messages as JSON lines, column by column, byte for byte what orjson makes of the rows, without an object for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from formats.rocketmq.message import SysFlag
from rmqctl.columns import Flags, lines_of, text_of
from rmqctl.rocketmq.dump.log import ShownRecords, merged
from rmqctl.rocketmq.dump.messages import Kept, MessageColumns, MessageRows, message_columns
from rmqctl.rocketmq.dump.record import Row, RowOptions
from rmqctl.rocketmq.log.block import Block

FEW = 64
"""Blocks with fewer records are not worth columns."""

_INNER = int(SysFlag.INNER_BATCH)


class MessageLines:
    """Turns blocks into JSON lines; keeps what recurs from block to block."""

    def __init__(self, show: RowOptions) -> None:
        """
        Args:
            show: a plain one (:attr:`~RowOptions.is_plain`); it decides how odd properties are read.
        """
        self._rows = MessageRows(show)
        self._kept = Kept(show)

    def pieces(self, part: ShownRecords) -> Iterator[bytes | memoryview]:
        """Yield the rows of a part, many lines a piece, with what stands between them."""
        lines, at = self.lines(part.block, part.crc_ok), 0
        for place, row in part.between:
            yield text_of(lines, at, place)
            yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
            at = place
        yield text_of(lines, at)

    def objects(self, part: ShownRecords) -> Iterator[Row]:
        """Return the rows of a part as objects."""
        return merged(self._rows.rows(part.block, part.crc_ok), part.between)

    def lines(self, block: Block, crc_ok: Flags) -> Any:
        """Return the rows of a block as an Arrow array of JSON texts, each with a newline at its end."""
        if len(block) < FEW:
            return pa.array(self._slow(block, crc_ok), pa.binary())
        made = MessageColumns(block, self._kept, crc_ok)
        odd = made.json_properties.odd | ((block["sys_flag"] & _INNER) != 0)
        lines = lines_of(message_columns(made), len(block))
        if odd.any():
            others = pa.array(self._slow(block.take(odd), crc_ok[odd]), pa.binary())
            lines = pc.replace_with_mask(lines, pa.array(odd), others)
        return lines

    def _slow(self, block: Block, crc_ok: Flags) -> list[bytes]:
        return [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in self._rows.rows(block, crc_ok)]
