"""Small text files: epoch file, broker identity, abort, lock."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import DecodeError
from formats.rocketmq.abort_lock import LOCK_TEXT, AbortFile, LockFile, abort_pid
from formats.rocketmq.epoch import (
    BrokerIdentity,
    BrokerIdentityTemp,
    EpochEntry,
    EpochFile,
    format_epochs,
    parse_epochs,
    parse_identity,
)
from tests.strategies import i64

ENTRIES = [EpochEntry(1, 0), EpochEntry(2, 4096)]


def test_epoch_file_by_hand() -> None:
    crc = zlib.crc32(b"1-0\n2-4096\n") & 0x7FFFFFFF
    assert format_epochs(ENTRIES) == f"2\n{crc}\n1-0\n2-4096\n".encode()
    assert parse_epochs(b"2\n0\n1-0\n2-4096") == ENTRIES  # CRC 0 is not checked, the last line end may be missing
    assert parse_epochs(b"1\r\n0\r\n7-12\r\n") == [EpochEntry(7, 12)]


@given(st.lists(st.builds(EpochEntry, i64.map(abs).filter(lambda n: n < 1 << 63), i64), max_size=6))
def test_epoch_files_round_trip(entries: list[EpochEntry]) -> None:
    data = format_epochs(entries)
    assert parse_epochs(data) == entries
    assert EpochFile.build(EpochFile.parse(data)) == data


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0),
        (b"2\n", 0),
        ("²\n0\n".encode(), 0),
        (b"9" * 5000 + b"\n0\n", 0),
        (format_epochs(ENTRIES).replace(b"4096", b"4097"), 2),
        (b"2\n0\n1-0\n2:5\n", 8),
        (b"2\n0\n1-0\nx-5\n", 8),
        (b"3\n0\n1-0\n", 0),
    ],
)
def test_damaged_epoch_files_say_where(data: bytes, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_epochs(data)
    assert caught.value.offset == offset


@given(st.binary(max_size=60) | st.text("0123456789-\n\r ", max_size=40).map(str.encode))
def test_no_epoch_file_raises_anything_else(data: bytes) -> None:
    with suppress(DecodeError):
        assert parse_epochs(data) is not None


def test_identity() -> None:
    assert parse_identity("c#b#0") == {"cluster": "c", "broker_name": "b", "broker_id": "0"}
    assert parse_identity("c#b#0#code")["register_check_code"] == "code"
    assert BrokerIdentity.parse(b"c#b#0").broker_id == b"0"
    assert BrokerIdentityTemp.build(BrokerIdentityTemp.parse(b"c#b#0#code")) == b"c#b#0#code"


def test_abort_and_lock() -> None:
    assert abort_pid(b"4711") == 4711
    assert [abort_pid(data) for data in (b"", b"x1", "²".encode(), b"7" * 5000)] == [None] * 4
    assert AbortFile.build(AbortFile.parse(b"4711")) == b"4711"
    assert LockFile.build({}) == LOCK_TEXT == b"lock"
