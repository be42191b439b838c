"""Planners made wrong on purpose: plans for real damage that are changed in one place are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.kafka.repair.ledger import KafkaLedger
from rmqctl.kafka.repair.plan import RepairOptions, plan_repair
from rmqctl.release import Release
from rmqctl.repair.books import balance
from rmqctl.repair.edits import Create, Overwrite, Plan, Quarantine, Step
from tests.kafka.repair.attacked import outermost
from tests.kafka.repair.judged import opened

RELEASE = Release(4, 3, 1)
Mutation = Callable[[Plan, Path], list[Plan]]


def _log(root: Path, name: str, number: int) -> Path:
    return sorted((root / name).glob("*.log"))[number]


def foreign_segment(root: Path) -> None:
    _log(root, "txn-a-1", -1).write_bytes(_log(root, "compacted-1", -2).read_bytes())


def exchanged_segments(root: Path) -> None:
    one, two = _log(root, "plain-none-0", 0), _log(root, "plain-none-0", 1)
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)


def batches_in_another_segment(root: Path) -> None:
    one, two = _log(root, "idem-0", 0), _log(root, "idem-0", 1)
    data, other = one.read_bytes(), two.read_bytes()
    begin, end = list(outermost(data))[4][0], list(outermost(data))[7][0]
    one.write_bytes(data[:begin] + data[end:])
    two.write_bytes(other + data[begin:end])


def destroyed_marker(root: Path) -> None:
    path = _log(root, "txn-a-0", 0)
    data = path.read_bytes()
    at = [at for at, b in outermost(data) if int.from_bytes(b[21:23], "big") & 0x30 == 0x30][2]
    path.write_bytes(data[: at + 20] + bytes(40) + data[at + 60 :])


def foreign_batches_at_the_end(root: Path) -> None:
    path = _log(root, "plain-none-1", -1)
    path.write_bytes(path.read_bytes() + _log(root, "idem-1", 0).read_bytes()[:900])


DAMAGE = [foreign_segment, exchanged_segments, batches_in_another_segment, destroyed_marker, foreign_batches_at_the_end]


# --- mutations: every plan that one gives is wrong --------------------------------------------------


def _each(plan: Plan, change: Callable[[Step], Step | None]) -> Iterator[Plan]:
    for number, step in enumerate(plan.steps):
        changed = change(step)
        if changed is not None:
            yield replace(plan, steps=(*plan.steps[:number], changed, *plan.steps[number + 1 :]))


def a_loss_that_is_not_named(plan: Plan, root: Path) -> list[Plan]:
    return list(_each(plan, lambda step: replace(step, gives_up=()) if step.gives_up else None))


def a_loss_that_is_none(plan: Plan, root: Path) -> list[Plan]:
    first = plan.steps[0]
    return [replace(plan, steps=(replace(first, gives_up=("plain-none-2@0..4 #00000000",)), *plan.steps[1:]))]


def _made(edit: object) -> bytes | None:
    """The bytes that an edit makes in a log."""
    if isinstance(edit, Create) and edit.file.endswith(".log"):
        return edit.content if edit.source is None else Path(edit.source).read_bytes()
    return edit.after if isinstance(edit, Overwrite) and edit.file.endswith(".log") else None


def a_log_that_is_not_made(plan: Plan, root: Path) -> list[Plan]:
    def change(step: Step) -> Step | None:
        kept = tuple(edit for edit in step.edits if not (isinstance(edit, Create) and edit.file.endswith(".log")))
        return replace(step, edits=tuple(e for e in kept if isinstance(e, Quarantine))) if kept != step.edits else None

    return list(_each(plan, change))


def a_segment_under_a_wrong_name(plan: Plan, root: Path) -> list[Plan]:
    def change(step: Step) -> Step | None:
        made = [edit for edit in step.edits if isinstance(edit, Create) and edit.file.endswith(".log")]
        if not made:
            return None
        name = f"{made[0].file[:-24]}{int(made[0].file[-24:-4]) + 3:020d}.log"
        edits = (e for e in step.edits if isinstance(e, Quarantine | Create))
        return replace(step, edits=tuple(replace(e, file=name) if e is made[0] else e for e in edits))

    return list(_each(plan, change))


def _with(plan: Plan, change: Callable[[bytes], bytes]) -> list[Plan]:
    """The plan with other bytes in each log that it makes, or writes into."""

    def changed(step: Step) -> Step | None:
        edits, found = list(step.edits), False
        for number, edit in enumerate(edits):
            data = _made(edit)
            if data is None or len(data) < 61 or data[57:61] == bytes(4):  # a placeholder is no record
                continue
            if isinstance(edit, Create):
                edits[number] = Create(edit.file, change(data))
            elif isinstance(edit, Overwrite):
                edits[number] = replace(edit, after=change(data))
            found = True
        kept = [edit for edit in edits if type(edit).__name__ != "SetTimes"]
        return replace(step, edits=tuple(kept)) if found else None

    return list(_each(plan, changed))


def another_epoch(plan: Plan, root: Path) -> list[Plan]:
    return _with(plan, lambda data: data[:12] + (9).to_bytes(4, "big") + data[16:])


def another_base_offset(plan: Plan, root: Path) -> list[Plan]:
    return _with(plan, lambda data: (int.from_bytes(data[:8], "big") + 1).to_bytes(8, "big") + data[8:])


def a_placeholder_of_another_epoch(plan: Plan, root: Path) -> list[Plan]:
    def later(data: bytes) -> bytes:
        made = bytearray(data)
        for at in [at for at, found in outermost(data) if found[57:61] == bytes(4)]:
            made[at + 12 : at + 16] = (int.from_bytes(data[at + 12 : at + 16], "big") + 5).to_bytes(4, "big")
        return bytes(made)

    def changed(step: Step) -> Step | None:
        made = {edit: data for edit in step.edits if (data := _made(edit)) is not None and later(data) != data}
        edits = []
        for edit in step.edits:
            if edit in made and isinstance(edit, Create):
                edits.append(Create(edit.file, later(made[edit])))
            elif edit in made and isinstance(edit, Overwrite):
                edits.append(replace(edit, after=later(made[edit])))
            elif type(edit).__name__ != "SetTimes":
                edits.append(edit)
        return replace(step, edits=tuple(edits)) if made else None

    return list(_each(plan, changed))


def a_sound_segment_moved_out_with_it(plan: Plan, root: Path) -> list[Plan]:
    name = _log(root, "z-gzip-0", 0).relative_to(root)
    return list(_each(plan, lambda step: replace(step, edits=(*step.edits, Quarantine(str(name))))))[:2]


def a_sound_batch_overwritten_with_it(plan: Plan, root: Path) -> list[Plan]:
    path = _log(root, "z-gzip-0", 0)
    at, data = list(outermost(path.read_bytes()))[2]
    edit = Overwrite(str(path.relative_to(root)), at, data, bytes(len(data)))
    return list(_each(plan, lambda step: replace(step, edits=(*step.edits, edit))))[:2]


def an_aborted_transaction_out_of_its_index(plan: Plan, root: Path) -> list[Plan]:
    path = next(p for p in sorted((root / "txn-b-0").glob("*.txnindex")) if p.stat().st_size >= 68)
    edits = (Quarantine(name := str(path.relative_to(root))), Create(name, path.read_bytes()[34:]))
    return list(_each(plan, lambda step: replace(step, edits=(*step.edits, *edits))))[:1]


MUTATIONS: list[Mutation] = [
    a_loss_that_is_not_named, a_loss_that_is_none, a_log_that_is_not_made, a_segment_under_a_wrong_name, another_epoch,
    another_base_offset, a_placeholder_of_another_epoch, a_sound_segment_moved_out_with_it, a_sound_batch_overwritten_with_it,
    an_aborted_transaction_out_of_its_index,
]  # fmt: skip


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], None]], tuple[Path, Plan]]:
    @cache
    def made(damage: Callable[[Path], None]) -> tuple[Path, Plan]:
        room = tmp_path_factory.mktemp("mutated")
        root, staged = golden.unpack("4.3.1-clean", room), room / "staged"
        damage(root)
        staged.mkdir()
        found = plan_repair(opened(root), RepairOptions(RELEASE), staged)
        assert found.books is not None
        assert found.books.balances
        return root, found.plan

    return made


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda one: one.__name__)
def test_a_plan_that_is_made_wrong_does_not_balance(
    damage: Callable[[Path], None],
    mutation: Mutation,
    plans: Callable[[Callable[[Path], None]], tuple[Path, Plan]],
) -> None:
    root, plan = plans(damage)
    directory = opened(root)
    for wrong in mutation(plan, root):
        ledger = KafkaLedger(wrong, directory, RELEASE)
        books = balance(wrong, directory.tree, ledger, after=ledger.after.tree)
        assert not books.balances, [step.what for step in wrong.steps]


def test_the_mutations_give_many_wrong_plans(
    plans: Callable[[Callable[[Path], None]], tuple[Path, Plan]],
) -> None:
    made = [len(mutation(plan, root)) for damage in DAMAGE for root, plan in [plans(damage)] for mutation in MUTATIONS]
    assert sum(made) >= 25
