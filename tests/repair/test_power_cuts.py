"""A power cut at any moment of apply and undo: nothing is lost, and both ways on lead exactly where they should."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from freezegun import freeze_time

from rmqctl.files.writing import FileLayer
from rmqctl.repair import apply, choose_journal, pending, resume, undo
from tests.power import recorded
from tests.repair.faults import AcrossLayer, QuickLayer
from tests.repair.stores import rich_plan
from tests.repair.workshop import State, Workshop


class OneDisk(FileLayer):
    pass


class TwoDisks(AcrossLayer, FileLayer):
    pass


on_each = pytest.mark.parametrize("layer", [OneDisk, TwoDisks])


def goes_on_after_each(shop: Workshop, run: Callable[[], object], ends: tuple[State, State], cuts: int) -> None:
    """After a cut at any moment the store is as before, or as after, or can be brought to both."""
    shop.save()
    moments = recorded(shop.home, run, cuts, again=shop.restore, apart=shop.base.name)
    for moment in moments:
        for name, image in moment.images():
            for way_on, wanted in ((resume, ends[1]), (undo, ends[0])):
                image.put(shop.home)
                where = f"{way_on.__name__} after {name} of {moment.number} {moment.request}"
                journal = pending(shop.root)
                if journal is not None:
                    assert way_on(journal, layer=QuickLayer()).complaints == (), where
                    assert shop.state() == wanted, where
                assert shop.state() in ends and pending(shop.root) is None, where
                if moment is moments[-1]:
                    assert shop.state() == ends[1], where


@pytest.mark.parametrize(("layer", "place"), [(OneDisk, ""), (TwoDisks, ""), (OneDisk, "elsewhere")])
@freeze_time("2027-01-15T08:00:00Z")  # new files get the same time each time
def test_a_run_is_cut_off(layer: type[FileLayer], place: str, cuts: int, shop: Workshop) -> None:
    base = shop.home / place if place else None
    plan, before = rich_plan(shop.root), shop.state()
    shop.save()
    apply(plan, layer=layer(), journal_dir=base)
    after = shop.state()
    shop.restore()
    goes_on_after_each(shop, lambda: apply(plan, layer=layer(), journal_dir=base), (before, after), cuts)
    undo(choose_journal(base / "0001" if base else shop.root), layer=QuickLayer())
    assert shop.state() == before


@freeze_time("2027-01-15T08:00:00Z")
def test_what_a_killed_writer_left_in_memory_is_not_lost(cuts: int, shop: Workshop) -> None:
    """A plan goes by it, so it is on the disk before the journal says that anything was begun."""

    def run() -> None:
        (shop.root / "config/killed").mkdir(parents=True)
        (shop.root / "config/killed/new.json").write_bytes(b"{}" * 3000)
        before.append(shop.state())
        apply(rich_plan(shop.root), layer=OneDisk())

    before: list[State] = []
    shop.save()
    cut = 0
    for moment in recorded(shop.home, run, cuts, again=shop.restore):
        for name, image in moment.images():
            image.put(shop.home)
            journal = pending(shop.root)
            if journal is not None:
                cut += 1
                assert undo(journal, layer=QuickLayer()).complaints == (), name
                assert shop.state() == before[-1], f"{name} of {moment.number} {moment.request}"
    assert cut


@on_each
def test_taking_back_is_cut_off(layer: type[FileLayer], cuts: int, shop: Workshop) -> None:
    before = shop.state()
    journal = apply(rich_plan(shop.root), layer=layer()).journal
    assert journal is not None
    goes_on_after_each(shop, lambda: undo(journal, layer=layer()), (shop.state(), before), cuts)
    undo(choose_journal(shop.root, redo=True), layer=QuickLayer())
    assert shop.state() != before
