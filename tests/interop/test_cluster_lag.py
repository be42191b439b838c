"""The lag of groups over a cluster of brokers: what the administrator's class says of it. Needs Java and Maven."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.interop.brokers_helpers import PATIENCE
from tests.interop.judge import class_path, has_java, java

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
BROKERS = ("broker-a", "broker-b", "broker-c")
SETTINGS = (
    "mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=60000", "maxHashSlotNum=1000", "maxIndexNum=4000",
    "messageDelayLevel=1s 2s 3s 8s 10s",
)  # fmt: skip


@pytest.mark.parametrize("release", ["5.5.0"])
def test_three_brokers(release: str, compiled: Path, tmp_path: Path, rmqctl: Callable[..., Result]) -> None:
    """Queue by queue and as a sum: for a group, for a group and a topic, for what waits in a retry topic; brokers on
    which a group has stored nothing are in neither answer.
    """
    stores = tmp_path / "stores"
    classes = class_path(release, compiled, "BrokerCluster")
    command = java(classes, tmp_path / "home", "BrokerCluster", stores, ",".join(BROKERS), *SETTINGS)
    done = subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert all(answer["diff"] for answer in answers if answer["group"] != "gBack")
    inventory = tmp_path / "fleet.toml"
    each = (f'[[store]]\npath = "{stores / name}"\nname = "{name}"\ncluster = "c"\n' for name in BROKERS)
    inventory.write_text("".join(each), "utf-8")
    for answer in answers:
        group, topic = answer["group"], answer["topic"]
        words = ("--group", group, *(("--topic", topic) if topic else ()))
        lines = rmqctl("lag", f"@{inventory}", *words, "-o", "jsonl").stdout.splitlines()
        rows = [row for row in map(json.loads, lines) if row["lag"] is not None]
        names = ("store", "topic", "queue_id", "max_offset", "consumer_offset")
        assert sorted([row[name] for name in names] for row in rows) == sorted(answer["rows"])
        condition = f"`group` = '{group}'" + (f" and topic = '{topic}'" if topic else "")
        query = f"select cluster, sum(lag) n from consumer_offsets where {condition} group by cluster"
        asked = rmqctl("sql", f"@{inventory}", query, "-o", "jsonl")
        assert [json.loads(line) for line in asked.stdout.splitlines()] == [{"cluster": "c", "n": answer["diff"]}]
