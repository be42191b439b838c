"""Entries of both indexes, made by columns, are those that one batch after the other gives."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.loading.index_build import IndexBuilder, OffsetNotIncreasing
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release

Batch = tuple[int, int, int]


def one_by_one(batches: list[Batch], interval: int) -> tuple[list[int], list[int], list[tuple[int, int]], bool]:
    """``LogSegment.recover``: bytes since the last entry, the largest timestamp so far and the offset that has it."""
    offsets, positions, times = list[int](), list[int](), list[tuple[int, int]]()
    indexed, largest = 0, (-1, -1)

    def time_entry() -> bool:
        if times and largest[1] < times[-1][1]:
            return False
        if largest[0] > (times[-1][0] if times else -1):
            times.append(largest)
        return True

    for position, last, time in batches:
        if time > largest[0]:
            largest = time, last
        if position - indexed > interval:
            if offsets and last <= offsets[-1]:
                return offsets, positions, times, False
            offsets.append(last)
            positions.append(position)
            if not time_entry():
                return offsets, positions, times, False
            indexed = position
    return offsets, positions, times, time_entry()


def overfull(batches: list[Batch], interval: int, room: int) -> bool:
    """``OffsetIndex.append`` and ``TimeIndex.maybeAppend`` of a full index: nothing catches what they throw."""
    offsets, times, indexed, largest = 0, list[int](), 0, -1
    for position, _, time in batches:
        largest = max(largest, time)
        if position - indexed > interval:
            if offsets >= room // 8 or len(times) >= room // 12 - 1:
                return True
            offsets += 1
            if largest > (times[-1] if times else -1):
                times.append(largest)
            indexed = position
    return False


moments = st.integers(-2, 12) | st.sampled_from([-(1 << 63), (1 << 63) - 2, (1 << 63) - 1])
steps = st.tuples(st.sampled_from([61, 200, 5000]), st.integers(-1, 6), moments)


@settings(max_examples=400, deadline=None)
@given(st.lists(steps, max_size=40), st.lists(st.integers(0, 40), max_size=4), st.sampled_from([0, 100, 4096]))
def test_columns_give_what_batches_give_one_by_one(moves: list[Batch], cuts: list[int], interval: int) -> None:
    batches, position, last = list[Batch](), 0, -1
    for size, offsets, time in moves:
        last += offsets + 1
        batches.append((position, last, time))
        position += size
    expected = one_by_one(batches, interval)
    builder, fits = IndexBuilder(0, interval), True
    edges = sorted({0, len(batches), *(c for c in cuts if c < len(batches))})
    try:
        for start, stop in pairwise(edges):
            columns = np.array(batches[start:stop], np.int64).reshape(-1, 3).T
            builder._add(*columns)
        builder.finish()
    except OffsetNotIncreasing:
        fits = False
    assert (builder.offsets, builder.positions, builder.times, fits) == expected


@settings(max_examples=300, deadline=None)
@given(
    st.lists(steps, max_size=40), st.lists(st.integers(0, 40), max_size=4),
    st.sampled_from([0, 100, 4096]), st.sampled_from([4, 40, 120, 240, 65536]),
)  # fmt: skip
def test_an_index_without_room_is_seen(moves: list[Batch], cuts: list[int], interval: int, room: int) -> None:
    batches, position = list[Batch](), 0
    for number, (size, _, time) in enumerate(moves):
        batches.append((position, number, time))
        position += size
    builder = IndexBuilder(0, interval)
    edges = sorted({0, len(batches), *(c for c in cuts if c < len(batches))})
    try:
        for start, stop in pairwise(edges):
            builder._add(*np.array(batches[start:stop], np.int64).reshape(-1, 3).T)
    except OffsetNotIncreasing:  # of the time index: the segment is given up there
        return
    assert bool(builder.overfull(room)) == overfull(batches, interval, room)


def test_a_killed_broker_does_not_start_where_an_index_gets_too_small(tmp_path: Path) -> None:
    """4.4.0, killed after two restarts, topic with ``segment.index.bytes=120``.

    It counts bytes to the next entry from 0 again at each start, so what it makes again has more entries than what it
    wrote, and it ends: "Attempt to append to a full time index (size = 9)". The directory is as that broker left it.
    """
    root = golden.extract(Path(golden.__file__).parent / "rare" / "4.4.0-full-index.tar.xz", tmp_path)
    replicas = Replicas(LogDirectories([read_directory(LocalTree(str(root)))]))
    found = recover(replicas, Release(4, 4, 0))
    assert not found.starts
    assert found.error is not None
    assert found.error.startswith("txn-b-0: ")
    assert "timeindex would have to take more entries than fit into the 120 bytes" in found.error
