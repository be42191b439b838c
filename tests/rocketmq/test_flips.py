"""Damage costs at most the record it is in, and nothing that bytes can be makes the scan fail or never end."""

from __future__ import annotations

import struct
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import golden
from formats.rocketmq.message import Magic, SysFlag, decode_record, encode_record
from rmqctl.files.local import BytesSource
from rmqctl.rocketmq.log.scan import Extent, scan

BASE = 131072  # of the small log: not 0, so that a field read as zero cannot pass for an offset by chance
Found = list[tuple[int, int]]


KINDS = ("real", "built")
Places = tuple[tuple[int, int], ...]


@cache
def small_log(kind: str) -> tuple[bytes, Places, int]:
    """A log file of eight records at offset ``BASE`` with a blank: bytes, (start, end) of each record, the blank's start."""
    log, places = bytearray(), []
    for record in real_records() if kind == "real" else built_records():
        start = len(log)
        log += record
        struct.pack_into(">q", log, start + 28, BASE + start)
        places.append((start, len(log)))
    blank = len(log)
    log += struct.pack(">II", 60, int(Magic.BLANK) & 0xFFFFFFFF) + bytes(52)
    return bytes(log), tuple(places), blank


def real_records() -> list[bytes]:
    """The first eight short records a broker wrote."""
    content = (golden.pristine("5.1.4-clean") / "commitlog" / "00000000000000000000").read_bytes()
    short = [r for r in golden.truth("5.1.4-clean")[:60] if r["kind"] == "msg" and r["storeSize"] < 345]
    return [content[r["pos"] : r["pos"] + r["storeSize"]] for r in short[:8]]


def built_records() -> list[bytes]:
    """One record of each layout: V1 and V2, each host IPv4 and IPv6."""
    fields, _ = decode_record(real_records()[0])
    hosts = (SysFlag(0), SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
    return [built_record(fields, magic, flag) for magic in (Magic.MESSAGE_V1, Magic.MESSAGE_V2) for flag in hosts]


def built_record(fields: dict[str, Any], magic: Magic, flag: SysFlag) -> bytes:
    """The record of ``fields`` with another layout."""
    v6 = bytes(range(16))
    record = {
        **fields,
        "magic": int(magic),
        "sys_flag": int(flag),
        "born_ip": v6 if flag & SysFlag.BORN_HOST_V6 else v6[:4],
        "store_ip": v6 if flag & SysFlag.STORE_HOST_V6 else v6[:4],
        "topic": b"%RETRY%" + b"g" * (140 if magic is Magic.MESSAGE_V2 else 20),
    }
    record["total_size"] = len(encode_record({**record, "total_size": 0}))
    return encode_record(record)


def found_in(content: bytes, window: int = 1 << 16) -> Found:
    """Start and end of every record that a scan of the file yields."""
    blocks = scan(BytesSource(content), Extent("log", BASE), window)
    return [
        (int(at), int(at + size)) for block in blocks for at, size in zip(block.position, block.total_size, strict=True)
    ]


def without(places: Places, position: int) -> Found:
    return [(start, end) for start, end in places if not start <= position < end]


@pytest.mark.parametrize("kind", KINDS)
def test_the_small_log_is_read_whole(kind: str) -> None:
    content, places, _ = small_log(kind)
    assert len(places) == 8
    assert found_in(content) == list(places)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [0xFF, 0x01, 0x0C, 0x10, 0x20, 0x80])
def test_one_flipped_byte_costs_at_most_its_record(kind: str, bits: int) -> None:
    content, places, _ = small_log(kind)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= bits
        found = found_in(bytes(damaged))
        assert set(without(places, position)) <= set(found), position
        assert set(found) <= set(places), position


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("word", [0, -1, 2**31 - 1, -(2**31), 1, 91])
def test_one_overwritten_word_costs_at_most_the_records_it_touches(kind: str, word: int) -> None:
    content, places, _ = small_log(kind)
    for position in range(0, len(content) - 4, 3):
        damaged = bytearray(content)
        struct.pack_into(">i", damaged, position, word)
        kept = [place for place in without(places, position) if place in without(places, position + 3)]
        assert set(kept) <= set(found_in(bytes(damaged))), position


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_record_is_reported_where_it_is(kind: str) -> None:
    """Whatever hides a record leaves a gap that begins in it and ends where reading goes on."""
    content, places, blank = small_log(kind)
    for position in range(blank):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        blocks = list(scan(BytesSource(bytes(damaged)), Extent("log", BASE)))
        found = {int(at) for block in blocks for at in block.position}
        gaps = {(gap.position, gap.end) for block in blocks for gap in block.gaps}
        assert gaps == {(start, end) for start, end in places if start not in found}, position


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_file_keeps_every_whole_record(kind: str) -> None:
    content, places, _ = small_log(kind)
    for length in range(len(content)):
        assert found_in(content[:length]) == [(start, end) for start, end in places if end <= length], length


@pytest.mark.parametrize("kind", KINDS)
def test_any_window_gives_the_same(kind: str) -> None:
    content, places, _ = small_log(kind)
    damaged = bytearray(content)
    damaged[places[2][0] + 5] ^= 0xFF
    damaged[places[5][0] + 1] ^= 0xFF
    whole = found_in(bytes(damaged))
    assert len(whole) == 6
    for window in range(80, 700, 7):
        assert found_in(bytes(damaged), window) == whole


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=4000), st.integers(80, 5000))
def test_random_bytes_come_to_an_end(content: bytes, window: int) -> None:
    assert_orderly(content, window)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_pieces_of_a_log_in_any_order_come_to_an_end(data: st.DataObject) -> None:
    """Real records and blanks, cut anywhere and put together again with noise between them."""
    content, _, _ = small_log(data.draw(st.sampled_from(KINDS)))
    cut = st.integers(0, len(content))
    piece = st.tuples(cut, cut).map(lambda ends: content[min(ends) : max(ends)])
    pieces = data.draw(st.lists(piece | st.binary(max_size=60) | st.just(bytes(200)), max_size=8))
    assert_orderly(b"".join(pieces), data.draw(st.integers(80, 3000)))


def assert_orderly(content: bytes, window: int) -> None:
    """Records, gaps and blanks lie in the file, do not overlap, and records are what they say."""
    spans: list[tuple[int, int]] = []
    for block in scan(BytesSource(content), Extent("log", BASE), window):
        for at, size in zip(block.position, block.total_size, strict=True):
            assert content[at : at + 4] == struct.pack(">i", size)
            spans.append((int(at), int(at + size)))
        spans += [(gap.position, gap.end) for gap in block.gaps]
    spans.sort()
    assert all(0 <= start <= end <= len(content) for start, end in spans)
    assert all(one[1] <= two[0] for one, two in pairwise(spans))
