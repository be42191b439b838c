"""Single rules of a replayed start, each on the bytes that decide it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from formats.rocketmq.message import decode_record, encode_record
from rmqctl.files.local import BytesSource
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.recovery.log_replay import _single, _store_time, good_records, has_numbers, is_number
from rmqctl.rocketmq.recovery.rules import RecoveryRules
from rmqctl.rocketmq.store.files import StoreFile
from tests.rocketmq.scan_helpers import log
from tests.strategies import records

OLD, MIDDLE, NEW = (RecoveryRules.of(Release(*numbers)) for numbers in ((4, 4, 0), (4, 9, 8), (5, 5, 0)))
FILE = StoreFile("log", 0, 1 << 20, LocalTree("/"), "log")


@given(records())
def test_a_record_alone_has_the_columns_that_the_scan_gives_it(record: bytes) -> None:
    single = _single(record, FILE, 0, NEW)
    (block,) = (b for b in scan(BytesSource(record), Extent("log", 0)) if len(b))
    for name in ("at", "variant", "total_size", "body_size", "topic_size", "properties_size"):
        assert getattr(single, name).tolist() == getattr(block, name).tolist(), name
    assert _store_time(record[:96], NEW) == decode_record(record)[0]["store_timestamp"]


def test_a_length_below_zero_counts_as_none() -> None:
    fields = dict(decode_record(log())[0]) | {"body": b"", "total_size": 0}
    record = encode_record(fields | {"total_size": len(encode_record(fields))})
    below = record[:84] + (-7).to_bytes(4, "big", signed=True) + record[88:]
    found, sound = _single(below, FILE, 5, NEW), _single(record, FILE, 5, NEW)
    for name in ("body_size", "topic_size", "properties_size", "start"):
        assert np.array_equal(getattr(found, name), getattr(sound, name)), name


def test_releases_that_know_no_ipv6_read_the_time_where_it_used_to_be() -> None:
    fields = dict(decode_record(log())[0])
    fields |= {"sys_flag": 0x10, "born_ip": bytes(16), "total_size": 0}
    record = encode_record(fields | {"total_size": len(encode_record(fields))})
    assert _store_time(record[:96], MIDDLE) == fields["store_timestamp"]
    assert _store_time(record[:96], OLD) == int.from_bytes(record[56:64], "big")


@pytest.mark.parametrize(
    ("text", "bits", "is_one"),
    [
        (b"32767", 15, True), (b"32768", 15, False), (b"-32768", 15, True), (b"-32769", 15, False), (b"+1", 15, True),
        (b"", 15, False), (b"-", 15, False), (b"1 ", 15, False), (b"0" * 40 + b"1", 15, True),
        (b"9223372036854775807", 63, True), (b"9223372036854775808", 63, False),
    ],
)  # fmt: skip
def test_numbers_as_java_reads_them(text: bytes, bits: int, is_one: bool) -> None:
    assert is_number(text, bits) is is_one


@pytest.mark.parametrize(
    ("text", "topic", "old", "new"),
    [
        (b"DELAY\1x\2", b"SCHEDULE_TOPIC_XXXX", False, False), (b"DELAY\1x\2", b"T", True, True),
        (b"DELAY\0013\2", b"SCHEDULE_TOPIC_XXXX", True, True),
        (b"INNER_BASE\1x\2INNER_NUM\0012\2", b"T", True, False), (b"INNER_BASE\0010\2INNER_NUM\001x\2", b"T", True, False),
        (b"INNER_BASE\001x\2", b"T", True, True), (b"INNER_NUM\001x\2", b"T", True, True),
        (b"INNER_BASE\00140000\2INNER_NUM\0012\2", b"T", True, True), (b"INNER_BASE\0010\2INNER_NUM\00140000\2", b"T", True, False),
    ],
)  # fmt: skip
def test_properties_that_must_be_numbers(text: bytes, topic: bytes, old: bool, new: bool) -> None:
    assert (has_numbers(text, topic, MIDDLE), has_numbers(text, topic, NEW)) == (old, new)


def test_bodies_are_checked_where_the_broker_checks_them() -> None:
    data = bytearray(log()[:3000])
    first, second = (int(at) for at in next(scan(BytesSource(bytes(data)), Extent("log", 131072))).at[:2])
    data[second + 90] ^= 1
    block = next(b for b in scan(BytesSource(bytes(data)), Extent("log", 131072)) if len(b))
    assert first == 0
    assert good_records(block, NEW, body=True).tolist()[:3] == [True, False, True]
    assert good_records(block, NEW, body=False).all()
