"""Reading at a rate, by a clock of the test's own, and without a trace in the page cache."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.files import pace
from rmqctl.files.local import LocalFile, data_extents
from rmqctl.files.pace import Pace, paced
from rmqctl.files.tree import LocalTree

PAGE = mmap.PAGESIZE
PIECE = 256 << 10


class Clock:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("rate", [1 << 10, 1 << 20, 50 << 20])
def test_the_rate_is_held_from_any_moment_to_any_other(tmp_path: Path, rate: int) -> None:
    size, clock = 5_000_000, Clock()
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * (size // 256))
    began, held = clock.now, Pace(rate, clock, clock.sleep)
    seen = []
    with paced(held):
        for at in range(0, size, 300_000):
            LocalFile(file).read_at(at, 300_000)
            seen.append((clock.now, held.read))
    assert held.read == file.stat().st_size
    assert all(read <= (now - began) * rate + PIECE for now, read in seen)
    assert (clock.now - began) * rate == pytest.approx(held.read - PIECE, rel=0.001)


def test_a_new_rate_counts_at_once(tmp_path: Path) -> None:
    file, clock = tmp_path / "file", Clock()
    file.write_bytes(bytes(10 * PIECE))
    held = Pace(1, clock, clock.sleep)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now > 1010:
            held.rate = 0

    held._sleep = sleep
    with paced(held):
        assert len(LocalFile(file).read_at(0, 10 * PIECE)) == 10 * PIECE
    assert clock.now < 1011


def test_all_ways_of_reading_go_through_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 10_000)
    held, buffer = Pace(), bytearray(3000)
    with paced(held):
        assert LocalFile(file).read_at(9_000, 5_000) == b"x" * 1000
        assert LocalFile(file).read_into(0, memoryview(buffer)) == 3000
        assert LocalTree(tmp_path).read_head("file", 500) == b"x" * 500
        descriptor = os.open(file, os.O_RDONLY)
        assert list(data_extents(descriptor, 0, 10_000)) == [(0, 10_000)]
        os.close(descriptor)
    assert held.read == 1000 + 3000 + 500 + 10_000
    LocalFile(file).read_at(0, 100)
    assert held.read == 14_500


@given(st.integers(0, 700_000), st.integers(0, 700_000), st.integers(0, 700_000))
def test_it_reads_the_same_bytes(size: int, offset: int, count: int) -> None:
    data = os.urandom(16) * (size // 16)
    file = Path("/proc/self/fd", str(os.memfd_create("test")))
    try:
        file.write_bytes(data)
        with paced(Pace()):
            assert LocalFile(file).read_at(offset, count) == data[offset : offset + count]
    finally:
        os.close(int(file.name))


def absent(file: Path) -> set[int]:
    """Numbers of the pages that are not in the page cache."""
    with file.open("rb") as opened:
        found = pace._absent(opened.fileno(), 0, file.stat().st_size)
    return {page for begin, end in found for page in range(begin // PAGE, end // PAGE)}


def test_the_page_cache_is_left_as_it_was(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    for one in (file, other):
        one.write_bytes(os.urandom(4 << 20))
        with one.open("r+b") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if len(absent(file)) != (4 << 20) // PAGE:
        pytest.skip("this file system keeps what was written, or does not say what it keeps")
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(opened.fileno(), 1 << 20, 1 << 20)  # somebody reads the second of four
    before = absent(file)
    assert before and min(before) == 0 and len(before) < (4 << 20) // PAGE
    with paced(Pace()):
        LocalFile(file).read_at(0, 4 << 20)
        LocalFile(file).read_at(12345, 300_000)
    assert absent(file) == before
    LocalFile(other).read_at(0, 4 << 20)
    assert absent(other) == set(), "without it all of a file that was read stays"
