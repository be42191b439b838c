"""`trace` of records that clients of a released Kafka broker gave random fates, against what the clients did and got.

Needs Java and Maven.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.interop.judge import has_java
from tests.interop.kafka_node import Node, format_directory, rounds
from tests.interop.test_kafka_shared import SETTINGS as SHARES
from tests.kafka.fates_helpers import Clients, damaged, wrong_fates, wrong_lives

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
COUNT, DAMAGES = 300, 40
SETTINGS = {
    **SHARES, "log.cleaner.backoff.ms": 300, "log.initial.task.delay.ms": 300, "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 200, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "log.cleaner.dedupe.buffer.size": 4 << 20, "offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2,
}  # fmt: skip


def made(release: str, seed: int, rolls: str, is_killed: bool, work: Path, compiled: Path) -> list[list[Any]]:
    """Let a broker and its clients make ``work/logs``, with a stop between; what the clients recorded."""
    logs, recorded = work / "logs", list[list[Any]]()
    format_directory(release, logs, compiled, "share.version=1")
    for phase in (1, 2):
        with Node(release, logs, compiled, SETTINGS) as node:
            recorded += node.ask("fates", phase, seed, COUNT // 2, rolls)
            if phase == 2:
                recorded += node.ask("fates", "end")
                if is_killed:
                    node.kill()
    return recorded


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("rolls", ["false", "true"])
def test_records_of_a_kafka_broker(rolls: str, is_killed: bool, tmp_path: Path, compiled: Path) -> None:
    """``rolls``: whether commits of groups are compacted, too."""
    for seed in range(rounds(1, 5)):
        work = tmp_path / str(seed)
        work.mkdir()
        recorded = made("4.3.1", seed, rolls, is_killed, work, compiled)
        clients = Clients(recorded, is_rolled=rolls == "true", is_killed=is_killed)
        assert len(clients.messages) >= COUNT
        seen = Counter(clients.fate(place) for place in clients.messages)
        assert len(seen) > 7, seen
        assert list(wrong_lives(clients, work / "logs")) == []
        for number in range(DAMAGES):
            chance, copy = random.Random(number), work / "copy"
            shutil.copytree(work / "logs", copy)
            done = damaged(copy, chance)
            assert list(wrong_fates(clients, copy, chance)) == [], (seed, number, done)
            shutil.rmtree(copy)
