"""The message record: the worked example of the reference, round trips, and the plans against construct."""

from __future__ import annotations

from typing import Any

import pytest
from construct import ConstructError
from hypothesis import given

from formats.errors import DecodeError
from formats.rocketmq.message import BlankRecord, Magic, MessageRecord, body_crc, decode_record, encode_record, plan_at
from formats.rocketmq.message_id import decode_offset_message_id, decode_unique_key, offset_message_id
from formats.rocketmq.property_crc import property_crc, property_crc_bytes, stored_property_crc
from tests.strategies import damaged_records, record_fields, records

EXAMPLE = bytes.fromhex(
    "0000007e daa320a7 3610a686 00000001 00000000 0000000000000000 0000000000000000 00000000 0000018bcfe56800"
    "c0a8010a 0000d431 0000018bcfe5687b 0a000001 00002a9f 00000000 0000000000000000 00000005 68656c6c6f"
    "09 546f70696354657374 0015 4b455953016f7264657231025441475301546167 41"
)
FIELDS: dict[str, Any] = {
    "total_size": 126,
    "magic": int(Magic.MESSAGE_V1),
    "body_crc": 907060870,
    "queue_id": 1,
    "flag": 0,
    "queue_offset": 0,
    "physical_offset": 0,
    "sys_flag": 0,
    "born_timestamp": 1700000000000,
    "born_ip": bytes([192, 168, 1, 10]),
    "born_port": 54321,
    "store_timestamp": 1700000000123,
    "store_ip": bytes([10, 0, 0, 1]),
    "store_port": 10911,
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
    "body": b"hello",
    "topic": b"TopicTest",
    "properties": b"KEYS\x01order1\x02TAGS\x01TagA",
}


def test_the_worked_example_both_ways() -> None:
    assert decode_record(EXAMPLE) == (FIELDS, 126)
    assert encode_record(FIELDS) == EXAMPLE


def test_body_crc_vectors() -> None:
    assert body_crc(b"hello") == FIELDS["body_crc"]
    assert body_crc(b"a") == 0x68B7BE43
    assert body_crc(b"RocketMQ") == 0x69E6BBE1
    assert body_crc(b"") == 0


def test_property_crc_of_the_worked_example() -> None:
    fields = FIELDS | {"total_size": 147, "properties": FIELDS["properties"] + b"\x02" + property_crc_bytes(0)}
    record = encode_record(fields)
    assert property_crc(record) == 1491347290
    record = record[:-20] + property_crc_bytes(property_crc(record))
    assert record[-20:].hex() == "5f5f43524333322301" + "30393237343331393431" + "02"
    assert stored_property_crc(record) == 1491347290
    assert stored_property_crc(EXAMPLE) is None


def test_blank_record() -> None:
    assert BlankRecord.build({"size": 120, "magic": int(Magic.BLANK)}).hex() == "00000078cbd43194"


def test_message_ids() -> None:
    assert offset_message_id(FIELDS["store_ip"], 10911, 0) == "0A00000100002A9F0000000000000000"
    v6 = "20010DB800000000000000000000000100002A9F0000000000001000"
    ip, port, offset = decode_offset_message_id(v6)
    assert (port, offset) == (10911, 4096)
    assert offset_message_id(ip, port, offset) == v6
    assert decode_unique_key("7F0000010001" + "0A0B0C0D" + "0000000F" + "0102")["counter"] == 0x0102
    for bad in ("", "7F", "G" * 32):
        with pytest.raises(DecodeError):
            decode_offset_message_id(bad)


@given(record_fields())
def test_decoding_gives_back_what_was_encoded(fields: dict[str, Any]) -> None:
    raw = encode_record(fields)
    assert decode_record(raw) == (fields, len(raw))


def by_plan(raw: bytes) -> tuple[dict[str, Any], int] | None:
    try:
        return plan_at(raw).unpack_from(raw)
    except DecodeError:
        return None


def by_construct(raw: bytes) -> tuple[dict[str, Any], int] | None:
    from io import BytesIO

    stream = BytesIO(raw)
    try:
        parsed = MessageRecord.parse_stream(stream)
    except ConstructError:
        return None
    return {k: v for k, v in parsed.items() if k != "_io"}, stream.tell()


@given(records())
def test_plans_agree_with_construct_on_sound_records(raw: bytes) -> None:
    assert by_plan(raw) == by_construct(raw) is not None


@given(damaged_records())
def test_plans_agree_with_construct_on_damaged_records(raw: bytes) -> None:
    assert by_plan(raw) == by_construct(raw)
