"""Batches made byte by byte from the schemas, for tests."""

from __future__ import annotations

from typing import Any

from crc32c import crc32c
from isal.isal_zlib import crc32

from formats.kafka.message_set import MessageV0, MessageV1
from formats.kafka.record_batch import Record, RecordBatchHeader

TIME = 1700000000000


def record(delta: int, key: bytes | None, value: bytes | None, time: int = 0, headers: Any = ()) -> bytes:
    fields = {
        "length": 0,
        "attributes": 0,
        "timestamp_delta": time,
        "offset_delta": delta,
        "key_size": -1 if key is None else len(key),
        "key": key,
        "value_size": -1 if value is None else len(value),
        "value": value,
        "headers": [
            {"key_size": len(n), "key": n, "value_size": -1 if v is None else len(v), "value": v} for n, v in headers
        ],
    }
    body = Record.build(fields)[1:]
    return Record.build({**fields, "length": len(body)})


def batch(base: int, records: list[bytes], payload: bytes | None = None, **fields: int) -> bytes:
    """A batch of magic 2 whose length and CRC are right, unless ``fields`` say otherwise."""
    payload = b"".join(records) if payload is None else payload
    head = {
        "base_offset": base,
        "batch_length": 49 + len(payload),
        "partition_leader_epoch": 0,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": max(len(records) - 1, 0),
        "base_timestamp": TIME,
        "max_timestamp": TIME,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "records_count": len(records),
        **fields,
    }
    if "crc" not in fields:
        head["crc"] = crc32c(RecordBatchHeader.build(head)[21:] + payload)
    return RecordBatchHeader.build(head) + payload


def message(offset: int, key: bytes | None, value: bytes | None, magic: int = 1, **fields: int) -> bytes:
    """A message of magic 0 or 1 whose size and CRC are right."""
    schema = MessageV1 if magic else MessageV0
    head: dict[str, Any] = {
        "offset": offset,
        "message_size": 0,
        "crc": 0,
        "magic": magic,
        "attributes": 0,
        "timestamp": TIME,
        "key_size": -1 if key is None else len(key),
        "key": key,
        "value_size": -1 if value is None else len(value),
        "value": value,
        **fields,
    }
    size = len(schema.build(head))
    body = schema.build(head)[16:]
    return schema.build({**head, "message_size": size - 12, "crc": fields.get("crc", crc32(body))})


def segment(count: int, first: int = 0, each: int = 3) -> list[bytes]:
    """Batches that follow each other, of ``each`` records."""
    return [
        batch(base, [record(i, b"k%d" % (base + i), b"value %d" % (base + i)) for i in range(each)])
        for base in range(first, first + count * each, each)
    ]
