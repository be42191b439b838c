"""What tests share with test_compression: record."""

from __future__ import annotations

from formats.rocketmq.message import body_crc, decode_record, encode_record
from tests.rocketmq.scan_helpers import log


def record(body: bytes, flags: int, topic: bytes = b"T", at: int = 0) -> bytes:
    fields = dict(decode_record(log())[0])
    fields |= {"body": body, "sys_flag": flags, "body_crc": body_crc(body), "topic": topic, "properties": b""}
    fields |= {"physical_offset": at, "queue_offset": at}
    fields["total_size"] = 0
    size = len(encode_record(fields))
    return encode_record(fields | {"total_size": size})
