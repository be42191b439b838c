"""What the records of a batch are compressed with (spec 5), each codec with a limit on what comes out.

What a file holds may be anything, so reading raises :class:`DecodeError` and nothing else,
and a stream of few bytes that would fill the memory stops at the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from formats.errors import DecodeError
from formats.kafka.record_batch import Codec

INFLATE_LIMIT = 128 << 20
"""Bytes that one batch may become; brokers accept batches of 1 MiB by default, compressed."""

Buffer = bytes | bytearray | memoryview

_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEAD = 16
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE, _LZ4_DICTIONARY = 0x08, 0x01
_PIECE, _LITTLE = 1 << 12, 1 << 8
"""Bytes of zstd at a time, and where they become very many: a block of 4 bytes may become 128 KiB."""
_STEP = 1 << 20
_XERIAL_VERSIONS = b"\0\0\0\1\0\0\0\1"
_SNAPPY_BLOCK = 32 << 10
_GZIP_WBITS = 31
LEVELS: dict[int, tuple[int, int]] = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}
"""Least and highest level of the codecs that have any, as the settings of Kafka take them."""


def inflate(codec: int, data: Buffer, magic: int = 2, limit: int = INFLATE_LIMIT) -> Buffer:
    """Return the records of a batch or of a wrapper message, decompressed; no bytes stay none.

    Args:
        codec: number of the codec, as in the attributes.
        magic: of the batch; LZ4 frames of magic 0 carry a wrong header checksum.
        limit: bytes that may come out.

    Raises:
        DecodeError: the codec is unknown, the stream is damaged or cut, or more than ``limit`` bytes come out.
    """
    if codec == Codec.NONE or not len(data):
        return data
    try:
        if codec == Codec.GZIP:
            return _gunzip(data, limit)
        if codec == Codec.SNAPPY:
            return _unsnappy(data, limit)
        if codec == Codec.LZ4:
            return _unlz4(data, magic, limit)
        if codec == Codec.ZSTD:
            return _unzstd(data, limit)
    except DecodeError:
        raise
    except Exception as error:  # each library has errors of its own, and some raise plain RuntimeError
        raise DecodeError(f"{Codec(codec).name.lower()}: {error}") from error
    raise DecodeError(f"codec {codec} is unknown")


def codec_name(codec: int) -> str:
    """Return the codec as output shows it; unknown ones by number."""
    return _NAMES.get(codec) or f"unknown-{codec}"


_NAMES = {int(codec): codec.name.lower() for codec in Codec}


def _too_much(limit: int) -> DecodeError:
    return DecodeError(f"inflates to more than {limit} bytes, which is not done")


def _joined(pieces: Iterator[bytes], limit: int) -> Buffer:
    """Return what a stream gives, in one buffer that grows: copies of all its pieces would need the room twice."""
    first = next(pieces, b"")
    if len(first) > limit:
        raise _too_much(limit)
    whole = bytearray()
    for piece in pieces:
        whole = whole or bytearray(first)
        if len(whole) + len(piece) > limit:
            raise _too_much(limit)
        whole += piece
    return whole or first


def _gunzip(data: Buffer, limit: int) -> Buffer:
    return _joined(_gunzipped(data), limit)


def _gunzipped(data: Buffer) -> Iterator[bytes]:
    from isal import isal_zlib

    while True:
        stream = isal_zlib.decompressobj(wbits=31)
        while not stream.eof:
            piece = stream.decompress(data, _STEP)
            data = stream.unconsumed_tail
            if not piece and not stream.eof:
                raise DecodeError("gzip: the stream is cut")
            yield piece
        data = stream.unused_data
        if data[:2] != b"\x1f\x8b":  # another member follows, or something that readers pass over
            return


def _unsnappy(data: Buffer, limit: int) -> Buffer:
    """Blocks in xerial's framing, or one raw block, as some clients not in Java write it."""
    if bytes(data[:8]) != _XERIAL:
        return _snappy_block(data, limit)
    if len(data) < _XERIAL_HEAD:
        raise DecodeError("snappy: the stream is cut")
    return _joined(_snappy_blocks(data, limit), limit)


def _snappy_blocks(data: Buffer, limit: int) -> Iterator[bytes]:
    at = _XERIAL_HEAD
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if size < 0 or at + size > len(data):
            raise DecodeError(f"snappy: a block of {size} bytes, {len(data) - at} are left")
        yield _snappy_block(data[at : at + size], limit)
        at += size


