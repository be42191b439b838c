"""Logs whose few batches lie billions of offsets apart, as the cleaner leaves them: what is missing is never counted out."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from rmqctl.kafka.repair.plan import RepairOptions, plan_repair
from rmqctl.release import Release
from tests.kafka.batches import batch, record
from tests.kafka.repair.judged import opened
from tests.kafka.repair.test_leftovers import made, named, one

SECOND, THIRD = 1 << 32, 3 << 31
OPEN = batch(0, [record(0, b"k", b"v")], producer_id=5, producer_epoch=0, base_sequence=0, attributes=16)
LATER = batch(THIRD, [record(0, b"k", b"v")], producer_id=5, producer_epoch=1, base_sequence=0, attributes=16)


@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize(
    ("middle", "rest"),
    [(one(SECOND), b""), (b"", b""), (one(SECOND), bytes(70)), (one(SECOND), OPEN[:50] + bytes(60)), (bytes(99), b"")],
)
def test_a_plan_is_made_within_bounds(cleaned: bool, middle: bytes, rest: bytes, tmp_path: Path) -> None:
    files = {named(0, ".log"): OPEN + rest, named(SECOND, ".log"): middle, named(THIRD, ".log"): LATER}
    root = made(tmp_path / "d", files, "0 0", **({"cleaner": THIRD} if cleaned else {}))
    staged = tmp_path / "staged"
    staged.mkdir()
    tracemalloc.start()
    try:
        found = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), staged)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20
    assert found.refusal == ""
    assert {finding.kind.id for finding in found.after} <= {"batch.offset-gap", "transaction.open", "segment.emptied"}
