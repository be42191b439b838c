"""The extension of a consume queue for SQL filters: units of varying size (spec 3.5; ConsumeQueueExt)."""

from __future__ import annotations

from construct import GreedyBytes, Int16sb, Int64sb, Prefixed, Struct

ConsumeQueueExtUnit = Struct(
    "size" / Int16sb * "bytes of this unit; -1 ends a file, less than 1 is nothing",
    "tags_code" / Int64sb * "the real tags code",
    "store_timestamp" / Int64sb * "ms",
    "bitmap" / Prefixed(Int16sb, GreedyBytes) * "Bloom filter, bit i is bit i % 8 of byte i / 8",
)

HEAD_SIZE = 20
"""Bytes of a unit without its bitmap."""
END_OF_FILE = -1
END_BLANK_SIZE = 4
"""Bytes that stay free at the end of a file."""
