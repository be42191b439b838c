"""Each kind of column says the same in every form: JSON is what orjson makes of its values, Arrow holds those values."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.arrow import TIME
from rmqctl.columns import (
    Column,
    Hexadecimal,
    Meanings,
    Named,
    Numbers,
    Objects,
    Recurring,
    Same,
    Times,
    joined,
    lines_of,
    rows_of,
    text_of,
)
from rmqctl.text import text_or_base64

COUNT = st.integers(1, 70)
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3)


def numbers(draw: st.DrawFn, count: int, values: st.SearchStrategy[int]) -> Any:
    few = draw(st.lists(values, min_size=1, max_size=4))
    return np.array([few[n % len(few)] for n in range(count)], np.int64)


@st.composite
def columns(draw: st.DrawFn, count: int) -> tuple[Column, pa.DataType]:
    lacking = draw(st.none() | st.lists(st.booleans(), min_size=count, max_size=count).map(np.array))
    few = draw(st.lists(st.binary(max_size=3), min_size=1, max_size=3))
    raw = [few[n % len(few)] for n in range(count)]
    any_numbers, small = numbers(draw, count, INTEGERS), numbers(draw, count, st.integers(0, 2))
    made: list[tuple[Column, pa.DataType]] = [
        (Same(draw(st.none() | st.text(max_size=4)), count), pa.string()),
        (Numbers(any_numbers, lacking), pa.int64()),
        (Named(small, ("a", 'q"', "é")), pa.string()),
        (Named(small > 1, (False, True)), pa.bool_()),
        (Named.of(any_numbers, str), pa.string()),
        (Recurring(lambda: raw, lambda: pa.array(raw, pa.binary()), Meanings(text_or_base64)), pa.string()),
        (Hexadecimal(any_numbers.view(np.uint8).reshape(count, 8)), pa.string()),
        (Objects([[n] * (n % 3) for n in range(count)]), pa.list_(pa.int64())),
    ]
    return draw(st.sampled_from(made))


@given(COUNT.flatmap(lambda count: st.tuples(st.just(count), st.lists(columns(count), min_size=1, max_size=4))))
def test_lines_are_what_orjson_makes_of_the_rows(drawn: tuple[int, list[tuple[Column, pa.DataType]]]) -> None:
    count, made = drawn
    named = {f"column{n}": column for n, (column, _) in enumerate(made)}
    rows = rows_of(named)
    lines = lines_of(named, count, b"> ")
    assert lines.to_pylist() == [b"> " + orjson.dumps(row) + b"\n" for row in rows]
    assert bytes(text_of(lines, 1)) == b"".join(lines.to_pylist()[1:])


@given(COUNT.flatmap(columns))
def test_an_array_has_the_values(drawn: tuple[Column, pa.DataType]) -> None:
    column, kind = drawn
    words = [f"base64:{v['base64']}" if isinstance(v, dict) else v for v in column.values()]
    array = column.arrow(kind)
    assert array.to_pylist() == words and array.type == kind


def test_times_in_no_calendar_and_those_that_are_absent_are_null_in_arrays_alone() -> None:
    column = Times(np.array([-1, 0, 1 << 62, 1700000000000]), np.array([False, False, False, True]), -1)
    assert column.values() == [-1, 0, 1 << 62, None]
    assert text_of(joined(4, *column.json(b" "))) == b"-1 0 %d null " % (1 << 62)
    assert column.arrow(TIME).is_null().to_pylist() == [True, False, True, True]


def test_a_smaller_type_takes_the_numbers() -> None:
    assert Numbers(np.array([1, -2])).arrow(pa.int32()).to_pylist() == [1, -2]


def test_meanings_are_made_once_and_do_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Meanings, "LIMIT", 3)
    asked = list[int]()
    meanings = Meanings(lambda value: asked.append(value) or str(value))  # type: ignore[func-returns-value]
    assert [meanings[n] for n in (1, 2, 1, 3, 4, 4)] == ["1", "2", "1", "3", "4", "4"]
    assert asked == [1, 2, 3, 4] and len(meanings) == 1
