"""Messages of magic 0 and 1, as brokers before 0.11 and topics of an old message format hold them (spec 6).

One message is one batch. A compressed one, the wrapper, has a null key and holds framed messages
as its value. The CRC-32 covers everything from ``magic`` to the end; offset and size are covered by nothing.
"""

from __future__ import annotations

from functools import cache

from construct import Bytes, If, Int8sb, Int32sb, Int32ub, Int64sb, Struct, this

from formats.layout import StructPlan, plan_of

MessageV0 = Struct(
    "offset" / Int64sb * "of a wrapper: that of its last inner message; of an inner one: absolute",
    "message_size" / Int32sb * "bytes after this field, at least 14",
    "crc" / Int32ub * "CRC-32 from magic to the end",
    "magic" / Int8sb * "0",
    "attributes" / Int8sb * "bits 0 to 2 codec",
    "key_size" / Int32sb * "bytes; -1 null",
    "key" / If(this.key_size >= 0, Bytes(this.key_size)),
    "value_size" / Int32sb * "bytes; -1 null",
    "value" / If(this.value_size >= 0, Bytes(this.value_size)) * "of a wrapper: inner messages, compressed",
)

MessageV1 = Struct(
    "offset" / Int64sb * "of a wrapper: that of its last inner message; of an inner one: from 0 up, relative",
    "message_size" / Int32sb * "bytes after this field, at least 22",
    "crc" / Int32ub * "CRC-32 from magic to the end",
    "magic" / Int8sb * "1",
    "attributes" / Int8sb * "bits 0 to 2 codec, bit 3 append time",
    "timestamp" / Int64sb * "ms; -1 none; of a wrapper: the largest inside, or the append time",
    "key_size" / Int32sb * "bytes; -1 null",
    "key" / If(this.key_size >= 0, Bytes(this.key_size)),
    "value_size" / Int32sb * "bytes; -1 null",
    "value" / If(this.value_size >= 0, Bytes(this.value_size)) * "of a wrapper: inner messages, compressed",
)

_Heads = {
    0: Struct(*MessageV0.subcons[:6]),
    1: Struct(*MessageV1.subcons[:7]),
}

OVERHEAD = {0: 26, 1: 34}
"""Bytes of a message without key and value, by magic."""
CRC_AT, CRC_FROM = 12, 16
"""Where the CRC-32 stands, and where the bytes under it begin."""


@cache
def head_plan(magic: int) -> StructPlan:
    """Return the fixed fields of a message up to and with the size of its key."""
    return plan_of(_Heads[magic])
