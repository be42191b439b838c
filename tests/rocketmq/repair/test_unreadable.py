"""Files that cannot be read: those that the log can make anew make way, a file of the log stops the repair."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.findings import Severity
from rmqctl.release import Release
from rmqctl.repair.execute import apply, undo
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from tests.conftest import Rmqctl

NOWHERE = "/nonexistent/file"


def cut_off(root: Path, directory: str, number: int) -> str:
    """Turn a file into a link that leads nowhere; its name in the store."""
    path = sorted((root / directory).iterdir())[number]
    path.unlink()
    path.symlink_to(NOWHERE)
    return f"{directory}/{path.name}"


def state(root: Path) -> dict[str, Any]:
    paths = sorted(p for p in root.rglob("*") if p.name != "lock")
    return {str(p): os.readlink(p) if p.is_symlink() else p.is_file() and p.read_bytes() for p in paths}


@pytest.mark.parametrize(
    ("directory", "number"), [("consumequeue/LabLog/0", 0), ("consumequeue/LabLog/0", -1), ("index", 0), ("index", -1)]
)
def test_queue_and_index_files_are_made_anew(directory: str, number: int, tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    name = cut_off(root, directory, number)
    before = state(root)
    repair = plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path)
    assert (repair.plan.steps[0].id, repair.plan.steps[0].file) == ("file.unreadable", name)
    done = apply(repair.plan, journal_dir=tmp_path / "journal")
    found = Verification(open_store_at(str(root)), VerifyOptions()).findings()
    assert [f for f in found if f.level is not Severity.NOTE] == []
    if directory != "index":
        assert (root / name).read_bytes() == (golden.pristine("5.5.0-clean") / name).read_bytes()
    assert done.journal is not None
    undo(done.journal)
    assert state(root) == before


def test_rebuild_puts_an_index_file_in_place_of_a_link_to_nowhere(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    name = cut_off(root, "index", -1)
    done = rmqctl("rebuild", root, "--apply", "--yes", "--journal", tmp_path / "journal")
    assert done.exit_code == 0, done.output
    assert (root / name).is_file() and not (root / name).is_symlink()
    assert rmqctl("undo", tmp_path / "journal" / "0001", "--yes").exit_code == 0
    assert os.readlink(root / name) == NOWHERE


def test_the_advice_names_the_link(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    cut_off(root, "commitlog", 0)
    done = rmqctl("repair", root)
    assert (done.exit_code, "a link that leads nowhere" in " ".join(done.output.split())) == (1, True)


@pytest.mark.parametrize("to", [NOWHERE, "itself"])
def test_nothing_is_planned_without_a_file_of_the_log(to: str, tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    name = cut_off(root, "commitlog", 1)
    if to == "itself":
        (root / name).unlink()
        (root / name).symlink_to((root / name).name)
    repair = plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path)
    assert (repair.plan.steps, [(step.id, step.file) for step in repair.left]) == ((), [("file.unreadable", name)])
    assert name in {finding.file for finding in repair.after}


@pytest.mark.parametrize("name", ["checkpoint", "config/topics.json", "config/consumerOffset.json"])
def test_a_small_file_that_is_a_link_to_itself_is_written_again(name: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    (root / name).unlink()
    (root / name).symlink_to((root / name).name)
    before = state(root)
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    assert (root / name).is_file() and not (root / name).is_symlink()
    assert rmqctl("verify", root).exit_code == 0
    assert rmqctl("undo", root, "--yes").exit_code == 0
    assert state(root) == before


def test_a_queue_that_the_log_cannot_bring_back_stays(tmp_path: Path) -> None:
    """Without its last file a queue whose messages have expired would give out the same offsets again."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    units = (root / "consumequeue" / "LabLog" / "0" / f"{0:020d}").read_bytes()
    gone = root / "consumequeue" / "Gone" / "0"
    gone.mkdir(parents=True)
    (gone / f"{3000:020d}").write_bytes(units)
    cut_off(root, "consumequeue/Gone/0", 0)
    with pytest.raises(FileNotFoundError, match="Gone"):
        plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path)


@pytest.mark.parametrize(
    ("directory", "number", "release", "starts"),
    [
        ("consumequeue/LabLog/0", 0, "5.5.0", False),
        ("consumequeue/LabLog/0", -1, "4.9.8", False),
        ("consumequeue/LabLog/0", -1, "5.5.0", True),  # the last file has no bytes: it is deleted
        ("index", 0, "5.5.0", False),
        ("index", 0, "4.9.8", True),
    ],
)
def test_recover_says_what_a_broker_does(
    directory: str, number: int, release: str, starts: bool, tmp_path: Path, rmqctl: Callable[..., Any]
) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    name = cut_off(root, directory, number)
    found = recover(open_store_at(str(root)), Release.parse(release))
    assert found.starts is starts
    assert name in (found.error or name)
    assert rmqctl("recover", root, "--as-release", release).exit_code in (0, 1)


@pytest.mark.parametrize(
    "name", ["commitlog/00000000000000655360", "consumequeue/LabLog/0/00000000000000099000", "index/20261121014849999"]
)
def test_a_link_to_nowhere_that_stands_for_nothing_is_moved_away(name: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("5.1.4-clean", tmp_path)
    (root / name).symlink_to(NOWHERE)
    before = state(root)
    found = [row["id"] for row in rows(rmqctl("verify", root, "--no-notes", "-o", "jsonl").stdout)]
    assert {"file.unreadable", "summary"} <= set(found) <= {"file.unreadable", "queue.file-gap", "summary"}
    done = rmqctl("repair", root, "--apply", "--yes", "--journal", tmp_path / "journal")
    assert done.exit_code == 0, done.output
    assert not (root / name).is_symlink()
    assert len(rows(rmqctl("verify", root, "--no-notes", "-o", "jsonl").stdout)) == 1
    assert rmqctl("undo", tmp_path / "journal", "--yes").exit_code == 0
    assert state(root) == before


def rows(lines: str) -> list[dict[str, Any]]:
    return [row if "id" in (row := json.loads(line)) else {"id": row["kind"]} for line in lines.splitlines()]


@pytest.mark.parametrize("number", [1, -1])
def test_a_link_to_nowhere_in_the_place_of_messages_stays(number: int, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("5.1.4-clean", tmp_path)
    (root / "commitlog/00000000000000655360").unlink(missing_ok=True)
    name = cut_off(root, "commitlog", number)
    done = rmqctl("repair", root, "--apply", "--yes", "--journal", tmp_path / "journal")
    assert done.exit_code == 1, done.output
    assert "left as it is: a link that leads nowhere" in done.output
    assert (root / name).is_symlink()


def test_a_link_that_stands_for_what_consumers_have_had_stays(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("5.1.4-clean", tmp_path)
    name = "consumequeue/LabLog/0/00000000000000099000"
    (root / name).symlink_to(NOWHERE)
    config = root / "config/lmqConsumerOffset.json"
    text, count = re.subn(
        r'("LabLog@\w+":\{0:)\d+', r"\g<1>4960", config.read_text("utf-8")
    )  # a broker's keys are numbers
    assert count
    config.write_text(text, "utf-8")
    done = rmqctl("repair", root, "--apply", "--yes", "--journal", tmp_path / "journal")
    assert done.exit_code == 10, done.output
    assert (root / name).is_symlink()
