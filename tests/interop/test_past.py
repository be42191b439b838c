"""`--at` of moments against what the admin of a released broker answered at each, under load. Needs Java and Maven.

With RMQCTL_INTEROP=all also ten minutes of each family, with retention.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.interop.judge import class_path, has_java, java
from tests.interop.kafka_node import Node, format_directory, rounds
from tests.kafka import recorded_past_helpers as kafka_past
from tests.rocketmq import recorded_past_helpers as rocketmq_past

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
_KAFKA = {
    "log.cleaner.backoff.ms": 300, "log.initial.task.delay.ms": 300, "log.retention.check.interval.ms": 700,
    "log.segment.delete.delay.ms": 200, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "offsets.topic.num.partitions": 3,
}  # fmt: skip
_ROCKETMQ = (
    "mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=2000", "maxHashSlotNum=500", "maxIndexNum=2000",
    "timerWheelEnable=true", "transactionCheckInterval=5000", "transactionTimeOut=3000",
)  # fmt: skip
_MOMENTS, _PATIENCE = 40, 600
_LONG, _STEPS, _PAUSE = 60, 40, 250
"""Moments, steps to each and ms after each step: ten minutes."""
_EXPIRES = 60_000
"""After how many ms log files of RocketMQ are deleted there."""
_is_long = pytest.mark.skipif(os.environ.get("RMQCTL_INTEROP") != "all", reason="ten minutes; RMQCTL_INTEROP=all")


@pytest.mark.parametrize("rolls", ["true", "false"])
@pytest.mark.parametrize("release", ["4.3.1", "3.9.2"])
def test_a_kafka_broker(release: str, rolls: str, tmp_path: Path, compiled: Path) -> None:
    for seed in range(rounds(1, 6)):
        seen = kafka_seen(release, seed, rolls, tmp_path / str(seed), compiled, (_MOMENTS, 20, 0))
        keys = ("log_end_offset", "last_stable_offset", "consumer_offset", "state", "last_sequence")
        assert all(seen[f"{key} equal"] >= _MOMENTS for key in keys), seen
        assert rolls == "true" or not seen["consumer_offset unknown: compaction"]


@_is_long
def test_a_kafka_broker_for_ten_minutes(tmp_path: Path, compiled: Path) -> None:
    seen = kafka_seen("4.3.1", 11, "true", tmp_path / "long", compiled, (_LONG, _STEPS, _PAUSE))
    assert all(seen[f"{key} equal"] >= _LONG for key in ("log_start_offset", "log_end_offset")), seen


def kafka_seen(
    release: str, seed: int, rolls: str, work: Path, compiled: Path, load: tuple[int, int, int]
) -> Counter[str]:
    """Compare what the admin said while a broker was at work; how often what was equal or unknown."""
    work.mkdir()
    logs, seen = work / "logs", Counter[str]()
    format_directory(release, logs, compiled)
    moments, steps, pause = load
    with Node(release, logs, compiled, _KAFKA) as node:
        recorded = node.ask("record", seed, moments, steps, rolls, pause)
    assert len(recorded) == moments
    assert [one for moment in recorded for one in kafka_past.differences(logs, moment, seen)] == []
    return seen


@pytest.mark.parametrize("release", ["5.5.0"])
def test_a_rocketmq_broker(release: str, tmp_path: Path, compiled: Path) -> None:
    for seed in range(rounds(1, 6)):
        seen = rocketmq_seen(release, seed, tmp_path / str(seed), compiled, (_MOMENTS, 25))
        assert all(seen[f"{key} equal"] >= _MOMENTS for key in ("max_offset", "min_offset")), seen


@_is_long
def test_a_rocketmq_broker_for_ten_minutes_with_retention(tmp_path: Path, compiled: Path) -> None:
    seen = rocketmq_seen("5.5.0", 11, tmp_path / "long", compiled, (_LONG, _STEPS), pause=_PAUSE, expires=_EXPIRES)
    assert seen["max_offset equal"] >= _LONG, seen
    assert sum(n for what, n in seen.items() if what.endswith("unknown: retention")), seen


def rocketmq_seen(
    release: str, seed: int, work: Path, compiled: Path, load: tuple[int, int], **properties: int
) -> Counter[str]:
    """Compare what a broker said while it was at work; how often what was equal or unknown."""
    work.mkdir()
    words = (work / "store", seed, *load, *_ROCKETMQ)
    classes = class_path(release, compiled, "RecordBroker")
    command = java(classes, work / "home", "RecordBroker", *words, **properties)
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=work, timeout=_PATIENCE + (1200 if properties else 0)
    )
    assert done.returncode == 0, done.stderr[-2000:]
    seen = Counter[str]()
    recorded = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(recorded) == load[0]
    assert [one for m in recorded for one in rocketmq_past.differences(work / "store", m, seen)] == []
    return seen
