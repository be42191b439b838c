"""What a message of RocketMQ is as a record of Kafka, and the other way round; and how topics and groups are called.

What one side has no place for is kept under names of its own: headers ``rmq-...`` in Kafka, properties ``kafka-...`` in
RocketMQ. They are read on the way back, so that a round trip gives what was there before.

==================  ==========================================
RocketMQ            Kafka
==================  ==========================================
body, inflated      value
KEYS                key
other properties    headers of the same names, in their order
born time           timestamp
queue offset        offset
==================  ==========================================
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from formats.rocketmq.message import COMPRESSION, SysFlag
from formats.rocketmq.properties import NAME_END, PAIR_END, join_properties, split_properties
from rmqctl.kafka.log.reference import Record
from rmqctl.positions import Key, Position
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import Host
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.engine.record import is_closed_by
from rmqctl.rocketmq.log.record import open_body
from rmqctl.rocketmq.log.stand_ins import MARK, SHORT_MARK
from rmqctl.rocketmq.state.releases import FIRST_WITH_EMPTY_BODIES

Headers = list[tuple[bytes, bytes | None]]
Pairs = list[tuple[bytes, bytes]]
MOST_BODY = 256 << 20
"""Bytes that a compressed body may grow to; a larger one stays compressed."""

STORE_TIME, BORN_HOST, STORE_HOST = b"rmq-store-timestamp", b"rmq-born-host", b"rmq-store-host"
FLAG, SYS_FLAG, RECONSUMED = b"rmq-flag", b"rmq-sys-flag", b"rmq-reconsume-times"
_OF_ROCKETMQ = b"rmq-"
NOBODY = Host(bytes(4), 0)
"""Born host of messages that were records of Kafka: no client has it."""
_KEYS, _CRC = b"KEYS", b"__CRC32#"
BLANK = b" "
"""Body for a record without a value, where consumers of the release stop at a message without a body."""
KEY, VALUE, ALL_HEADERS = b"kafka-key", b"kafka-value", b"kafka-headers"
_OF_KAFKA = b"kafka-"
_NULL, _EMPTY = b"null", b"empty"
_RESERVED = frozenset({_KEYS, _CRC, MARK, SHORT_MARK})
_GONE = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_BATCH = int(SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH)
_MOST_PROPERTIES = 32767


# --- from RocketMQ to Kafka -----------------------------------------------------------------------------


def record_of(fields: dict[str, Any], offset: int) -> tuple[Record, bool]:
    """Return the record for a message, and whether its body had to stay compressed.

    Args:
        fields: of the message's record in the log (`decode_record`).
    """
    flags = int(fields["sys_flag"]) & ~_GONE
    opened = open_body(fields["body"], flags, MOST_BODY)
    if opened.data is not None:
        flags &= ~COMPRESSION
    body = fields["body"] if opened.data is None else opened.data
    key: bytes | None = None
    headers: Headers = []
    for name, value in split_properties(fields["properties"]):
        if name == _KEYS and key is None:
            key = value
        elif name != _CRC:
            headers.append((name, value))
    if fields["born_ip"] == NOBODY.ip and not fields["born_port"]:
        return _as_it_was(Record(offset, fields["born_timestamp"], -1, key, body, tuple(headers))), opened.data is None
    headers.append((BORN_HOST, _host_text(fields["born_ip"], fields["born_port"])))
    headers.append((STORE_HOST, _host_text(fields["store_ip"], fields["store_port"])))
    headers.append((STORE_TIME, b"%d" % fields["store_timestamp"]))
    for header, number in ((FLAG, fields["flag"]), (SYS_FLAG, flags), (RECONSUMED, fields["reconsume_times"])):
        if number:
            headers.append((header, b"%d" % number))
    return Record(offset, fields["born_timestamp"], -1, key, body, tuple(headers)), opened.data is None


def inner_fields(batch: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of one message of an inner batch, as if it had been stored alone."""
    flags = int(batch["sys_flag"]) & ~(_BATCH | COMPRESSION)
    return batch | {
        "sys_flag": flags, "body": item["body"], "flag": item["flag"], "properties": item["properties"],
    }  # fmt: skip


def _host_text(ip: bytes, port: int) -> bytes:
    address = ipaddress.ip_address(ip)
    return (f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}").encode()


# --- from Kafka to RocketMQ -----------------------------------------------------------------------------


class Restored(NamedTuple):
    """A message for a record.

    Attributes:
        store_timestamp: the one it had in RocketMQ before, ms; None: it comes from Kafka.
    """

    message: Message
    store_timestamp: int | None


class NoTwin(Exception):
    """A record that no message can be; the text says why, as half a sentence."""


def message_of(record: Record, topic: str, queue_id: int, release: Release) -> Restored:
    """Return the message for a record.

    Raises:
        NoTwin: its key and headers take more room than properties have.
    """
    known = {name: value for name, value in record.headers if name.startswith(_OF_ROCKETMQ)}
    own = _own_facts(known)
    if own is not None and all(_is_plain(name, value) for name, value in record.headers):
        pairs = [] if record.key is None else [(_KEYS, record.key)]
        pairs += [(name, value or b"") for name, value in record.headers if name not in known]
        born, host, stored, numbers = own
        message = Message(
            topic, record.value or b"", queue_id, {}, numbers[FLAG], numbers[SYS_FLAG], record.timestamp, born,
            store_host=host, reconsume_times=numbers[RECONSUMED], is_stored=True,
        )  # fmt: skip
    else:
        stored = None
        pairs = _pairs(record)
        body = record.value or (b"" if release >= FIRST_WITH_EMPTY_BODIES else BLANK)
        message = Message(topic, body, queue_id, born_timestamp=record.timestamp, born_host=NOBODY, is_stored=True)
    message.property_bytes = join_properties(pairs, closed=is_closed_by(release))
    if len(message.property_bytes) > _MOST_PROPERTIES:
        raise NoTwin(
            f"key and headers take {len(message.property_bytes):,} bytes as properties, at most {_MOST_PROPERTIES:,}"
        )
    return Restored(message, stored)


