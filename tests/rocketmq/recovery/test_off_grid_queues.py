"""Queue files that start off the grid of units: the replay against what released classes did with them.

The classes wait a second for each unit that the last file has no room for, and go on without it.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store
from tests.rocketmq.recorded_shapes_helpers import DIRECTORY, said


@cache
def cases() -> list[dict[str, Any]]:
    """Store, release, recipe, and what the classes did."""
    with lzma.open(DIRECTORY.parent / "off-grid-queues.json.xz", "rt", encoding="utf-8") as file:
        found: list[dict[str, Any]] = json.load(file)
    return found


@pytest.fixture
def replayed(tmp_path: Path) -> Callable[[dict[str, Any]], Recovery]:
    """The replay on the damaged store of a case."""

    def replay(case: dict[str, Any]) -> Recovery:
        golden.extract(DIRECTORY / f"{case['store']}.tar.xz", tmp_path)
        root = tmp_path / case["store"]
        damage.apply(case["recipe"], root)
        store = open_store(LocalTree(root), settings=said(case["store"])["settings"])
        return recover(store, Release.parse(case["release"]))

    return replay


@pytest.mark.parametrize("case", cases(), ids=lambda c: f"{c['store']}-{c['recipe'][0]['file'][13:]}")
def test_the_start(case: dict[str, Any], replayed: Callable[..., Recovery]) -> None:
    found = replayed(case)
    queues = {f"{topic}/{queue}": [low, high] for topic, queue, low, high in found.ranges()}
    result = {"starts": found.starts, "end": found.end, "removed": sorted({*found.deleted, *found.index_deleted})}
    assert {**result, "queues": queues} == case["result"]
    sound = said(case["store"])["queues"]
    cut = {queue: sound[queue][1] - ends[1] for queue, ends in queues.items() if ends[1] < sound[queue][1]}
    assert {queue: seconds for queue, seconds in found.waits().items() if queue in cut} == found.waits()


def test_messages_without_a_unit_are_told(replayed: Callable[..., Recovery]) -> None:
    case = next(c for c in cases() if c["recipe"][0]["file"] == "consumequeue/Beta/0/00000000000000000807")
    found = replayed(case)
    served, sound = case["result"]["queues"]["Beta/0"][1], said(case["store"])["queues"]["Beta/0"][1]
    passed_over = 1  # its unit would lie in front of the write position, which is 7 bytes too far
    assert found.waits() == {"Beta/0": sound - served - passed_over}
    assert found.undispatched.by_topic == {"Beta": sound - served - passed_over}
    assert not found.is_harmless
