"""Message ids: where a message lies (offsetMsgId) and what its producer called it (UNIQ_KEY). Spec 2.15."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from construct import Bytes, Container, Int8ub, Int16ub, Int32sb, Int32ub, Int64sb, Struct

from formats.errors import DecodeError

OffsetMessageIdV4 = Struct("ip" / Bytes(4), "port" / Int32sb, "physical_offset" / Int64sb * "bytes")
OffsetMessageIdV6 = Struct("ip" / Bytes(16), "port" / Int32sb, "physical_offset" / Int64sb * "bytes")
UniqueKeyV4 = Struct(
    "ip" / Bytes(4),
    "pid" / Int16ub,
    "class_loader_hash" / Int32sb,
    "time" / Int32ub * "ms since the first day of the month, client's time zone",
    "counter" / Int16ub,
)
UniqueKeyV6 = Struct(
    "ip" / Bytes(16),
    "pid" / Int16ub,
    "class_loader_hash" / Int32sb,
    "time" / Int32ub * "ms since the first day of the month, client's time zone",
    "counter" / Int16ub,
)

GrpcMessageId = Struct(
    "version" / Int8ub * "1",
    "mac" / Bytes(6),
    "pid" / Int16ub,
    "seconds" / Int32ub * "since 2021-01-01 00:00:00 UTC",
    "sequence" / Int32ub,
)

GRPC_SIZE, GRPC_VERSION = 34, "01"
"""Characters of the ids of gRPC clients, and how they begin (MessageIdCodec of rocketmq-clients)."""
_MASK = (1 << 64) - 1
HEX_SIZES = (32, 56)
"""Characters of both kinds of id, for IPv4 and IPv6."""


def offset_message_id(ip: bytes, port: int, physical_offset: int) -> str:
    """Return the id a broker gives a record: store host and offset in upper-case hex."""
    return f"{_host(ip, port)}{physical_offset & _MASK:016X}"


@lru_cache(maxsize=1024)
def _host(ip: bytes, port: int) -> str:
    return (ip + port.to_bytes(4, "big", signed=True)).hex().upper()


def decode_offset_message_id(text: str) -> tuple[bytes, int, int]:
    """Store ip, port and physical offset of an offsetMsgId.

    Raises:
        DecodeError: not 32 or 56 hex digits.
    """
    fields = (OffsetMessageIdV4 if len(text) == HEX_SIZES[0] else OffsetMessageIdV6).parse(_raw(text))
    return fields.ip, fields.port, fields.physical_offset


def decode_unique_key(text: str) -> dict[str, bytes | int]:
    """Return what a Java client put into its UNIQ_KEY; other clients use other shapes of the same length.

    Raises:
        DecodeError: not 32 or 56 hex digits.
    """
    fields = (UniqueKeyV4 if len(text) == HEX_SIZES[0] else UniqueKeyV6).parse(_raw(text))
    return {name: fields[name] for name in ("ip", "pid", "class_loader_hash", "time", "counter")}


def is_grpc_id(text: str) -> bool:
    """Whether a text has the length and the beginning of a gRPC client's id."""
    return len(text) == GRPC_SIZE and text.startswith(GRPC_VERSION)


def decode_grpc_id(text: str) -> Container[Any]:
    """Return what a gRPC client put into its message id, which is stored as UNIQ_KEY.

    Raises:
        DecodeError: not hexadecimal.
    """
    return GrpcMessageId.parse(_hexadecimal(text))


def _raw(text: str) -> bytes:
    if len(text) not in HEX_SIZES:
        raise DecodeError(f"{len(text)} characters, an id has {HEX_SIZES[0]} or {HEX_SIZES[1]}", field="message_id")
    return _hexadecimal(text)


def _hexadecimal(text: str) -> bytes:
    try:
        if not text.isalnum():
            raise ValueError(text)  # fromhex passes over spaces
        return bytes.fromhex(text)
    except ValueError as error:
        raise DecodeError(f"{text!r} is not hexadecimal", field="message_id") from error
