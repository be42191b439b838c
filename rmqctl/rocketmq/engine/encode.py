"""From a message to the bytes of its record, by the plan derived from the record's schema (spec 2.1, 2.7).

What does not depend on the place in the log is done before the append lock is taken
(:func:`prepare`); the head, which holds queue offset, physical offset and store time, is packed
under it (:meth:`Prepared.encode`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from formats.rocketmq.message import Magic, SysFlag, record_plan
from formats.rocketmq.properties import PAIR_END, is_closed
from formats.rocketmq.property_crc import SIZE as CRC_SIZE
from formats.rocketmq.property_crc import property_crc_bytes
from rmqctl.release import Release
from rmqctl.rocketmq.crc import MASK, crc32
from rmqctl.rocketmq.engine.config import IPV4_SIZE, Host, StoreConfig
from rmqctl.rocketmq.engine.limits import (
    BLANK_ROOM,
    MAX_QUEUES,
    PROPERTIES_MAX,
    TOPIC_MAX,
    check_body_size,
    check_host,
    check_properties,
    check_queue,
    check_record,
    check_topic,
)
from rmqctl.rocketmq.engine.message import Message, MessageRefused, PutResult, PutStatus
from rmqctl.rocketmq.engine.property_text import property_text

_HEAD = (
    "total_size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag",
    "born_timestamp", "born_ip", "born_port", "store_timestamp", "store_ip", "store_port", "reconsume_times",
    "prepared_transaction_offset", "body",
)  # fmt: skip
_BORN_V6, _STORE_V6 = int(SysFlag.BORN_HOST_V6), int(SysFlag.STORE_HOST_V6)
_V1, _V2 = int(Magic.MESSAGE_V1), int(Magic.MESSAGE_V2)
_PROPERTIES_SIZE = struct.Struct(">h")


class Frame(NamedTuple):
    """What all records of a topic share whose hosts are of one kind.

    Attributes:
        pack: packs the fixed fields, BODYLEN last, in the order of the schema.
        field: the topic with its length, as stored.
        size: bytes of the fixed fields, the topic and the length of the properties.
    """

    pack: Callable[..., bytes]
    magic: int
    field: bytes
    size: int


@lru_cache(maxsize=4096)
def frame_of(topic: str, hosts: int, release: Release) -> Frame:
    """The frame of a topic's records.

    Args:
        hosts: the SysFlag bits that say which hosts are IPv6.

    Raises:
        MessageRefused: no broker of the release accepts the name.
    """
    check_topic(topic, release)
    magic, field = topic_field(topic)
    run = record_plan(magic == _V2, hosts).runs[0]
    if run.names != _HEAD:
        raise AssertionError("the record schema and the encoder disagree")
    return Frame(run.packer.pack, magic, field, run.packer.size + len(field) + _PROPERTIES_SIZE.size)


@dataclass(slots=True)
class Prepared:
    """A record whose place in the log is still open.

    Attributes:
        size: bytes of the whole record.
        text: the properties with their length, as stored.
    """

    message: Message
    frame: Frame
    size: int
    body_crc: int
    sys_flag: int
    store_host: Host
    text: bytes
    has_crc: bool

    def encode(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytes:
        """The record at its place.

        Raises:
            MessageRefused: a number of the message does not fit.
        """
        message, frame, host = self.message, self.frame, self.store_host
        born = message.born_timestamp
        try:
            head = frame.pack(
                self.size, frame.magic, self.body_crc, message.queue_id, message.flag, queue_offset, physical_offset,
                self.sys_flag, store_timestamp if born is None else born, message.born_host.ip, message.born_host.port,
                store_timestamp, host.ip, host.port, message.reconsume_times, message.prepared_transaction_offset,
                len(message.body),
            )  # fmt: skip
        except (struct.error, OverflowError) as error:
            raise MessageRefused(
                PutStatus.MESSAGE_ILLEGAL, f"a number that no record has room for ({error}); give a smaller one"
            ) from error
        record = b"".join((head, message.body, frame.field, self.text))
        return record + property_crc_bytes(crc32(record) & MASK) if self.has_crc else record

    def result(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> PutResult:
        """What its writer is told of its place."""
        message = self.message
        return PutResult(
            PutStatus.PUT_OK, message.topic, message.queue_id, queue_offset, physical_offset, self.size,
            self.store_host, message.properties.get("UNIQ_KEY"), store_timestamp,
        )  # fmt: skip


def prepare(message: Message, config: StoreConfig) -> Prepared:
    """Everything of a record but its place.

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
    frame = frame_of(message.topic, hosts, config.release)
    text_size = len(text) + extra
    size = frame.size + len(body) + text_size
    is_small = text_size <= PROPERTIES_MAX and size <= config.max_message_size
    is_small = is_small and size + BLANK_ROOM <= config.commit_log_file_size
    if hosts or not is_small or not 0 <= message.queue_id < MAX_QUEUES:  # else all limits are kept
        _check(message, host, text_size, size, config)
    sys_flag = message.sys_flag & ~(_BORN_V6 | _STORE_V6) | hosts
    return Prepared(
        message, frame, size, crc32(body) & MASK, sys_flag, host, _PROPERTIES_SIZE.pack(text_size) + text, bool(extra)
    )


def _check(message: Message, store_host: Host, text_size: int, size: int, config: StoreConfig) -> None:
    body = len(message.body)
    check_queue(message.queue_id)
    check_body_size(body, config)
    check_host(message.born_host, config, "born_host")
    check_host(store_host, config, "store_host")
    check_properties(text_size)
    check_record(size, body, config)


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
