"""Units of one queue: filler, repeats, wrong order, many at once as one by one (spec 3.4, 3.5, 3.6)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE, PRE_BLANK, ConsumeQueueUnit
from rmqctl.rocketmq.dispatch.dispatched import Dispatched, UnitRun
from rmqctl.rocketmq.dispatch.rules import DispatchRequest
from rmqctl.rocketmq.dispatch.series import MAX_FILLED, MAX_HOLE, QueueSeries, QueueSizes
from rmqctl.rocketmq.dispatch.units import Appended, BatchQueueState, ExtState, QueueState, units_of

FILE = 100


def unit(physical: int, size: int = 10, tags: int = 7) -> bytes:
    data: bytes = ConsumeQueueUnit.build({"physical_offset": physical, "size": size, "tags_code": tags})
    return data


def laid(found: list[Appended]) -> tuple[int, bytes]:
    """Where the bytes begin, and all of them; they must follow each other."""
    begin = end = found[0].position if found else 0
    data = b""
    for piece in found:
        assert piece.position == end
        data, end = data + piece.data, end + len(piece.data)
    return begin, data


def test_a_new_queue_begins_in_its_file_with_filler() -> None:
    state = QueueState(FILE)
    assert state.put(5000, 10, 7, 13) == Appended(200, PRE_BLANK * 3 + unit(5000))
    assert (state.begin, state.end, state.max_physical, state.next_offset) == (200, 280, 5010, 14)


def test_on_a_file_boundary_there_is_no_filler() -> None:
    assert QueueState(FILE).put(0, 10, 7, 10) == Appended(200, unit(0))


def test_repeats_are_ignored_and_wrong_order_is_appended_where_the_queue_ends() -> None:
    state = QueueState(FILE)
    assert state.put(0, 10, 7, 0) == Appended(0, unit(0))
    assert state.put(0, 10, 7, 1) is None  # its end is not behind the last one's
    assert state.put(10, 10, 7, 1) == Appended(20, unit(10))
    assert state.put(20, 10, 7, 1) is None  # this queue offset has a unit
    assert state.max_physical == 20
    assert state.put(30, 10, 7, 9) == Appended(40, unit(30))  # too far on: position and queue offset part
    assert state.put(40, 10, 7, 0) == Appended(60, unit(40))  # 0 is not compared


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=25), st.integers(-1, 30), st.booleans())
def test_many_equal_one_by_one(rows: list[tuple[int, int]], max_physical: int, is_new: bool) -> None:
    def fresh() -> QueueState:
        return QueueState(FILE, max_physical=max_physical) if is_new else QueueState(FILE, 0, 60, max_physical)

    one, many = fresh(), fresh()
    single = [a for p, q in rows if (a := one.put(p, 5, 1, q)) is not None]
    columns = [np.array(c, np.int64) for c in zip(*((p, 5, 1, q) for p, q in rows), strict=True)] if rows else []
    together = many.put_many(*columns) if rows else []
    assert laid(together) == laid(single)
    assert many == one


@given(st.integers(0, 30), st.integers(1, 12), st.integers(0, 80), st.integers(-1, 60), st.booleans())
def test_a_run_is_put_as_it_is_or_left_to_the_rules(
    first: int, count: int, end: int, max_physical: int, is_new: bool
) -> None:
    def fresh() -> QueueState:
        return QueueState(FILE) if is_new else QueueState(FILE, 0, end * 20, max_physical)

    physical = 40 + 10 * np.arange(count)
    sizes, tags, offsets = np.full(count, 10), np.full(count, 7), first + np.arange(count)
    run, rules = fresh(), fresh()
    found = run.put_run(units_of(physical, sizes, tags), first)
    if found is not None:
        assert laid(rules.put_many(physical, sizes, tags, offsets)) == laid([found])
        assert run == rules


def series_of(*pieces: UnitRun, fills: bool) -> tuple[QueueSeries, list[Appended]]:
    class Sink:
        def __init__(self) -> None:
            self.found: list[Appended] = []

        def write(self, kind: str, key: tuple[bytes, int], found: Appended) -> None:
            self.found.append(found)

    sink = Sink()
    series = QueueSeries(QueueSizes(FILE, 1000), sink, fills_holes=fills)
    for piece in pieces:
        series.apply(Dispatched([piece]))
    series.finish()
    return series, sink.found


def piece(*rows: tuple[int, int]) -> UnitRun:
    """Units of records of 10 bytes at (physical offset, queue offset)."""
    physical, offsets = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    same = np.full(len(rows), 10)
    even = (np.diff(offsets) == 1).all()
    return UnitRun((b"T", 0), units_of(physical, same, same * 0 + 7), int(offsets[0]), None if even else offsets)


def test_holes_are_filled_with_the_unit_that_follows() -> None:
    series, found = series_of(piece((0, 0), (10, 1)), piece((50, 4), (60, 5), (90, 7)), fills=True)
    assert laid(found)[1] == b"".join(map(unit, (0, 10, 50, 50, 50, 60, 90, 90)))
    assert series.filled == {(b"T", 0): 3}
    assert series.simple[b"T", 0].next_offset == 8


def test_brokers_leave_no_hole_and_lose_the_queue_offset() -> None:
    series, found = series_of(piece((0, 0), (10, 1)), piece((50, 4)), fills=False)
    assert laid(found)[1] == b"".join(map(unit, (0, 10, 50)))
    assert not series.filled


def test_a_wild_queue_offset_is_no_hole() -> None:
    wild = 1 << 40
    series, found = series_of(piece((0, 0), (10, wild), (20, 2)), piece((30, 3 + 2 * MAX_HOLE)), fills=True)
    assert laid(found)[1] == b"".join(map(unit, (0, 10, 20, 30)))
    assert not series.filled
    assert laid(series_of(piece((0, wild), (10, 1), (20, 2)), fills=True)[1]) == (0, b"".join(map(unit, (0, 10, 20))))


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (3, 5), range(1, 9)])
@pytest.mark.parametrize(
    ("offsets", "laid_out"),
    [
        (
            [5, 6, 10, 11, 7, 12, 13, 16, 17],
            [0, 1, 2, 2, 2, 2, 3, 5, 6, 7, 7, 7, 8],
        ),  # one from further back, and holes
        ([5, 6, 91, 7, 8, 9, 11, 12, 13], [0, 1, 3, 4, 5, 6, 6, 7, 8]),  # one from further on
        ([5, 6, 91, 8, 9, 10, 12, 13, 14], [0, 1, 2, 3, 4, 5, 6, 6, 7, 8]),  # a damaged field
        ([91, 6, 7, 9, 8, 10, 11, 12, 13], [0, 1, 2, 4, 5, 5, 6, 7, 8]),  # that of the first; two in wrong order
        ([0, 1, 2, 0, 3, 4, 5, 6, 7], [0, 1, 2, 4, 5, 6, 7, 8]),  # a strayed one takes no place of another
        ([0, 1, 500, 1, 2, 3, 4, 5, 6], [0, 1, 4, 5, 6, 7, 8]),
        ([0, 1, 2, 3, -(1 << 63), 5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8]),  # a damaged field whose place is free
        ([1000, 3, 1002, 1003, 1004, 1005, 1006, 1007, 1008], [0, 1, 2, 3, 4, 5, 6, 7, 8]),  # that of the second
        ([1000, -1, 1002, 1003, 1004, 1005, 1006, 1007, 1008], [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ([0, 0, 1, 2, 3, 4, 5, 6, 7], [0, 2, 3, 4, 5, 6, 7, 8]),  # as brokers do
        ([-(1 << 63), 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_holes_are_filled_alike_however_the_log_is_divided(
    offsets: list[int], laid_out: list[int], cuts: tuple[int, ...]
) -> None:
    rows = [(10 * number, offset) for number, offset in enumerate(offsets)]
    parts = [rows[start:stop] for start, stop in pairwise([0, *cuts, len(rows)])]
    series, found = series_of(*(piece(*part) for part in parts), fills=True)
    assert laid(found)[1] == b"".join(unit(10 * number) for number in laid_out)
    assert series.filled.get((b"T", 0), 0) == len(laid_out) - len(set(laid_out))


@pytest.mark.parametrize("offsets", [[-(1 << 63)], [1 << 62], [-(1 << 63), (1 << 63) - 1], [0, -(1 << 63)]])
def test_records_whose_queue_offsets_are_none_are_laid_in_the_order_of_the_log(offsets: list[int]) -> None:
    _, found = series_of(*(piece((10 * n, offset)) for n, offset in enumerate(offsets)), fills=True)
    assert laid(found) == (0, b"".join(unit(10 * n) for n in range(len(offsets))))


_ODD = st.sampled_from([0, 1, 2, 5, 6, 40, 1 << 32, 1 << 62, -1, -(1 << 63), (1 << 63) - 1])


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(0, 11), _ODD), max_size=4), st.sets(st.integers(1, 11)))
@example(0, [(1, 0)], {1})
@example(5, [(1, 0)], {2})
def test_units_do_not_depend_on_how_the_log_is_divided(begin: int, odd: list[tuple[int, int]], cuts: set[int]) -> None:
    offsets = list(range(begin, begin + 12))
    for row, offset in odd:
        offsets[row] = offset
    rows = [(10 * number, offset) for number, offset in enumerate(offsets)]
    whole, found = series_of(piece(*rows), fills=True)
    parts = [rows[start:stop] for start, stop in pairwise([0, *sorted(cuts), len(rows)])]
    divided, pieces = series_of(*(piece(*part) for part in parts), fills=True)
    assert laid(pieces) == laid(found)
    assert divided.simple == whole.simple
    assert divided.filled == whole.filled


def test_holes_without_end_make_no_queue_without_end() -> None:
    rows = [(10 * n, n * MAX_HOLE) for n in range(40)]
    series, found = series_of(*(piece(row) for row in rows), fills=True)
    assert series.filled[b"T", 0] <= MAX_FILLED
    assert sum(len(one.data) for one in found) <= 20 * (MAX_FILLED + len(rows))


def test_extension_units_close_a_file_that_has_no_room() -> None:
    state = ExtState(64)
    first, one = state.put(5, 1000)
    second, two = state.put(-6, 2000, b"\x01" * 20)
    assert (first - EXT_ADDRESS_BASE, second - EXT_ADDRESS_BASE) == (0, 20)
    third, three = state.put(7, 3000)
    assert third - EXT_ADDRESS_BASE == 64  # 4 bytes are left
    assert [a.position for a in one + two + three] == [0, 20, 60, 64]
    assert three[0].data == b"\xff\xff"
    assert one[0].data == bytes.fromhex("0014 0000000000000005 00000000000003e8 0000")
    assert state.put(9, 1, bytes(100)) == (9, [])  # fits no file: the queue unit keeps the plain code


def test_batch_units_advance_by_their_count() -> None:
    state = BatchQueueState()
    batch = DispatchRequest(b"B", 1, 700, 90, 3, 1000, 5, 0xC0, base_offset=5, batch_size=4)
    found = state.put(batch)
    assert found is not None
    assert found.data.hex() == (
        "00000000000002bc 0000005a 0000000000000003 00000000000003e8 0000000000000005 0004 ffffffff 00000000"
    ).replace(" ", "")
    assert state.next_offset == 9
    assert state.put(batch) is None
    assert state.put(DispatchRequest(b"B", 1, 900, 90, 3, 1000, 5, 0)) is None  # no INNER_BASE
