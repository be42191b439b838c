"""A separator of the properties turned to zero: what every pair has says which one it was."""

from __future__ import annotations

import pytest

from formats.rocketmq.message import encode_record
from rmqctl.rocketmq.repair.heal import mend_properties

PAIRS = b"KEYS\x01k1 k2\x02UNIQ_KEY\x01AC11\x02WAIT\x01true"
FIELDS = {
    "total_size": 0, "magic": -626843481, "body_crc": 0, "queue_id": 1, "flag": 0, "queue_offset": 5,
    "physical_offset": 4096, "sys_flag": 0, "born_timestamp": 1_700_000_000_000, "born_ip": b"\x0a\0\0\x01",
    "born_port": 1, "store_timestamp": 1_700_000_000_001, "store_ip": b"\x0a\0\0\x01", "store_port": 2,
    "reconsume_times": 0, "prepared_transaction_offset": 0, "body": b"", "topic": b"T",
}  # fmt: skip


def record(properties: bytes) -> bytes:
    fields = {**FIELDS, "properties": properties}
    fields["total_size"] = len(encode_record(fields))
    made: bytes = encode_record(fields)
    return made


@pytest.mark.parametrize("end", [b"", b"\x02"])
@pytest.mark.parametrize("at", [i for i, byte in enumerate(PAIRS) if byte < 3])
def test_every_separator_comes_back(at: int, end: bytes) -> None:
    text = PAIRS + end
    mended = mend_properties(record(text[:at] + b"\0" + text[at + 1 :]), closed=bool(end))
    assert mended is not None
    assert (mended.record, mended.is_exact) == (record(text), True)


@pytest.mark.parametrize("at", [i for i, byte in enumerate(PAIRS) if byte > 2])
def test_any_other_byte_is_never_taken_for_one(at: int) -> None:
    mended = mend_properties(record(PAIRS[:at] + b"\0" + PAIRS[at + 1 :]), closed=False)
    assert mended is None
