"""Bodies as the consumer sees them: decompressed, inner batches taken apart (spec 2.3, 2.10, 2.11)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from formats.errors import DecodeError
from formats.layout import plan_of
from formats.rocketmq.client_batch import BatchItem
from formats.rocketmq.message import SysFlag

MAX_DECOMPRESSED = 256 << 20
"""Bytes a body may grow to; brokers accept 4 MiB by default before compression."""

COMPRESSIONS = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
UNKNOWN = "unknown"
_TYPE_SHIFT, _TYPE_BITS = 8, 7
_COMPRESSED, _INNER_BATCH = int(SysFlag.COMPRESSED), int(SysFlag.INNER_BATCH)


@dataclass(frozen=True, slots=True)
class Body:
    """A body as the consumer sees it.

    Attributes:
        data: the bytes, None where they cannot be decompressed.
        error: why not, as half a sentence; "" when all is well.
    """

    data: bytes | None
    error: str = ""


def compression(sys_flag: int) -> str:
    """``none``, ``zlib``, ``lz4``, ``zstd``, or ``unknown`` for a type no broker writes."""
    if not sys_flag & _COMPRESSED:
        return "none"
    return COMPRESSIONS.get(sys_flag >> _TYPE_SHIFT & _TYPE_BITS, UNKNOWN)


def open_body(stored: bytes, sys_flag: int) -> Body:
    """Decompress a stored body as its flag says; never raises on what the bytes are."""
    codec = compression(sys_flag)
    if codec == "none":
        return Body(stored)
    if codec == UNKNOWN:
        return Body(None, f"compression type {sys_flag >> _TYPE_SHIFT & _TYPE_BITS} is not known")
    try:
        data, ended = _CODECS[codec](stored)
    except Exception as error:  # noqa: BLE001 - each codec has a class of its own; all mean: not its bytes
        return Body(None, f"is no {codec} data: {error}")
    if len(data) > MAX_DECOMPRESSED:
        return Body(None, f"grows beyond {MAX_DECOMPRESSED} bytes")
    return Body(data) if ended else Body(None, f"the {codec} data ends early")


def _zlib(stored: bytes) -> tuple[bytes, bool]:
    stream = zlib.decompressobj()
    return stream.decompress(stored, MAX_DECOMPRESSED + 1), stream.eof


def _lz4(stored: bytes) -> tuple[bytes, bool]:
    from lz4.frame import LZ4FrameDecompressor

    stream = LZ4FrameDecompressor()
    data: bytes = stream.decompress(stored, MAX_DECOMPRESSED + 1)
    return data, stream.eof


def _zstd(stored: bytes) -> tuple[bytes, bool]:
    from zstandard import ZstdDecompressor

    stream = ZstdDecompressor().decompressobj()
    pieces, size = [], 0
    for at in range(0, len(stored), _PIECE):
        pieces.append(stream.decompress(stored[at : at + _PIECE]))
        size += len(pieces[-1])
        if size > MAX_DECOMPRESSED or stream.eof:
            break
    return b"".join(pieces), stream.eof or size > MAX_DECOMPRESSED


_PIECE = 512  # grows to at most 16 MiB a step
_CODECS: dict[str, Callable[[bytes], tuple[bytes, bool]]] = {"zlib": _zlib, "lz4": _lz4, "zstd": _zstd}


def is_inner_batch(sys_flag: int) -> bool:
    """Whether the record's body is a batch of messages (topics with queue.type=BatchCQ)."""
    return bool(sys_flag & _INNER_BATCH)


def inner_messages(body: bytes) -> Iterator[dict[str, Any]]:
    """Fields of the messages in the decompressed body of an inner batch, in order (``BatchItem``).

    Raises:
        DecodeError: the body is cut, or an item is not as long as it says.
    """
    at = 0
    while at < len(body):
        fields, after = _ITEM.unpack_from(body, at)
        if fields["total_size"] != after - at:
            raise DecodeError(f"says {fields['total_size']} bytes, spans {after - at}", field="total_size", offset=at)
        yield fields
        at = after


_ITEM = plan_of(BatchItem)

__all__ = ["MAX_DECOMPRESSED", "Body", "compression", "inner_messages", "is_inner_batch", "open_body"]
