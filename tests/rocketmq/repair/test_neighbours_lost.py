"""Two files of the log side by side destroyed: every placeholder stands where its message was."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.findings import Severity
from rmqctl.repair.execute import apply
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
