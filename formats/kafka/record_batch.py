"""Segments of magic 2: the frame that all batches share, the batch header, records, control records (spec 2 to 4).

A segment file (``.log``, and a snapshot ``.checkpoint`` of the metadata log) is batches end to end.
The CRC-32C of a batch covers everything from ``attributes`` on; ``base_offset``, ``batch_length``,
``partition_leader_epoch`` and ``magic`` stand before it and are covered by nothing.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from functools import cache

import numpy as np
from construct import (
    Bytes,
    If,
    Int8sb,
    Int16sb,
    Int32sb,
    Int32ub,
    Int64sb,
    PrefixedArray,
    Struct,
    ZigZag,
    this,
)

from formats.layout import StructPlan, plan_of


class Codec(IntEnum):
    """What a batch's records are compressed with: bits 0 to 2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Attributes(IntFlag):
    """Bits of ``attributes``; readers ignore the high byte."""

    CODEC = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40


class ControlType(IntEnum):
    """What a control record says: ``type`` of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


BatchFrame = Struct(
    "base_offset" / Int64sb * "magic 0 and 1: offset of the message, of the last inner one where it is compressed",
    "batch_length" / Int32sb * "bytes after this field",
    "partition_leader_epoch" / Int32sb * "magic 0 and 1: the CRC-32",
    "magic" / Int8sb * "0, 1 or 2",
)

RecordBatchHeader = Struct(
    "base_offset" / Int64sb * "offset of the first record when it was written",
    "batch_length" / Int32sb * "bytes after this field, at least 49",
    "partition_leader_epoch" / Int32sb * "set by the leader, -1 unknown; outside the CRC",
    "magic" / Int8sb * "2",
    "crc" / Int32ub * "CRC-32C of everything from attributes to the end of the batch",
    "attributes" / Int16sb * "Attributes",
    "last_offset_delta" / Int32sb * "last offset less base_offset; kept by compaction",
    "base_timestamp" / Int64sb * "ms; first record's, or the delete horizon; -1 in an emptied batch",
    "max_timestamp" / Int64sb * "ms; largest of the records, or the append time",
    "producer_id" / Int64sb * "-1 none",
    "producer_epoch" / Int16sb * "-1 none",
    "base_sequence" / Int32sb * "-1 none",
    "records_count" / Int32sb * "records present; 0 after compaction",
)

RecordHeader = Struct(
    "key_size" / ZigZag * "bytes",
    "key" / Bytes(this.key_size) * "UTF-8",
    "value_size" / ZigZag * "bytes; -1 null",
    "value" / If(this.value_size >= 0, Bytes(this.value_size)),
)

Record = Struct(
    "length" / ZigZag * "bytes after this field",
    "attributes" / Int8sb * "0",
    "timestamp_delta" / ZigZag * "ms after base_timestamp, 64 bits",
    "offset_delta" / ZigZag * "offset less base_offset",
    "key_size" / ZigZag * "bytes; -1 null",
    "key" / If(this.key_size >= 0, Bytes(this.key_size)),
    "value_size" / ZigZag * "bytes; -1 null, which deletes the key in a compacted topic",
    "value" / If(this.value_size >= 0, Bytes(this.value_size)),
    "headers" / PrefixedArray(ZigZag, RecordHeader) * "their number, then each",
)

ControlRecordKey = Struct(
    "version" / Int16sb * "0",
    "type" / Int16sb * "ControlType",
)

EndTransactionMarker = Struct(
    "version" / Int16sb * "0",
    "coordinator_epoch" / Int32sb,
)
_KEY = plan_of(ControlRecordKey).runs[0].packer
_MARKER = plan_of(EndTransactionMarker).runs[0].packer
MARKER_SIZE = _MARKER.size


def control_type(key: bytes | None) -> int:
    """Return the type in the key of a control record, -1 where the key is too short."""
    return int(_KEY.unpack_from(key)[1]) if key is not None and len(key) >= _KEY.size else -1


def coordinator_epoch(value: bytes | None) -> int:
    """Return the epoch in the value of a marker that ends a transaction, -1 where the value is too short."""
    return int(_MARKER.unpack_from(value)[1]) if value is not None and len(value) >= _MARKER.size else -1


LENGTH_AT = 8
"""Where ``batch_length`` stands, after the base offset."""
FRAME_HEAD = EPOCH_AT = 12
"""Bytes of a frame that ``batch_length`` does not count; there the leader epoch stands."""
MAGIC_AT = 16
"""Where the magic of any batch stands."""
CRC_AT, CRC_FROM = 17, 21
"""Where the CRC-32C stands, and where the bytes under it begin."""
MIN_LEGACY_LENGTH = 14
"""Smallest length that a broker's reader takes for a batch of any magic."""
PEEK = MAGIC_AT + 1
"""Bytes that show the kind of a batch; a reader stops without a word where no more are left."""


@cache
def header_plan() -> StructPlan:
    """Return the header's fixed fields, for ``struct`` and NumPy."""
    return plan_of(RecordBatchHeader)


@cache
def header_dtype() -> np.dtype[np.void]:
    """Return the header as a record type, as stored."""
    return header_plan().runs[0].dtype


HEADER_SIZE = 61
"""Bytes before the records; an emptied batch is just these."""
