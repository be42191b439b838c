"""Rows of messages: the worked example of the format reference, and what odd bytes become."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any

import pytest

from formats.rocketmq.message import Magic, SysFlag, encode_record
from rmqctl.files.local import BytesSource
from rmqctl.release import Release
from rmqctl.rocketmq.dump.messages import MessageRows
from rmqctl.rocketmq.dump.record import ROW_KEYS, RowOptions
from rmqctl.rocketmq.log.crc import crc_flags
from rmqctl.rocketmq.log.scan import Extent, scan
from tests.rocketmq.log_files import item, record

EXAMPLE = """
00 00 00 7e da a3 20 a7 36 10 a6 86 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 01 8b cf e5 68 00 c0 a8 01 0a 00 00 d4 31 00 00 01 8b cf e5 68 7b
0a 00 00 01 00 00 2a 9f 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 05 68 65 6c 6c 6f 09 54 6f
70 69 63 54 65 73 74 00 15 4b 45 59 53 01 6f 72 64 65 72 31 02 54 41 47 53 01 54 61 67 41
"""
CONTRACT = """{"kind":"message","file":"commitlog/00000000000000000000","position":0,"physical_offset":0,"size":126,"magic":"V1",
 "body_crc":907060870,"body_crc_ok":true,"queue_id":1,"flag":0,"queue_offset":0,"sys_flag":0,
 "born_timestamp":1700000000000,"born_host":"192.168.1.10:54321","store_timestamp":1700000000123,
 "store_host":"10.0.0.1:10911","reconsume_times":0,"prepared_transaction_offset":0,"topic":"TopicTest",
 "tags":"TagA","keys":["order1"],"unique_key":null,"message_id":"0A00000100002A9F0000000000000000",
 "properties":{"KEYS":"order1","TAGS":"TagA"},"transaction":"none","compression":"none","body_size":5}"""


def row_of(fields: dict[str, Any], show: RowOptions | None = None) -> dict[str, Any]:
    """The row of one record alone in a file."""
    source = BytesSource(encode_record(fields))
    (block,) = scan(source, Extent("commitlog/00000000000000000000", 0))
    (row,) = MessageRows(show or RowOptions()).rows(block, crc_flags(block)[1])
    return row


def test_worked_example_is_the_row_of_the_contract() -> None:
    assert encode_record(record()) == bytes.fromhex(EXAMPLE)
    row = row_of(record())
    assert row == json.loads(CONTRACT)
    assert list(row) == list(json.loads(CONTRACT)) == list(ROW_KEYS)


def test_both_hosts_ipv6_in_a_v2_record() -> None:
    ip = bytes.fromhex("20010db8000000000000000000000001")
    topic = b"%RETRY%" + b"g" * 130
    fields = record(magic=int(Magic.MESSAGE_V2), sys_flag=0x30, born_ip=ip, store_ip=ip, topic=topic)
    row = row_of(fields)
    assert (row["magic"], row["topic"]) == ("V2", topic.decode())
    assert (row["born_host"], row["store_host"]) == ("[2001:db8::1]:54321", "[2001:db8::1]:10911")
    assert row["message_id"] == "20010DB8000000000000000000000001" + "00002A9F" + "0" * 16


def test_one_host_ipv6() -> None:
    ip = bytes.fromhex("20010db8000000000000000000000001")
    born = row_of(record(sys_flag=0x10, born_ip=ip))
    assert (born["born_host"], born["store_host"]) == ("[2001:db8::1]:54321", "10.0.0.1:10911")
    assert born["message_id"] == "0A00000100002A9F" + "0" * 16
    store = row_of(record(sys_flag=0x20, store_ip=ip, store_port=-1))
    assert (store["born_host"], store["store_host"]) == ("192.168.1.10:54321", "[2001:db8::1]:-1")


@pytest.mark.parametrize(
    ("properties", "shown"),
    [
        (b"", {}),
        (b"\x02\x02", {}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"a\x01\x02\x01b\x02c", {}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"k\x01\xff\x02", {"k": {"base64": "/w=="}}),
        (b"\xff\x01v", {"base64:/w==": "v"}),
        ('q"\\\n\x01中\t"'.encode(), {'q"\\\n': '中\t"'}),
    ],
)
def test_odd_properties(properties: bytes, shown: dict[str, Any]) -> None:
    assert row_of(record(properties=properties))["properties"] == shown


def test_properties_as_old_brokers_read_them() -> None:
    fields = record(properties=b"a\x01b\x01c\x02\x01v\x02KEYS\x01k\x02")
    assert row_of(fields, RowOptions(release=Release(4, 9, 0)))["properties"] == {"": "v", "KEYS": "k"}
    assert row_of(fields, RowOptions(release=Release(4, 9, 1)))["properties"] == {"a": "b\x01c", "KEYS": "k"}


def test_keys_are_split_at_single_spaces_and_empty_parts_dropped() -> None:
    assert row_of(record(properties=b"KEYS\x01 a  b a \x02"))["keys"] == ["a", "b", "a"]
    assert row_of(record(properties=b"KEYS\x01 \x02"))["keys"] == []


def test_topic_that_is_not_text() -> None:
    assert row_of(record(topic=b"\xff\0"))["topic"] == {"base64": "/wA="}


@pytest.mark.parametrize(("bits", "name"), [(0, "none"), (4, "prepared"), (8, "commit"), (12, "rollback")])
def test_transaction(bits: int, name: str) -> None:
    assert row_of(record(sys_flag=bits))["transaction"] == name


def test_wrong_crc_and_the_crc_of_an_empty_body() -> None:
    assert row_of(record(body_crc=1))["body_crc_ok"] is False
    assert row_of(record(body=b"", body_crc=1))["body_crc_ok"] is True


def test_body_decompressed_beside_the_stored_one() -> None:
    body = "grün\n".encode() * 40
    fields = record(body=zlib.compress(body), sys_flag=int(SysFlag.COMPRESSED) | 3 << 8)
    row = row_of(fields, RowOptions(body=True, raw_body=True))
    assert (row["compression"], row["body_size"]) == ("zlib", len(fields["body"]))
    assert (row["body_size_decompressed"], row["body"]) == (len(body), body.decode())
    assert row["raw_body"] == {"base64": row["raw_body"]["base64"]}
    assert list(row) == [*ROW_KEYS, "body_size_decompressed", "body", "raw_body"]


def test_body_that_is_no_compressed_data() -> None:
    row = row_of(record(sys_flag=1), RowOptions(body=True))
    assert row["body"] is None and row["body_size_decompressed"] is None
    assert row["body_error"].startswith("is no zlib data")


def test_body_limit_keeps_whole_characters() -> None:
    row = row_of(record(body="aé".encode()), RowOptions(body=True, body_limit=2))
    assert (row["body"], row["body_truncated"]) == ("a", True)
    assert "body_truncated" not in row_of(record(), RowOptions(body=True, body_limit=5))


def test_redaction_leaves_topics_and_offsets() -> None:
    plain, row = row_of(record(), RowOptions(body=True)), row_of(record(), RowOptions(body=True, redact=True))
    digest = {text: "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:12] for text in ("order1", "TagA", "hello")}
    assert row["properties"] == {"KEYS": digest["order1"], "TAGS": digest["TagA"]}
    assert (row["keys"], row["tags"], row["body"]) == ([digest["order1"]], digest["TagA"], digest["hello"])
    same = set(ROW_KEYS) - {"keys", "tags", "properties"}
    assert {k: row[k] for k in same} == {k: plain[k] for k in same}


def test_inner_batch_opens_up() -> None:
    body = item(b"one", b"KEYS\x01k1\x02", 7) + item(b"two", b"TAGS\x01t")
    row = row_of(record(body=body, sys_flag=0xC0, queue_offset=10), RowOptions(body=True))
    assert [(i["queue_offset"], i["flag"], i["keys"], i["tags"], i["body"]) for i in row["inner"]] == [
        (10, 7, ["k1"], None, "one"),
        (11, 0, [], "t", "two"),
    ]
    assert "body" not in row_of(record(body=body, sys_flag=0xC0))["inner"][0]


def test_inner_batch_cut_short_shows_what_is_left() -> None:
    body = item(b"one", b"") + item(b"two", b"")[:-3]
    row = row_of(record(body=body, sys_flag=0xC0))
    assert len(row["inner"]) == 1 and "byte 45 of the body" in row["inner_error"]
