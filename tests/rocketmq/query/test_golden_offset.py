"""Messages by queue offset: every getMessage and range question of the oracles, element by element."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures import golden
from rmqctl.open import open_store_at
from rmqctl.rocketmq.query.offset import get_message
from rmqctl.rocketmq.query.queue_view import QueueView, open_queue
from rmqctl.rocketmq.query.started import StartedStore
from tests.rocketmq.query.test_golden_time import release_of

GROWS = {"RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"}
"""Topics that the broker process itself wrote to before it was asked for ranges: open transactions are checked anew."""


def started(name: str) -> StartedStore:
    store = open_store_at(str(golden.pristine(name)))
    store.settings = golden.broker_conf(name)
    return StartedStore(store, release_of(name))


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
