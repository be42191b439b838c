"""Directories: one where a file should be is moved away by `repair`, and one without a metadata log is mended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from fixtures import golden, kafka_damage
from tests.conftest import Rmqctl
from tests.repair.stores import state_of

NAMES = (
    "append_time-0/00000000000000000000.index",
    "idem-0/00000000000000000000.log",
    "plain-none-0/leader-epoch-checkpoint",
    "plain-none-1/partition.metadata",
    "meta.properties",
)


def test_one_of_each_in_one_plan(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    for name in NAMES:
        (root / name).unlink()
        (root / name).mkdir()
        (root / name / "inside").write_text("of the user")
    before = state_of(root)
    found = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    assert {row["file"] for row in found if "(a directory lies in its place)" in row.get("message", "")} == {*NAMES}
    applied = rmqctl("repair", root, "--apply", "-o", "json")
    assert applied.exit_code == 0, applied.stderr
    assert "the directory in its place goes to quarantine" in applied.stdout
    assert all((root / name).is_file() for name in NAMES)
    assert rmqctl("verify", root).exit_code == 0
    assert rmqctl("undo", tmp_path / "4.3.1-clean.rmqctl-journal" / "0001", "--yes").exit_code == 0
    assert state_of(root) == before


def test_what_was_not_known_before_a_plan_is_said_and_no_reason_against_it(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """One of several log directories has no metadata log, and that is not for a plan to mend."""
    root = golden.unpack("4.3.1-crash", tmp_path)
    shutil.rmtree(root / "__cluster_metadata-0")
    edit = {"op": "xor", "file": "plain-none-0/00000000000000000094.log", "offset": 1295, "hex": "10"}
    kafka_damage.apply([edit], root)
    planned = json.loads(rmqctl("repair", root, "-o", "json").stdout)["summary"]
    assert (planned["refusal"], planned["loses"], planned["books"]["balances"]) == ("", 0, True)
    assert "the result cannot be known: no directory that was given has __cluster_metadata-0" in planned["unknown"]
    applied = rmqctl("repair", root, "--apply", "--yes")
    assert applied.exit_code == 1
    assert "cannot be known" in " ".join(applied.stdout.split())
    left = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    assert {row["id"] for row in left if row["severity"] == "error"} == {"metadata.missing-log"}


def test_what_a_link_leads_out_of_the_directory_is_left_with_the_option_that_allows_it(
    tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """The rest of the plan is carried out, and the file that it may not move away is named beforehand."""
    root, elsewhere = golden.unpack("4.3.1-clean", tmp_path), tmp_path / "disk"
    (root / "plain-none-1").rename(elsewhere)
    (root / "plain-none-1").symlink_to(elsewhere)
    orphan = "00000000000000005000.index"
    for directory in (elsewhere, root / "plain-none-0"):
        (directory / orphan).write_bytes(bytes(80))
    applied = rmqctl("repair", root, "--apply", "--yes", "-o", "json")
    assert "is reached by a link that leads out of the store" in applied.stdout, applied.stderr
    assert [(elsewhere / orphan).exists(), (root / "plain-none-0" / orphan).exists()] == [True, False]
    assert rmqctl("repair", root, "--apply", "--yes", "--outside", elsewhere).exit_code == 0
    assert not (elsewhere / orphan).exists()
