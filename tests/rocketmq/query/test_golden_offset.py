"""Messages by queue offset: every getMessage and range question of the oracles, element by element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.rocketmq.query import offset
from rmqctl.rocketmq.query.offset import get_message
from rmqctl.rocketmq.query.queue_view import QueueView, open_queue
from rmqctl.rocketmq.queues.files import UNIT, Queue
from rmqctl.rocketmq.queues.ranges import last_unit
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.store.files import QueueFiles, StoreFile
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.query.golden_time_helpers import release_of

GROWS = {"RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"}
"""Topics that the broker process itself wrote to before it was asked for ranges: open transactions are checked anew."""


def started(name: str) -> RecoveredStore:
    store = open_store_at(str(golden.pristine(name)))
    store.settings = golden.broker_conf(name)
    return RecoveredStore(store, release_of(name))


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_get_message(name: str) -> None:
    questions = [a for a in golden.oracle(name)["embedded"]["answers"] if a.get("q") == "getMessage"]
    assert len(questions) > 50
    with started(name) as store:
        for question in questions:
            with open_queue(store, question["topic"], question["queueId"]) as view:
                answer = get_message(view, question["offset"], question["maxMsgNums"])
            found = (answer.status, answer.next_offset, answer.min_offset, answer.max_offset)
            expected = tuple(question[key] for key in ("status", "nextBeginOffset", "minOffset", "maxOffset"))
            assert found == expected, question
            assert [unit.physical_offset for unit in answer.units] == question["phy"], question


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_range(name: str) -> None:
    questions = [a for a in golden.oracle(name)["admin"]["answers"] if a.get("q") == "range"]
    with started(name) as store:
        for question in questions:
            with open_queue(store, question["topic"], question["queueId"]) as view:
                assert _range(view) == _expected(question, view), question


def _range(view: QueueView) -> tuple[int, int, int]:
    place = view.at(view.min_offset)
    return view.min_offset, view.max_offset, view.store_time(place[0].unit(place[1])) if place else -1


def _expected(question: dict[str, Any], view: QueueView) -> tuple[int, int, int]:
    """The broker's answer; of a topic that it wrote to since then only that it has not become smaller."""
    largest: int = question["max"]
    if question["topic"] in GROWS and largest > view.max_offset:
        largest = view.max_offset
    return question["min"], largest, question["earliestMsgStoreTime"]


@pytest.mark.parametrize(("less", "count"), [(0, 3), (1, 2)])
def test_the_bytes_of_one_call_are_exact(less: int, count: int) -> None:
    """Three messages fit into as many bytes as they have."""
    store = open_store_at(str(golden.pristine("5.5.0-clean")))
    with RecoveredStore(store, Release(5, 5, 0)) as asked, open_queue(asked, "LabOrders", 0) as view:
        sizes = [unit.size for unit in get_message(view, 0).units[:3]]
    assert len(sizes) == 3
    store.settings = {"maxTransferBytesOnMessageInMemory": str(sum(sizes) - less)}
    with RecoveredStore(store, Release(5, 5, 0)) as asked, open_queue(asked, "LabOrders", 0) as view:
        assert len(get_message(view, 0).units) == count


@pytest.mark.parametrize(("release", "less", "count"), [("5.5.0", 0, 3), ("5.5.0", 1, 2), ("4.9.8", 1, 3)])
def test_brokers_of_5_have_a_second_limit(release: str, less: int, count: int) -> None:
    """Whatever the setting says."""
    store = open_store_at(str(golden.pristine(f"{release}-clean")))
    store.settings = {"maxTransferBytesOnMessageInMemory": "1000000", "maxTransferCountOnMessageInMemory": "3"}
    with RecoveredStore(store, Release.parse(release)) as asked, open_queue(asked, "LabOrders", 0) as view:
        sizes = [unit.size for unit in get_message(view, 0).units]
    assert len(sizes) == 3
    with RecoveredStore(store, Release.parse(release)) as asked, open_queue(asked, "LabOrders", 0) as view:
        assert len(get_message(view, 0, max_pull=sum(sizes) - less).units) == count


@pytest.mark.parametrize(("most", "found"), [(2, 0), (1000, 1)])
def test_browsing_ends_after_many_units_in_vain(most: int, found: int, tmp_path: Path) -> None:
    """A file of the log is gone; a count that is reached by readable units in between begins again."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    sorted((root / "commitlog").iterdir())[2].unlink()
    store = open_store_at(str(root))
    with RecoveredStore(store, Release(5, 5, 0)) as asked, open_queue(asked, "LabOrders", 0) as view:
        gone = next(u.queue_offset for _, u in offset.units_from(view, view.min_offset) if not view.is_readable(u))
        answer = offset.browse(view, gone, in_vain=most)
        assert (len(answer.units), answer.next_offset == gone + most) == (found, not found)


def test_the_last_unit_is_looked_for_in_the_last_two_files(tmp_path: Path) -> None:
    """A file may have been made for units to come."""
    for number, content in enumerate([bytes(7) + b"\1" + bytes(3) + b"\5" + bytes(8), bytes(20), b""]):
        (tmp_path / f"{20 * number:020d}").write_bytes(content)
    files = [StoreFile(f"{20 * n:020d}", 20 * n, 20, LocalTree(tmp_path), f"{20 * n:020d}") for n in range(2)]
    found = last_unit(Queue(QueueFiles("consumequeue", "T", 0, "", LocalTree(tmp_path)), files, UNIT))
    assert found is not None
    assert found.tolist() == [(1, 5, 0)]
