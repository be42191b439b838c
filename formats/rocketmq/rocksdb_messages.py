"""Keys and values of messages in RocksDB: pop state, and the store of RIP-82 (spec 10.5, 10.7).

``kvStore/`` holds what pop consumers have taken. ``rocksdbstore/`` holds the index of keys, timer
messages and half messages; every broker from 5.4.0 on makes its tables, settings fill them.
"""

from __future__ import annotations

from dataclasses import dataclass

from construct import Const, GreedyBytes, Int32sb, Int64sb, Struct

from formats.text import until

MARK = b"@"
POP_FAMILY, TIMER_FAMILY, HALF_FAMILY = "popState", "timer", "trans"
INDEX_MARK, INDEX_TIME = b"lastOffsetPy", b"lastStoreTimeStamp"
"""Keys of the index, and the first one of half messages, that say how far it reaches; values are numbers (i64)."""
TIMER_SCANNED, TIMER_DELIVERED = b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint"
"""Keys of the timer: next queue offset to read, and the time (ms) before which everything was delivered."""
HOUR_MS = 3_600_000
_LAST_OFFSET = 8

PopStateKey = Struct(
    "visibility_timeout" / Int64sb * "when the message may be taken again, ms",
    "group" / until(MARK),
    "topic" / until(MARK),
    "queue_id" / Int32sb,
    "mark" / Const(MARK),
    "queue_offset" / Int64sb,
)

PopStateValue = Struct("json" / GreedyBytes * "the consumer record")

MessageIndexKey = Struct(
    "hour" / Int64sb * "store time, floored to the hour, ms",
    "mark" / Const(MARK),
    "topic" / until(MARK),
    "kind" / until(MARK) * "K for one of KEYS, T for TAGS, U for UNIQ_KEY",
    "rest" / GreedyBytes * "the key or tags and @ (not for U), the unique key, @, the physical offset (i64)",
)

MessageIndexValue = Struct("store_timestamp" / Int64sb * "ms")

TimerKey = Struct(
    "delivery_time" / Int64sb * "ms",
    "unique_key" / GreedyBytes,
)

TimerValue = Struct(
    "size" / Int32sb * "TOTALSIZE of the record, bytes",
    "physical_offset" / Int64sb * "where the record lies in the log, bytes",
)

HalfMessageKey = Struct(
    "physical_offset" / Int64sb * "where the half message lies in the log, bytes",
    "mark" / Const(MARK),
    "topic" / until(MARK) * "the real topic",
    "unique_key" / GreedyBytes,
)

HalfMessageValue = Struct(
    "check_count" / Int32sb * "how often the producer was asked",
    "size" / Int32sb * "TOTALSIZE of the record, bytes",
)


Mark = Struct("value" / Int64sb * "an offset of log or queue, or a time in ms")
"""The value of the keys of :data:`INDEX_MARK` and others."""


@dataclass(frozen=True, slots=True)
class MessageIndexEntry:
    """A key of the index, taken apart.

    Attributes:
        hour: store time, floored to the hour, ms.
        kind: ``K``, ``T`` or ``U``.
        text: the key or the tags; for ``U`` the unique key itself.
        physical_offset: where the record lies in the log, bytes.
    """

    hour: int
    topic: bytes
    kind: bytes
    text: bytes
    unique_key: bytes
    physical_offset: int


def message_index_prefix(hour: int, topic: bytes, kind: bytes, text: bytes) -> bytes:
    """Return what the keys of an hour for a key, tags or a unique key begin with.

    Args:
        hour: store time, floored to the hour, ms.
        kind: ``K``, ``T`` or ``U``.
    """
    return MARK.join((hour.to_bytes(8, "big", signed=True), topic, kind, text, b""))


def parse_message_index_key(key: bytes) -> MessageIndexEntry | None:
    """Return the parts of a key of the index; None for any other key. A key of a message may hold ``@``, other parts
    not.
    """
    parts = key[8:-_LAST_OFFSET].split(MARK)
    if len(key) <= 8 + _LAST_OFFSET or len(parts) < 5 or parts[0] or parts[-1]:
        return None
    topic, kind, unique_key = parts[1], parts[2], parts[-2]
    inner = parts[3:-2]
    if kind not in (b"K", b"T", b"U") or (kind == b"U") != (not inner):
        return None
    text = MARK.join(inner) if inner else unique_key
    hour, physical = (int.from_bytes(part, "big", signed=True) for part in (key[:8], key[-_LAST_OFFSET:]))
    return MessageIndexEntry(hour, topic, kind, text, unique_key, physical)
