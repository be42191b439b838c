"""`topics`, `lag`, `query-offset`, `recover`, `repair` and the engine give the same ends of queues for every recorded
variant.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.errors import TooDamaged
from rmqctl.files.tree import LocalTree, read_all
from rmqctl.rocketmq.dispatch.queue_ends import queue_rows
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.opening import settings_of, settled
from rmqctl.rocketmq.family import RocketMQStore
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.recovery.plan import overlaid
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore, queue_limits
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.locate import open_store, open_store_at
from tests.rocketmq.damage_table import Variant, variants

ALL = [variant for release in golden.RELEASES for variant in variants(release)]
FEW = [
    variant
    for variant in ALL
    if (variant.release, variant.name)
    in {("5.5.0", "crash/abort-removed"), ("5.1.4", "crash/cq-topic-deleted"), ("4.9.8", "crash/totalsize-flip-mid")}
]
CONSUMERS = "config/consumerOffset.json"
Ends = dict[tuple[str, int], tuple[int, int]]


@pytest.mark.parametrize("damaged", ALL, indirect=True, ids=lambda v: f"{v.release}-{v.name}")
def test_every_command_gives_the_same_ends(damaged: tuple[Variant, Path]) -> None:
    variant, root = damaged
    files = open_store(LocalTree(root), settings=golden.broker_conf(variant.base))
    store = RocketMQStore(files)
    found = recover(files)
    topics = {(r["topic"], r["queue_id"]): (r["min_offset"], r["max_offset"]) for r in store.topics()}
    if found.starts:
        ends: Ends = {(t, q): (low, high) for t, q, low, high in found.ranges()}
        assert {key: value for key, value in topics.items() if value[1] > 0} == ends
    for row in store.lag():
        if row["max_offset"] is not None:
            low, high = topics.get((row["topic"], row["queue_id"]), (0, 0))
            assert (row["min_offset"], row["max_offset"]) == (max(low, 0), high), row
    with RecoveredStore(files, release_range(files).highest) as started:
        for (topic, queue), asked in topics.items():
            with open_queue(started, topic, queue) as view:
                assert (view.min_offset, view.max_offset) == asked, (topic, queue)


@pytest.mark.slow
@pytest.mark.parametrize("damaged", ALL, indirect=True, ids=lambda v: f"{v.release}-{v.name}")
def test_the_engine_goes_on_at_the_same_ends(damaged: tuple[Variant, Path], tmp_path: Path) -> None:
    _check_engine(*damaged, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("damaged", ALL, indirect=True, ids=lambda v: f"{v.release}-{v.name}")
def test_repair_sets_offsets_to_the_same_ends(damaged: tuple[Variant, Path], tmp_path: Path) -> None:
    _check_repair(*damaged, tmp_path)


@pytest.mark.parametrize("damaged", FEW, indirect=True, ids=lambda v: f"{v.release}-{v.name}")
def test_engine_and_repair_agree_in_a_few(damaged: tuple[Variant, Path], tmp_path: Path) -> None:
    _check_engine(*damaged, tmp_path)
    _check_repair(*damaged, tmp_path)


def _check_engine(_: Variant, damaged: Path, tmp_path: Path) -> None:
    """An engine gives messages a unit that brokers leave without one after a clean stop; else its ends are theirs."""
    root = tmp_path / "engine"
    golden.copy_tree(damaged, root)
    files = open_store_at(str(root))
    files.settings = settings_of(settled(files, None))
    asked, leaves = queue_limits(files, processes=1), recover(files).undispatched.messages
    try:
        engine = StoreEngine.open(root)
    except TooDamaged:  # a start would not be possible, or would lose messages
        return
    try:
        for (topic, queue_id), (low, high) in asked.items():
            found = engine.offsets(topic, queue_id)
            assert found == (low, high) or (leaves and found[1] > high), (topic, queue_id)
    finally:
        engine.abandon()


def _check_repair(variant: Variant, damaged: Path, tmp_path: Path) -> None:
    root, room = tmp_path / "repair", tmp_path / "room"
    golden.copy_tree(damaged, root)
    room.mkdir()
    settings = golden.broker_conf(variant.base)
    queues = queue_limits(open_store(LocalTree(root), settings=settings), processes=1)
    offsets: dict[str, dict[str, int]] = {}
    for topic, queue_id in queues:
        offsets.setdefault(f"{topic}@far", {})[str(queue_id)] = 1000
    (root / CONSUMERS).parent.mkdir(exist_ok=True)
    (root / CONSUMERS).write_text(json.dumps({"offsetTable": offsets}))
    (root / f"{CONSUMERS}.bak").unlink(missing_ok=True)
    files = open_store(LocalTree(root), settings=settings)
    steps = plan_repair(files, RepairOptions(), room).plan.steps
    mended = overlaid(files, [edit for step in steps for edit in step.edits])
    ends = queue_limits(mended, processes=1)
    as_found = {(r.topic, r.queue_id): (r.min_offset, r.max_offset) for r in queue_rows(mended) if r.max_offset}
    assert as_found == {key: value for key, value in ends.items() if value[1]}
    table = json.loads(read_all(mended.tree, CONSUMERS) or b"")["offsetTable"]
    for topic, queue_id in queues:
        assert table[f"{topic}@far"][str(queue_id)] == ends.get((topic, queue_id), (0, 0))[1], (topic, queue_id)


def test_query_offset_says_the_same() -> None:
    store = RocketMQStore(open_store(LocalTree(golden.pristine("5.5.0-crash"))))
    for row in store.topics():
        status = next(iter(store.query_offset(row["topic"], row["queue_id"], 0)))
        assert (status["min_offset"], status["max_offset"]) == (row["min_offset"], row["max_offset"])
