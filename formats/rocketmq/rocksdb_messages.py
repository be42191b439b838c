"""Keys and values of messages in RocksDB: pop state, and the store of RIP-82 (spec 10.5, 10.7).

``kvStore/`` holds what pop consumers have taken. ``rocksdbstore/`` holds the index of keys, timer
messages and half messages; every broker from 5.4.0 on makes its tables, settings fill them.
"""

from __future__ import annotations

from dataclasses import dataclass

from construct import Const, GreedyBytes, Int32sb, Int64sb, Struct

from formats.layout import plan_of
from formats.text import until

MARK = b"@"
POP_FAMILY, TIMER_FAMILY, HALF_FAMILY = "popState", "timer", "trans"
INDEX_MARK, INDEX_TIME = b"lastOffsetPy", b"lastStoreTimeStamp"
"""Keys of the index, and the first one of half messages, that say how far it reaches; values are numbers (i64)."""
TIMER_SCANNED, TIMER_DELIVERED = b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint"
"""Keys of the timer: next queue offset to read, and the time (ms) before which everything was delivered."""
HOUR_MS = 3_600_000

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

NUMBER, TIMER_VALUE, HALF_VALUE = (plan_of(s).runs[0].packer for s in (Mark, TimerValue, HalfMessageValue))
"""The fields of these rows; all keys but those of marks begin with a number as marks are."""
LEAD = NUMBER.size
"""Bytes of that number: an hour, a time, or a physical offset."""
_LAST_OFFSET, _LEAST_HALF_KEY = NUMBER.size, LEAD + 2 * len(MARK)


def leading_number(data: bytes) -> int:
    """Return the number that a key, or a mark, begins with."""
    return int.from_bytes(data[:LEAD], "big", signed=True)


def last_number(key: bytes) -> int:
    """Return the physical offset that a key of the index ends with."""
    return int.from_bytes(key[-_LAST_OFFSET:], "big", signed=True)


def mark_of(value: bytes | None) -> int | None:
    """Return the number of a mark; None where there is none."""
    return leading_number(value) if value is not None and len(value) == LEAD else None


def is_timer(key: bytes, value: bytes) -> bool:
    """Whether a row has the lengths of a timer, and is no mark."""
    return len(key) > LEAD and len(value) == TIMER_VALUE.size and key not in (TIMER_SCANNED, TIMER_DELIVERED)


def has_half_key(key: bytes) -> bool:
    """Whether a key is long enough for that of a half message, and is no mark."""
    return len(key) > _LEAST_HALF_KEY and key != INDEX_MARK


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
    return MARK.join((NUMBER.pack(hour), topic, kind, text, b""))


def parse_message_index_key(key: bytes) -> MessageIndexEntry | None:
    """Return the parts of a key of the index; None for any other key. A key of a message may hold ``@``, other parts
    not.
    """
    parts = key[LEAD:-_LAST_OFFSET].split(MARK)
    if len(key) <= LEAD + _LAST_OFFSET or len(parts) < 5 or parts[0] or parts[-1]:
        return None
    topic, kind, unique_key = parts[1], parts[2], parts[-2]
    inner = parts[3:-2]
    if kind not in (b"K", b"T", b"U") or (kind == b"U") != (not inner):
        return None
    text = MARK.join(inner) if inner else unique_key
    return MessageIndexEntry(leading_number(key), topic, kind, text, unique_key, last_number(key))
