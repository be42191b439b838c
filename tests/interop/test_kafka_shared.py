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


def test_a_share_group_that_was_set_begins_there(tmp_path: Path, compiled: Path, rmqctl: Rmqctl) -> None:
    logs = tmp_path / "logs"
    format_directory("4.3.1", logs, compiled, "share.version=1")
    with Node("4.3.1", logs, compiled, SETTINGS) as node:
        node.ask("share", "create", "t", 1)
        node.ask("write", "t", 60)
        for group in ("back", "on", "online"):
            node.ask("share", "take", group, "t", 40, "aaaraax")
        node.ask("share", "reset", "online", "t", 0, 12)
    before = {row["group"]: row["consumer_offset"] for row in rows(rmqctl, "offsets", logs)}
    assert before["online"] == 12
    (log,) = [p for p in logs.glob("__share_group_state-*/*.log") if b"online" in p.read_bytes()]
    online = [r["decoded"] for r in rows(rmqctl, "dump", log, "--records") if r["kind"] == "record"][-1]
    for group, to in (("back", 3), ("on", 57), ("online", 20)):
        done = rmqctl("offsets", logs, "set", "--group", group, "--to", to, "--apply", "--yes")
        assert done.exit_code == 0, done.stderr
    ours = [r["decoded"] for r in rows(rmqctl, "dump", log, "--records") if r["kind"] == "record"][-1]
    assert ours["value"].keys() == online["value"].keys()
    assert rmqctl("verify", logs, "--no-notes").exit_code == 0
    with Node("4.3.1", logs, compiled, SETTINGS) as node:
        found = {group: node.ask("share", "offsets", group) for group in ("back", "on", "online")}
        assert found == {"back": [["t", 0, 3, 57]], "on": [["t", 0, 57, 3]], "online": [["t", 0, 20, 40]]}
        assert [node.ask("share", "take", group, "t", 57, "a")[0] for group in ("back", "on")] == [57, 3]
        node.ask("share", "reset", "on", "t", 0, 1)  # what a broker is asked for afterwards it does
        assert node.ask("share", "offsets", "on") == [["t", 0, 1, 59]]
        node.ask("share", "delete", "back")
        assert node.ask("share", "offsets", "back") == []
