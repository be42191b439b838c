"""Messages of magic 0 and 1: single ones, and wrappers whose value is a compressed set of messages (spec 6)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from formats.errors import DecodeError
from formats.kafka.message_set import CRC_FROM, OVERHEAD, head_plan
from formats.kafka.record_batch import FRAME_HEAD, Attributes, Codec
from rmqctl.kafka.log.codecs import INFLATE_LIMIT, Buffer, inflate

_HEADS = {magic: head_plan(magic).runs[0].packer for magic in OVERHEAD}
_SIZE = head_plan(0).runs[0].only("offset", "message_size")
_INT = struct.Struct(">i")
_CODEC, _LOG_APPEND_TIME = int(Attributes.CODEC), int(Attributes.LOG_APPEND_TIME)


class Message(NamedTuple):
    """One message and where it lies in the bytes it was read from.

    Attributes:
        position, size: of the whole message, frame included.
        offset: as stored, before it is made absolute.
        key_at, value_at: where they start; sizes are -1 for null.
    """

    position: int
    size: int
    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int

    @property
    def codec(self) -> int:
        return self.attributes & _CODEC

    @property
    def crc_range(self) -> slice:
        """The bytes under the CRC-32."""
        return slice(self.position + CRC_FROM, self.position + self.size)


def read_message(data: Buffer, position: int, end: int) -> Message:
    """Return the message that starts at ``position`` and may use bytes up to ``end``.

    Raises:
        DecodeError: it is no message of magic 0 or 1, or its sizes do not fit it.
    """
    if end - position < OVERHEAD[0]:
        raise DecodeError(f"needs {OVERHEAD[0]} bytes, {end - position} left", offset=position)
    magic = int.from_bytes(data[position + CRC_FROM : position + CRC_FROM + 1], "big", signed=True)
    if magic not in _HEADS or end - position < OVERHEAD[magic]:
        raise DecodeError(f"magic {magic} is not that of a message", field="magic", offset=position)
    offset, length, crc, _, attributes, *dated, key_size = _HEADS[magic].unpack_from(data, position)
    stop = position + FRAME_HEAD + length
    key_at = position + OVERHEAD[magic] - _INT.size
    value_at = key_at + max(key_size, 0) + _INT.size
    if not value_at <= stop <= end:
        raise DecodeError(f"a key of {key_size} bytes in a message of {FRAME_HEAD + length}", offset=position)
    (value_size,) = _INT.unpack_from(data, value_at - _INT.size)
    if value_at + value_size > stop:
        raise DecodeError(f"a value of {value_size} bytes, {stop - value_at} left", field="value", offset=value_at)
    timestamp = dated[0] if dated else -1
    return Message(
        position, stop - position, offset, crc, magic, attributes, timestamp,
        key_at, max(key_size, -1), value_at, max(value_size, -1),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class InnerMessages:
    """The messages of a wrapper, offsets absolute and timestamps as readers see them; read again by each pass.

    Attributes:
        data: their bytes, decompressed.
        first, last: offsets of the first and of the last.
    """

    wrapper: Message
    data: Buffer
    first: int
    last: int
    _count: int
    _base: int

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        stamped = self.wrapper.magic == 1 and self.wrapper.attributes & _LOG_APPEND_TIME
        for message in _framed(self.data):
            time = self.wrapper.timestamp if stamped and message.magic == 1 else message.timestamp
            yield message._replace(offset=message.offset + self._base, timestamp=time)


def unwrap(data: Buffer, wrapper: Message, limit: int = INFLATE_LIMIT) -> InnerMessages:
    """Return the inner messages of a wrapper, all of which can be read.

    Raises:
        DecodeError: the value is null or does not inflate, holds no message, or one that is compressed itself.
    """
    if wrapper.value_size < 0:
        raise DecodeError("a compressed message without a value")
    if wrapper.codec == Codec.ZSTD:
        raise DecodeError("zstd is not for messages of magic 0 and 1")
    value = data[wrapper.value_at : wrapper.value_at + wrapper.value_size]
    inflated = inflate(wrapper.codec, value, wrapper.magic, limit)
    first, last, count = 0, 0, 0
    for message in _framed(inflated):
        last, count = message.offset, count + 1
        first = first if count > 1 else last
    if not count:
        raise DecodeError("a compressed message without messages inside")
    base = _base_offset(wrapper, last)
    return InnerMessages(wrapper, inflated, first + base, last + base, count, base)


def offsets_inside(raw: bytes) -> tuple[int, int] | None:
    """Return the first and the last offset that the messages in a wrapper of magic 0 state; None for other bytes."""
    try:
        message = read_message(raw, 0, len(raw))
        inside = unwrap(raw, message) if message.magic == 0 and message.codec else None
    except DecodeError:
        return None
    return None if inside is None else (inside.first, inside.last)


def _framed(data: Buffer) -> Iterator[Message]:
    """Yield the messages of a set; a partial one at the end is dropped, as readers do."""
    at = 0
    while at + FRAME_HEAD < len(data):
        size = FRAME_HEAD + _SIZE.unpack_from(data, at)[1]
        if size < OVERHEAD[0]:
            raise DecodeError(f"an inner message of {size} bytes", offset=at)
        if at + size > len(data):
            return
        message = read_message(data, at, at + size)
        if message.codec:
            raise DecodeError("a compressed message inside a compressed message", offset=at)
        yield message
        at += size


def _base_offset(wrapper: Message, last: int) -> int:
    """Return what to add to inner offsets, by the magic of the wrapper."""
    if wrapper.magic == 0 or wrapper.offset == 0:  # some librdkafka left the wrapper's offset 0
        return 0
    if wrapper.offset < last:
        raise DecodeError(f"the offset {wrapper.offset} is lower than the last one inside, {last}")
    return wrapper.offset - last
