"""`topics`, `lag`, `query-offset` and `recover` give the same ends of queues for every recorded variant."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.family import RocketMQ
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.query.recovered_store import StartedStore
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.locate import open_store
from tests.rocketmq.damage_table import Variant, variants

ALL = [variant for release in golden.RELEASES for variant in variants(release)]
Ends = dict[tuple[str, int], tuple[int, int]]


@pytest.mark.parametrize("damaged", ALL, indirect=True, ids=lambda v: f"{v.release}-{v.name}")
def test_every_command_gives_the_same_ends(damaged: tuple[Variant, Path]) -> None:
    variant, root = damaged
    files = open_store(LocalTree(root), settings=golden.broker_conf(variant.base))
    store = RocketMQ(files)
    found = recover(files)
    topics = {(r["topic"], r["queue_id"]): (r["min_offset"], r["max_offset"]) for r in store.topics()}
    if found.starts:
        ends: Ends = {(t, q): (low, high) for t, q, low, high in found.ranges()}
        assert {key: value for key, value in topics.items() if value[1] > 0} == ends
    for row in store.lag():
        if row["max_offset"] is not None:
            low, high = topics.get((row["topic"], row["queue_id"]), (0, 0))
            assert (row["min_offset"], row["max_offset"]) == (max(low, 0), high), row
    with StartedStore(files, release_range(files).highest) as started:
        for (topic, queue), asked in topics.items():
            with open_queue(started, topic, queue) as view:
                assert (view.min_offset, view.max_offset) == asked, (topic, queue)


def test_query_offset_says_the_same() -> None:
    store = RocketMQ(open_store(LocalTree(golden.pristine("5.5.0-crash"))))
    for row in store.topics():
        status = next(iter(store.query_offset(row["topic"], row["queue_id"], 0)))
        assert (status["min_offset"], status["max_offset"]) == (row["min_offset"], row["max_offset"])
