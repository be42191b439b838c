"""Hosts of a block's records as text, and the message ids made of them (spec 2.4, 2.15)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message_id import offset_message_id
from rmqctl.rocketmq.block import Block, by_variant, gather, head_offsets
from rmqctl.rocketmq.rows.record import host_text as host_text

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
    """The eight bytes of each record's host as a number, shape (n,); of an IPv6 host only its first eight.

    Args:
        side: ``born`` or ``store``.
    """
    at = block.at + by_variant(head_offsets(f"{side}_ip"), block.variant)
    return gather(block.data, at, ">u8")


def host_column(block: Block, side: str, names: HostNames) -> list[str]:
    """The text of each record's host."""
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
