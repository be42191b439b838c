"""Log directories of ``rmqctl produce`` under released brokers: served whole, written on, taken over again: needs Maven."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rmqctl.filters import Filters
from rmqctl.opening import open_store
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, Node

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


def raw(value: Any) -> str | None:
    """What a row shows, as base64."""
    if value is None:
        return None
    if isinstance(value, dict):
        return str(value["base64"])
    return base64.b64encode(value.encode()).decode()


def expected(logs: Path, topic: str, *, committed: bool) -> list[Any]:
    """The records that a consumer should get."""
    store, found = open_store(str(logs)), []
    for number, first in sorted((row["partition"], row["log_start_offset"]) for row in store.topics(topic=topic)):
        for row in store.query_offset(topic, number, first, Filters(limit=1 << 30), read_committed=committed):
            if row["kind"] == "record":
                headers = [[raw(name), raw(value)] for name, value in row["headers"]]
                found.append([number, row["offset"], row["timestamp"], raw(row["key"]), raw(row["value"]), headers])
    return found


def findings(logs: Path) -> list[Any]:
    rows = open_store(str(logs)).verify().rows
    return [row for row in rows if row is not None and row.get("severity") in ("error", "warning")]


def check_served(node: Node, logs: Path) -> None:
    for topic in sorted({row["topic"] for row in open_store(str(logs)).topics()} & {*TOPICS, "later"}):
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
    assert "ERROR" not in node.log, [line for line in node.log.splitlines() if "ERROR" in line][:5]


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