def _snappy_block(data: Buffer, limit: int) -> bytes:
    size = shift = 0
    for byte in bytes(data[:5]):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise DecodeError("snappy: no size at the start of a block")
    if size > limit:
        raise _too_much(limit)
    if size == 0:
        return b""
    inflated: bytes = _snappy().decompress(data, size, asbytes=True)
    return inflated


@cache
def _snappy() -> Any:
    import pyarrow as pa

    return pa.Codec("snappy")


def _unlz4(data: Buffer, magic: int, limit: int) -> Buffer:
    from lz4.frame import LZ4FrameDecompressor

    if bytes(data[:4]) != _LZ4_MAGIC or len(data) < 7:
        raise DecodeError("lz4: no frame starts here")
    if magic == 0:
        data = _with_header_checksum(bytes(data))
    return _joined(_lz4_pieces(LZ4FrameDecompressor(), data), limit)


def _lz4_pieces(stream: Any, data: Buffer) -> Iterator[bytes]:
    while not stream.eof:
        piece: bytes = stream.decompress(data, max_length=_STEP)
        if stream.needs_input and not stream.eof:
            raise DecodeError("lz4: the frame is cut")
        yield piece
        data = b""  # the stream has kept what it did not use


def _with_header_checksum(frame: bytes) -> bytes:
    """Return the frame with the checksum of its descriptor as the standard wants it."""
    flags = frame[4]
    end = 6 + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    return frame[:end] + bytes([_xxh32(frame[4:end]) >> 8 & 0xFF]) + frame[end + 1 :]


def _xxh32(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes, which is all a frame's descriptor can have."""
    mask, total = 0xFFFFFFFF, (374761393 + len(data)) & 0xFFFFFFFF
    words = len(data) & ~3
    for at in range(0, words, 4):
        total = (total + int.from_bytes(data[at : at + 4], "little") * 3266489917) & mask
        total = ((total << 17 | total >> 15) & mask) * 668265263 & mask
    for byte in data[words:]:
        total = (total + byte * 374761393) & mask
        total = ((total << 11 | total >> 21) & mask) * 2654435761 & mask
    for shift, factor in ((15, 2246822519), (13, 3266489917), (16, 1)):
        total = (total ^ total >> shift) * factor & mask
    return total


def _unzstd(data: Buffer, limit: int) -> Buffer:
    return _joined(_zstd_pieces(_zstd()().decompressobj(), data), limit)


def _zstd_pieces(stream: Any, data: Buffer) -> Iterator[bytes]:
    at, size = 0, _LITTLE
    while at < len(data):
        piece = stream.decompress(data[at : at + size])
        at, size = at + size, _LITTLE if len(piece) > _STEP else _PIECE
        yield piece
        if stream.eof:
            return
    raise DecodeError("zstd: the frame is cut")


@cache
def _zstd() -> Callable[[], Any]:
    import zstandard

    return zstandard.ZstdDecompressor


# --- compressing ----------------------------------------------------------------------------------------


def deflate(codec: int, data: bytes, level: int | None = None) -> bytes:
    """Return the records of a batch compressed, in the container that Java clients write.

    Args:
        level: None for the default of the Java client.

    Raises:
        ValueError: the codec is unknown, or has no such level.
    """
    low, high = LEVELS.get(codec, (0, 0))
    if level is not None and not low <= level <= high:
        raise ValueError(f"{codec_name(codec)} has no level {level}" + (f", only {low} to {high}" if high else ""))
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            import zlib

            stream = zlib.compressobj(-1 if level is None else level, wbits=_GZIP_WBITS)
            return stream.compress(data) + stream.flush()
        case Codec.SNAPPY:
            parts = [_XERIAL, _XERIAL_VERSIONS]
            for at in range(0, len(data), _SNAPPY_BLOCK):
                part: bytes = _snappy().compress(data[at : at + _SNAPPY_BLOCK], asbytes=True)
                parts += (len(part).to_bytes(4, "big"), part)
            return b"".join(parts)
        case Codec.LZ4:
            import lz4.frame

            frame: bytes = lz4.frame.compress(
                data, level or 0, lz4.frame.BLOCKSIZE_MAX64KB, store_size=False, block_linked=False
            )
            return frame
        case Codec.ZSTD:
            import zstandard

            return zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False).compress(
                data
            )
    raise ValueError(f"codec {codec} is unknown")
