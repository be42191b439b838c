"""The 46-byte unit of a batch consume queue, also used by compacted topics (spec 3.6, 3.8; BatchConsumeQueue)."""

from __future__ import annotations

from construct import Int16sb, Int32sb, Int64sb, Struct

BatchConsumeQueueUnit = Struct(
    "physical_offset" / Int64sb * "where the record lies in the log, bytes",
    "size" / Int32sb * "TOTALSIZE of the record, bytes",
    "tags_code" / Int64sb * "Java hash of TAGS",
    "store_timestamp" / Int64sb * "ms",
    "base_offset" / Int64sb * "INNER_BASE: queue offset of the first inner message",
    "batch_size" / Int16sb * "INNER_NUM: inner messages",
    "compacted_offset" / Int32sb * "-1",
    "reserved" / Int32sb * "0",
)

COMPACTION_END: bytes = BatchConsumeQueueUnit.build(
    {
        "physical_offset": -1,
        "size": 0,
        "tags_code": 0,
        "store_timestamp": 0,
        "base_offset": 0,
        "batch_size": 0,
        "compacted_offset": -1,
        "reserved": 0,
    }
)
"""Ends a queue file of a compacted topic that is not full."""
