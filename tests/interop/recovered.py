"""One start of a damaged store, by the classes of a release and by the replay, in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store

DIRECTORIES = ("commitlog", "consumequeue", "batchconsumequeue", "index")
NOT_STARTED: dict[str, Any] = {"starts": False}


def base_of(release: str, seed: int) -> str:
    """The golden store that a seed damages: stopped and crashed ones in turn."""
    return f"{release}-{'clean' if seed % 2 else 'crash'}"


def files(root: Path) -> set[str]:
    """Log, queue and index files of a store, by name."""
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in found if path.parts[0] in DIRECTORIES}


def replayed(root: Path, base: str, release: str) -> dict[str, Any]:
    """What ``rmqctl recover`` says: end of the log, files that go, first and next offset of queues that are not empty."""
    store = open_store(LocalTree(root), settings=golden.broker_conf(base))
    found = recover(store, Release.parse(release))
    if not found.starts:
        return NOT_STARTED
    queues = {f"{topic}/{queue}": [low, high] for topic, queue, low, high in found.ranges()}
    return {
        "starts": True,
        "end": found.end,
        "removed": sorted({*found.deleted, *found.index_deleted}),
        "queues": queues,
    }


def judged(answer: dict[str, Any], before: set[str], root: Path) -> dict[str, Any]:
    """What the classes did: ``answer`` of the judge, with the files that were there before and those that are there now."""
    if answer.get("outcome") != "started":
        return NOT_STARTED
    after = answer["afterStart"]
    queues = {name: ends for name, ends in after["queues"].items() if ends[1] > 0}
    return {"starts": True, "end": after["maxPhy"], "removed": sorted(before - files(root)), "queues": queues}
