"""Index files: a header, a table of slots, and entries chained by slot (spec 4; IndexFile, IndexHeader)."""

from __future__ import annotations

from construct import Computed, Int32sb, Int64sb, Struct, this

from formats.text import java_hash as java_hash

INT_MIN = -(1 << 31)

IndexHeader = Struct(
    "begin_timestamp" / Int64sb * "store time of the first entry, ms",
    "end_timestamp" / Int64sb * "store time of the last entry, ms",
    "begin_phy_offset" / Int64sb * "physical offset of the first entry",
    "end_phy_offset" / Int64sb * "physical offset of the last entry",
    "hash_slot_count" / Int32sb * "slots in use (4.7.0 and before: entries)",
    "index_count" / Int32sb * "number of the next free entry: entries + 1; 0 before the first",
)

IndexSlot = Struct("newest" / Int32sb * "number of the slot's newest entry, 0 when it is empty")

IndexEntry = Struct(
    "key_hash" / Int32sb * "hash of topic#key, never negative",
    "physical_offset" / Int64sb * "where the message lies in the log, bytes",
    "time_difference" / Int32sb * "store time after begin_timestamp, whole seconds",
    "previous" / Int32sb * "number of the slot's entry before this one, 0 for none",
)

IndexKey = Struct(
    "key_hash" / Int32sb,
    "slots" / Int32sb,
    "slot" / Computed(this.key_hash % this.slots),
)


def key_hash(text: str) -> int:
    """Hash of an index key ``topic#key``; Java's abs of the smallest int is negative, and becomes 0."""
    value = java_hash(text)
    return 0 if value == INT_MIN else abs(value)


def index_key(topic: str, key: str) -> str:
    """Return the text that is hashed for a key or a unique key."""
    return f"{topic}#{key}"


def tag_index_key(topic: str, tags: str) -> str:
    """Return the text that is hashed for a message's tags from 5.4.0 on."""
    return f"{topic}#T#{tags}"
