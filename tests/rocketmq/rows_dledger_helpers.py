"""What tests of rows share: entries, units, batches and extension units made by hand."""

from __future__ import annotations

from formats.rocketmq.batch_consumequeue import BatchConsumeQueueUnit
from formats.rocketmq.consumequeue import ConsumeQueueUnit
from formats.rocketmq.consumequeue_ext import ConsumeQueueExtUnit
from formats.rocketmq.dledger import ENTRY_SIZE, DLedgerEntry
from formats.rocketmq.message import encode_record
from tests.rocketmq.log_files import record


def entries(bodies: list[bytes | None], base: int = 0, first: int = 0) -> bytes:
    """Entries with a message of each body; None stands for an entry without a message."""
    out = b""
    for number, body in enumerate(bodies):
        at = base + len(out)
        message = b"" if body is None else encode_record({**record(body=body), "physical_offset": at + ENTRY_SIZE})
        fields = {
            "magic": 2 if body is None else 1, "size": ENTRY_SIZE + len(message), "index": first + number, "term": 1,
            "position": at, "channel": 0, "chain_crc": 0, "body_crc": 0, "body_size": len(message),
        }  # fmt: skip
        out += DLedgerEntry.build(fields) + message
    return out


def unit(physical: int, size: int = 100, tags: int = 0) -> bytes:
    return bytes(ConsumeQueueUnit.build({"physical_offset": physical, "size": size, "tags_code": tags}))


def batch(base: int, **changes: int) -> bytes:
    fields = {
        "physical_offset": base * 100, "size": 100, "tags_code": 0, "store_timestamp": 7, "base_offset": base,
        "batch_size": 3, "compacted_offset": -1, "reserved": 0,
    }  # fmt: skip
    return bytes(BatchConsumeQueueUnit.build(fields | changes))


def ext(tags: int, bitmap: bytes = b"\x01\x02") -> bytes:
    fields = {"size": 20 + len(bitmap), "tags_code": tags, "store_timestamp": 9, "bitmap": bitmap}
    return bytes(ConsumeQueueExtUnit.build(fields))
