"""Two files of the log side by side destroyed: every placeholder stands where its message was."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.findings import Severity
from rmqctl.repair.execute import apply
from rmqctl.rocketmq.repair import damage
from rmqctl.rocketmq.repair.damage import Break
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions


@pytest.mark.parametrize("cut", [131072, 393216], ids=["in front", "behind"])
def test_a_file_deleted_and_one_cut(cut: int, tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    (root / "commitlog" / f"{262144:020d}").unlink()
    (root / "commitlog" / f"{cut:020d}").write_bytes(b"\0")
    repair = plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path)
    assert not [step for step in repair.plan.steps if step.id == "log.store-time"]
    apply(repair.plan, journal_dir=tmp_path / "journal")
    found = Verification(open_store_at(str(root)), VerifyOptions()).findings()
    left = [f.kind.id for f in found if f.level is not Severity.NOTE]
    assert left == []


@pytest.mark.parametrize(("stated", "joins"), [(6, True), (7, False), (5, False)])
def test_the_record_after_a_wrong_offset_goes_on_where_the_right_one_would(stated: int, joins: bool) -> None:
    """Five was due and nine is stated: the next record says six, where ten would follow on nine."""
    wrong, after = Break("T", 0, 5, 9, 100, 200), Break("T", 0, 10, stated, 200, 300)
    assert damage._joins(wrong, after) is joins
