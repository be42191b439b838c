"""Damage to queues, index, checkpoint and configuration alone: no repair changes a byte of the log."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from fixtures.worse_damage import WorseDamager
from rmqctl.findings import Severity
from rmqctl.rocketmq.repair.plan import Repair, RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at

Plan = Callable[[str, Any], Repair]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plan]:
    """Plans the repair of a golden store that a recipe has damaged; one working copy each."""
    copies: dict[str, Path] = {}

    def make(base: str, recipe: Any) -> Repair:
        if base not in copies:
            copies[base] = golden.unpack(base, tmp_path_factory.mktemp("derived"))
        root = copies[base]
        conf = golden.write_broker_conf(base, root.parent / f"{base}.conf")
        damage.apply(recipe, root)
        try:
            store = open_store_at(str(root), broker_conf=str(conf))
            with tempfile.TemporaryDirectory() as built:
                return plan_repair(store, RepairOptions(), Path(built))
        finally:
            damage.undo(recipe, golden.pristine(base), root)

    return make


def check(repair: Repair) -> None:
    touched = [step for step in repair.plan.steps for edit in step.edits if edit.file.startswith("commitlog")]
    assert [f"{step.id} {step.file}: {step.what}" for step in touched] == []
    assert [f.message for f in repair.after if f.level is Severity.ERROR and not f.kind.id.startswith("config.")] == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("base", golden.BROKER_STORES)
def test_random_damage_to_what_is_derived(base: str, seed: int, plan: Plan) -> None:
    check(plan(base, WorseDamager(base).derived_recipe(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 33))
@pytest.mark.parametrize("base", golden.BROKER_STORES)
def test_more_random_damage_to_what_is_derived(base: str, seed: int, plan: Plan) -> None:
    check(plan(base, WorseDamager(base).derived_recipe(seed)))


def derived_variants() -> list[str]:
    """Variants of the recovery oracles that leave the log alone."""
    return [
        f"{release}/{name}"
        for release in golden.RELEASES
        for name, variant in golden.recovery_oracle(release)["variants"].items()
        if not any((edit.get("file") or edit["path"]).startswith("commitlog") for edit in variant["recipe"])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("variant", derived_variants())
def test_recorded_variants(variant: str, plan: Plan) -> None:
    release, state, name = variant.split("/", 2)
    recipe = golden.recovery_oracle(release)["variants"][f"{state}/{name}"]["recipe"]
    check(plan(f"{release}-{state}", recipe))


def test_a_wrong_unit_in_the_place_of_a_message_counts_as_no_loss(plan: Plan) -> None:
    """It points behind the end of the log; the message of its place is there."""
    name = "consumequeue/LabOrders/0/00000000000000000000"
    unit = struct.pack(">qiq", 2**40, 200, 5)
    repair = plan("5.5.0-clean", [{"op": "write", "file": name, "offset": 60, "hex": unit.hex()}])
    check(repair)
    assert [step.loses for step in repair.plan.steps] == [0]
