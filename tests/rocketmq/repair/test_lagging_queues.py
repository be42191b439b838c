"""A killed broker's queues lag behind the log; damage in one of them is mended without leaving holes in the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.findings import Severity
from rmqctl.repair.execute import apply
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

UNIT = 20


@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_a_cut_file_of_one_queue(release: str, tmp_path: Path) -> None:
    root = golden.unpack(f"{release}-crash", tmp_path)
    messages = [t for t in golden.truth(root.name) if t["kind"] == "msg"]
    kept = messages[len(messages) * 3 // 4]["commitLogOffset"]
    for path in (root / "consumequeue").glob("*/*/*"):  # as if dispatch had come to 3/4 of the log only
        data = path.read_bytes()
        units = [data[at : at + UNIT] for at in range(0, len(data), UNIT)]
        path.write_bytes(b"".join(u if int.from_bytes(u[:8], "big") < kept else bytes(UNIT) for u in units))
    cut = root / "consumequeue" / "LabOrders" / "0" / f"{0:020d}"
    cut.write_bytes(cut.read_bytes()[:10])
    plan = plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path).plan
    apply(plan, journal_dir=tmp_path / "journal")
    found = Verification(open_store_at(str(root)), VerifyOptions()).findings()
    assert [f for f in found if f.level is not Severity.NOTE] == []
