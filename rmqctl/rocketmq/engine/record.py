"""From a message to the bytes of its record, by the plan derived from the record's schema (spec 2.1, 2.7).

What does not depend on the place in the log is done before the append lock is taken (:func:`prepare`); the head,
which holds queue offset, physical offset and store time, is packed under it (:meth:`Prepared.encode`).

The properties text is as each release writes it: in the order of a Java HashMap, closed by 0x02 or not (spec 2.6). A
broker decodes the client's text into a HashMap, adds its own properties and writes them in the map's order: buckets
ascending, within a bucket as they were put. 4.x decodes into a map of 16 buckets, 5.x of 128
(MessageDecoder.string2messageProperties); a map doubles when it is filled to more than three quarters.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from formats.rocketmq.message import Magic, SysFlag, record_plan
from formats.rocketmq.properties import NAME_END, PAIR_END, is_closed, join_properties
from formats.rocketmq.property_crc import SIZE as CRC_SIZE
from formats.rocketmq.property_crc import property_crc_bytes
from formats.text import java_hash
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import IPV4_SIZE, Host, StoreConfig
from rmqctl.rocketmq.engine.message import (
    BLANK_ROOM,
    MAX_QUEUES,
    PROPERTIES_MAX,
    TOPIC_MAX,
    Message,
    MessageRefused,
    PutResult,
    PutStatus,
    check_body_size,
    check_host,
    check_properties,
    check_queue,
    check_record,
    check_topic,
)
from rmqctl.rocketmq.log.crc import MASK, crc32

Pairs = Mapping[str, str]
_FIRST_OPEN, _LAST_OPEN = Release(4, 9, 1), Release(5, 1, 4)
_LAST_BATCH_TEXT = Release(5, 3, 3)
CLIENT_BUCKETS = 16
_NAME_MARK, _PAIR_MARK = NAME_END.decode(), PAIR_END.decode()


def is_closed_by(release: Release) -> bool:
    """Whether a release ends the text with 0x02."""
    return not _FIRST_OPEN <= release <= _LAST_OPEN


def buckets_of(release: Release) -> int:
    """Buckets of the map a broker decodes properties into."""
    return 128 if release >= Release(5, 0, 0) else CLIENT_BUCKETS


def java_map_order(names: Iterable[str], buckets: int = CLIENT_BUCKETS) -> list[str]:
    """Names in the order in which a ``java.util.HashMap`` iterates over them, put in the given order."""
    wanted = list(names)
    while len(wanted) > buckets * 3 // 4:
        buckets *= 2
    return sorted(wanted, key=lambda name: _spread(name) & (buckets - 1))


@lru_cache(maxsize=4096)
def _spread(name: str) -> int:
    """HashMap.hash: the upper half of the hash mixed into the lower."""
    value = java_hash(name) & 0xFFFFFFFF
    return value ^ value >> 16


def property_text(pairs: Pairs, release: Release) -> bytes:
    """Return the stored text of a message's properties.

    Raises:
        MessageRefused: a name or value contains a separator.
    """
    return _text(pairs, None, release)


def client_text(pairs: Pairs, release: Release) -> bytes:
    """Return the text as the client of a release encodes it, for items of a batch."""
    return _text(pairs, CLIENT_BUCKETS, release)


def batch_item_text(item: Pairs, batch: Pairs, release: Release) -> bytes:
    """Return the stored text of a message that came in a client batch: its own as the client wrote it, then the
    batch's.

    Brokers up to 5.3.3 append the properties of the batch to those of each message (spec 2.11).

    Raises:
        MessageRefused: a name or value contains a separator.
    """
    own = client_text(item, release)
    if release > _LAST_BATCH_TEXT or not batch:
        return own
    return (own if not own or own.endswith(PAIR_END) else own + PAIR_END) + property_text(batch, release)


def _text(pairs: Pairs, buckets: int | None, release: Release) -> bytes:
    names, closed = _ordered(tuple(pairs), buckets, release)
    text = _PAIR_MARK.join([start + pairs[name] for name, start in names])
    count = len(names)
    if text.count(_PAIR_MARK) != max(count - 1, 0) or text.count(_NAME_MARK) != count:
        return _joined([(_utf8(name), _utf8(pairs[name])) for name, _ in names], closed=closed, release=release)
    return _utf8(text + _PAIR_MARK if closed and text else text)


def ordered_text(pairs: Pairs, release: Release) -> bytes:
    """Return the text with the properties in the order in which they are, as a record had them.

    Raises:
        MessageRefused: a name or value contains a separator.
    """
    raw = [(_utf8(name), _utf8(value)) for name, value in pairs.items()]
    return _joined(raw, closed=is_closed_by(release), release=release)


def _joined(pairs: list[tuple[bytes, bytes]], *, closed: bool, release: Release) -> bytes:
    text = join_properties(pairs, closed=closed)
    count = len(pairs)
    if text.count(PAIR_END) != count - (not closed and count > 0) or text.count(NAME_END) != count:
        _refuse_separators(pairs, release)
    return text


def _refuse_separators(pairs: list[tuple[bytes, bytes]], release: Release) -> None:
    """Refuse what would be read as other properties; readers from 4.9.1 on take 0x01 in a value as it is."""
    for name, value in pairs:
        bad = PAIR_END if PAIR_END in name + value else b""
        if NAME_END in name or (NAME_END in value and release < _FIRST_OPEN):
            bad = NAME_END
        if bad:
            shown = name.decode("utf-8", "surrogateescape")
            raise MessageRefused(
                PutStatus.MESSAGE_ILLEGAL,
                f"the property {shown!r} has the separator 0x{bad.hex()} in its name or value; "
                "leave that character out",
                f"properties.{shown}",
            )


@lru_cache(maxsize=4096)
def _ordered(names: tuple[str, ...], buckets: int | None, release: Release) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Names in the order of the map, each with how its pair begins; and whether the release closes the text.

    Args:
        buckets: None: as many as a broker of the release has.
    """
    order = java_map_order(names, buckets or buckets_of(release))
    return tuple((name, name + _NAME_MARK) for name in order), is_closed_by(release)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# --- from a message to the bytes of its record ------------------------------------------------------


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
    """Return the frame of a topic's records.

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
        """Return the record at its place.

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
        """Return what its writer hears of its place."""
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
    """Return the magic of the record version that a topic needs, and the topic as stored."""
    raw = topic.encode("utf-8", "surrogateescape")
    is_v2 = len(topic) > TOPIC_MAX
    width = record_plan(is_v2, 0).runs[1].packer
    return _V2 if is_v2 else _V1, width.pack(len(raw)) + raw


def hosts_of(born: Host, store: Host) -> int:
    """Return the SysFlag bits that say which hosts are IPv6."""
    if len(born.ip) == len(store.ip) == IPV4_SIZE:
        return 0
    return (_BORN_V6 if born.is_v6 else 0) | (_STORE_V6 if store.is_v6 else 0)
