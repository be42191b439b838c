"""``--force`` passes over what is asked before a run; what is written is what was shown, and books stay books."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.repair import books
from tests.conftest import Rmqctl
from tests.writers import (
    crashed_kafka,
    crashed_rocketmq,
    damaged_kafka,
    damaged_rocketmq,
    flipped_rocketmq,
)

COMMANDS = [
    ("repair", damaged_rocketmq),
    ("repair", flipped_rocketmq),
    ("repair", damaged_kafka),
    ("recover", crashed_rocketmq),
    ("recover", crashed_kafka),
    ("rebuild", damaged_rocketmq),
    ("rebuild", damaged_kafka),
]
on_each = pytest.mark.parametrize(("command", "prepare"), COMMANDS, ids=[f"{c}-{p.__name__}" for c, p in COMMANDS])


_NOW = re.compile(r"index/202[4-9]\d{13}")
"""Index files are called by the time at which they are made; those of the store by times of 2023."""


def contents(root: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    return {_NOW.sub("index/NOW", name): data for name, data in found.items()}


def shown(text: str, root: Path) -> Any:
    """What a command says that it does; places and times apart."""
    document = json.loads(_NOW.sub("index/NOW", text.replace(str(root), "STORE")))
    return document.get("steps", document.get("changes", document)) if isinstance(document, dict) else document


@on_each
def test_what_is_written_is_what_was_shown(
    command: str, prepare: Callable[[Path], None], rmqctl: Rmqctl, tmp_path: Path
) -> None:
    prepare(tmp_path)
    root, forced = tmp_path / "store", tmp_path / "forced" / "store"
    shutil.copytree(root, forced)
    before = shown(rmqctl(command, forced, "-o", "json").stdout, forced)
    done = [
        rmqctl(command, one, "--apply", "--yes", *more, "-o", "json")
        for one, more in ((root, ()), (forced, ("--force",)))
    ]
    assert [one.exit_code for one in done] in ([0, 0], [1, 1])
    assert shown(done[1].stdout, forced) == shown(done[0].stdout, root)
    assert command == "recover" or shown(done[1].stdout, forced) == before  # which else shows what a broker does
    assert contents(forced) == contents(root)


@on_each
def test_a_plan_that_does_not_balance_is_not_forced(
    command: str, prepare: Callable[[Path], None], rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(self: Any, *given: Any) -> books.Books:
        found = JUDGE(self, *given)
        found.problems.append("a record of the test is lost")
        return found

    prepare(tmp_path)
    root = tmp_path / "store"
    before = contents(root)
    monkeypatch.setattr(books._Judge, "judge", judge)
    done = rmqctl(command, root, "--apply", "--yes", "--force")
    if done.exit_code != 13:  # Kafka leaves the partitions as they are, one after the other
        assert "left as it is" in done.stdout or "0 steps" in done.stdout, done.output
    assert contents(root) == before


JUDGE = books._Judge.judge


@pytest.mark.parametrize("prepare", [damaged_rocketmq, damaged_kafka])
def test_undo_takes_back_what_the_run_changed_and_nothing_else(
    prepare: Callable[[Path], None], rmqctl: Rmqctl, tmp_path: Path
) -> None:
    prepare(tmp_path)
    root = tmp_path / "store"
    before = contents(root)
    assert rmqctl("repair", root, "--apply", "--yes").exit_code in (0, 1)
    repaired = contents(root)
    (root / "later.txt").write_bytes(b"came after the repair")
    assert rmqctl("undo", root, "--yes").exit_code == 13
    assert contents(root) == {**repaired, "later.txt": b"came after the repair"}
    assert rmqctl("undo", root, "--yes", "--force").exit_code == 0
    assert contents(root) == {**before, "later.txt": b"came after the repair"}
