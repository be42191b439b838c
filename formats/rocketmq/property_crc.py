"""The CRC over a whole record, appended as its last property (spec 2.7; enabledAppendPropCRC, 5.2.0 and later)."""

from __future__ import annotations

import zlib

from construct import Bytes, Const, Struct

PropertyCrc = Struct(
    "name" / Const(b"__CRC32#"),
    "mark" / Const(b"\x01"),
    "digits" / Bytes(10) * "the CRC in decimal, least significant digit first, filled with 0",
    "end" / Const(b"\x02"),
)

NAME = b"__CRC32#\x01"
SIZE = 20
DIGITS = 10


def property_crc(record: bytes) -> int:
    """CRC-32 of a record without its last 20 bytes, top bit cleared."""
    return zlib.crc32(record[:-SIZE]) & 0x7FFFFFFF


def property_crc_bytes(crc: int) -> bytes:
    """Return the 20 bytes that carry a CRC."""
    data: bytes = PropertyCrc.build({"digits": str(crc)[::-1].ljust(DIGITS, "0").encode()})
    return data


def stored_property_crc(record: bytes) -> int | None:
    """Return the CRC a record carries, None if it carries none that can be read."""
    tail = record[-SIZE:]
    if len(tail) < SIZE or not tail.startswith(NAME) or not tail[9:19].isdigit():
        return None
    return int(tail[9:19][::-1])
