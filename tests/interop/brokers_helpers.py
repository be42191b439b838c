"""What tests of RocketMQ brokers share: how one is started, and what it answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fixtures import damage, golden
from fixtures.random_damage import Damager
from tests.interop.judge import Judge, class_path, java, settings_of
from tests.interop.questions import Known
from tests.interop.recovered import base_of, files, judged, replayed

FAMILIES = {"4.9.7": "4.9.8", "5.5.0": "5.5.0"}
"""Release of the broker -> release of the store it is given."""


PATIENCE = 600
"""Seconds that a broker may take on a busy machine; a quiet one needs 20."""


def run(
    compiled: Path,
    release: str,
    root: Path,
    topics: Sequence[str],
    send: int,
    settings: Sequence[str],
    **properties: object,
) -> dict[str, Any]:
    """A broker on a store until a consumer has all messages of the topics and a producer has sent more."""
    classes = class_path(release, compiled, "WholeBroker")
    command = java(classes, root.parent / "home", "WholeBroker", root, ",".join(topics), send, *settings, **properties)
    done = subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE, cwd=root.parent)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for message in (*answer["received"], *(m for _, messages in answer["resumed"] for m in messages)):
        for name in ("MIN_OFFSET", "MAX_OFFSET"):  # the client notes the ends of the queue
            message["properties"].pop(name, None)
    return answer


def started(judge: Judge, release: str, seeds: Sequence[int], directory: Path) -> dict[int, tuple[Any, Any]]:
    """What the replay and the classes say of the store that each seed damages. Starts that ran out of memory are left out."""
    ours, stores, found = {}, {}, {}
    damagers = {base: Damager(base) for base in {base_of(release, seed) for seed in seeds}}
    for seed in seeds:
        base = base_of(release, seed)
        root = golden.unpack(base, directory / str(seed))
        damage.apply(damagers[base].recipe(seed), root)
        stores[str(seed)] = (root, files(root), settings_of(golden.broker_conf(base)))
        ours[seed] = replayed(root, base, release)
    asked = [(seed, "judge", (root, *settings)) for seed, (root, _, settings) in stores.items()]
    for seed, answer in judge.ask_all(asked):
        root, before, _ = stores[seed]
        if "OutOfMemoryError" not in str(answer.get("problem")):
            found[int(seed)] = (ours[int(seed)], judged(answer, before, root))
        shutil.rmtree(directory / seed)
    return found


def known_of(name: str) -> list[Known]:
    """Messages of a golden store."""
    return [
        Known(t["topic"], t["queueId"], t["queueOffset"], t["storeTimestamp"], keys_of(t["properties"]))
        for t in golden.truth(name)
        if t["kind"] == "msg"
    ]


def keys_of(properties: dict[str, str]) -> tuple[str, ...]:
    """Keys that the index holds of a message; one that it does not hold where there are none."""
    found = (*(k for k in properties.get("KEYS", "").split(" ") if k), properties.get("UNIQ_KEY", ""))
    return tuple(k for k in found if k) or ("no key",)


WORKERS = 8


def side_by_side(make: Iterable[tuple[str, Callable[[], None]]], workers: int = WORKERS) -> list[str]:
    """Run checks as they are made; what is wrong, by name."""
    with ThreadPoolExecutor(workers) as pool:
        return [wrong for wrong in pool.map(_why_not, make) if wrong]


def _why_not(named: tuple[str, Callable[[], None]]) -> str:
    name, check = named
    try:
        check()
    except Exception:  # noqa: BLE001 -- the other stores go on
        return f"{name}: {traceback.format_exc()}"
    return ""
