"""The columns of messages, said once for rows, JSON lines and tables (spec 2.1; CLI contract, ``dump``), with the texts
of hosts and the message ids made of them (spec 2.4, 2.15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import COMPRESSION, TRANSACTION, SysFlag, split_host
from formats.rocketmq.message_id import offset_message_id
from rmqctl.columns import (
    Cell,
    Column,
    Flags,
    Hexadecimal,
    Meanings,
    Named,
    Numbers,
    Objects,
    Recurring,
    Same,
    Times,
    rows_of,
)
from rmqctl.rocketmq.dump.record import (
    ROW_KEYS,
    VERSIONS,
    Properties,
    RecordRows,
    Row,
    RowOptions,
    host_text,
    show_properties,
    transaction,
)
from rmqctl.rocketmq.log.block import Block, Ints, by_variant, gather, head_offsets
from rmqctl.rocketmq.log.columns import Texts, pairs_of, properties_of
from rmqctl.rocketmq.log.crc import crc_flags
from rmqctl.rocketmq.log.record import compression
from rmqctl.text import text_or_base64

if TYPE_CHECKING:  # rows do without
    import pyarrow as pa

    from rmqctl.rocketmq.dump.properties import PropertyColumns, PropertyJson, PropertyTexts

_V4_BYTES, _V6_BYTES = 8, 20
_BORN_V6, _STORE_V6, _V2_SHIFT = 1, 2, 2  # bits of Block.variant, and where its version begins


class Kept:
    """What recurs from block to block, shown once: hosts, topics, sets of names of properties.

    Attributes:
        show: how properties are decoded and shown in rows; JSON lines and tables have them as they are.
    """

    def __init__(self, show: RowOptions) -> None:
        self.show = show
        self.hosts = Meanings(lambda host: host_text(host.to_bytes(_V4_BYTES, "big")))
        self.topics = Meanings(text_or_base64)

    @cached_property
    def properties(self) -> PropertyTexts:
        from rmqctl.rocketmq.dump.properties import NAMES, PropertyTexts

        return PropertyTexts(NAMES)


class MessageColumns:
    """The columns of the records of a block, each made when asked for.

    Attributes:
        crc_ok: whether each body matches its CRC, shape (n,).
    """

    def __init__(self, block: Block, kept: Kept, crc_ok: Flags | None = None) -> None:
        self.block, self.kept = block, kept
        self._crc_ok = crc_ok

    @property
    def crc_ok(self) -> Flags:
        return crc_flags(self.block)[1] if self._crc_ok is None else self._crc_ok

    def host(self, side: str) -> Column:
        """Return where a message was made or is stored; ``side``: ``born`` or ``store``."""
        if (self.block.variant & (_BORN_V6 if side == "born" else _STORE_V6)).any():
            return Objects(host_column(self.block, side, self.kept.hosts))
        hosts = hosts_v4(self.block, side)
        return Recurring(hosts.tolist, partial(_array, hosts), self.kept.hosts)

    def message_id(self) -> Column:
        if (self.block.variant & _STORE_V6).any():
            return Objects(message_ids(self.block))
        return Hexadecimal(id_bytes(self.block))

    def topic(self) -> Column:
        block = self.block
        return Recurring(
            lambda: slices(block, block.topic_at, block.topic_size),
            lambda: packed(block, block.topic_at, block.topic_size),
            self.kept.topics,
        )

    @cached_property
    def _texts(self) -> Texts:
        return properties_of(self.block)

    @cached_property
    def shown_properties(self) -> list[Properties]:
        """What each properties text says, decoded one by one."""
        return [show_properties(self._texts[row], self.kept.show) for row in range(len(self.block))]

    @cached_property
    def json_properties(self) -> PropertyJson:
        return self.kept.properties.json(self._texts)

    @cached_property
    def property_columns(self) -> PropertyColumns:
        from rmqctl.rocketmq.dump.properties import PropertyColumns

        return PropertyColumns(pairs_of(self._texts), len(self.block))


@dataclass(frozen=True, slots=True)
class PropertyColumn:
    """One of ``tags``, ``keys``, ``unique_key`` and ``properties``; what is odd has no JSON here."""

    of: MessageColumns
    name: str

    def values(self) -> list[Any]:
        return [getattr(shown, self.name) for shown in self.of.shown_properties]

    def json(self, end: bytes) -> tuple[Cell, ...]:
        from rmqctl.rocketmq.dump.properties import cells_of

        return cells_of(self.of.json_properties, self.name, end)

    def arrow(self, _kind: pa.DataType) -> Any:
        return getattr(self.of.property_columns, self.name)


def _number(name: str) -> Callable[[MessageColumns], Column]:
    return lambda c: Numbers(c.block[name])


def _property(name: str) -> Callable[[MessageColumns], Column]:
    return lambda c: PropertyColumn(c, name)


MESSAGE: dict[str, Callable[[MessageColumns], Column]] = {
    "kind": lambda c: Same("message", len(c.block)),
    "file": lambda c: Same(c.block.file, len(c.block)),
    "position": lambda c: Numbers(c.block.position),
    "size": lambda c: Numbers(c.block.total_size),
    "magic": lambda c: Named(c.block.variant >> _V2_SHIFT, VERSIONS),
    "body_crc_ok": lambda c: Named(c.crc_ok, (False, True)),
    "born_timestamp": lambda c: Times(c.block["born_timestamp"]),
    "born_host": lambda c: c.host("born"),
    "store_timestamp": lambda c: Times(c.block["store_timestamp"]),
    "store_host": lambda c: c.host("store"),
    "topic": MessageColumns.topic,
    "message_id": MessageColumns.message_id,
    "transaction": lambda c: Named.of(c.block["sys_flag"] & TRANSACTION, transaction),
    "compression": lambda c: Named.of(c.block["sys_flag"] & COMPRESSION, compression),
    "body_size": lambda c: Numbers(c.block.body_size),
    **{name: _property(name) for name in ("tags", "keys", "unique_key", "properties")},
    **{
        name: _number(name)
        for name in (
            "physical_offset", "body_crc", "queue_id", "flag", "queue_offset", "sys_flag", "reconsume_times",
            "prepared_transaction_offset",
        )
    },
}  # fmt: skip
"""What makes each column of messages."""


def message_columns(made: MessageColumns) -> dict[str, Column]:
    """Return the columns that ``dump`` shows, in the order of the contract."""
    return {name: MESSAGE[name](made) for name in ROW_KEYS}


class MessageRows(RecordRows):
    """Turns blocks into rows; keeps the texts of hosts from block to block."""

    def __init__(self, show: RowOptions) -> None:
        super().__init__(show)
        self._kept = Kept(show)

    def rows(self, block: Block, crc_ok: Flags) -> list[Row]:
        """One object per record, in order, with the keys of the contract; bodies and inner messages after them."""
        rows = rows_of(message_columns(MessageColumns(block, self._kept, crc_ok)))
        bodies = self.show.body or self.show.raw_body
        wanted = np.flatnonzero(bodies | ((block["sys_flag"] & int(SysFlag.INNER_BATCH)) != 0))
        stored = slices(block, block.body_at[wanted], block.body_size[wanted])
        for index, body in zip(wanted.tolist(), stored, strict=True):
            self.add_body(rows[index], body)
        return rows


# --- parts of records -------------------------------------------------------------------------------


def hosts_v4(block: Block, side: str) -> npt.NDArray[np.uint64]:
    """Return the eight bytes of each record's host as a number, shape (n,); of an IPv6 host only its first eight.

    Args:
        side: ``born`` or ``store``.
    """
    at = block.at + by_variant(head_offsets(f"{side}_ip"), block.variant)
    return gather(block.data, at, ">u8")


def host_column(block: Block, side: str, names: Meanings) -> list[str]:
    """Return the text of each record's host."""
    texts = [names[host] for host in hosts_v4(block, side).tolist()]
    for row in np.flatnonzero(block.variant & (_BORN_V6 if side == "born" else _STORE_V6)).tolist():
        texts[row] = host_text(_raw_host(block, row, side, _V6_BYTES))
    return texts


