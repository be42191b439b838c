"""What `rmqctl convert` makes under released brokers: served whole, groups go on where they were: needs Java and Maven."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.filters import Filters
from rmqctl.opening import open_store
from rmqctl.text import raw
from tests.interop.brokers_helpers import run
from tests.interop.compare import dumped, geometry
from tests.interop.judge import has_java
from tests.interop.kafka_node import Node

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
Rmqctl = Callable[..., Result]


def text(value: Any) -> str | None:
    return None if value is None else base64.b64encode(raw(value)).decode()


def records(logs: Path, topic: str) -> list[Any]:
    """Records of a topic as the client shows them."""
    store, found = open_store(str(logs)), []
    for row in store.topics(topic=topic):
        number = row["partition"]
        for record in store.query_offset(topic, number, row["log_start_offset"], Filters(limit=1 << 30)):
            if record["kind"] == "record":
                headers = [[text(name), text(value)] for name, value in record["headers"]]
                found.append(
                    [number, record["offset"], record["timestamp"], text(record["key"]), text(record["value"]), headers]
                )
    return found


@pytest.mark.parametrize(("source", "release"), [("5.5.0-crash", "4.3.1"), ("4.9.8-clean", "3.9.2")])
def test_a_kafka_broker_serves_a_rocketmq_store(
    source: str, release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path
) -> None:
    logs = tmp_path / "logs"
    made = rmqctl("convert", golden.pristine(source), logs, "--as-release", release, "--offsets-partitions", "3")
    assert made.exit_code == 0, made.stderr
    topics = sorted({row["topic"] for row in open_store(str(logs)).topics() if row["records"]} - {"__consumer_offsets"})
    with Node(release, logs, compiled) as node:
        for topic in topics:
            assert sorted(node.ask("read", "read_committed", topic)) == sorted(records(logs, topic)), topic
        committed = [
            r for r in open_store(str(logs)).lag() if r["topic"] in topics and r["group"] != "rmq-delay-offsets"
        ]
        wanted: dict[tuple[str, str], dict[int, int]] = {}
        for row in committed:
            wanted.setdefault((row["group"], row["topic"]), {})[row["partition"]] = row["consumer_offset"]
        resumed = 0
        for (group, topic), offsets in wanted.items():
            if len(offsets) < len({r["partition"] for r in open_store(str(logs)).topics(topic=topic)}):
                continue  # the client asks for all partitions
            left = [one for one in records(logs, topic) if one[1] >= offsets[one[0]]]
            assert sorted(node.ask("resume", group, topic)) == sorted(left), (group, topic)
            resumed += bool(left)
        assert resumed
        assert node.errors == []
        assert len(node.ask("write", "LabOne", 20)) == 20
    assert rmqctl("verify", logs).exit_code == 0
    assert len(records(logs, "LabOne")) == 32


@pytest.mark.parametrize(("source", "release"), [("4.3.1-crash", "5.5.0"), ("3.9.2-clean", "4.9.7")])
def test_a_rocketmq_broker_serves_a_kafka_directory(
    source: str, release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path
) -> None:
    root = tmp_path / "store"
    made = rmqctl("convert", golden.pristine(source), root, "--as-release", release, "--small")
    assert made.exit_code == 0, made.stderr
    before = dumped(rmqctl, root)
    topics = sorted({m["topic"] for m in before.values()})
    committed: dict[str, dict[tuple[str, int], int]] = {}
    for row in open_store(str(root)).lag():
        if row["topic"] in topics:
            committed.setdefault(row["group"], {})[row["topic"], row["queue_id"]] = row["consumer_offset"]
    groups = ",".join(f"{group}@{'+'.join(sorted({t for t, _ in at}))}" for group, at in committed.items())
    answer = run(compiled, release, root, topics, 20, geometry(root), groups=groups, silence=12_000)
    received = {m["physical"]: m for m in answer["received"]}
    assert len(received) == len(answer["received"])
    assert received == before
    left = 0
    for group, messages in answer["resumed"]:
        at, mine = committed[group], {topic for topic, _ in committed[group]}
        wanted = {
            p: m for p, m in before.items() if m["topic"] in mine and m["offset"] >= at.get((m["topic"], m["queue"]), 0)
        }
        assert {m["physical"]: m for m in messages} == wanted, group
        left += len(wanted)
    assert left
    assert len(answer["resumed"]) == len(committed)
    assert len(answer["sent"]) == 20
    assert rmqctl("verify", root).exit_code == 0
    after = dumped(rmqctl, root)
    assert {p: m for p, m in after.items() if p in before} == before
    assert sum(m["properties"].get("KEYS", "").startswith("sent-") for m in after.values()) == 20
