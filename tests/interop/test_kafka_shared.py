"""Share groups of a released broker: lag and the records of their state, against the Admin's answers and the official tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Rmqctl
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, SHARES, WITHOUT_TOOLS, Node, format_directory, official_dump

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
SETTINGS = {
    "share.coordinator.state.topic.replication.factor": 1, "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 2, "share.coordinator.snapshot.update.records.per.snapshot": 4,
}  # fmt: skip
GROUPS = {"all": (120, "a"), "some": (70, "aaraxa"), "moved": (30, "a"), "gone": (20, "a")}
"""How many records a group takes, and of each in turn whether it accepts (a), releases (r) or rejects it (x)."""


def rows(rmqctl: Rmqctl, *words: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqctl(*words, "-o", "jsonl").stdout.splitlines()]


@pytest.mark.parametrize("release", [release for release in RELEASES if release >= str(SHARES)])
def test_share_groups_stand_where_the_broker_says(release: str, tmp_path: Path, compiled: Path, rmqctl: Rmqctl) -> None:
    logs, answers = tmp_path / "logs", {}
    format_directory(release, logs, compiled, "share.version=1")
    with Node(release, logs, compiled, SETTINGS) as node:
        node.ask("share", "create", "t", 2)
        node.ask("write", "t", 120)
        for group, (count, acknowledged) in GROUPS.items():
            (taken,) = node.ask("share", "take", group, "t", count, acknowledged)
            assert taken >= count
        node.ask("share", "reset", "moved", "t", 0, 7)
        node.ask("share", "delete", "gone")
        for group in GROUPS:
            answers[group] = sorted(node.ask("share", "offsets", group)) if group != "gone" else []
    found = {
        group: [[r["topic"], r["partition"], r["consumer_offset"], r["lag"]] for r in rows(rmqctl, "lag", logs, "--group", group)]
        for group in GROUPS
    }  # fmt: skip
    assert found == answers
    assert [lag for _, _, _, lag in answers["all"]] == [0, 0]
    kinds = set()
    for log in sorted(logs.glob("__share_group_state-*/*.log")):
        kinds |= {r["decoded"]["type"] for r in rows(rmqctl, "dump", log, "--records") if r["kind"] == "record"}
        words = ("--deep-iteration", "--print-data-log", "--share-group-state-decoder")
        ours = rmqctl("dump", log, "-o", "kafka-dump-log", "--as-release", release, *words).stdout.splitlines()
        assert release in WITHOUT_TOOLS or ours == official_dump(release, compiled, "--files", str(log), *words)
    assert len(kinds) == 2, "snapshots, and updates of them"
