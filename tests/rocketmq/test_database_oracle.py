"""Stores of 5.5.0 with parts in RocksDB: every recorded answer of a real broker is given without one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from fixtures import golden
from rmqctl.open import open_store_at
from rmqctl.release import Release
from rmqctl.rocketmq.config_files import offsets_of
from rmqctl.rocketmq.lag import progress_of
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.query.started import StartedStore
from rmqctl.rocketmq.query.time import Boundary, offset_by_time

pytest.importorskip("rocksdict")
STORES = golden.DATABASE_STORES
REVIVED = "%RETRY%Pk_grpPop_PkPop"
"""The broker that was asked had revived messages into this topic, which are in no log of the fixture."""


def asked(name: str, kind: str) -> Iterator[dict[str, Any]]:
    for answer in golden.oracle(name)["answers"]:
        if answer.get("q") == kind and answer["topic"] != REVIVED:
            yield answer


@pytest.fixture(scope="module")
def started(request: pytest.FixtureRequest) -> Iterator[StartedStore]:
    with StartedStore(open_store_at(str(golden.pristine(request.param))), Release(5, 5, 0)) as opened:
        yield opened


def stores() -> Any:
    return pytest.mark.parametrize(("started", "name"), [(s, s) for s in STORES], indirect=["started"], ids=STORES)


@stores()
def test_ranges(started: StartedStore, name: str) -> None:
    wrong = []
    for answer in asked(name, "range"):
        with open_queue(started, answer["topic"], answer["queueId"]) as view:
            if (view.min_offset, view.max_offset) != (answer["min"], answer["max"]):
                wrong.append((answer, view.min_offset, view.max_offset))
    assert wrong == []


@stores()
def test_offsets_by_time(started: StartedStore, name: str) -> None:
    wrong = []
    for answer in asked(name, "offsetByTime"):
        with open_queue(started, answer["topic"], answer["queueId"]) as view:
            found = [offset_by_time(view, answer["timestamp"], b) for b in (Boundary.LOWER, Boundary.UPPER)]
        if found != [answer["lower"], answer["upper"]]:
            wrong.append((answer, found))
    assert wrong == []


@stores()
def test_messages_by_offset(started: StartedStore, name: str) -> None:
    wrong = []
    for answer in asked(name, "getMessage"):
        with open_queue(started, answer["topic"], answer["queueId"]) as view:
            places = [(o, view.at(o)) for o in range(answer["offset"], answer["offset"] + len(answer["phy"]))]
            found = [place[0].unit(place[1]).physical_offset for _, place in places if place is not None]
        if found != answer["phy"]:
            wrong.append((answer, found))
    assert wrong == []


@stores()
def test_group_offsets(started: StartedStore, name: str) -> None:
    recorded = golden.oracle(name)["broker"]
    wanted = {
        (o.group, o.topic, o.queue_id, o.offset)
        for key, queues in recorded["consumerOffsets"].items()
        for o in offsets_of("", key, queues)
    }
    for key, offset in recorded.get("lmqConsumerOffsets", {}).items():
        wanted |= {(o.group, o.topic, o.queue_id, o.offset) for o in offsets_of("", key, {"0": offset})}
    found = {
        (o.group, o.topic, o.queue_id, o.offset)
        for queues in progress_of(started).offsets.values()
        for o in queues.values()
    }
    assert found - _reached_later(name) == wanted - _reached_later(name)


def _reached_later(name: str) -> set[Any]:
    return set()


@stores()
def test_consumer_lag(started: StartedStore, name: str, rmqctl: Any) -> None:
    rows = [json.loads(line) for line in rmqctl("lag", golden.pristine(name), "-o", "jsonl").stdout.splitlines()]
    found = {(r["group"], r["topic"], r["queue_id"]): (r["consumer_offset"], r["max_offset"]) for r in rows}
    for answer in golden.oracle(name)["answers"]:
        if answer.get("q") == "consumeStats":
            for queue in answer["queues"]:
                if queue["topic"] != REVIVED:
                    key = answer["group"], queue["topic"], queue["queueId"]
                    assert found[key] == (queue["consumerOffset"], queue["brokerOffset"]), key


@pytest.mark.parametrize("name", [name for name in STORES if name.endswith("-clean")])
def test_clean_stores_are_clean(name: str, rmqctl: Any) -> None:
    checked = rmqctl("verify", golden.pristine(name), "-o", "json")
    found = json.loads(checked.stdout)["findings"]
    assert Counter(f["severity"] for f in found if f["severity"] != "note") == {}, found
    assert checked.exit_code == 0


@pytest.mark.parametrize("name", STORES)
def test_there_is_nothing_to_repair(name: str, rmqctl: Any) -> None:
    result = rmqctl("repair", golden.pristine(name), "-o", "json")
    document = json.loads(result.stdout)
    assert (document["steps"], document["left"], result.exit_code) == ([], [], 0)
