"""A file of a wrong name beside the files of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.findings import Severity
from rmqctl.repair.edits import Quarantine
from rmqctl.repair.execute import apply
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

SIZE = 131072


@pytest.mark.parametrize("length", [100, SIZE])
@pytest.mark.parametrize("files", [1, 4])
def test_garbage_between_two_files_or_behind_the_last_goes_into_quarantine(
    files: int, length: int, tmp_path: Path
) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    before = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    (root / "commitlog" / f"{files * SIZE + 1:020d}").write_bytes(b"\xff\0\xff".ljust(length, b"\0"))
    apply(plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path).plan, journal_dir=tmp_path / "journal")
    assert {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()} == before
    found = Verification(open_store_at(str(root)), VerifyOptions()).findings()
    assert [f for f in found if f.level is not Severity.NOTE] == []


def test_a_file_that_was_renamed_gets_its_name_back(tmp_path: Path) -> None:
    """It holds messages of the place that is empty now."""
    root = golden.unpack("4.9.8-clean", tmp_path)
    before = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    (root / "commitlog" / f"{SIZE:020d}").rename(root / "commitlog" / f"{SIZE + 1:020d}")
    repair = plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path)
    assert [step.id for step in repair.plan.steps] == ["log.file-name"]
    apply(repair.plan, journal_dir=tmp_path / "journal")
    assert {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()} == before


@pytest.mark.parametrize("records", [0, 1])
def test_a_stranger_that_holds_a_record_is_left(records: int, tmp_path: Path) -> None:
    """One record does not say where the file belongs, and may be the only copy of a message."""
    root = golden.unpack("4.9.8-clean", tmp_path)
    true = golden.truth("4.9.8-clean")[0]
    record = (root / "commitlog" / f"{0:020d}").read_bytes()[: true["storeSize"]]
    name = f"commitlog/{4 * SIZE + 8:020d}"
    (root / name).write_bytes((record * records).ljust(SIZE, b"\0"))
    repair = plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path)
    moved = [edit.file for step in repair.plan.steps for edit in step.edits if isinstance(edit, Quarantine)]
    left = [step.file for step in repair.left if step.file == name]
    assert (moved, left) == (([], [name]) if records else ([name], []))
