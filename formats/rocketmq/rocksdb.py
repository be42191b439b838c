"""Keys and values of RocksDB consume queues (spec 10.1; ConsumeQueueStore of 5.2.0 and later)."""

from __future__ import annotations

from construct import Bytes, Const, Int8sb, Int16sb, Int32sb, Int64sb, Rebuild, Struct, len_, this

SEPARATOR = b"\x01"

QueueUnitKey = Struct(
    "topic_size" / Rebuild(Int32sb, len_(this.topic)) * "bytes of the topic",
    "size_mark" / Const(SEPARATOR),
    "topic" / Bytes(this.topic_size),
    "topic_mark" / Const(SEPARATOR),
    "queue_id" / Int32sb,
    "queue_mark" / Const(SEPARATOR),
    "queue_offset" / Int64sb,
)

QueueUnitValue = Struct(
    "physical_offset" / Int64sb * "where the record lies in the log, bytes",
    "size" / Int32sb * "TOTALSIZE of the record, bytes",
    "tags_code" / Int64sb,
    "store_timestamp" / Int64sb * "ms",
)

QueueEndKey = Struct(
    "topic_size" / Rebuild(Int32sb, len_(this.topic)) * "bytes of the topic",
    "size_mark" / Const(SEPARATOR),
    "topic" / Bytes(this.topic_size),
    "topic_mark" / Const(SEPARATOR),
    "end" / Bytes(3) * "max or min",
    "end_mark" / Const(SEPARATOR),
    "queue_id" / Int32sb,
)

QueueEnd = Struct(
    "physical_offset" / Int64sb * "of the queue's last (or first) message, bytes",
    "queue_offset" / Int64sb * "of that message",
)

DispatchedEnd = Struct("physical_offset" / Int64sb * "after the last record that has a unit, bytes")
"""The value of the one key whose topic is ``CHECKPOINT_TOPIC``: max, queue 0."""
CHECKPOINT_TOPIC = b"CHECKPOINT_TOPIC"

UNIT_FAMILY, OFFSET_FAMILY = "default", "offset"
_KEY_TAIL = 1 + 4 + 1 + 8
_END_KEY_REST = 4 + 1 + 1 + 3 + 1 + 4


LARGEST_OFFSET = (1 << 63) // 64
"""No queue comes near it; the position of the unit in a file of 20 or 46 bytes a unit would still be a number (i64)."""


def parse_unit_key(key: bytes) -> tuple[bytes, int, int] | None:
    """Topic, queue id and queue offset of a unit's key; None for any other key, and for an impossible offset."""
    size = int.from_bytes(key[:4], "big")
    if len(key) != 5 + size + _KEY_TAIL or key[4:5] != SEPARATOR or key[5 + size : 6 + size] != SEPARATOR:
        return None
    at = 6 + size
    if key[at + 4 : at + 5] != SEPARATOR:
        return None
    queue_id, offset = (int.from_bytes(part, "big", signed=True) for part in (key[at : at + 4], key[at + 5 :]))
    return (key[5 : 5 + size], queue_id, offset) if 0 <= offset <= LARGEST_OFFSET else None


def parse_end_key(key: bytes) -> tuple[bytes, int] | None:
    """Topic and queue id of the key of a queue's end; None for any other key."""
    size = int.from_bytes(key[:4], "big")
    if len(key) != size + _END_KEY_REST or key[5 : 5 + size] == CHECKPOINT_TOPIC:
        return None
    return key[5 : 5 + size], int.from_bytes(key[-4:], "big", signed=True)


def dispatched_end(value: bytes | None) -> int:
    """Return the physical offset after the last record that has a unit; 0 without a row that says so."""
    if value is None or len(value) < DispatchedEnd.sizeof():
        return 0
    return int(DispatchedEnd.parse(value).physical_offset)


def topic_prefix(topic: bytes) -> bytes:
    """Return what the keys of all rows of a topic begin with."""
    return SEPARATOR.join((len(topic).to_bytes(4, "big"), topic, b""))


def queue_prefix(topic: bytes, queue_id: int) -> bytes:
    """Return what the keys of a queue's units begin with; the queue offset (i64) follows."""
    parts = len(topic).to_bytes(4, "big"), topic, queue_id.to_bytes(4, "big", signed=True), b""
    return SEPARATOR.join(parts)


# --- configuration, version 2 (config/rdb; ConsumerOffsetManagerV2 of 5.3.2 and later, spec 10.4) -----

ConfigKeyPrefix = Struct(
    "table_mark" / Const(b"\x01"),
    "table_id" / Int16sb * "1 consumer offsets, 2 pulled offsets, 3 topics, 4 subscription groups",
    "record_type" / Int8sb * "1 data version, 2 data",
)

CONSUMER_OFFSET_DATA: bytes = ConfigKeyPrefix.build({"table_id": 1, "record_type": 2})
"""What the keys of consumer offsets begin with; values are the offset (i64)."""
TOPIC_DATA: bytes = ConfigKeyPrefix.build({"table_id": 3, "record_type": 2})
"""What the keys of topics begin with: the name's size (i16) and the name follow; values are 0x01 and JSON."""


def parse_consumer_offset_key(key: bytes) -> tuple[bytes, bytes, int] | None:
    """Group, topic and queue id of a consumer offset's key; None for any other key."""
    if not key.startswith(CONSUMER_OFFSET_DATA):
        return None
    rest, names = key[len(CONSUMER_OFFSET_DATA) :], []
    for _ in range(2):
        size = int.from_bytes(rest[:2], "big")
        if rest[2 + size : 3 + size] != SEPARATOR:
            return None
        names.append(rest[2 : 2 + size])
        rest = rest[3 + size :]
    return (names[0], names[1], int.from_bytes(rest, "big", signed=True)) if len(rest) == 4 else None


def consumer_offset_key(group: bytes, topic: bytes, queue_id: int) -> bytes:
    """Return the key of a group's offset in a queue."""
    names = b"".join(len(name).to_bytes(2, "big") + name + SEPARATOR for name in (group, topic))
    return CONSUMER_OFFSET_DATA + names + queue_id.to_bytes(4, "big", signed=True)
