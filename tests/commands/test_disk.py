"""`topics --disk`: every byte is counted once, and expires when the broker's rule says."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Rmqctl

HOUR = 3600


def rows_of(rmqctl: Rmqctl, *words: object) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    *rows, summary = map(json.loads, rmqctl("topics", *words, "--disk", "-o", "jsonl").stdout.splitlines())
    return rows, summary


def used(*files: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in files)


@pytest.mark.parametrize("name", ["5.5.0-crash", "4.3.1-clean"])
def test_every_byte_is_counted_once(name: str, rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    root = golden(name)
    files = [file for file in root.rglob("*") if file.is_file()]
    for words in ([], ["--by-topic"]):
        rows, summary = rows_of(rmqctl, root, *words)
        assert sum(row["files"] for row in rows) == summary["files"] == len(files)
        assert sum(row["bytes"] for row in rows) == sum(file.stat().st_size for file in files)
        assert sum(row["bytes_used"] for row in rows) == summary["bytes_used"] == used(*files)
        assert [row["bytes_used"] for row in rows] == sorted((row["bytes_used"] for row in rows), reverse=True)


def test_files_of_the_log_expire_from_the_first_on(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    root, now = golden("5.5.0-crash"), int(time.time())
    files = sorted((root / "commitlog").iterdir())
    ages = [100, 80, 71, 60, 200, 200]  # hours; the fifth waits for the fourth, the last never goes
    for file, age in zip(files, ages, strict=True):
        os.utime(file, (now - age * HOUR,) * 2)
    (log,) = (row for row in rows_of(rmqctl, root)[0] if row["holds"] == "commit-log")
    assert log["expired_bytes"] == used(*files[:2])
    assert log["expires_timestamp"] == (now + HOUR) * 1000
    conf = root.parent / "broker.conf"
    conf.write_text("fileReservedTime=48\n")
    (log,) = (row for row in rows_of(rmqctl, root, "--broker-conf", conf)[0] if row["holds"] == "commit-log")
    assert log["expired_bytes"] == used(*files[:5])
    assert log["expires_timestamp"] is None


def test_segments_expire_by_their_largest_timestamp(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, week = tmp_path / "logs", 7 * 24 * HOUR
    now = int(time.time())
    for name, age in (("old", 2 * week), ("new", HOUR)):
        words = ["--format", "kafka", "--topic", name, "--count", 100, "--start-time", (now - age) * 1000]
        assert rmqctl("produce", root, *words, "--yes").exit_code == 0
    logs = {row["topic"]: row for row in rows_of(rmqctl, root)[0] if row["holds"] == "log"}
    assert logs["old"]["expired_bytes"] == logs["old"]["bytes_used"] == used(*(root / "old-0").glob("*.log"))
    assert logs["new"]["expired_bytes"] == 0
    assert now + week - 2 * HOUR < logs["new"]["expires_timestamp"] / 1000 < now + week


def test_what_waits_to_be_deleted_may_go(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    rows, summary = rows_of(rmqctl, golden("4.3.1-crash"))
    safe = [row for row in rows if row["fate"] == "safe"]
    assert {row["holds"] for row in safe} == {"deleted"}
    assert summary["by_fate"]["safe"] == sum(row["bytes_used"] for row in safe) > 0


def test_several_stores_are_refused(rmqctl: Rmqctl, golden: Callable[[str], Path]) -> None:
    done = rmqctl("topics", golden("5.5.0-crash"), golden("4.9.8-clean"), "--disk")
    assert done.exit_code == 2
    assert "one store" in done.stderr
