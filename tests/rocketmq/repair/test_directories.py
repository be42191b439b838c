"""A directory where a file should be is moved away, and the file is made again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from tests.repair.stores import state_of


@pytest.mark.parametrize(
    "pattern", ["index/2*", "commitlog/0*", "consumequeue/LabLog/0/0*", "config/topics.json", "checkpoint"]
)
def test_repair(pattern: str, tmp_path: Path, rmqctl: Callable[..., Result]) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    name = next(root.glob(pattern))
    name.unlink()
    name.mkdir()
    (name / "inside").write_text("x")
    before = state_of(root)
    assert rmqctl("repair", root, "-o", "hex").exit_code == 1
    assert pattern != "checkpoint" or "a directory lies in its" in rmqctl("verify", root).stdout
    result = rmqctl("repair", root, "--apply", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["left"] == []
    assert not name.is_dir()
    assert rmqctl("verify", root).exit_code == 0
    assert rmqctl("undo", tmp_path / "5.5.0-clean.rmqctl-journal" / "0001", "--yes").exit_code == 0
    assert state_of(root) == before


@pytest.mark.parametrize("name", ["consumequeue", "index", "config", "consumequeue/LabLog", "consumequeue/LabLog/1"])
def test_a_file_in_the_place_of_a_directory(name: str, tmp_path: Path, rmqctl: Callable[..., Result]) -> None:
    """`verify` names it, `repair` moves it away and makes what belongs there, and `undo` brings it back."""
    root = golden.unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / name)
    (root / name).write_bytes(b"no directory")
    before = state_of(root)
    found = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    assert ("file.stray", name) in {(row.get("id"), row.get("file")) for row in found}
    applied = rmqctl("repair", root, "--apply", *(["--force"] if name == "consumequeue" else []))  # nothing shows sizes
    assert applied.exit_code in (0, 1) and "not as planned" not in applied.stderr and ": done, " in applied.stderr
    assert (root / name).is_dir() and '"file.stray"' not in rmqctl("verify", root, "-o", "jsonl").stdout
    assert applied.exit_code == 0 or name == "config"  # the topics are gone with it
    assert rmqctl("undo", tmp_path / "5.3.3-clean.rmqctl-journal" / "0001", "--yes").exit_code == 0
    assert state_of(root) == before


@pytest.mark.parametrize(
    ("name", "command"),
    [("index", ("rebuild",)), ("consumequeue", ("recover",)), ("index", ("repair", "--skip", "file.stray"))],
)
def test_a_file_that_stays_in_the_place_of_a_directory(
    name: str, command: tuple[str, ...], tmp_path: Path, rmqctl: Callable[..., Result]
) -> None:
    """It is named with the next step, before anything is written."""
    root = golden.unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / name)
    (root / name).write_bytes(b"no directory")
    before = state_of(root)
    result = rmqctl(command[0], root, *command[1:], "--apply")
    assert result.exit_code == 13, result.stderr
    assert (
        f"{name}: no directory, and one is to be made there" in result.stderr and f"mv {root / name}" in result.stderr
    )
    assert state_of(root) == before
