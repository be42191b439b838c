"""Records of the commit log as JSON-ready objects, one a message (spec 2.1; CLI contract, ``dump``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import SysFlag
from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.body import compression
from rmqctl.rocketmq.columns import properties_of
from rmqctl.rocketmq.crc import body_crcs
from rmqctl.rocketmq.rows.hosts import HostNames, host_column, message_ids
from rmqctl.rocketmq.rows.properties import show_properties
from rmqctl.rocketmq.rows.record import KEYS as KEYS
from rmqctl.rocketmq.rows.record import VERSIONS as VERSIONS
from rmqctl.rocketmq.rows.record import RecordRows
from rmqctl.rocketmq.rows.record import Row as Row
from rmqctl.rocketmq.rows.record import transaction as transaction
from rmqctl.rocketmq.rows.show import Show
from rmqctl.rocketmq.rows.text import text_or_base64

Flags = npt.NDArray[np.bool_]

_V2_SHIFT = 2  # bit of Block.variant


def crc_flags(block: Block) -> tuple[npt.NDArray[np.int64], Flags]:
    """The CRC of each body, and whether the stored one equals it; an empty body has none to compare."""
    computed = body_crcs(block)
    return computed, (block["body_crc"] == computed) | (block.body_size == 0)


class MessageRows(RecordRows):
    """Turns blocks into rows; keeps the texts of hosts from block to block."""

    def __init__(self, show: Show) -> None:
        super().__init__(show)
        self.hosts = HostNames()

    def rows(self, block: Block, crc_ok: Flags) -> list[Row]:
        """One object per record, in order, with the keys of the contract; bodies and inner messages behind them."""
        rows = [dict(zip(KEYS, values, strict=True)) for values in zip(*self._columns(block, crc_ok), strict=False)]
        bodies = self.show.body or self.show.raw_body
        wanted = np.flatnonzero(bodies | ((block["sys_flag"] & int(SysFlag.INNER_BATCH)) != 0))
        stored = slices(block, block.body_at[wanted], block.body_size[wanted])
        for index, body in zip(wanted.tolist(), stored, strict=True):
            self.add_body(rows[index], body)
        return rows

    def _columns(self, block: Block, crc_ok: Flags) -> Iterable[Iterable[Any]]:
        """The values of each of :data:`KEYS`, record by record."""
        flags = block["sys_flag"].tolist()
        texts = properties_of(block)
        properties = [show_properties(texts[i], self.show) for i in range(len(block))]
        yield repeat("message", len(block))
        yield repeat(block.file)
        yield block.position.tolist()
        yield block["physical_offset"].tolist()
        yield block.total_size.tolist()
        yield [VERSIONS[v] for v in (block.variant >> _V2_SHIFT).tolist()]
        yield block["body_crc"].tolist()
        yield crc_ok.tolist()
        for name in ("queue_id", "flag", "queue_offset"):
            yield block[name].tolist()
        yield flags
        yield block["born_timestamp"].tolist()
        yield host_column(block, "born", self.hosts)
        yield block["store_timestamp"].tolist()
        yield host_column(block, "store", self.hosts)
        yield block["reconsume_times"].tolist()
        yield block["prepared_transaction_offset"].tolist()
        yield list(map(text_or_base64, slices(block, block.topic_at, block.topic_size)))
        yield [p.tags for p in properties]
        yield [p.keys for p in properties]
        yield [p.unique_key for p in properties]
        yield message_ids(block)
        yield [p.all for p in properties]
        yield map(transaction, flags)
        yield map(compression, flags)
        yield block.body_size.tolist()


def slices(block: Block, at: Ints, size: Ints) -> Iterator[bytes]:
    """Copies of ``block.data[at:at+size]``, one by one."""
    data: Any = memoryview(block.data)  # type: ignore[arg-type]  # an array is a buffer, whatever its stubs say
    for begin, end in zip(at.tolist(), (at + size).tolist(), strict=True):
        yield bytes(data[begin:end])
