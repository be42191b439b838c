"""Queues after the start of a broker: ranges of damaged stores against what real brokers had after theirs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.opening import open_store
from rmqctl.release import Release
from rmqctl.rocketmq.query.offset import FOUND, browse
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.recovery import queue_ends
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store_at

Variant = tuple[str, str]


def variants(*releases: str) -> list[Variant]:
    """Damage that a broker started on; of cleanly stopped stores only such that leaves the log alone.

    After a clean stop the queries take the queue as it is on disk where its end fits the log. A broker that finds a
    damaged record in its last files cuts the log there, which `rmqctl recover` foretells.
    """
    found = []
    for release in releases:
        for name, variant in golden.recovery_oracle(release)["variants"].items():
            if variant["result"]["outcome"] == "started" and not _is_cut_when_clean(name, variant["recipe"]):
                found.append((release, name))
    return found


def _is_cut_when_clean(name: str, recipe: list[dict[str, Any]]) -> bool:
    clean = ("clean/" in name and "abort-added" not in name) or "abort-removed" in name
    named = [str(edit.get("file", edit.get("path"))) for edit in recipe]
    return (clean and any(n.startswith("commitlog") for n in named)) or name == "clean/cq-garbage-unit-in-last-file-mid"


EVERY = variants(*golden.RELEASES)
FAST = [v for v in EVERY if v[0] == "5.5.0" and v[1].startswith("crash/")]
SLOW = [pytest.param(v, marks=pytest.mark.slow) for v in EVERY if v not in FAST]


@pytest.mark.parametrize("variant", [*FAST, *SLOW], ids=" ".join)
def test_ranges(variant: Variant, tmp_path: Path) -> None:
    release, name = variant
    found = golden.recovery_oracle(release)["variants"][name]
    root = golden.unpack(found["base"], tmp_path)
    damage.apply(found["recipe"], root)
    store = open_store_at(str(root))
    store.settings = golden.broker_conf(found["base"])
    with RecoveredStore(store, Release.parse(release)) as started:
        for queue, expected in found["result"]["afterStart"]["queues"].items():
            topic, _, queue_id = queue.rpartition("/")
            with open_queue(started, topic, int(queue_id)) as view:
                assert [view.min_offset, view.max_offset] == expected, queue


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_every_message_is_there(name: str) -> None:
    """Every queue from its smallest to its largest offset gives as many messages as the broker read."""
    oracle = golden.oracle(name)["embedded"]
    total = 0
    store = open_store_at(str(golden.pristine(name)))
    store.settings = golden.broker_conf(name)
    with RecoveredStore(store, Release.parse(name[:5])) as started:
        for queue in oracle["afterStart"]["queues"]:
            with open_queue(started, queue["topic"], queue["queueId"]) as view:
                answer = browse(view, max(view.min_offset, 0), 1 << 20)
                assert answer.status == FOUND or view.min_offset >= view.max_offset
                total += len(answer.units)
    assert total == oracle["readAllTotal"]


def test_a_start_is_replayed_once_for_all_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = list[object]()

    def counted(*given: Any) -> Any:
        replayed.append(given)
        return recover(*given)

    monkeypatch.setattr(queue_ends, "recover", counted)
    store = open_store(str(golden.pristine("5.3.3-crash")))
    answers = [list(store.query_offset("LabOrders", queue, 0)) for queue in (1, 2, 1)]
    assert answers[0] == answers[2] != answers[1]
    assert len(replayed) == 1
    assert b"Recovery" not in pickle.dumps(store)
