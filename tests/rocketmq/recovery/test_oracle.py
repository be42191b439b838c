"""The replay of recovery against what real brokers did with every damaged store (recovery oracle)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store
from tests.rocketmq.damage_table import Variant, variants

ALL = [variant for release in golden.RELEASES for variant in variants(release)]
_HEAP = "OutOfMemoryError"  # depends on the heap of the day


@pytest.mark.parametrize("damaged", ALL, indirect=True, ids=lambda v: f"{v.release}-{v.name}")
def test_the_replay_does_what_the_broker_did(damaged: tuple[Variant, Path]) -> None:
    variant, root = damaged
    result = golden.recovery_oracle(variant.release)["variants"][variant.name]["result"]
    if _HEAP in str(result["load"]):
        return
    found = recover(_open(root, variant), Release.parse(variant.release))
    assert found.starts == (result["outcome"] == "started"), found.error
    if found.starts:
        assert _state(found) == _expected(result)


def _open(root: Path, variant: Variant) -> Any:
    return open_store(LocalTree(root), settings=golden.broker_conf(variant.base))


def _state(found: Recovery) -> dict[str, Any]:
    return {
        "end": found.end,
        "removed": {*found.deleted, *found.index_deleted},
        "queues": {f"{topic}/{queue}": [low, high] for topic, queue, low, high in found.ranges()},
    }


def _expected(result: dict[str, Any]) -> dict[str, Any]:
    after = result["afterStart"]
    return {
        "end": after["maxPhy"],
        "removed": set(result["files"]["removed"]) - {"abort"},
        "queues": {name: ends for name, ends in after["queues"].items() if ends[1] > 0},
    }
