"""Rules at their very edge: equal is not more, zero is a value, and nothing is empty by mistake."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from formats.rocketmq.index import INT_MIN, key_hash
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from formats.text import java_hash
from rmqctl.files.local import BytesSource
from rmqctl.findings import Finding
from rmqctl.rocketmq.dispatch.keys import delayed, index_hashes
from rmqctl.rocketmq.log.columns import TextIds
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.queues.files import queues_of
from rmqctl.rocketmq.queues.ranges import last_record, last_unit, log_end
from rmqctl.rocketmq.store.files import QUEUES
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.log import LogChecker
from tests.rocketmq.verify.compression_helpers import record

MASK = 0x7FFFFFFF
BODY_AT = 88


def check(data: bytes, max_message: int = 4 << 20) -> list[Finding]:
    (block,) = scan(BytesSource(data), Extent("log", 0))
    assert len(block) == 1
    return LogChecker(max_message=max_message).block(LogBlock(block))


def with_properties(properties: bytes, body: bytes) -> bytearray:
    raw = record(body, 0)
    size = len(raw) + len(properties)
    return bytearray(size.to_bytes(4, "big") + raw[4:-2] + len(properties).to_bytes(2, "big") + properties)


def zero_crc() -> bytearray:
    """A record whose own CRC is zero: CRCs are linear, so a body is solved for bit by bit."""
    data = with_properties(b"__CRC32#\x010000000000\x02", bytes(16))
    plain = zlib.crc32(data[:-20]) & MASK
    basis: dict[int, tuple[int, int]] = {}
    for bit in range(128):
        body = (1 << bit).to_bytes(16, "big")
        trial = data[:BODY_AT] + body + data[BODY_AT + 16 :]
        value, chosen = (zlib.crc32(trial[:-20]) & MASK) ^ plain, 1 << bit
        while value and value.bit_length() in basis:
            other, bits = basis[value.bit_length()]
            value, chosen = value ^ other, chosen ^ bits
        if value:
            basis[value.bit_length()] = value, chosen
    wanted, body_bits = plain, 0
    while wanted:
        value, chosen = basis[wanted.bit_length()]
        wanted, body_bits = wanted ^ value, body_bits ^ chosen
    body = body_bits.to_bytes(16, "big")
    data[BODY_AT : BODY_AT + 16] = body
    return data


def test_a_property_crc_of_zero_that_is_right() -> None:
    data = zero_crc()
    assert zlib.crc32(data[:-20]) & MASK == 0
    found = [f for f in check(bytes(data)) if f.kind.id != "log.body-crc"]
    assert [(f.kind.id, f.level, f.offset, f.size) for f in found] == [("log.crc-zero", "note", len(data) - 20, 20)]


@pytest.mark.parametrize("digits", [b"1000000000", b"0000000001", b"000000000x"])
def test_a_property_crc_that_is_not(digits: bytes) -> None:
    data = zero_crc()
    data[-11:-1] = digits
    assert [f.kind.id for f in check(bytes(data)) if f.kind.id != "log.body-crc"] == ["log.property-crc"]
    wrong = bytes(with_properties(b"__CRC32#\x010000000000\x02", b"another body"))
    assert zlib.crc32(wrong[:-20]) & MASK
    assert [f.kind.id for f in check(wrong)] == ["log.property-crc"]


def test_the_crc_of_an_empty_body_is_not_looked_at() -> None:
    for body, expected in ((b"", []), (b"b", ["log.body-crc"])):
        data = bytearray(record(body, 0))
        data[8:12] = (123).to_bytes(4, "big")
        assert [f.kind.id for f in check(bytes(data))] == expected


def test_the_largest_message() -> None:
    """The limit itself is allowed."""
    assert check(record(bytes(1000), 0), 1000) == []
    assert [f.kind.id for f in check(record(bytes(1001), 0), 1000)] == ["log.size"]


def test_the_hash_without_a_positive_value() -> None:
    text = "TopicTest#tbaekxa"
    assert java_hash(text) == INT_MIN
    assert key_hash(text) == 0
    hashes = np.array([INT_MIN & 0xFFFFFFFF, 0xFFFFFFFF, 1, 0, MASK, (INT_MIN + 1) & 0xFFFFFFFF], np.uint32)
    assert index_hashes(hashes).tolist() == [0, 1, 1, 0, MASK, MASK]


def test_an_index_whose_records_were_stored_at_once(tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    """Begin and end of the file are one time: that is in order."""
    words = "--topic", "T", "--count", 1, "--small", "--as-release", "4.9.8", "--body", "b", "--key", "k"
    assert rmqctl("produce", tmp_path / "store", *words).exit_code == 0
    assert "index.header" not in rmqctl("verify", tmp_path / "store", "-o", "jsonl").stdout


@pytest.mark.parametrize(("text", "level"), [(b"0", None), (b"1", 1), (b"18", 18), (b"-1", None), (b"x", None)])
def test_which_delay_levels_count(text: bytes, level: int | None) -> None:
    """Level 0 is no delay: the tags code of such a unit is the hash of its tags."""
    data = bytes(with_properties(b"DELAY\x01" + text + b"\x02", b"body"))
    (block,) = scan(BytesSource(data), Extent("log", 0))
    found = LogBlock(block)
    ids = TextIds()
    topics = found.topics(ids)
    names = [SCHEDULE_TOPIC.encode() for _ in ids.texts]
    assert delayed(found.pairs, topics, names) == ({} if level is None else {0: level})


@pytest.mark.parametrize("name", ["4.5.2-crash", "4.9.8-clean", "5.5.0-crash"])
def test_the_last_record_and_the_last_unit_before_files_made_ahead(name: str, tmp_path: Path) -> None:
    """A broker makes the next file before it needs it; the log and each queue end in the one before."""
    root = golden.unpack(name, tmp_path)
    last = [true for true in golden.truth(name) if true["kind"] == "msg"][-1]
    store = open_store_at(str(root))
    assert log_end(store).offset == last["commitLogOffset"] + last["storeSize"]
    raw = last_record(store)
    assert raw is not None and len(raw) == last["storeSize"]
    before = {queue.key: last_unit(queue).tolist() for queue in queues_of(store.queues(QUEUES))}  # type: ignore[union-attr]
    assert len(before) > 5
    for queue in queues_of(store.queues(QUEUES)):
        newest = root / queue.files[-1].name
        newest.with_name(f"{int(newest.name) + newest.stat().st_size:020d}").write_bytes(bytes(newest.stat().st_size))
    after = {queue.key: last_unit(queue) for queue in queues_of(open_store_at(str(root)).queues(QUEUES))}
    assert {key: None if unit is None else unit.tolist() for key, unit in after.items()} == before


@pytest.mark.parametrize(("at", "host"), [(52, "born"), (68, "store")])
@pytest.mark.parametrize(("port", "is_wrong"), [(0, False), (0xFFFF, False), (0x10000, True), (-1, True)])
def test_ports(at: int, host: str, port: int, is_wrong: bool) -> None:
    """Java makes no address of another, and its client drops the record and all that follow it in an answer."""
    data = bytearray(record(b"body", 0))
    data[at : at + 4] = port.to_bytes(4, "big", signed=True)
    found = [(f.kind.id, f.offset, f.size, f.level, f.message) for f in check(bytes(data))]
    assert found == ([("log.port", at, 4, "error", f"the {host} host has port {port}")] if is_wrong else [])


@given(st.lists(st.integers(1, 6), max_size=6), st.integers(0, 30), st.integers(1, 9))
def test_damaged_stretches_one_by_one_and_together(steps: list[int], begin: int, size: int) -> None:
    """Ranges with gaps between them, and a stretch that may touch, overlap or miss them."""
    edges = np.cumsum(steps).tolist()
    ranges = tuple(zip(edges[0::2], edges[1::2], strict=False))
    context = replace(LogContext.of(open_store_at(str(golden.pristine("5.5.0-clean")))), damaged=ranges)
    expected = any(low < begin + size and begin < high for low, high in ranges)
    assert context.is_damaged(begin, begin + size) is expected
    assert context.are_damaged(np.array([begin]), np.array([begin + size])).tolist() == [expected]
