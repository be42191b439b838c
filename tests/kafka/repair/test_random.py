"""Random damage to the logs of a partition: a repair leaves no error, nothing to cut, and every sound batch in place."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.findings import Severity
from rmqctl.kafka.repair.plan import RepairOptions, overlaid, plan_repair
from rmqctl.release import Release
from tests.kafka.repair.judged import batches, opened
from tests.kafka.repair.markers_helpers import PLACES, alone, damaged

PARTITIONS = [
    *PLACES,
    ("4.3.1-clean", "plain-none-0"),
    ("3.9.2-clean", "compacted-0"),
    ("2.8.2-crash", "mixed-magic-0"),
]


FOUND = [7, 158, 174, 216]
"""Damage that repairs gave batches up for, or left, once."""


@pytest.mark.parametrize(
    "seed",
    [*range(4), *(pytest.param(n, marks=() if n in FOUND else pytest.mark.slow) for n in range(4, 300))],
)
def test_random_damage(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    name, directory = PARTITIONS[seed % len(PARTITIONS)]
    root = alone(name, directory, tmp_path)
    if seed % 2:
        (root / ".kafka_cleanshutdown").touch()
    logs = [path for path in sorted((root / directory).glob("*.log")) if path.stat().st_size]
    for path in draw.sample(logs, min(len(logs), draw.randrange(1, 4))):
        path.write_bytes(damaged(path.read_bytes(), draw))
    staged = tmp_path / "staged"
    staged.mkdir()
    before = opened(root)
    plan = plan_repair(before, RepairOptions(Release(3, 9, 2)), staged)
    after = overlaid(before, plan.plan.steps)
    assert [f.row() for f in plan.after if f.level is Severity.ERROR] == []
    assert plan.refusal == ""
    lost = {data for *_, data in batches(before)} - {data for *_, data in batches(after)}
    assert not lost, "a batch whose bytes under the CRC are sound is gone"
