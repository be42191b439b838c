"""A kill at every request of apply, undo and resume: both ways on lead exactly where they should."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmqctl.errors import Refused
from rmqctl.files.writing import FileLayer
from rmqctl.repair import Create, Quarantine, apply, choose_journal, pending, resume, undo
from tests.repair.faults import AcrossCounting, AcrossKilling, CountingLayer, Killed, KillingLayer, QuickLayer
from tests.repair.stores import plan_of, put, rich_plan
from tests.repair.workshop import State, Workshop, chosen

Run = Callable[[FileLayer], object]
HOWS = ("before", "after", "within")
KINDS = [
    pytest.param(CountingLayer, KillingLayer, id="one-disk"),
    pytest.param(AcrossCounting, AcrossKilling, id="two-disks"),
]
on_both = pytest.mark.parametrize(("counting", "killing"), KINDS)


def kill_everywhere(
    shop: Workshop,
    run: Run,
    kinds: tuple[type[CountingLayer], type[KillingLayer]],
    ends: tuple[State, State],
    stride: int,
) -> int:
    """Kill a run at each of its requests, in each way, then go each of the two ways on.

    Returns how often something had to be resumed or undone.
    """
    counting, killing = kinds
    before, after = ends
    shop.save()
    layer = counting()
    run(layer)
    assert shop.state() == after
    found = 0
    for at, (operation, _) in chosen(layer.requests, stride):
        for how in HOWS if operation == "write" else HOWS[:2]:
            for way_on in (resume, undo):
                shop.restore()
                with pytest.raises(Killed):
                    run(killing(at, how))
                found += goes_on(shop, way_on, before, after)
    return found


def goes_on(shop: Workshop, way_on: Callable[..., object], before: State, after: State) -> int:
    """Whether something was pending; either way the store is exactly before or after in the end."""
    journal = pending(shop.root)
    if journal is None:
        assert shop.state() in (before, after)
        return 0
    with pytest.raises(Refused, match="broken off"):
        apply(plan_of(shop.root))
    way_on(journal, layer=QuickLayer())
    assert shop.state() == (after if way_on is resume else before)
    assert pending(shop.root) is None
    return 1


@on_both
def test_apply(shop: Workshop, counting: type[CountingLayer], killing: type[KillingLayer], stride: int) -> None:
    plan, before = rich_plan(shop.root), shop.state()
    shop.save()
    apply(plan, layer=counting())
    after = shop.state()
    shop.restore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time_ns", lambda: 1_800_000_000_000_000_000)  # new files get the same time each time
        apply(plan, layer=counting())
        after = shop.state()
        shop.restore()
        assert (
            kill_everywhere(shop, lambda layer: apply(plan, layer=layer), (counting, killing), (before, after), stride)
            > 100 // stride
        )


@on_both
def test_a_directory_takes_the_name_of_a_file_and_a_file_that_of_a_directory(
    shop: Workshop, counting: type[CountingLayer], killing: type[KillingLayer], stride: int
) -> None:
    """Nothing of it passes for a file that somebody put back, on either way."""
    put(shop.root, "consumequeue/W", b"no queues")
    plan = plan_of(
        shop.root,
        Quarantine("consumequeue/W"),
        Create("consumequeue/W/0/00000000000000000000", b"w"),
        Quarantine("consumequeue/U"),
        Create("consumequeue/U", b"no queues"),
    )
    before = shop.state()
    shop.save()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time_ns", lambda: 1_800_000_000_000_000_000)
        applied = apply(plan, layer=counting(), verify=list)
        assert applied.complaints == () and applied.journal is not None
        after = shop.state()
        assert (shop.root / "consumequeue/W/0").is_dir() and (shop.root / "consumequeue/U").is_file()
        back = undo(applied.journal, layer=counting())
        assert back.complaints == () and back.journal is not None and shop.state() == before
        assert undo(back.journal, layer=counting()).complaints == () and shop.state() == after
        shop.restore()
        kinds = counting, killing
        assert kill_everywhere(shop, lambda layer: apply(plan, layer=layer), kinds, (before, after), stride)


@on_both
def test_undo_of_what_is_done(
    shop: Workshop, counting: type[CountingLayer], killing: type[KillingLayer], stride: int
) -> None:
    before = shop.state()
    journal = apply(rich_plan(shop.root), layer=counting()).journal
    assert journal is not None
    after = shop.state()
    assert (
        kill_everywhere(shop, lambda layer: undo(journal, layer=layer), (counting, killing), (after, before), stride)
        > 100 // stride
    )


@on_both
@pytest.mark.parametrize("way_on", [resume, undo])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.8])
def test_going_on_is_killed_too(
    shop: Workshop,
    counting: type[CountingLayer],
    killing: type[KillingLayer],
    way_on: Callable[..., object],
    part: float,
    stride: int,
) -> None:
    before = shop.state()
    layer = counting()
    plan = rich_plan(shop.root)
    shop.save()
    apply(plan, layer=layer)
    shop.restore()
    begun = [operation for operation, _ in layer.requests].index("symlink")
    with pytest.raises(Killed):
        apply(plan, layer=killing(begun + int((len(layer.requests) - begun) * part), "within"))
    journal = pending(shop.root)
    assert journal is not None
    shop.save()
    resume(journal, layer=counting())
    after = shop.state()
    shop.restore()
    ends = (before, after) if way_on is resume else (after, before)
    counted = counting()
    shop.save()
    way_on(journal, layer=counted)
    assert shop.state() == ends[1]
    for at, _ in chosen(counted.requests, stride):
        for second in (resume, undo):
            shop.restore()
            with pytest.raises(Killed):
                way_on(journal, layer=killing(at, "within"))
            goes_on(shop, second, before, after)


@on_both
def test_bringing_again_what_was_taken_back(
    shop: Workshop, counting: type[CountingLayer], killing: type[KillingLayer], stride: int
) -> None:
    before = shop.state()
    journal = apply(rich_plan(shop.root), layer=counting()).journal
    assert journal is not None
    after = shop.state()
    undo(choose_journal(shop.root), layer=counting())
    redo = choose_journal(shop.root, redo=True)
    assert (
        kill_everywhere(shop, lambda layer: undo(redo, layer=layer), (counting, killing), (before, after), stride)
        > 100 // stride
    )
