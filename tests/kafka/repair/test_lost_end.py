"""The active segment is gone, or another one's copy: how far the log had come, and how transactions ended in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.repair.plan import Repair, RepairOptions, plan_repair
from rmqctl.release import Release
from rmqctl.repair.edited_file import Overlay
from tests.kafka.repair.attacked import Batch, outcomes
from tests.kafka.repair.judged import opened

TRANSACTIONAL = [
    pytest.param(name, partition, marks=() if partition == "txn-a-0" else pytest.mark.slow)
    for name in ("4.3.1-clean", "3.9.2-clean", "4.3.1-crash", "3.9.2-crash")
    for partition in ("txn-a-0", "txn-a-1", "txn-b-0")
]


def planned(root: Path, name: str, room: Path) -> tuple[Repair, dict[Batch, str]]:
    """A plan that balances, and the outcomes of all transactions afterwards."""
    (room / "staged").mkdir()
    repair = plan_repair(opened(root), RepairOptions(Release.parse(name[:5])), room / "staged")
    assert repair.books is not None
    assert repair.books.balances
    return repair, outcomes(Overlay(LocalTree(str(root)), repair.plan.edits))


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize(("name", "partition"), TRANSACTIONAL)
def test_no_outcome_changes_where_the_active_log_is_gone(
    name: str, partition: str, emptied: bool, tmp_path: Path
) -> None:
    """A snapshot of the end says that transactions are over; without a marker readers get what was aborted."""
    root = golden.unpack(name, tmp_path)
    right = outcomes(LocalTree(str(golden.pristine(name))))
    last = max((root / partition).glob("*.log"))
    if emptied:
        last.write_bytes(b"")
    else:
        last.unlink()
    repair, after = planned(root, name, tmp_path)
    assert not any(step.id == "repair.books" for step in repair.left)
    texts = " ".join(f"{step.what} {step.why}" for step in (*repair.plan.steps, *repair.left))
    for batch, outcome in after.items():
        if batch[0] == partition and outcome != right[batch]:
            producer = int.from_bytes(batch[1][43:51], "big")
            assert f"{partition} producer {producer} from offset" in texts


def test_markers_of_an_emptied_end_come_from_its_transaction_index(tmp_path: Path) -> None:
    """That nothing in the log bears its entries out is the loss, and no fault of them."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    right = outcomes(LocalTree(str(golden.pristine("4.3.1-clean"))))
    max((root / "txn-b-0").glob("*.log")).write_bytes(b"")
    repair, after = planned(root, "4.3.1-clean", tmp_path)
    (step,) = (step for step in repair.plan.steps if step.what.startswith("end the log at"))
    assert "ABORT of txn-b-0 producer 10 from offset 62 at 67" in step.why
    assert {batch: after[batch] for batch in right if batch in after and after[batch] != right[batch]} == {}


@pytest.mark.parametrize(("name", "end"), [("4.3.1-clean", 124), ("4.3.1-crash", 139)])
def test_offsets_of_a_last_segment_that_holds_a_copy_are_lost_and_not_given_again(
    name: str, end: int, tmp_path: Path
) -> None:
    root = golden.unpack(name, tmp_path)
    first, *_, last = sorted((root / "plain-none-0").glob("*.log"))
    last.write_bytes(first.read_bytes())
    repair, _ = planned(root, name, tmp_path)
    said = [step for step in repair.plan.steps if step.what.startswith("end the log at")]
    assert [(step.what, step.loses) for step in said] == [
        (f"end the log at offset {end} with an empty batch for 94 to {end - 1}", end - 94)
    ]
    assert repair.books is not None
    assert repair.books.loses == end - 94
    assert [f for f in repair.after if f.file.startswith("plain-none-0")] == []
