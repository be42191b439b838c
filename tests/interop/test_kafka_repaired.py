"""Repaired Kafka log directories under released brokers: nothing is cut, everything is served, producers go on."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory import read_directory
from rmqctl.kafka.repair.survey import Survey
from rmqctl.opening import open_store
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, Node
from tests.interop.test_kafka_produced import expected

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
Rmqctl = Callable[..., Result]
WRITTEN_ON = ("plain-none", "idem", "txn-a", "z-gzip")


def damage(root: Path, draw: random.Random) -> int:
    """Destroy three places in every partition of users: bodies of two batches, and two whole batches; how many."""
    count = 0
    for partition in read_directory(LocalTree(str(root))).partitions:
        if not partition.is_plain or partition.topic.startswith("__"):
            continue
        survey = Survey(partition)
        if len(survey) < 6:
            continue
        for row in draw.sample(range(1, len(survey) - 1), 2):
            batch = survey.batch(row)
            _overwrite(root / survey.files[batch.segment].name, batch.position + 61, bytes(batch.size - 61))
            count += 1
        first = survey.batch(row := draw.randrange(1, len(survey) - 3))
        second = survey.batch(row + 1)
        if first.segment == second.segment:
            size = second.end - first.position
            _overwrite(root / survey.files[first.segment].name, first.position, draw.randbytes(size))
            count += 1
    return count


def _overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("state", ["crash", "clean"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_serves_what_was_repaired_and_goes_on(
    release: str, state: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path
) -> None:
    root = golden.unpack(f"{release}-{state}", tmp_path)
    assert damage(root, random.Random(release + state)) > 50
    made = rmqctl("repair", root, "--apply", "-o", "json")
    assert "would not start" not in made.stdout
    assert "would cut" not in made.stdout
    logs = {path: path.read_bytes() for path in root.rglob("*.log") if "__cluster_metadata" not in str(path)}
    rows = list(open_store(str(root)).topics())
    topics = sorted({row["topic"] for row in rows})
    stable = {(row["topic"], row["partition"]): row["last_stable_offset"] for row in rows}
    wanted = {(t, c): sorted(expected(root, t, committed=c)) for t in topics for c in (False, True)}
    with Node(release, root, compiled) as node:
        for (topic, committed), records in wanted.items():
            isolation = "read_committed" if committed else "read_uncommitted"
            if not topic.startswith("__"):
                got = sorted(node.ask("read", isolation, topic))
                if committed:  # the coordinator aborts what hung at the crash, and readers then come further
                    got = [record for record in got if record[1] < stable[topic, record[0]]]
                assert got == records, (topic, isolation)
        assert "ERROR" not in node.log, [line for line in node.log.splitlines() if "ERROR" in line][:5]
        for path, data in logs.items():
            assert not path.exists() or path.read_bytes().startswith(data), f"{path} was cut"
        for topic in WRITTEN_ON:
            assert len(node.ask("write", topic, 20)) == 20
            assert len(node.ask("write", topic, 20, f"id-{topic}")) == 20
    errors = [row for row in open_store(str(root)).verify().rows if row and row.get("severity") == "error"]
    assert errors == []
