"""A batch decoded one record at a time, in plain Python: the oracle of the columns, and who says what is wrong.

:mod:`rmqctl.kafka.log.records` decodes thousands at once and hands batches that do not add up to this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from formats.errors import DecodeError
from formats.kafka.record_batch import HEADER_SIZE, Attributes, Codec, header_plan
from rmqctl.kafka.log.block import INT_MAX
from rmqctl.kafka.log.codecs import INFLATE_LIMIT, Buffer, inflate
from rmqctl.kafka.log.legacy import Message, read_message, unwrap
from rmqctl.text import number_of

_MASK64 = (1 << 64) - 1


class Record(NamedTuple):
    """One record as a consumer sees it; ``sequence`` is -1 where there is none."""

    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Places(NamedTuple):
    """Where the parts of a record lie in the decompressed records of its batch, and where it ends, bytes; sizes are -1
    for null.
    """

    offset_delta: int
    timestamp_delta: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int
    headers: tuple[tuple[int, int, int, int], ...]
    end: int


def records_of_batch(batch: bytes, limit: int = INFLATE_LIMIT) -> Iterator[Record]:
    """Yield the records of one whole batch of any magic, in order.

    Raises:
        DecodeError: after the records that could be read, what stopped it.
    """
    if batch[16] < 2:
        yield from _messages(batch, limit)
        return
    head = header_plan().unpack_from(batch)[0]
    payload = inflate(head["attributes"] & Attributes.CODEC, memoryview(batch)[HEADER_SIZE:], limit=limit)
    stamped = head["attributes"] & Attributes.LOG_APPEND_TIME
    for at in places(payload, 0, len(payload), head["records_count"]):
        yield Record(
            head["base_offset"] + at.offset_delta,
            head["max_timestamp"] if stamped else head["base_timestamp"] + at.timestamp_delta,
            sequence_of(head["base_sequence"], at.offset_delta),
            _cut(payload, at.key_at, at.key_size),
            _cut(payload, at.value_at, at.value_size),
            tuple((bytes(payload[a : a + n]), _cut(payload, b, m)) for a, n, b, m in at.headers),
        )


def _messages(batch: bytes, limit: int) -> Iterator[Record]:
    outer = read_message(batch, 0, len(batch))
    data: Buffer = batch
    inner: Iterable[Message] = [outer]
    if outer.codec != Codec.NONE:
        inner = unwrap(batch, outer, limit)
        data = inner.data
    for message in inner:
        key, value = _cut(data, message.key_at, message.key_size), _cut(data, message.value_at, message.value_size)
        yield Record(message.offset, message.timestamp, -1, key, value)


def _cut(data: Buffer, at: int, size: int) -> bytes | None:
    return None if size < 0 else bytes(data[at : at + size])


def sequence_of(base: int, delta: int) -> int:
    """Return the sequence number ``delta`` records after ``base``; they wrap from ``INT_MAX`` to 0."""
    if base < 0:
        return -1
    return base + delta if base + delta <= INT_MAX else base + delta - INT_MAX - 1


def places(data: Buffer, at: int, end: int, count: int, first: int = 0) -> Iterator[Places]:
    """Yield the records that lie in ``data[at:end]``, which must be exactly ``count``.

    Args:
        first: how many of these lie before ``at``.

    Raises:
        DecodeError: after the records that could be read, what stopped it.
    """
    if count < 0:
        raise DecodeError(f"the batch states {count} records", field="records_count")
    for number in range(first, count):
        if at >= end:
            raise DecodeError(f"{count} records are stated, but the bytes end after {number}", offset=at)
        length, at = varint(data, at, end)
        if not 0 <= length <= end - at:
            raise DecodeError(f"record {number} is {length} bytes long, {end - at} are left", offset=at)
        yield _record(data, at, at + length)
        at += length
    if at != end:
        raise DecodeError(
            f"{number_of(end - at, 'byte', 'are')} left after the last of {number_of(count, 'record')}", offset=at
        )


def _record(data: Buffer, at: int, end: int) -> Places:
    timestamp_delta, at = varint(data, at + 1, end, 10)
    offset_delta, at = varint(data, at, end)
    key_size, key_at = varint(data, at, end)
    value_size, value_at = varint(data, _after(key_at, key_size, end, "key"), end)
    count, at = varint(data, _after(value_at, value_size, end, "value"), end)
    if not 0 <= count <= end - at:
        raise DecodeError(f"a record with {count} headers", field="headers", offset=at)
    headers = []
    for _ in range(count):
        name_size, name_at = varint(data, at, end)
        if name_size < 0:
            raise DecodeError("a header without a name", field="headers", offset=at)
        size, value = varint(data, _after(name_at, name_size, end, "headers"), end)
        at = _after(value, size, end, "headers")
        headers.append((name_at, name_size, value, max(size, -1)))
    if at != end:
        raise DecodeError(f"{number_of(end - at, 'byte', 'are')} left at the end of a record", offset=at)
    return Places(
        offset_delta, timestamp_delta, key_at, max(key_size, -1), value_at, max(value_size, -1), tuple(headers), end
    )


def _after(at: int, size: int, end: int, field: str) -> int:
    if size > end - at:
        raise DecodeError(f"a {field} of {size} bytes, {end - at} are left in the record", field=field, offset=at)
    return at + max(size, 0)


def varint(data: Buffer, at: int, end: int, most: int = 5) -> tuple[int, int]:
    """Return a zig-zag number of at most ``most`` bytes, and where the byte after it stands.

    Raises:
        DecodeError: it is longer, or the data ends in it.
    """
    value = 0
    for number, byte in enumerate(data[at : min(at + most, end)]):
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            value &= 0xFFFFFFFF if most == 5 else _MASK64
            return value >> 1 ^ -(value & 1), at + number + 1
    raise DecodeError(
        f"a number of more than {most} bytes" if at + most <= end else "the bytes end in a number", offset=at
    )
