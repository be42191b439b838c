"""Batches that keep the place and the offsets of what was destroyed, and that no consumer ever sees.

Compaction leaves a batch without records as its header of 61 bytes. Where more bytes are to be filled a control batch
takes them: its one record is of a type that nobody knows, which every client passes over, as KIP-98 has it. Both pass a
broker's recovery, replication and the cleaner, and end where a strict reader expects it.

The metadata log is read by controllers, which take neither: each offset needs a record that they know. A NoOpRecord
changes nothing (KIP-835), and its tagged fields, which readers skip, fill the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from formats.kafka.messages import write_unsigned_varint
from formats.kafka.record_batch import CRC_AT, CRC_FROM, FRAME_HEAD, HEADER_SIZE, Attributes, ControlRecordKey
from rmqctl.kafka.engine.batch import BatchHead, build_batch, varint
from rmqctl.kafka.log.block import INT_MAX
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.repair.survey import Batch

UNKNOWN_TYPE = 32767
"""The ``type`` of a control record that stands for nothing."""
MOST = 1 << 20
"""Bytes of one batch, where there are enough offsets for several: what a consumer fetches at once."""
_NO_OP, _TAG = 20, 100
_KEY = ControlRecordKey.build({"version": 0, "type": UNKNOWN_TYPE})


def empty_batch(first: int, last: int, epoch: int, timestamp: int, producer: Batch | None = None) -> bytes:
    """Return a batch of these offsets without records, as the cleaner leaves it, of 61 bytes.

    Args:
        timestamp: its largest one, ms.
        producer: a batch whose producer, epoch and last sequence it carries on.
    """
    if producer is None:
        return build_batch(BatchHead(first, last, epoch, max_timestamp=timestamp), [])
    shift = producer.last_offset - producer.base_offset - (last - first)
    head = BatchHead(
        first,
        last,
        epoch,
        max_timestamp=timestamp,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=(producer.base_sequence + shift) % (INT_MAX + 1) if producer.base_sequence >= 0 else -1,
        transactional=bool(producer.attributes & Attributes.TRANSACTIONAL),
    )
    return build_batch(head, [])


def filler(first: int, last: int, epoch: int, timestamp: int, size: int) -> bytes | None:
    """Return a batch of these offsets and exactly so many bytes that clients pass over; None where so few do not do."""
    if size == HEADER_SIZE:
        return empty_batch(first, last, epoch, timestamp)
    value = _value_size(size - HEADER_SIZE)
    if value is None:  # one byte more than a length of so many bytes can say, and one less than the next longer one
        value = _value_size(size - HEADER_SIZE - 1)
    if value is None:
        return None
    head = BatchHead(first, last, epoch, max_timestamp=timestamp, control=True)
    made = build_batch(head, [Record(first, timestamp, -1, _KEY, bytes(value))])
    return made if len(made) == size else _lengthened(made)


def _lengthened(batch: bytes) -> bytes:
    """Return a batch whose first number of a record takes one byte more than it needs, which every reader takes."""
    at = next(n for n in range(HEADER_SIZE, len(batch)) if batch[n] < 0x80)
    payload = batch[HEADER_SIZE:at] + bytes([batch[at] | 0x80, 0]) + batch[at + 1 :]
    covered = batch[CRC_FROM:HEADER_SIZE] + payload
    length = (len(batch) + 1 - FRAME_HEAD).to_bytes(4, "big")
    return batch[: FRAME_HEAD - 4] + length + batch[FRAME_HEAD:CRC_AT] + crc32c(covered).to_bytes(4, "big") + covered


def metadata_batch(first: int, epoch: int, timestamp: int, size: int, values: Sequence[bytes], count: int) -> bytes:
    """Return a batch for the metadata log with these records, and NoOpRecords up to a number of them.

    Returns:
        As many bytes as are wanted, more where so few do not do.
    """
    head, every = BatchHead(first, leader_epoch=epoch), [*values, *[_no_op(0)] * (count - len(values))]

    def made(last: bytes) -> bytes:
        records = [Record(first + n, timestamp, -1, None, value) for n, value in enumerate([*every[:-1], last])]
        return build_batch(head, records)

    least = made(every[-1])
    if len(least) >= size or len(values) == count:
        return least
    for wanted, finish in ((size, bytes), (size - 1, _lengthened)):
        for spare in range(wanted - len(least), max(wanted - len(least) - 16, 0), -1):
            found = made(_no_op(spare))
            if len(found) == wanted:
                return finish(found)
    return _lengthened(least) if size == len(least) + 1 else least


def _no_op(size: int) -> bytes:
    """Return the value of a NoOpRecord: frame, type, version, and a tagged field of so many bytes; 0: none."""
    value = bytearray([1, _NO_OP, 0, 0 if size < 1 else 1])
    if size > 0:
        value.append(_TAG)
        write_unsigned_varint(value, size - 1)
        value += bytes(size - 1)
    return bytes(value)


def is_no_op(value: bytes | None) -> bool:
    """Whether the value of a record of the metadata log is a NoOpRecord."""
    return value is not None and value[:3] == bytes([1, _NO_OP, 0])


def _value_size(room: int) -> int | None:
    """Bytes of value with which a record fills some room, None where no number of them does."""
    fixed = 3 + len(varint(len(_KEY))) + len(_KEY) + 1  # attributes, two deltas of 0, key, no headers
    for length in range(1, 6):
        body = room - length
        for sizes in range(1, 6):
            value = body - fixed - sizes
            if value >= 0 and len(varint(value)) == sizes and len(varint(body)) == length:
                return value
    return None


def bridge(first: int, beyond: int, epoch: int, timestamp: int, size: int, producer: Batch | None) -> bytes | None:
    """Batches for the offsets from ``first`` to before ``beyond`` that fill exactly so many bytes.

    Args:
        producer: the header of the one batch that was there, where it can be believed: its producer goes on.

    Returns:
        None where so few bytes do not do.
    """
    count = beyond - first
    is_data = producer is not None and not producer.attributes & Attributes.CONTROL
    if producer is not None and is_data and producer.producer_id >= 0 and count >= 2:
        rest = filler(beyond - 1, beyond - 1, epoch, timestamp, size - HEADER_SIZE)
        if rest is not None:
            return empty_batch(first, beyond - 2, epoch, timestamp, producer) + rest
    pieces = min(-(-size // MOST), count)
    out = list[bytes]()
    for number in range(pieces):
        low, high = first + count * number // pieces, first + count * (number + 1) // pieces - 1
        piece = filler(low, high, epoch, timestamp, size * (number + 1) // pieces - size * number // pieces)
        if piece is None:
            return None
        out.append(piece)
    return b"".join(out)
