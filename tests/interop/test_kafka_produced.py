"""Log directories of ``rmqctl produce`` under released brokers: served whole, written on, taken over again: needs Maven."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rmqctl.opening import open_store
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, Node
from tests.interop.kafka_produced_helpers import expected

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
Rmqctl = Callable[..., Result]
KEYED = ("--key", "ключ-{n}", "--header", "trace={n}", "--header", "ü=", "--partitions", "3")
TOPICS: dict[str, tuple[str, ...]] = {
    "plain": ("--count", "900", "--size", "10-1500", "--small", *KEYED),
    "gzip": ("--count", "300", "--size", "10-300", "--codec", "gzip", "--level", "9", *KEYED),
    "snappy": ("--count", "300", "--size", "9000-70000", "--codec", "snappy", "--batch-size", "200K"),
    "lz4": ("--count", "300", "--size", "10-300", "--codec", "lz4", "--small", *KEYED),
    "zstd": ("--count", "300", "--size", "10-300", "--codec", "zstd", "--idempotent", *KEYED),
    "committed": ("--count", "100", "--transactional", "commit", *KEYED),
    "aborted": ("--count", "100", "--transactional", "abort", "--batch", "7", *KEYED),
    "deleted": ("--count", "50", "--tombstone", *KEYED),
    "times": ("--count", "100", "--start-time", "2026-11-01T00:00:00Z", "--interval", "700ms"),
}


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def findings(logs: Path) -> list[Any]:
    rows = open_store(str(logs)).verify().rows
    return [row for row in rows if row is not None and row.get("severity") in ("error", "warning")]


def check_served(node: Node, logs: Path) -> None:
    for topic in sorted({row["topic"] for row in open_store(str(logs)).topics()} & {*TOPICS, "later", *CODECS, "tx"}):
        for committed in (False, True):
            isolation = "read_committed" if committed else "read_uncommitted"
            wanted = expected(logs, topic, committed=committed)
            assert wanted or (topic, committed) == ("aborted", True)
            assert sorted(node.ask("read", isolation, topic)) == sorted(wanted), (topic, isolation)


def check_started(node: Node, *, crashed: bool) -> None:
    """Nothing was recovered but what had to be, and nothing is a stray."""
    recovered = set(re.findall(r"partition=([\w.-]+), dir=[^]]*\] Recovering unflushed segment", node.log))
    assert crashed or recovered <= {"__cluster_metadata-0"}, recovered
    assert "stray" not in node.log.lower().replace("no stray", "").replace("strayed", ""), node.log
    assert node.errors == []


@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_serves_what_produce_wrote_and_goes_on(
    release: str, crashed: bool, rmqctl: Rmqctl, tmp_path: Path, compiled: Path
) -> None:
    logs = tmp_path / "logs"
    for number, (topic, words) in enumerate(TOPICS.items()):
        last = ("--crash",) if crashed and number == len(TOPICS) - 1 else ()
        start = () if "--start-time" in words else ("--start-time", "1780000000000")
        made = rmqctl(
            "produce", logs, "--format", "kafka", "--as-release", release, "--topic", topic, *start, *words, *last
        )
        assert made.exit_code == 0, made.stderr
    with Node(release, logs, compiled) as node:
        check_served(node, logs)
        assert len(node.ask("write", "plain", 100)) == 100
        assert len(node.ask("write", "zstd", 100, "some-id")) == 100
        check_started(node, crashed=crashed)
    assert findings(logs) == []
    for topic in ("plain", "later"):
        made = rmqctl("produce", logs, "--topic", topic, "--count", "70", "--key", "k{n}", "--idempotent")
        assert made.exit_code == 0, made.stderr
    assert findings(logs) == []
    with Node(release, logs, compiled) as node:
        check_served(node, logs)
        assert len(node.ask("write", "later", 30)) == 30
        check_started(node, crashed=False)
    assert findings(logs) == []
    assert len(expected(logs, "plain", committed=True)) == 1070


def states(logs: Path) -> dict[str, tuple[str, int]]:
    """State and producer of each transactional id."""
    return {r["transactional_id"]: (r["state"], r["producer_id"]) for r in open_store(str(logs)).transactions().rows}


def values(found: list[Any]) -> list[str]:
    return sorted({base64.b64decode(record[4]).decode().partition("-")[0] for record in found})


@pytest.mark.parametrize("release", RELEASES)
def test_engine_and_broker_take_turns(release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path) -> None:
    """Four turns in all codecs, with transactions that one side leaves open and the other one ends."""
    logs = tmp_path / "logs"
    patient = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 3_600_000}

    def produce(topic: str, *words: str) -> None:
        given = ("--format", "kafka", "--as-release", release, "--topic", topic, "--partitions", "2", "--count", "60")
        made = rmqctl("produce", logs, *given, "--key", "k{n}", *words)
        assert made.exit_code == 0, made.stderr

    def produce_all(turn: int) -> None:
        for codec in CODECS:
            produce(codec, "--codec", codec, "--body", f"{turn}-{{n}}", *(("--small",) if codec == "lz4" else ()))

    produce_all(1)
    produce("tx", "--transactional", "commit", "--transactional-id", "done", "--body", "done-{n}")
    produce("tx", "--transactional", "open", "--transactional-id", "ours", "--body", "ours-{n}")
    known = states(logs)
    assert {name: state for name, (state, _) in known.items()} == {"done": "CompleteCommit", "ours": "Ongoing"}
    with Node(release, logs, compiled, patient) as node:
        check_served(node, logs)
        for codec in CODECS:
            assert len(node.ask("write", codec, 20)) == 20
        assert len(node.ask("write", "tx", 10, "done")) == 10
        node.ask("leave", "tx", 10, "theirs")
        check_started(node, crashed=False)
    assert states(logs)["done"] == ("CompleteCommit", known["done"][1])
    assert {name: states(logs)[name][0] for name in ("ours", "theirs")} == {"ours": "Ongoing", "theirs": "Ongoing"}
    left = states(logs)["theirs"][1]
    assert findings(logs) == []
    produce_all(2)
    produce("tx", "--transactional", "commit", "--transactional-id", "theirs", "--body", "theirs-{n}")
    assert states(logs)["theirs"] == ("CompleteCommit", left)
    assert states(logs)["ours"] == known["ours"]
    assert findings(logs) == []
    with Node(release, logs, compiled, patient) as node:
        check_served(node, logs)
        assert values(node.ask("read", "read_committed", "tx")) == ["done"]  # what follows waits for "ours"
        assert len(node.ask("write", "tx", 10, "ours")) == 10
        assert values(node.ask("read", "read_committed", "tx")) == ["done", "java", "theirs"]
        assert values(node.ask("read", "read_uncommitted", "tx")) == ["done", "java", "left", "ours", "theirs"]
        check_started(node, crashed=False)
    assert {name: state for name, (state, _) in states(logs).items()} == dict.fromkeys(
        ("done", "ours", "theirs"), "CompleteCommit"
    )
    assert {name: number for name, (_, number) in states(logs).items()} == {
        "done": known["done"][1], "ours": known["ours"][1], "theirs": left
    }  # fmt: skip
    produce_all(3)
    assert findings(logs) == []
    for codec in CODECS:
        assert values(expected(logs, codec, committed=True)) == ["1", "2", "3", "java"]