def id_bytes(block: Block) -> npt.NDArray[np.uint8]:
    """OffsetMsgId of each record as 16 bytes, shape (n, 16); rows with an IPv6 store host are not meaningful."""
    ids = np.empty((len(block), 2), ">u8")
    ids[:, 0] = hosts_v4(block, "store")
    ids[:, 1] = block["physical_offset"].astype(np.uint64)
    return ids.view(np.uint8)


def message_ids(block: Block) -> list[str]:
    """OffsetMsgId of each record: store host and the PHYSICALOFFSET it states, in upper-case hex."""
    text = id_bytes(block).tobytes().hex().upper()
    ids = [text[i : i + 32] for i in range(0, len(text), 32)]
    for row in np.flatnonzero(block.variant & _STORE_V6).tolist():
        address, port = split_host(_raw_host(block, row, "store", _V6_BYTES))
        ids[row] = offset_message_id(address, port, int(block["physical_offset"][row]))
    return ids


def _raw_host(block: Block, row: int, side: str, size: int) -> bytes:
    at = int(block.at[row] + head_offsets(f"{side}_ip")[block.variant[row]])
    raw: Any = block.data[at : at + size]
    data: bytes = raw.tobytes()
    return data


def slices(block: Block, at: Ints, size: Ints) -> Iterator[bytes]:
    """Yield copies of ``block.data[at:at+size]``, one by one."""
    data: Any = memoryview(block.data)  # type: ignore[arg-type]  # an array is a buffer, whatever its stubs say
    for begin, end in zip(at.tolist(), (at + size).tolist(), strict=True):
        yield bytes(data[begin:end])


def packed(block: Block, at: Ints, size: Ints) -> pa.BinaryArray:
    """Return ``block.data[at:at+size]`` as an Arrow array; the slices ascend and do not overlap."""
    import pyarrow as pa

    from rmqctl.rocketmq.dump.properties import slices_of

    return slices_of(pa.py_buffer(block.data), at, at + size)


def _array(numbers: npt.NDArray[np.uint64]) -> Any:
    import pyarrow as pa

    return pa.array(numbers)
