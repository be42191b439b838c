"""`--at` of moments against what the admin of a released broker answered at each, under load. Needs Java and Maven."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("rolls", ["true", "false"])
@pytest.mark.parametrize("release", ["4.3.1", "3.9.2"])
def test_a_kafka_broker(release: str, rolls: str, tmp_path: Path, compiled: Path) -> None:
    for seed in range(rounds(1, 6)):
        work = tmp_path / str(seed)
        work.mkdir()
        logs, seen = work / "logs", Counter[str]()
        format_directory(release, logs, compiled)
        with Node(release, logs, compiled, _KAFKA) as node:
            moments = node.ask("record", seed, _MOMENTS, 20, rolls)
        assert [one for moment in moments for one in kafka_past.differences(logs, moment, seen)] == []
        keys = ("log_end_offset", "last_stable_offset", "consumer_offset", "state", "last_sequence")
        assert all(seen[f"{key} equal"] >= _MOMENTS for key in keys), seen
        assert rolls == "true" or not seen["consumer_offset unknown: compaction"]


@pytest.mark.parametrize("release", ["5.5.0"])
def test_a_rocketmq_broker(release: str, tmp_path: Path, compiled: Path) -> None:
    for seed in range(rounds(1, 6)):
        work = tmp_path / str(seed)
        work.mkdir()
        words = (work / "store", seed, _MOMENTS, 25, *_ROCKETMQ)
        command = java(class_path(release, compiled, "RecordBroker"), work / "home", "RecordBroker", *words)
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=work, timeout=_PATIENCE)
        assert done.returncode == 0, done.stderr[-2000:]
        seen = Counter[str]()
        moments = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(moments) == _MOMENTS
        assert [one for m in moments for one in rocketmq_past.differences(work / "store", m, seen)] == []
        assert all(seen[f"{key} equal"] >= _MOMENTS for key in ("max_offset", "min_offset")), seen
