"""Files of tiered storage (spec 10.6; IndexStoreFile, IndexItem, MessageFormatUtil, PosixFileSegment of tieredstore).

Each queue has a log of its own: message records whose PHYSICALOFFSET is the offset in that log, and
20-byte queue units that point into it. The index is written open, item after item with chains, and
uploaded compacted, the items of each slot together.
"""

from __future__ import annotations

from construct import Const, Int32sb, Int64sb, Struct

from formats.rocketmq.message import Magic

CODA_SIZE = 16
OPEN_MAGIC, CLOSED_MAGIC = 0xBCC50289 - (1 << 32), 0xBCC50285 - (1 << 32)

TieredCoda = Struct(
    "size" / Const(CODA_SIZE, Int32sb) * "bytes",
    "magic" / Const(int(Magic.BLANK), Int32sb) * "that of a blank record",
    "max_store_timestamp" / Int64sb * "largest store time in the file, ms",
)
"""Ends a log file of 5.1 and 5.2; later releases write none and skip it."""

TieredIndexHeader = Struct(
    "magic" / Int32sb * "0xBCC50289 open, 0xBCC50285 closed",
    "begin_timestamp" / Int64sb * "the file's name, ms",
    "end_timestamp" / Int64sb * "store time of the newest item, ms",
    "hash_slot_count" / Int32sb * "slots in use",
    "index_count" / Int32sb * "items; the first has number 1",
)

TieredIndexSlot = Struct(
    "newest" / Int32sb * "number of the newest item of this slot, 0 for none",
    "unused" / Int32sb,
)

TieredCompactSlot = Struct(
    "position" / Int32sb * "where the items of this slot lie in the file, bytes; 0 for none",
    "size" / Int32sb * "bytes of all its items",
)

_ITEM = (
    "key_hash" / Int32sb * "absolute value of the Java hash of topic#key; the smallest int stays as it is",
    "topic_id" / Int32sb * "number of the topic in config/tieredStoreMetadata.json",
    "queue_id" / Int32sb,
    "offset" / Int64sb * "of the record in the log of its queue, bytes",
    "size" / Int32sb * "TOTALSIZE of the record, bytes",
    "time_difference" / Int32sb * "store time less the file's begin_timestamp, seconds",
)

TieredIndexItem = Struct(*_ITEM, "previous" / Int32sb * "number of the item before in this slot, 0 for none")

TieredCompactItem = Struct(*_ITEM)
"""Items of a slot follow each other, newest first."""
