"""Columns that are kept small say what was put in."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.kafka.repair import columns as module
from rmqctl.kafka.repair.columns import Columns

NUMBERS = st.one_of(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=40),
    st.lists(st.integers(-3, 300), max_size=40),
    st.tuples(st.integers(-(1 << 62), 1 << 62), st.integers(-9, 9), st.integers(0, 40)).map(
        lambda run: [run[0] + run[1] * n for n in range(run[2])]
    ),
    st.lists(st.sampled_from([-(1 << 63), (1 << 63) - 1]), max_size=9),
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 7)


def packed(*parts: list[int]) -> Columns:
    made = ({"a": np.array(part, np.int64), "b": np.arange(len(part))} for part in parts)
    return Columns(chunk for part in made for chunk in Columns.packed(part))


@given(parts=st.lists(NUMBERS, max_size=4), data=st.data())
def test_rows_are_those_that_were_put_in(parts: list[list[int]], data: Any) -> None:
    found, numbers = packed(*parts), [number for part in parts for number in part]
    rows = data.draw(st.lists(st.integers(0, len(numbers) - 1), unique=True) if numbers else st.just([]))
    assert (len(found), found["a"].tolist()) == (len(numbers), numbers)
    assert [found.value("a", row) for row in rows] == [numbers[row] for row in rows]
    assert list(found.rows(("a",), np.array(sorted(rows), np.int64))) == [(numbers[row],) for row in sorted(rows)]
    assert found.take(np.array(rows, np.int64))["a"].tolist() == [numbers[row] for row in rows]
    keep = np.isin(np.arange(len(numbers)), rows)
    kept = Columns(
        part for at, chunk in zip(found.starts, found.chunks, strict=False)
        for part in chunk.kept(keep[at : at + chunk.length], c=5)
    )  # fmt: skip
    assert (kept["a"].tolist(), set(kept["c"].tolist())) == (
        [numbers[row] for row in sorted(rows)],
        {5} if rows else set(),
    )


@given(parts=st.lists(NUMBERS, max_size=4), number=st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_search_is_that_of_bisect(parts: list[list[int]], number: int) -> None:
    numbers = sorted(number for part in parts for number in part)
    found = packed(numbers)
    for wanted in {number, *numbers[::5]}:
        assert found.search("a", wanted) == bisect_left(numbers, wanted)
        assert found.search("a", wanted, "right") == bisect_right(numbers, wanted)


@given(parts=st.lists(NUMBERS, max_size=4))
def test_stretches_hold_each_row_with_the_next(parts: list[list[int]]) -> None:
    found, numbers = packed(*parts), [number for part in parts for number in part]
    pairs = [pair for _, (a,) in found.stretches("a") for pair in zip(a[:-1].tolist(), a[1:].tolist(), strict=True)]
    assert pairs == list(pairwise(numbers))
    assert all(numbers[at : at + len(a)] == a.tolist() for at, (a,) in found.stretches("a"))
    assert [number for _, (a,) in found.stretches("a", overlap=0) for number in a.tolist()] == numbers
