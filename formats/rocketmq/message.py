"""One message record of a commit log file, and the blank record that ends a full file.

Sources: spec 2.1 to 2.9; MessageDecoder (field order), MessageSysFlag, CommitLog (blank record).
All integers are big-endian and signed. Times are milliseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from enum import IntEnum, IntFlag
from functools import cache
from typing import Any

from construct import (
    Bytes,
    GreedyBytes,
    IfThenElse,
    Int8sb,
    Int16sb,
    Int32sb,
    Int64sb,
    Prefixed,
    Struct,
    this,
)

from formats.errors import DecodeError
from formats.layout import StructPlan, plan_of


class Magic(IntEnum):
    """MAGICCODE: what kind of record follows."""

    MESSAGE_V1 = -626843481
    MESSAGE_V2 = -626843477
    BLANK = -875286124


class SysFlag(IntFlag):
    """Bits of ``sys_flag``; unknown bits are kept. Bits 2-3 and 8-10 are small numbers, not flags."""

    COMPRESSED = 1 << 0
    MULTI_TAGS = 1 << 1
    BORN_HOST_V6 = 1 << 4
    STORE_HOST_V6 = 1 << 5
    NEED_UNWRAP = 1 << 6
    INNER_BATCH = 1 << 7


TRANSACTION = 3 << 2
"""Bits of ``sys_flag`` with the type of a transaction: one of the following, 0 for none."""
PREPARED, COMMIT, ROLLBACK = 1 << 2, 2 << 2, 3 << 2
HOSTS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
CODEC_SHIFT = 8
CODEC = 7 << CODEC_SHIFT
"""Bits of ``sys_flag`` with what compressed the body."""
COMPRESSION = int(SysFlag.COMPRESSED) | CODEC
"""All bits that say how the body is stored."""
BODY_MAGIC = {0: b"\x78", 1: b"\x04\x22\x4d\x18", 2: b"\x28\xb5\x2f\xfd", 3: b"\x78"}
"""How bodies begin, by what compressed them: 0 and 3 zlib, 1 LZ4, 2 Zstandard."""


def codec_of(sys_flag: int) -> int:
    """Return the number of what compressed a body."""
    return sys_flag >> CODEC_SHIFT & 7


MessageRecord = Struct(
    "total_size" / Int32sb * "whole record, this field included, bytes",
    "magic" / Int32sb * "Magic: V1 (one-byte topic length) or V2 (two bytes)",
    "body_crc" / Int32sb * "CRC-32 of the stored body, top bit cleared",
    "queue_id" / Int32sb,
    "flag" / Int32sb * "the producer's own, opaque here",
    "queue_offset" / Int64sb * "position in the queue, messages",
    "physical_offset" / Int64sb * "position of this record in the log, bytes",
    "sys_flag" / Int32sb * "SysFlag",
    "born_timestamp" / Int64sb * "producer's clock, ms",
    "born_ip" / IfThenElse(this.sys_flag & 0x10, Bytes(16), Bytes(4)),
    "born_port" / Int32sb,
    "store_timestamp" / Int64sb * "broker's clock when appended, ms",
    "store_ip" / IfThenElse(this.sys_flag & 0x20, Bytes(16), Bytes(4)),
    "store_port" / Int32sb,
    "reconsume_times" / Int32sb,
    "prepared_transaction_offset" / Int64sb * "physical offset of the half message, bytes",
    "body" / Prefixed(Int32sb, GreedyBytes) * "as stored, compressed if sys_flag says so",
    "topic"
    / IfThenElse(this.magic == -626843477, Prefixed(Int16sb, GreedyBytes), Prefixed(Int8sb, GreedyBytes))
    * "UTF-8",
    "properties" / Prefixed(Int16sb, GreedyBytes) * "name 0x01 value 0x02 ..., UTF-8",
)

BlankRecord = Struct(
    "size" / Int32sb * "bytes left in the file from here",
    "magic" / Int32sb * "Magic.BLANK",
)

_PEEK = struct.Struct(">4xi28xi")


@cache
def record_plan(is_v2: bool, hosts: int) -> StructPlan:
    """Return the flat plan of one of the eight layouts; ``hosts`` holds the two IPv6 bits of SysFlag."""
    magic = Magic.MESSAGE_V2 if is_v2 else Magic.MESSAGE_V1
    return plan_of(MessageRecord, magic=int(magic), sys_flag=hosts)


def plan_at(buffer: bytes, offset: int = 0) -> StructPlan:
    """Return the plan of the record that starts at ``offset``.

    Raises:
        DecodeError: there are too few bytes.
    """
    if offset + _PEEK.size > len(buffer):
        raise DecodeError("no whole header left", field="total_size", offset=offset)
    magic, sys_flag = _PEEK.unpack_from(buffer, offset)
    return record_plan(magic == Magic.MESSAGE_V2, sys_flag & HOSTS)


def decode_record(buffer: bytes, offset: int = 0) -> tuple[dict[str, Any], int]:
    """Return the fields of the record at ``offset`` and the offset after it.

    Raises:
        DecodeError: cut short, another magic, or not as long as it says.
    """
    fields, after = plan_at(buffer, offset).unpack_from(buffer, offset)
    if fields["magic"] not in (int(Magic.MESSAGE_V1), int(Magic.MESSAGE_V2)):
        raise DecodeError(f"magic 0x{fields['magic'] & 0xFFFFFFFF:08X} is no message", field="magic", offset=offset + 4)
    if fields["total_size"] != after - offset:
        message = f"says {fields['total_size']} bytes, spans {after - offset}"
        raise DecodeError(message, field="total_size", offset=offset)
    return fields, after


def encode_record(fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a record, exactly as the fields say."""
    data: bytes = MessageRecord.build(dict(fields))
    return data


_PORT = Int32sb.sizeof()


def split_host(raw: bytes) -> tuple[bytes, int]:
    """Return the address of a stored host, 4 or 16 bytes, and its port, the signed number that it is stored as."""
    at = len(raw) - _PORT
    return raw[:at], int.from_bytes(raw[at:], "big", signed=True)


def body_crc(body: bytes) -> int:
    """BODYCRC of a stored body (spec 2.5)."""
    return zlib.crc32(body) & 0x7FFFFFFF
