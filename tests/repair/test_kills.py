"""A kill at every request of apply, undo and resume: both ways on lead exactly where they should."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.errors import Refused
from rmqctl.repair import apply, pending, resume, undo
from rmqctl.repair.layer import FileLayer
from tests.repair.faults import AcrossCounting, AcrossKilling, CountingLayer, Killed, KillingLayer, QuickLayer
from tests.repair.stores import make_store, plan_of, rich_plan, state_of

State = dict[str, object]
Run = Callable[[FileLayer], object]
HOWS = ("before", "after", "within")
KINDS = [
    pytest.param(CountingLayer, KillingLayer, id="one-disk"),
    pytest.param(AcrossCounting, AcrossKilling, id="two-disks"),
]
on_both = pytest.mark.parametrize(("counting", "killing"), KINDS)


class Workshop:
    """A store that can be had again in the same state, journals included."""

    def __init__(self, home: Path) -> None:
        self.home, self.root = home, home / "store"
        self.base = home / "store.rmqctl-journal"
        self._saved = home.with_name(home.name + "-saved")

    def save(self) -> None:
        shutil.rmtree(self._saved, ignore_errors=True)
        shutil.copytree(self.home, self._saved, symlinks=True)

    def restore(self) -> None:
        shutil.rmtree(self.home)
        shutil.copytree(self._saved, self.home, symlinks=True)

    def state(self) -> State:
        """Without the time of the root: the last request may be the one that sets it."""
        found = state_of(self.root)
        found.pop("./")
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    shop = Workshop(tmp_path / "home")
    make_store(shop.root)
    return shop


def kill_everywhere(
    shop: Workshop, run: Run, kinds: tuple[type[CountingLayer], type[KillingLayer]], before: State, after: State
) -> int:
    """Kill a run at each of its requests, in each way, then go each of the two ways on.

    Returns how often something had to be resumed or undone.
    """
    counting, killing = kinds
    shop.save()
    layer = counting()
    run(layer)
    assert shop.state() == after
    found = 0
    for at in range(len(layer.requests)):
        for how in HOWS if layer.requests[at][0] == "write" else HOWS[:2]:
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
def test_apply(shop: Workshop, counting: type[CountingLayer], killing: type[KillingLayer]) -> None:
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
        assert kill_everywhere(shop, lambda layer: apply(plan, layer=layer), (counting, killing), before, after) > 100


@on_both
def test_undo_of_what_is_done(shop: Workshop, counting: type[CountingLayer], killing: type[KillingLayer]) -> None:
    before = shop.state()
    journal = apply(rich_plan(shop.root), layer=counting()).journal
    assert journal is not None
    after = shop.state()
    assert kill_everywhere(shop, lambda layer: undo(journal, layer=layer), (counting, killing), after, before) > 100


@on_both
@pytest.mark.parametrize("way_on", [resume, undo])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.8])
def test_going_on_is_killed_too(
    shop: Workshop,
    counting: type[CountingLayer],
    killing: type[KillingLayer],
    way_on: Callable[..., object],
    part: float,
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
    for at in range(len(counted.requests)):
        for second in (resume, undo):
            shop.restore()
            with pytest.raises(Killed):
                way_on(journal, layer=killing(at, "within"))
            goes_on(shop, second, before, after)
