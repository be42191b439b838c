"""The counts of docs/counts.md: what each command counts, and how these numbers hang together."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden

Rmqctl = Any


def rows(rmqctl: Rmqctl, *words: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqctl(*words, "-o", "jsonl").stdout.splitlines()]


def document(rmqctl: Rmqctl, *words: Any) -> Any:
    return json.loads(rmqctl(*words, "-o", "json").stdout)


@pytest.mark.parametrize("name", ["4.9.8-clean", "5.5.0-clean"])
def test_messages_and_records_of_rocketmq(name: str, rmqctl: Rmqctl) -> None:
    store: Path = golden.pristine(name)
    dumped = [row for row in rows(rmqctl, "dump", store) if row["kind"] == "message"]
    messages = sum(len(row.get("inner") or [row]) for row in dumped)
    queued = sum(row["messages"] for row in document(rmqctl, "topics", store))
    stats = document(rmqctl, "stats", store)["all"][0]
    assert document(rmqctl, "verify", store)["summary"]["messages"] == messages
    assert (stats["messages"], stats["records"]) == (messages, len(dumped))
    unqueued = [row for row in dumped if row["transaction"] in {"prepared", "rollback"}]
    assert queued + len(unqueued) == messages


def test_records_of_kafka(rmqctl: Rmqctl) -> None:
    logs: Path = golden.pristine("4.3.1-clean")
    found = Counter(
        (row["file"].partition("/")[0], row["topic"]) for row in rows(rmqctl, "dump", logs, "--records")
        if row["kind"] == "record"
    )  # fmt: skip
    as_found = sum(found.values())
    being_deleted = sum(count for (directory, _), count in found.items() if directory.endswith("-delete"))
    metadata = sum(count for (_, topic), count in found.items() if topic == "__cluster_metadata")
    assert being_deleted
    assert metadata
    assert document(rmqctl, "verify", logs)["summary"]["messages"] == as_found
    assert document(rmqctl, "stats", logs)["all"][0]["records"] == as_found - being_deleted
    listed = document(rmqctl, "topics", logs)
    assert sum(row["records"] for row in listed) == as_found - being_deleted - metadata
    assert document(rmqctl, "info", logs)["partitions"] == len(listed) + 1
