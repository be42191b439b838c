"""Links that lead nowhere in a log directory: an error each, for brokers and every verb as if no such file were there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fixtures import golden
from tests.conftest import Rmqctl

NOWHERE = "/nonexistent/file"
PARTITION = "plain-none-0/"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return golden.unpack("4.3.1-crash", tmp_path / "given")


def linked(root: Path, name: str) -> str:
    """Turn a file into a link that leads nowhere."""
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(NOWHERE)
    return name


def unreadable(rmqctl: Rmqctl, root: Path) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    return [(row["file"], row["severity"]) for row in rows if row.get("id") == "directory.unreadable-file"]


@pytest.mark.parametrize(
    ("name", "is_made"),
    [
        (f"{PARTITION}00000000000000000999.log", False),
        (f"{PARTITION}00000000000000000050.index", True),
        (f"{PARTITION}leader-epoch-checkpoint", True),
    ],
)
def test_repair_moves_the_link_out_and_undo_brings_it_back(
    name: str, is_made: bool, rmqctl: Rmqctl, root: Path, tmp_path: Path
) -> None:
    linked(root, name)
    assert unreadable(rmqctl, root) == [(name, "error")]
    done = rmqctl("repair", root, "--apply", "--yes", "--journal", tmp_path / "journal")
    assert done.exit_code == 0, done.output
    assert not (root / name).is_symlink()
    assert (root / name).exists() is is_made
    assert unreadable(rmqctl, root) == []
    assert rmqctl("undo", tmp_path / "journal" / "0001", "--yes").exit_code == 0
    assert os.readlink(root / name) == NOWHERE


def test_a_link_beyond_the_end_is_not_the_end_of_the_log(rmqctl: Rmqctl, root: Path) -> None:
    before = json.loads(rmqctl("recover", root, "-o", "json").stdout)
    linked(root, f"{PARTITION}00000000000000000999.log")
    assert json.loads(rmqctl("recover", root, "-o", "json").stdout) == before
    assert "999" not in json.dumps(json.loads(rmqctl("rebuild", root, "-o", "json").stdout)["changes"])


def test_in_place_of_a_log_it_is_a_hole(rmqctl: Rmqctl, root: Path) -> None:
    name = linked(root, f"{PARTITION}00000000000000000050.log")
    rows = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    assert {"directory.unreadable-file", "segment.missing"} <= {row.get("id") for row in rows}
    assert [rmqctl(verb, root).exit_code for verb in ("recover", "rebuild", "repair")] == [0, 1, 1]
    assert (root / name).is_symlink()


def test_recover_and_rebuild_make_a_file_in_place_of_the_link(rmqctl: Rmqctl, root: Path, tmp_path: Path) -> None:
    name = linked(root, f"{PARTITION}00000000000000000050.index")
    for verb in ("recover", "rebuild"):
        journal = tmp_path / verb
        done = rmqctl(verb, root, "--apply", "--yes", "--journal", journal)
        assert done.exit_code == 0, done.output
        assert (root / name).is_file() and not (root / name).is_symlink()
        assert rmqctl("undo", journal / "0001", "--yes").exit_code == 0
        assert os.readlink(root / name) == NOWHERE


@pytest.mark.parametrize("name", [f"{PARTITION}leader-epoch-checkpoint", "replication-offset-checkpoint"])
def test_a_checkpoint_that_leads_nowhere_takes_the_directory_offline(name: str, rmqctl: Rmqctl, root: Path) -> None:
    """A broker makes one that is not there; in place of a link it cannot, and reading it fails."""
    linked(root, name)
    found = json.loads(rmqctl("recover", root, "-o", "json").stdout)
    assert (found["starts"], found["offline"]) == (False, True)
    assert name in found["error"]


def test_links_in_the_directory_itself_are_named(rmqctl: Rmqctl, root: Path) -> None:
    names = [linked(root, "meta.properties"), linked(root, "elsewhere-0")]
    assert sorted(unreadable(rmqctl, root)) == sorted((name, "error") for name in names)
    assert [rmqctl(verb, root).exit_code for verb in ("recover", "rebuild", "repair")] == [1, 0, 1]


def test_salvage_says_what_it_could_not_read(rmqctl: Rmqctl, root: Path, tmp_path: Path) -> None:
    name = linked(root, f"{PARTITION}00000000000000000050.log")
    done = rmqctl("salvage", root, tmp_path / "saved", "-o", "json")
    assert done.exit_code in {0, 1}, done.output
    assert name in done.output
    assert "leads nowhere" in done.output
