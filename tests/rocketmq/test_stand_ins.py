"""Records that stand for destroyed ones are counted as such by verify and doctor, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.log.stand_ins import TEXT, is_marked, stand_ins
from rmqctl.rocketmq.store.locate import open_store as files_at

BODIES = ("placeholder: the message stored here was destroyed", "placeholder", "p", "place of order", "-1,", "-1", "pl")


def _found(root: Path) -> tuple[int, int]:
    """How many stand-ins the columns show, and how many each record by itself."""
    by_column = by_record = 0
    for part in CommitLog(files_at(LocalTree(root)).log_files, crashed=True).walk():
        by_column += len(stand_ins(part.block))
        by_record += sum(is_marked(part.block.record(row)) for row in range(len(part.block)))
    return by_column, by_record


@pytest.mark.parametrize("name", golden.NAMES)
def test_stores_of_brokers_have_none(name: str) -> None:
    assert _found(golden.pristine(name)) == (0, 0)


def test_bodies_that_look_like_one_are_messages(tmp_path: Path, rmqctl: Any) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{body}\n" for body in BODIES))
    assert BODIES[0].encode() == TEXT
    rmqctl("produce", tmp_path / "s", "--topic", "T", "--lines", lines, "--small")
    assert _found(tmp_path / "s") == (0, 0)
    assert json.loads(rmqctl("verify", tmp_path / "s", "-o", "json").stdout)["summary"]["placeholders"] == 0


@pytest.mark.parametrize("count", [40, 400])
@pytest.mark.parametrize("body", ["", "x" * 7, "x" * 200])
def test_after_a_repair_each_is_counted(count: int, body: str, tmp_path: Path, rmqctl: Any) -> None:
    """A page of zeros and a flipped body: what the books count as placeholders is what verify and doctor count."""
    root = tmp_path / "s"
    rmqctl("produce", root, "--topic", "T", "--count", count, "--body", f"{body}{{n}}" if body else "b{n}", "--small")
    log = next((root / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(2000)
        file.write(bytes(1500))
    books = json.loads(rmqctl("repair", root, "-o", "json").stdout)["summary"]["books"]
    rmqctl("repair", root, "--apply", "--yes")
    assert books["placeholders"] > 0 and books["balances"]
    by_column, by_record = _found(root)
    assert by_column == by_record > 0
    summary = json.loads(rmqctl("verify", root, "-o", "json").stdout)["summary"]
    assert not any(summary["findings"].values())
    counted = summary["placeholders"]
    assert counted == by_column
    assert json.loads(rmqctl("doctor", root, "-o", "json").stdout)["checked"]["placeholders"] == counted
    said = " ".join(rmqctl("doctor", root).stdout.split())
    assert "Nothing is wrong" in said
    assert f"({counted} placeholders for what was destroyed among them)" in said
    several = json.loads(rmqctl("verify", root, "--processes", "2", "-o", "json").stdout)
    assert several["summary"]["placeholders"] == counted
