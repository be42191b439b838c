"""A queue's directory under another name, which brokers serve under the wrong topic: an error, and moved back by plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from tests.repair.stores import state_of

RENAMED = {
    "a topic": [("consumequeue/LabLog", "consumequeue/LabLag")],
    "a queue": [("consumequeue/LabLog/1", "consumequeue/LabLog/11")],
    "to another topic": [("consumequeue/LabLog/1", "consumequeue/LabOne/1")],
    "exchanged": [
        ("consumequeue/LabLog/0", "consumequeue/x"),
        ("consumequeue/LabLog/1", "consumequeue/LabLog/0"),
        ("consumequeue/x", "consumequeue/LabLog/1"),
    ],
    "a batch topic": [("batchconsumequeue/LabBatchCq", "batchconsumequeue/Other")],
}


def found_in(root: Path, rmqctl: Callable[..., Result]) -> list[str]:
    rows = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    return [row["id"] for row in rows if row.get("severity") == "error"]


@pytest.mark.parametrize("case", RENAMED)
def test_moved_back(case: str, tmp_path: Path, rmqctl: Callable[..., Result]) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    before = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    for old, new in RENAMED[case]:
        (root / new).parent.mkdir(exist_ok=True)
        (root / old).rename(root / new)
    damaged = state_of(root)
    assert set(found_in(root, rmqctl)) == {"queue.directory-name"}
    plan = json.loads(rmqctl("repair", root, "-o", "json").stdout)
    assert [step["id"] for step in plan["steps"]] == ["queue.directory-name"]
    assert rmqctl("repair", root, "--apply").exit_code == 0
    assert {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()} == before
    assert found_in(root, rmqctl) == []
    assert rmqctl("undo", root, "--yes").exit_code == 0
    assert state_of(root) == damaged


def test_a_copy_goes_into_quarantine(tmp_path: Path, rmqctl: Callable[..., Result]) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    before = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    golden.copy_tree(root / "consumequeue" / "LabLog" / "1", root / "consumequeue" / "LabLog" / "11")
    assert "which is there, too" in rmqctl("verify", root, "-o", "jsonl").stdout
    assert rmqctl("repair", root, "--apply").exit_code == 0
    assert {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()} == before
    assert not (root / "consumequeue" / "LabLog" / "11").exists()
