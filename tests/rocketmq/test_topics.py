"""Ranges of queues: by the rules of each release, in stores that expired, broke, or were not dispatched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import damage, golden
from formats.rocketmq.consumequeue import PRE_BLANK_SIZE
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.dispatch.queue_ends import QueueRow, by_topic, queue_rows
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue
from rmqctl.rocketmq.queues.ranges import LogRange, QueueRange, queue_range
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, QueueFiles
from rmqctl.rocketmq.store.locate import open_store_at

# Damage that changes no message, or that a broker mends from the log alone; the rest is for `recover` to foresee.
ANSWERED = (
    "none",
    "delete-first-file",
    "precreated-zero-file-removed",
    "cq-first-file-deleted",
    "cq-mid-file-deleted",
    "cq-garbage-units-behind-end",
    "cq-ahead-of-log",
    "cq-garbage-unit-in-first-file",
    "index-all-deleted",
    "index-last-deleted",
    "index-header-garbage",
    "checkpoint-deleted",
    "checkpoint-zero",
    "abort-added",
    "abort-removed",
)


def _variants() -> Iterator[tuple[str, str]]:
    for release in golden.RELEASES:
        for name, variant in golden.recovery_oracle(release)["variants"].items():
            if name.partition("/")[2] in ANSWERED and variant["result"].get("afterStart"):
                yield release, name


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("topics")
    return {name: golden.unpack(name, directory) for name in golden.BROKER_STORES}


@pytest.mark.parametrize(("release", "name"), list(_variants()), ids=lambda value: value.replace("/", "-"))
def test_offsets_are_what_the_started_broker_answers(release: str, name: str, copies: dict[str, Path]) -> None:
    variant = golden.recovery_oracle(release)["variants"][name]
    base = f"{release}-{name.partition('/')[0]}"
    damage.apply(variant["recipe"], copies[base])
    try:
        rows = queue_rows(open_store_at(str(copies[base])))
    finally:
        damage.undo(variant["recipe"], golden.pristine(base), copies[base])
    mine = {f"{r.topic}/{r.queue_id}": [r.min_offset, r.max_offset] for r in rows}
    expected = variant["result"]["afterStart"]["queues"]
    assert {k: v for k, v in mine.items() if v != [0, 0]} == {k: v for k, v in expected.items() if v != [0, 0]}


def test_messages_of_expired_files_do_not_count(copies: dict[str, Path]) -> None:
    root = golden.unpack("5.3.3-clean", copies["5.3.3-clean"].parent / "expired")
    (root / "commitlog" / f"{0:020d}").unlink()
    live = [r for r in golden.truth("5.3.3-clean") if r["kind"] == "msg" and r["commitLogOffset"] >= 131072]
    for row in queue_rows(open_store_at(str(root))):
        mine = [r for r in live if (r["topic"], r["queueId"]) == (row.topic, row.queue_id)]
        assert row.bytes == sum(r["storeSize"] for r in mine)
        times = (mine[0]["storeTimestamp"], mine[-1]["storeTimestamp"]) if mine else (None, None)
        assert (row.first_store_timestamp, row.last_store_timestamp) == times
        if not row.topic.startswith("LabBatch"):
            assert row.messages == len(mine)


def test_only_wanted_queues_are_counted_and_come_out_the_same() -> None:
    store = open_store_at(str(golden.pristine("4.9.8-crash")))
    every = {(r.topic, r.queue_id): r for r in queue_rows(store)}
    for key, row in every.items():
        assert queue_rows(store, {key}) == [row]


def test_topics_add_up() -> None:
    rows = [
        QueueRow("a", 0, 0, 2, 2, 10, 5, 6),
        QueueRow("a", 1, 3, 4, 1, 7, 4, 9),
        QueueRow("b", 0, 0, 0, 0, 0, None, None),
    ]
    assert by_topic(rows) == [
        {"topic": "a", "queues": 2, "messages": 3, "bytes": 17, "first_store_timestamp": 4, "last_store_timestamp": 9},
        {
            "topic": "b",
            "queues": 1,
            "messages": 0,
            "bytes": 0,
            "first_store_timestamp": None,
            "last_store_timestamp": None,
        },
    ]


FILE_UNITS = 10


def _queue(root: Path, physical: list[int], base: int = 0, blanks: int = 0) -> Queue:
    """A queue whose files hold ``blanks`` fillers and units at these physical offsets, each 100 bytes long."""
    where = QueueFiles(QUEUES, "T", 0, f"{QUEUES}/T/0", LocalTree(root))
    units = np.zeros(blanks + len(physical), UNIT)
    units["size"], units["physical_offset"][blanks:] = 100, physical
    units["size"][:blanks] = PRE_BLANK_SIZE
    (root / where.path).mkdir(parents=True)
    for start in range(0, max(len(units), 1), FILE_UNITS):
        data = units[start : start + FILE_UNITS].tobytes().ljust(FILE_UNITS * UNIT.itemsize, b"\0")
        (root / where.path / f"{(base + start) * UNIT.itemsize:020d}").write_bytes(data)
    return Queue.open(where)


def _range(queue: Queue, begin: int, end: int, *, is_5: bool = True) -> tuple[int, int, int]:
    found = queue_range(queue, LogRange(begin, end, is_5))
    return found.min_offset, found.max_offset, found.messages


@pytest.mark.parametrize("is_5", [False, True])
def test_a_queue_with_one_unit_in_front_of_the_log(tmp_path: Path, is_5: bool) -> None:
    assert _range(_queue(tmp_path, [0, 100, 200]), 50, 1000, is_5=is_5) == (1, 3, 2)


def test_a_queue_whose_messages_all_expired_keeps_its_counter_in_5(tmp_path: Path) -> None:
    assert _range(_queue(tmp_path, [0, 100, 200], base=20), 1000, 2000) == (23, 23, 0)


def test_a_queue_whose_messages_all_expired_starts_at_0_in_4(tmp_path: Path) -> None:
    assert _range(_queue(tmp_path, [0, 100, 200], base=20), 1000, 2000, is_5=False) == (0, 23, 0)


@pytest.mark.parametrize("is_5", [False, True])
def test_a_first_file_that_expired_as_a_whole_leaves_the_minimum_at_0(tmp_path: Path, is_5: bool) -> None:
    """Both kinds of broker look at the first file only; it is deleted at the next expiry run, then the minimum is right."""
    physical = [100 * n for n in range(15)]
    assert _range(_queue(tmp_path, physical, base=20), 1100, 9000, is_5=is_5) == (0, 35, 4)


@pytest.mark.parametrize("is_5", [False, True])
def test_fillers_are_no_messages(tmp_path: Path, is_5: bool) -> None:
    assert _range(_queue(tmp_path, [500, 600], base=20, blanks=3), 400, 9000, is_5=is_5) == (23, 25, 2)


def test_fillers_of_a_log_that_begins_at_0_count_for_the_minimum_as_in_a_broker(tmp_path: Path) -> None:
    assert _range(_queue(tmp_path / "4", [500, 600], base=20, blanks=3), 0, 9000, is_5=False) == (20, 25, 2)
    assert _range(_queue(tmp_path / "5", [500, 600], base=20, blanks=3), 0, 9000) == (22, 25, 2)


@pytest.mark.parametrize("is_5", [False, True])
def test_units_behind_the_end_of_the_log_do_not_count(tmp_path: Path, is_5: bool) -> None:
    assert _range(_queue(tmp_path, [0, 100, 200, 300]), 0, 200, is_5=is_5) == (0, 2, 2)


def test_an_empty_queue_file(tmp_path: Path) -> None:
    assert _range(_queue(tmp_path / "at 0", []), 0, 1000) == (0, 0, 0)
    assert _range(_queue(tmp_path / "later", [], base=20), 0, 1000)[1:] == (20, 0)


def _batch_queue(root: Path, units: list[tuple[int, int, int]]) -> Queue:
    """A batch queue with units of (physical offset, base offset, batch size)."""
    where = QueueFiles(BATCH_QUEUES, "B", 0, f"{BATCH_QUEUES}/B/0", LocalTree(root))
    rows = np.zeros(len(units), BATCH_UNIT)
    for row, (physical, base, count) in zip(rows, units, strict=True):
        row["physical_offset"], row["size"], row["base_offset"], row["batch_size"] = physical, 100, base, count
    (root / where.path).mkdir(parents=True)
    (root / where.path / f"{0:020d}").write_bytes(rows.tobytes().ljust(10 * BATCH_UNIT.itemsize, b"\0"))
    return Queue.open(where, BATCH_UNIT)


@pytest.mark.parametrize(
    ("begin", "expected"), [(0, (0, 18, 18)), (50, (8, 18, 10)), (150, (10, 18, 8)), (900, (18, 18, 0))]
)
def test_batch_queues_count_inner_messages(tmp_path: Path, begin: int, expected: tuple[int, int, int]) -> None:
    queue = _batch_queue(tmp_path, [(0, 0, 8), (100, 8, 2), (200, 10, 8)])
    assert _range(queue, begin, 1000) == expected


def test_a_batch_queue_without_units_answers_minus_one(tmp_path: Path) -> None:
    assert _range(_batch_queue(tmp_path, []), 0, 1000) == (-1, 0, 0)


@given(st.data())
def test_a_sorted_queue_against_counting_one_by_one(data: st.DataObject) -> None:
    """In a queue without fillers whose first file is not wholly expired both rules give the first unit in the log."""
    import tempfile

    steps = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=24))
    physical = [100 * int(n) for n in np.cumsum(steps)]
    base = FILE_UNITS * data.draw(st.integers(0, 2))
    begin = data.draw(st.integers(0, physical[min(FILE_UNITS, len(physical)) - 1]))
    end = data.draw(st.integers(begin, physical[-1] + 200))
    inside = [p for p in physical if p < end]
    live = [p for p in inside if p >= begin]
    first = base + len(inside) - len(live)
    for is_5 in (False, True):
        with tempfile.TemporaryDirectory() as directory:
            found: QueueRange = queue_range(_queue(Path(directory), physical, base), LogRange(begin, end, is_5))
        assert (found.max_offset, found.messages) == (base + len(inside) if inside else 0, len(live))
        if live:
            assert (found.min_offset, found.first, found.last) == (first, live[0], live[-1])
