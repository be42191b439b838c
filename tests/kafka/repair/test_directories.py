"""A directory where a file should be is named by `verify`, moved away by `repair`, and brought back by `undo`."""

from __future__ import annotations

import json
from pathlib import Path

from fixtures import golden
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
