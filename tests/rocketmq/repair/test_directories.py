"""A directory where a file should be is moved away where brokers mind it, and else named with the next step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from tests.repair.stores import state_of

MOVED = ("index/2*", "commitlog/0*", "consumequeue/LabLog/0/0*")
NAMED = ("config/topics.json", "checkpoint", "consumequeue/LabLog/0/0*")


@pytest.mark.parametrize("pattern", sorted({*MOVED, *NAMED}))
def test_repair(pattern: str, tmp_path: Path, rmqctl: Callable[..., Result]) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    name = next(root.glob(pattern))
    name.unlink()
    name.mkdir()
    (name / "inside").write_text("x")
    before = state_of(root)
    assert rmqctl("repair", root, "-o", "hex").exit_code == 1
    result = rmqctl("repair", root, "--apply", "-o", "json")
    assert result.exit_code in (0, 1), result.stderr
    assert ("when it is moved away" in result.stdout) == (pattern in NAMED)
    assert name.is_dir() == (pattern not in MOVED)
    journal = tmp_path / "5.5.0-clean.rmqctl-journal" / "0001"
    if journal.exists():
        assert rmqctl("undo", journal, "--yes").exit_code == 0
    assert state_of(root) == before
