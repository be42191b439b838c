"""Damage costs at most the record it is in, and nothing that bytes can be makes the scan fail or never end."""

from __future__ import annotations

import struct
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import golden
from rmqctl.files.source import BytesSource
from rmqctl.rocketmq.scan import Extent, scan

BASE = 131072  # of the small log: not 0, so that a field read as zero cannot pass for an offset by chance
Found = list[tuple[int, int]]


@cache
def small_log(release: str = "5.1.4") -> tuple[bytes, tuple[tuple[int, int], ...], int]:
    """A log file of eight real records, moved to offset ``BASE``, with a blank: bytes, (start, end) of each, the blank's start."""
    content = (golden.pristine(f"{release}-clean") / "commitlog" / "00000000000000000000").read_bytes()
    chosen = [r for r in golden.truth(f"{release}-clean")[:60] if r["kind"] == "msg" and r["storeSize"] < 345][:8]
    log, places = bytearray(), []
    for record in chosen:
        start = len(log)
        log += content[record["pos"] : record["pos"] + record["storeSize"]]
        struct.pack_into(">q", log, start + 28, BASE + start)
        places.append((start, len(log)))
    blank = len(log)
    log += struct.pack(">II", 60, 0xCBD43194) + bytes(52)
    return bytes(log), tuple(places), blank


def found_in(content: bytes, window: int = 1 << 16) -> Found:
    """Start and end of every record that a scan of the file yields."""
    blocks = scan(BytesSource(content), Extent("log", BASE), window)
    return [(int(at), int(at + size)) for block in blocks for at, size in zip(block.position, block.total_size, strict=True)]


def without(places: tuple[tuple[int, int], ...], position: int) -> Found:
    return [(start, end) for start, end in places if not start <= position < end]


def test_the_small_log_is_read_whole() -> None:
    content, places, _ = small_log()
    assert len(places) == 8
    assert found_in(content) == list(places)


@pytest.mark.parametrize("bits", [0xFF, 0x01, 0x80])
def test_one_flipped_byte_costs_at_most_its_record(bits: int) -> None:
    content, places, _ = small_log()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= bits
        found = found_in(bytes(damaged))
        assert set(without(places, position)) <= set(found), position
        assert set(found) <= set(places), position


@pytest.mark.parametrize("word", [0, -1, 2**31 - 1, -(2**31), 1, 91])
def test_one_overwritten_word_costs_at_most_the_records_it_touches(word: int) -> None:
    content, places, _ = small_log()
    for position in range(0, len(content) - 4, 3):
        damaged = bytearray(content)
        struct.pack_into(">i", damaged, position, word)
        kept = [place for place in without(places, position) if place in without(places, position + 3)]
        assert set(kept) <= set(found_in(bytes(damaged))), position


def test_a_damaged_record_is_reported_where_it_is() -> None:
    """Whatever hides a record leaves a gap that begins in it and ends where reading goes on."""
    content, places, blank = small_log()
    for position in range(blank):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        blocks = list(scan(BytesSource(bytes(damaged)), Extent("log", BASE)))
        found = {int(at) for block in blocks for at in block.position}
        gaps = {(gap.position, gap.end) for block in blocks for gap in block.gaps}
        assert gaps == {(start, end) for start, end in places if start not in found}, position


def test_a_cut_file_keeps_every_whole_record() -> None:
    content, places, _ = small_log()
    for length in range(len(content)):
        assert found_in(content[:length]) == [(start, end) for start, end in places if end <= length], length


def test_any_window_gives_the_same() -> None:
    content, places, _ = small_log()
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
    content, _, _ = small_log()
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
    assert all(one[1] <= two[0] for one, two in zip(spans, spans[1:], strict=False))
