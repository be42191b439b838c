"""Records of the commit log as JSON-ready objects, one a message (spec 2.1; CLI contract, ``dump``).

Hosts of a block's records as text, and the message ids made of them (spec 2.4, 2.15).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import SysFlag
from formats.rocketmq.message_id import offset_message_id
from rmqctl.rocketmq.dump.record import (
    ROW_KEYS,
    VERSIONS,
    RecordRows,
    Row,
    Show,
    host_text,
    show_properties,
    transaction,
)
from rmqctl.rocketmq.log.block import Block, Ints, by_variant, gather, head_offsets
from rmqctl.rocketmq.log.columns import properties_of
from rmqctl.rocketmq.log.crc import body_crcs
from rmqctl.rocketmq.log.record import compression
from rmqctl.text import text_or_base64

_V4_BYTES, _V6_BYTES = 8, 20
_BORN_V6, _STORE_V6 = 1, 2  # bits of Block.variant


class HostNames(dict[int, str]):
    """Texts of IPv4 hosts by their eight bytes as a number, made once each."""

    LIMIT = 1 << 16

    def __missing__(self, host: int) -> str:
        if len(self) >= self.LIMIT:
            self.clear()
        text = self[host] = host_text(host.to_bytes(_V4_BYTES, "big"))
        return text


def hosts_v4(block: Block, side: str) -> npt.NDArray[np.uint64]:
    """Return the eight bytes of each record's host as a number, shape (n,); of an IPv6 host only its first eight.

    Args:
        side: ``born`` or ``store``.
    """
    at = block.at + by_variant(head_offsets(f"{side}_ip"), block.variant)
    return gather(block.data, at, ">u8")


def host_column(block: Block, side: str, names: HostNames) -> list[str]:
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
        raw = _raw_host(block, row, "store", _V6_BYTES)
        port = int.from_bytes(raw[16:], "big", signed=True)
        ids[row] = offset_message_id(raw[:16], port, int(block["physical_offset"][row]))
    return ids


def _raw_host(block: Block, row: int, side: str, size: int) -> bytes:
    at = int(block.at[row] + head_offsets(f"{side}_ip")[block.variant[row]])
    raw: Any = block.data[at : at + size]
    data: bytes = raw.tobytes()
    return data


# --- records of the commit log as json-ready objects ------------------------------------------------


Flags = npt.NDArray[np.bool_]

_V2_SHIFT = 2  # bit of Block.variant


def crc_flags(block: Block) -> tuple[npt.NDArray[np.int64], Flags]:
    """Return the CRC of each body, and whether the stored one equals it; an empty body has none to compare."""
    computed = body_crcs(block)
    return computed, (block["body_crc"] == computed) | (block.body_size == 0)


class MessageRows(RecordRows):
    """Turns blocks into rows; keeps the texts of hosts from block to block."""

    def __init__(self, show: Show) -> None:
        super().__init__(show)
        self.hosts = HostNames()

    def rows(self, block: Block, crc_ok: Flags) -> list[Row]:
        """One object per record, in order, with the keys of the contract; bodies and inner messages behind them."""
        rows = [dict(zip(ROW_KEYS, values, strict=True)) for values in zip(*self._columns(block, crc_ok), strict=False)]
        bodies = self.show.body or self.show.raw_body
        wanted = np.flatnonzero(bodies | ((block["sys_flag"] & int(SysFlag.INNER_BATCH)) != 0))
        stored = slices(block, block.body_at[wanted], block.body_size[wanted])
        for index, body in zip(wanted.tolist(), stored, strict=True):
            self.add_body(rows[index], body)
        return rows

    def _columns(self, block: Block, crc_ok: Flags) -> Iterable[Iterable[Any]]:
        """Yield the values of each of :data:`KEYS`, record by record."""
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
    """Yield copies of ``block.data[at:at+size]``, one by one."""
    data: Any = memoryview(block.data)  # type: ignore[arg-type]  # an array is a buffer, whatever its stubs say
    for begin, end in zip(at.tolist(), (at + size).tolist(), strict=True):
        yield bytes(data[begin:end])
