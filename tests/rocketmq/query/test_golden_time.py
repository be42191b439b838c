"""Offsets by time: every question of the golden stores' oracles, answered as the broker of that release did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fixtures import golden
from rmqctl.release import Release
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.query.time import Boundary, offset_by_time
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.query.golden_time_helpers import release_of

QUESTIONS = {"offsetByTime", "searchOffset"}
BOUNDARIES = {"answer": Boundary.LOWER, "lower": Boundary.LOWER, "upper": Boundary.UPPER}


def questions(name: str) -> Iterator[dict[str, Any]]:
    oracle = golden.oracle(name)
    for side in ("embedded", "admin"):
        yield from (a for a in oracle[side]["answers"] if a.get("q") in QUESTIONS)


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_every_answer_is_the_brokers(name: str) -> None:
    asked = 0
    with RecoveredStore(open_store_at(str(golden.pristine(name))), release_of(name)) as started:
        for question in questions(name):
            view = open_queue(started, question["topic"], question["queueId"])
            for key, boundary in BOUNDARIES.items():
                if key in question:
                    asked += 1
                    assert offset_by_time(view, question["timestamp"], boundary) == question[key], (key, question)
            view.close()
    assert asked > 400


@pytest.mark.parametrize("name", ["4.9.8-clean", "5.5.0-clean"])
def test_the_other_family_answers_otherwise(name: str) -> None:
    """The three families are told apart: with the rules of another release some answers differ."""
    other = Release(5, 5, 0) if name.startswith("4") else Release(4, 9, 8)
    with RecoveredStore(open_store_at(str(golden.pristine(name))), other) as started:
        differ = 0
        for question in questions(name):
            view = open_queue(started, question["topic"], question["queueId"])
            differ += offset_by_time(view, question["timestamp"]) != question["answer"]
            view.close()
    assert differ > 20
