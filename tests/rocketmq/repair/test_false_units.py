"""Damaged queue units that point into destroyed parts of the log: their messages are sound, and lie elsewhere."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.findings import Severity
from rmqctl.repair.execute import apply
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

BASE, SIZE, UNIT, PER_FILE = "4.9.8-clean", 131072, 20, 50
MISSING = [{"op": "delete", "file": f"commitlog/{SIZE:020d}"}]
ZEROS = [{"op": "zero", "file": f"commitlog/{SIZE:020d}", "offset": 8192, "length": 8192}]


def unit_of(root: Path, record: dict[str, Any]) -> tuple[Path, int]:
    """The queue file of a message, and where its unit is."""
    first = record["queueOffset"] // PER_FILE * PER_FILE * UNIT
    path = root / "consumequeue" / record["topic"] / str(record["queueId"]) / f"{first:020d}"
    return path, record["queueOffset"] * UNIT - first


def write_unit(root: Path, record: dict[str, Any], *unit: int) -> None:
    path, at = unit_of(root, record)
    with path.open("r+b") as queue:
        queue.seek(at)
        queue.write(struct.pack(">qiq", *unit))


@pytest.fixture
def mended(tmp_path: Path) -> Callable[[Any], tuple[Path, dict[str, Any]]]:
    """A store after repair, with a unit of a sound message that led to where a destroyed one without a unit was."""

    def mend(recipe: Any) -> tuple[Path, dict[str, Any]]:
        root = golden.unpack(BASE, tmp_path)
        messages = [r for r in golden.truth(BASE) if r["kind"] == "msg" and r["topic"] == "LabOrders"]
        lost = next(r for r in messages if r["commitLogOffset"] > SIZE + 9000)
        sound = next(r for r in messages if r["commitLogOffset"] > 2 * SIZE and r["queueOffset"] % PER_FILE > 3)
        write_unit(root, lost, 0, 0, 0)
        write_unit(root, sound, lost["commitLogOffset"], lost["storeSize"], 0)
        damage.apply(recipe, root)
        plan = plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path).plan
        apply(plan, journal_dir=tmp_path / "journal")
        return root, sound

    return mend


@pytest.mark.parametrize("recipe", [MISSING, ZEROS])
def test_no_placeholder_takes_the_place_of_a_sound_message(
    recipe: Any, mended: Callable[..., tuple[Path, dict[str, Any]]]
) -> None:
    root, record = mended(recipe)
    found = Verification(open_store_at(str(root)), VerifyOptions()).findings()
    assert [f for f in found if f.level is Severity.ERROR] == []
    name, at = f"{record['commitLogOffset'] // SIZE * SIZE:020d}", record["commitLogOffset"] % SIZE
    before = (golden.pristine(BASE) / "commitlog" / name).read_bytes()[at : at + record["storeSize"]]
    assert (root / "commitlog" / name).read_bytes()[at : at + record["storeSize"]] == before
    path, place = unit_of(root, record)
    assert struct.unpack_from(">qi", path.read_bytes(), place) == (record["commitLogOffset"], record["storeSize"])
