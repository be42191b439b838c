"""Small logs for tests: records with wanted fields, laid end to end at the offsets they state."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from formats.rocketmq.message import BlankRecord, Magic, body_crc, encode_record


def record(**changes: Any) -> dict[str, Any]:
    """Fields of a sound record at offset 0, some of them changed; sizes and, unless given, the CRC are right."""
    fields = {
        "total_size": 0, "magic": int(Magic.MESSAGE_V1), "queue_id": 1, "flag": 0, "queue_offset": 0,
        "physical_offset": 0, "sys_flag": 0, "born_timestamp": 1700000000000, "born_ip": b"\xc0\xa8\x01\x0a",
        "born_port": 54321, "store_timestamp": 1700000000123, "store_ip": b"\x0a\0\0\1", "store_port": 10911,
        "reconsume_times": 0, "prepared_transaction_offset": 0, "body": b"hello", "topic": b"TopicTest",
        "properties": b"KEYS\x01order1\x02TAGS\x01TagA", **changes,
    }  # fmt: skip
    fields.setdefault("body_crc", body_crc(fields["body"]))
    fields["total_size"] = len(encode_record(fields))
    return fields


def log_of(records: Iterable[dict[str, Any]], base: int = 0, *, lead: bytes = b"") -> bytes:
    """The records one behind the other, each with the physical offset it has there.

    Args:
        lead: bytes in front of each record.
    """
    out = b""
    for fields in records:
        at = base + len(out) + len(lead)
        out += lead + encode_record({**fields, "physical_offset": at})
    return out


def ended(log: bytes, size: int) -> bytes:
    """A full file: the log, a blank record, zeros to the size."""
    blank = BlankRecord.build({"size": size - len(log), "magic": int(Magic.BLANK)})
    return (log + blank).ljust(size, b"\0")


def item(body: bytes, properties: bytes, flag: int = 0) -> bytes:
    """A message of an inner batch."""
    size = 22 + len(body) + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties
