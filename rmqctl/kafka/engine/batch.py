"""Record batches of magic 2 made from records: what a producer sends and a leader puts into its log (spec 2 to 5, 14).

Base offset, leader epoch and magic stand outside the CRC, so a batch is built once, with any base offset, and
:func:`placed` in a log afterwards, as a leader does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from formats.kafka.record_batch import (
    CRC_AT,
    CRC_FROM,
    FRAME_HEAD,
    HEADER_SIZE,
    Attributes,
    BatchFrame,
    Codec,
    ControlRecordKey,
    ControlType,
    EndTransactionMarker,
    header_plan,
)
from formats.layout import plan_of
from rmqctl.kafka.log.block import INT_MAX
from rmqctl.kafka.log.codecs import deflate
from rmqctl.kafka.log.reference import Record

MAGIC = 2
NO_TIMESTAMP = -1
_PACK = header_plan().runs[0].packer
_FRAME = plan_of(BatchFrame).runs[0].packer
_TABLE_FROM, _TABLE_TO = -64, 1 << 14


@dataclass(frozen=True, slots=True)
class BatchHead:
    """What a batch says about all its records; -1 stands for none, as in the file.

    Attributes:
        base_offset: of the first record when it was written.
        last_offset: of the last record when it was written; None: of the last one here.
        codec, level: what the records are compressed with; level None: as the Java client does by default.
        append_time: all records have this timestamp (LogAppendTime), ms; None: each has its own.
        base_timestamp: from which timestamps count, ms; None: that of the first record.
        max_timestamp: ms; None: the largest of the records.
        delete_horizon: when tombstones and markers here may go, ms; takes the place of the base timestamp.
    """

    base_offset: int = 0
    last_offset: int | None = None
    leader_epoch: int = 0
    codec: int = Codec.NONE
    level: int | None = None
    append_time: int | None = None
    base_timestamp: int | None = None
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: bool = False
    delete_horizon: int | None = None

    @property
    def attributes(self) -> int:
        """The field of that name of a batch with records."""
        found = int(self.codec)
        found |= Attributes.LOG_APPEND_TIME if self.append_time is not None else 0
        found |= Attributes.TRANSACTIONAL if self.transactional else 0
        found |= Attributes.CONTROL if self.control else 0
        return found | (Attributes.DELETE_HORIZON if self.delete_horizon is not None else 0)


def build_batch(head: BatchHead, records: Sequence[Record]) -> bytes:
    """Return the bytes of a batch. Without records it is the header that compaction keeps.

    Args:
        records: in the order of their offsets, which are those in the log; sequences are not looked at.

    Raises:
        ValueError: the codec is unknown, or has no such level.
    """
    base_time = head.delete_horizon if head.delete_horizon is not None else head.base_timestamp
    if base_time is None:
        base_time = records[0].timestamp if records else NO_TIMESTAMP
    largest = head.append_time if head.append_time is not None else head.max_timestamp
    if largest is None:
        largest = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    last = head.last_offset
    if last is None:
        last = records[-1].offset if records else head.base_offset
    payload = encode_records(records, head.base_offset, base_time)
    attributes = head.attributes
    if records:
        payload = deflate(head.codec, payload, head.level)
    else:
        attributes &= ~Attributes.CODEC
    return _closed(head, attributes, last - head.base_offset, base_time, largest, len(records), payload)


def _closed(
    head: BatchHead, attributes: int, last_delta: int, base_time: int, largest: int, count: int, payload: bytes
) -> bytes:
    fields = (
        head.base_offset, HEADER_SIZE - FRAME_HEAD + len(payload), head.leader_epoch, MAGIC, 0, attributes, last_delta,
        base_time, largest, head.producer_id, head.producer_epoch, head.base_sequence, count,
    )  # fmt: skip
    header = bytearray(_PACK.pack(*fields))
    crc = crc32c(payload, crc32c(memoryview(header)[CRC_FROM:]))
    header[CRC_AT:CRC_FROM] = crc.to_bytes(4, "big")
    return bytes(header) + payload


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Return the records of a batch, back to back, not compressed."""
    table, out = _TABLE, list[bytes]()
    for offset, timestamp, _, key, value, headers in records:
        delta, time = offset - base_offset, timestamp - base_timestamp
        body = b"".join(
            (
                b"\0",
                table[time + 64] if -64 <= time < _TABLE_TO else varint(time),
                table[delta + 64] if delta < _TABLE_TO else varint(delta),
                b"\x01" if key is None else _sized(key),
                b"\x01" if value is None else _sized(value),
                _headers(headers) if headers else b"\0",
            )
        )
        out.append(_sized(body))
    return b"".join(out)


def _sized(data: bytes) -> bytes:
    size = len(data)
    return (_TABLE[size + 64] if size < _TABLE_TO else varint(size)) + data


def _headers(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        parts += (_sized(name), b"\x01" if value is None else _sized(value))
    return b"".join(parts)


def varint(value: int) -> bytes:
    """Return a number in zig-zag form with as few bytes as it takes, at most ten."""
    number = (value << 1 ^ value >> 63) & (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_TABLE = [varint(value) for value in range(_TABLE_FROM, _TABLE_TO)]
"""The numbers from -64 on, which are most of those in a log."""


def placed(batch: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """Return a batch at another place in a log: what stands outside its CRC is set, as a leader sets it."""
    _, length, _, magic = _FRAME.unpack_from(batch)
    return _FRAME.pack(base_offset, length, leader_epoch, magic) + batch[_FRAME.size :]


def stamped(batch: bytes, time: int) -> bytes:
    """Return a batch whose records have the time at which it is appended, ms, as a leader of such a topic makes it."""
    fields = list(_PACK.unpack_from(batch))
    fields[5] |= int(Attributes.LOG_APPEND_TIME)
    fields[8] = time
    header = _PACK.pack(*fields)
    crc = crc32c(memoryview(batch)[HEADER_SIZE:], crc32c(header[CRC_FROM:]))
    return header[:CRC_AT] + crc.to_bytes(4, "big") + header[CRC_FROM:] + batch[HEADER_SIZE:]


class Ending(NamedTuple):
    """The end of a transaction: of which producer, and how.

    Attributes:
        producer_epoch: that of the data; brokers of transaction version 2 give one more.
        timestamp: ms.
    """

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int = 0
    timestamp: int = NO_TIMESTAMP


def end_marker(ending: Ending, base_offset: int = 0, leader_epoch: int = 0) -> bytes:
    """Return the control batch that ends a transaction in a partition."""
    kind = ControlType.COMMIT if ending.commit else ControlType.ABORT
    key = ControlRecordKey.build({"version": 0, "type": int(kind)})
    value = EndTransactionMarker.build({"version": 0, "coordinator_epoch": ending.coordinator_epoch})
    head = BatchHead(
        base_offset, leader_epoch=leader_epoch, producer_id=ending.producer_id, producer_epoch=ending.producer_epoch,
        transactional=True, control=True,
    )  # fmt: skip
    return build_batch(head, [Record(base_offset, ending.timestamp, -1, key, value)])


def sequence_after(base: int, records: int) -> int:
    """Return the sequence of the batch that follows one of ``records`` from ``base`` on; it wraps to 0."""
    return (base + records) % (INT_MAX + 1)