def _pairs(record: Record) -> Pairs:
    """Return the properties for a record that was no message before."""
    pairs: Pairs = []
    if record.key is not None:
        is_text = _is_plain(_KEYS, record.key)
        pairs.append((_KEYS, record.key) if is_text else (KEY, b"base64:" + base64.b64encode(record.key)))
    if not record.value:
        pairs.append((VALUE, _NULL if record.value is None else _EMPTY))
    plain = [pair for pair in record.headers if _is_plain(*pair) and not _is_reserved(pair[0])]
    if len(plain) < len(record.headers) or len({name for name, _ in plain}) < len(plain):
        pairs.append((ALL_HEADERS, _all_headers(record.headers)))
        plain = list({name: (name, value) for name, value in plain}.values())
    return pairs + [(name, value or b"") for name, value in plain]


def _as_it_was(record: Record) -> Record:
    """Return the record that a message was made of, by the properties ``kafka-...`` of the message."""
    kept = {name: value or b"" for name, value in record.headers if name in (KEY, VALUE, ALL_HEADERS)}
    key, value = record.key, record.value
    if (text := kept.get(KEY)) is not None:
        key = _decoded(text.removeprefix(b"base64:"))
    if VALUE in kept:
        value = None if kept[VALUE] == _NULL else b""
    headers = _listed(kept[ALL_HEADERS]) if ALL_HEADERS in kept else None
    if headers is None:
        headers = [pair for pair in record.headers if pair[0] not in kept]
    return record._replace(key=key, value=value, headers=tuple(headers))


def _all_headers(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    listed = [
        [base64.b64encode(name).decode(), None if value is None else base64.b64encode(value).decode()]
        for name, value in headers
    ]
    return json.dumps(listed, separators=(",", ":")).encode()


def _listed(text: bytes) -> Headers | None:
    """Headers as :func:`_all_headers` wrote them; None where somebody else wrote the property."""
    try:
        return [(base64.b64decode(n), None if v is None else base64.b64decode(v)) for n, v in json.loads(text)]
    except (ValueError, TypeError):
        return None


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return text


def _is_plain(name: bytes, value: bytes | None) -> bool:
    """Whether a header can be a property as it is: text, not empty, without the separators of properties."""
    if not name or not value:
        return False
    both = name + value
    if any(mark in both for mark in (NAME_END, PAIR_END, b"\0")):
        return False
    try:
        both.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_reserved(name: bytes) -> bool:
    return name in _RESERVED or name.startswith((_OF_ROCKETMQ, _OF_KAFKA, b"INNER_"))


def _own_facts(headers: dict[bytes, bytes | None]) -> tuple[Host, Host, int, dict[bytes, int]] | None:
    """Return what RocketMQ knew of the message; None where the headers are somebody else's."""
    try:
        born, host = (Host.parse((headers[name] or b"").decode()) for name in (BORN_HOST, STORE_HOST))
        numbers = {name: int(headers.get(name) or b"0") for name in (FLAG, SYS_FLAG, RECONSUMED)}
        return born, host, int(headers[STORE_TIME] or b""), numbers
    except (KeyError, ValueError):
        return None


# --- names ----------------------------------------------------------------------------------------------

_TO_KAFKA = re.compile(r"%2E|[^a-zA-Z0-9_-]")
_TO_ROCKETMQ = re.compile(r"\.25(?!2E)|\.7C|[^a-zA-Z0-9_-]")


def kafka_topic(topic: str) -> str:
    """Return a topic's name in Kafka, which knows no ``%`` and ``|``: they are written ``.25`` and ``.7C``."""
    return _TO_KAFKA.sub(lambda m: "." if m[0] == "%2E" else f".{ord(m[0]):02X}", topic)


def rocketmq_topic(topic: str) -> str:
    """Turn a topic's name back; other dots are written ``%2E``."""
    return _TO_ROCKETMQ.sub(lambda m: chr(int(m[0][1:], 16)) if len(m[0]) == 3 else f"%{ord(m[0]):02X}", topic)


_GROUP_ESCAPE = re.compile(rb"%([0-9A-F]{2})")
_OF_GROUPS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-%|")


def rocketmq_group(group: str) -> str:
    """Return a consumer group's name in RocketMQ, which knows few characters: others are written ``%2E``, as
    in URLs.
    """
    data = group.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _OF_GROUPS else f"%{byte:02X}" for byte in data)


def kafka_group(group: str) -> str:
    """Turn a consumer group's name back."""

    def meant(match: re.Match[bytes]) -> bytes:
        byte = int(match[1], 16)
        return match[0] if byte in _OF_GROUPS else bytes([byte])

    return _GROUP_ESCAPE.sub(meant, group.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")


def positions_as(positions: Iterable[Position], family: str, other: str) -> list[Position]:
    """Return positions of groups of one family by the names that they have in the other; offsets stay."""
    if family == other:
        return list(positions)
    group, topic = (kafka_group, kafka_topic) if other == "kafka" else (rocketmq_group, rocketmq_topic)
    return [Position(Key(group(p.key.group), topic(p.key.topic), p.key.queue), p.offset) for p in positions]
