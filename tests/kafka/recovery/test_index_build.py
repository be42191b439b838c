"""Entries of both indexes, made by columns, are those that one batch after the other gives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.kafka.loading.index_build import IndexBuilder, OffsetNotIncreasing

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
