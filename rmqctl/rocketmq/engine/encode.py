"""From a message to the bytes of its record, by the plan derived from the record's schema (spec 2.1, 2.7).

What does not depend on the place in the log is done before the append lock is taken
(:func:`prepare`); the head, which holds queue offset, physical offset and store time, is packed
under it (:meth:`Prepared.pieces`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from formats.rocketmq.message import Magic, SysFlag, record_plan
from formats.rocketmq.message_id import offset_message_id
from formats.rocketmq.properties import PAIR_END, is_closed
from formats.rocketmq.property_crc import SIZE as CRC_SIZE
from formats.rocketmq.property_crc import property_crc_bytes
from rmqctl.rocketmq.crc import MASK, crc32
from rmqctl.rocketmq.engine.config import IPV4_SIZE, Host, StoreConfig
from rmqctl.rocketmq.engine.limits import (
    TOPIC_MAX,
    check_body_size,
    check_host,
    check_properties,
    check_record,
    check_topic,
)
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.engine.property_text import property_text

_HEAD = (
    "total_size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag",
    "born_timestamp", "born_ip", "born_port", "store_timestamp", "store_ip", "store_port", "reconsume_times",
    "prepared_transaction_offset", "body",
)  # fmt: skip
_BORN_V6, _STORE_V6 = int(SysFlag.BORN_HOST_V6), int(SysFlag.STORE_HOST_V6)
_V1, _V2 = int(Magic.MESSAGE_V1), int(Magic.MESSAGE_V2)
_PROPERTIES_SIZE = struct.Struct(">h")


@cache
def _head(is_v2: bool, hosts: int) -> tuple[Callable[..., bytes], int]:
    """Packs the fixed fields, BODYLEN last, in the order of the schema; and how many bytes they take."""
    run = record_plan(is_v2, hosts).runs[0]
    if run.names != _HEAD:
        raise AssertionError("the record schema and the encoder disagree")
    return run.packer.pack, run.packer.size


@dataclass(slots=True)
class Prepared:
    """A record whose place in the log is still open.

    Attributes:
        size: bytes of the whole record.
        tail: topic and properties with their lengths, as stored.
    """

    message: Message
    size: int
    magic: int
    body_crc: int
    sys_flag: int
    store_host: Host
    tail: bytes
    pack: Callable[..., bytes]
    has_crc: bool

    def pieces(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> list[bytes]:
        """The record at its place, in parts to be written one behind the other."""
        message, host = self.message, self.store_host
        born = message.born_timestamp
        head = self.pack(
            self.size, self.magic, self.body_crc, message.queue_id, message.flag, queue_offset, physical_offset,
            self.sys_flag, store_timestamp if born is None else born, message.born_host.ip, message.born_host.port,
            store_timestamp, host.ip, host.port, message.reconsume_times, message.prepared_transaction_offset,
            len(message.body),
        )  # fmt: skip
        if self.has_crc:
            return [head, message.body, self.tail, property_crc_bytes(_crc_of(head, message.body, self.tail))]
        return [head, message.body, self.tail]

    def message_id(self, physical_offset: int) -> str:
        """OffsetMsgId of the record at a place."""
        return offset_message_id(self.store_host.ip, self.store_host.port, physical_offset)


def prepare(message: Message, config: StoreConfig, *, checked: bool = True) -> Prepared:
    """Everything of a record but its place.

    Args:
        checked: apply the broker's limits.

    Raises:
        MessageRefused: the broker would not store it, by its own status.
    """
    text, body = message.property_bytes, message.body
    if text is None:
        text = property_text(message.properties, config.release)
    extra = CRC_SIZE if config.property_crc else 0
    if extra and text and not is_closed(text):
        text += PAIR_END
    host = message.store_host or config.store_host
    hosts = hosts_of(message.born_host, host)
    if checked:
        _check(message, hosts, len(text) + extra, config)
    magic, topic = topic_field(message.topic)
    tail = topic + _PROPERTIES_SIZE.pack(len(text) + extra) + text
    pack, head_size = _head(magic == _V2, hosts)
    size = head_size + len(body) + len(tail) + extra
    if checked:
        check_record(size, len(body), config)
    sys_flag = message.sys_flag & ~(_BORN_V6 | _STORE_V6) | hosts
    return Prepared(message, size, magic, crc32(body) & MASK, sys_flag, host, tail, pack, bool(extra))


def _check(message: Message, hosts: int, text_size: int, config: StoreConfig) -> None:
    check_body_size(len(message.body), config)
    check_topic(message.topic, config)
    if hosts:
        check_host(message.born_host, config, "born_host")
        check_host(message.store_host or config.store_host, config, "store_host")
    check_properties(text_size)


@lru_cache(maxsize=4096)
def topic_field(topic: str) -> tuple[int, bytes]:
    """The magic of the record version that a topic needs, and the topic as stored."""
    raw = topic.encode("utf-8", "surrogateescape")
    is_v2 = len(topic) > TOPIC_MAX
    width = record_plan(is_v2, 0).runs[1].packer
    return _V2 if is_v2 else _V1, width.pack(len(raw)) + raw


def hosts_of(born: Host, store: Host) -> int:
    """The SysFlag bits that say which hosts are IPv6."""
    if len(born.ip) == len(store.ip) == IPV4_SIZE:
        return 0
    return (_BORN_V6 if born.is_v6 else 0) | (_STORE_V6 if store.is_v6 else 0)


def _crc_of(*parts: Any) -> int:
    """The whole-record CRC without the 20 bytes that carry it (spec 2.7)."""
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    return crc & MASK
