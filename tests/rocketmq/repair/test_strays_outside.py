"""Strays in a directory that a link reaches outside the store: the rest of the plan goes on, and says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from tests.repair.stores import state_of

BROKEN = "config/topics.json"


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A store whose queues lie on another disk, with a stranger among them, and a damaged configuration."""
    root = golden.unpack("4.9.8-clean", tmp_path)
    elsewhere = tmp_path / "disk" / "consumequeue"
    elsewhere.parent.mkdir()
    (root / "consumequeue").rename(elsewhere)
    (root / "consumequeue").symlink_to(elsewhere)
    (elsewhere / "LabLog" / "0" / "notes.txt").write_text("of the user")
    (root / BROKEN).write_bytes((root / BROKEN).read_bytes()[:40])
    return root


def test_the_stray_stays_and_is_named(linked: Path, rmqctl: Callable[..., Result]) -> None:
    before = state_of(linked.parent / "disk")
    result = rmqctl("repair", linked, "--apply", "-o", "json")
    assert result.exit_code == 1, result.stderr
    (left,) = json.loads(result.stdout)["left"]
    assert left["file"] == "consumequeue/LabLog/0/notes.txt" and left["what"] == "left as it is: move to quarantine"
    assert "a link that leads out of the store" in left["why"] and "--outside" in left["why"]
    assert state_of(linked.parent / "disk") == before
    assert (linked / BROKEN).read_bytes()[-1:] == b"}"


def test_named_it_is_moved_away(linked: Path, rmqctl: Callable[..., Result]) -> None:
    disk = linked.parent / "disk"
    result = rmqctl("repair", linked, "--apply", "--outside", disk)
    assert result.exit_code == 0, result.stderr
    assert not (disk / "consumequeue/LabLog/0/notes.txt").exists()
