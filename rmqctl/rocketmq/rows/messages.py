"""Records of the commit log as JSON-ready objects, one a message (spec 2.1; CLI contract, ``dump``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.errors import DecodeError
from formats.rocketmq.message import SysFlag
from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.body import Body, compression, inner_messages, is_inner_batch, open_body
from rmqctl.rocketmq.columns import properties_of
from rmqctl.rocketmq.crc import body_crcs
from rmqctl.rocketmq.rows.hosts import HostNames, host_column, message_ids
from rmqctl.rocketmq.rows.properties import show_properties
from rmqctl.rocketmq.rows.show import Show
from rmqctl.rocketmq.rows.text import Text, head_of, text_or_base64

Row = dict[str, Any]
Flags = npt.NDArray[np.bool_]

VERSIONS = ("V1", "V2")
TRANSACTIONS = ("none", "prepared", "commit", "rollback")
KEYS = (
    "kind", "file", "position", "physical_offset", "size", "magic", "body_crc", "body_crc_ok", "queue_id", "flag",
    "queue_offset", "sys_flag", "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times",
    "prepared_transaction_offset", "topic", "tags", "keys", "unique_key", "message_id", "properties", "transaction",
    "compression", "body_size",
)  # fmt: skip
"""Keys of a message, in the order of the contract."""
_V2_SHIFT = 2  # bit of Block.variant


def transaction(sys_flag: int) -> str:
    """``none``, ``prepared``, ``commit`` or ``rollback`` (spec 2.3)."""
    return TRANSACTIONS[sys_flag >> 2 & 3]


def crc_flags(block: Block) -> tuple[npt.NDArray[np.int64], Flags]:
    """The CRC of each body, and whether the stored one equals it; an empty body has none to compare."""
    computed = body_crcs(block)
    return computed, (block["body_crc"] == computed) | (block.body_size == 0)


class MessageRows:
    """Turns blocks into rows; keeps the texts of hosts from block to block."""

    def __init__(self, show: Show) -> None:
        self.show = show
        self.hosts = HostNames()

    def rows(self, block: Block, crc_ok: Flags) -> list[Row]:
        """One object per record, in order, with the keys of the contract; bodies and inner messages behind them."""
        rows = [dict(zip(KEYS, values, strict=True)) for values in zip(*self._columns(block, crc_ok), strict=False)]
        bodies = self.show.body or self.show.raw_body
        wanted = np.flatnonzero(bodies | ((block["sys_flag"] & int(SysFlag.INNER_BATCH)) != 0))
        stored = slices(block, block.body_at[wanted], block.body_size[wanted])
        for index, body in zip(wanted.tolist(), stored, strict=True):
            self._add_body(rows[index], body)
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

    def _add_body(self, row: Row, stored: bytes) -> None:
        show = self.show
        opened = open_body(stored, row["sys_flag"])
        if show.body:
            row["body_size_decompressed"] = None if opened.data is None else len(opened.data)
            self._add(row, "body", opened)
        if show.raw_body:
            self._add(row, "raw_body", Body(stored))
        if is_inner_batch(row["sys_flag"]):
            row["inner"] = self._inner(row, opened)

    def _add(self, row: Row, key: str, body: Body) -> None:
        row[key] = None if body.data is None else self._shown(body.data)
        if body.error:
            row[f"{key}_error"] = body.error
        limit = self.show.body_limit
        if body.data is not None and limit is not None and len(body.data) > limit and not self.show.redact:
            row[f"{key}_truncated"] = True

    def _shown(self, body: bytes) -> Text:
        return self.show.value(body if self.show.redact else head_of(body, self.show.body_limit))

    def _inner(self, row: Row, opened: Body) -> list[Row]:
        """Messages of an inner batch, as many as can be read."""
        found: list[Row] = []
        try:
            for offset, fields in enumerate(inner_messages(opened.data or b""), row["queue_offset"]):
                found.append(self._inner_message(offset, fields))
        except DecodeError as error:
            row["inner_error"] = f"byte {error.offset} of the body: {error.field}: {error}"
        return found

    def _inner_message(self, queue_offset: int, fields: dict[str, Any]) -> Row:
        properties = show_properties(fields["properties"], self.show)
        inner: Row = {
            "queue_offset": queue_offset,
            "size": fields["total_size"],
            "flag": fields["flag"],
            "tags": properties.tags,
            "keys": properties.keys,
            "unique_key": properties.unique_key,
            "properties": properties.all,
            "body_size": len(fields["body"]),
        }
        if self.show.body or self.show.raw_body:
            self._add(inner, "body" if self.show.body else "raw_body", Body(fields["body"]))
        return inner


def slices(block: Block, at: Ints, size: Ints) -> Iterator[bytes]:
    """Copies of ``block.data[at:at+size]``, one by one."""
    data: Any = memoryview(block.data)  # type: ignore[arg-type]  # an array is a buffer, whatever its stubs say
    for begin, end in zip(at.tolist(), (at + size).tolist(), strict=True):
        yield bytes(data[begin:end])
