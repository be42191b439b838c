"""Repairs of log directories under fire: killed, or with a disk that fails or is full, at each request."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rmqctl.errors import IOFailure
from rmqctl.kafka.repair.plan import RepairOptions, plan_repair
from rmqctl.kafka.repair.survey import Survey
from rmqctl.release import Release
from rmqctl.repair import Plan, apply, pending, resume, undo
from rmqctl.repair.edits import Create, Cut, Overwrite, Quarantine, SetTimes
from tests.kafka.repair.judged import opened
from tests.kafka.repair.markers_helpers import alone
from tests.repair.faults import CountingLayer, FailingLayer, Killed, KillingLayer, QuickLayer
from tests.repair.workshop import Workshop, chosen

LOCK = ".lock"


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow, id="all"), pytest.param(17, id="some")])
def stride(request: pytest.FixtureRequest) -> int:
    """Which of the requests are tried: all, or each so many."""
    number: int = request.param
    return number


@pytest.fixture
def shop() -> Iterator[Workshop]:
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as home:
        yield Workshop(Path(home) / "home")


@pytest.fixture
def plan(shop: Workshop, tmp_path: Path) -> Plan:
    """A plan with every kind of edit: bits healed, a range bridged, bytes taken out, a segment made, indexes written."""
    alone("3.9.2-crash", "txn-a-0", shop.home)
    survey = Survey(opened(shop.root).partitions[0])
    logs = [shop.root / file.name for file in survey.files]
    row = 3
    batch = survey.batch(row)
    data = bytearray(logs[0].read_bytes())
    data[batch.position + 40] ^= 4
    data[survey.batch(row + 2).position + 61 : survey.batch(row + 2).end] = bytes(survey.batch(row + 2).size - 61)
    logs[0].write_bytes(data)
    data = bytearray(logs[1].read_bytes())
    cut = next(
        survey.batch(row).position
        for row in range(len(survey))
        if survey.batch(row).segment == 1 and survey.batch(row).position > 600
    )
    logs[1].write_bytes(data[:cut] + bytes(100) + data[cut:])
    logs[2].unlink()
    logs[-1].write_bytes(logs[-1].read_bytes()[:-9])
    staged = tmp_path / "staged"
    staged.mkdir()
    found = plan_repair(opened(shop.root), RepairOptions(Release(3, 9, 2)), staged).plan
    assert {type(edit) for edit in found.edits} >= {Create, Cut, Overwrite, Quarantine, SetTimes}
    return found


def test_a_kill_at_any_request(shop: Workshop, plan: Plan, stride: int) -> None:
    before = shop.state()
    shop.save()
    layer = CountingLayer()
    apply(plan, layer=layer, lock=LOCK)
    after, broken = shop.state(), 0
    for at, (operation, _) in chosen(layer.requests, stride):
        for how in ("before", "within") if operation == "write" else ("before", "after"):
            for way_on in (resume, undo):
                shop.restore()
                with pytest.raises(Killed):
                    apply(plan, layer=KillingLayer(at, how), lock=LOCK)
                journal = pending(shop.root)
                if journal is None:
                    assert _same(shop.state(), before) or _same(shop.state(), after)
                    continue
                broken += 1
                way_on(journal, layer=QuickLayer())
                assert _same(shop.state(), after if way_on is resume else before)
    assert broken


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_at_any_request(shop: Workshop, plan: Plan, stride: int, number: int) -> None:
    before = shop.state()
    shop.save()
    layer = CountingLayer()
    apply(plan, layer=layer, lock=LOCK)
    after = shop.state()
    for at, _ in chosen(layer.requests, stride):
        shop.restore()
        try:
            apply(plan, layer=FailingLayer(at, number), lock=LOCK)
        except IOFailure:
            journal = pending(shop.root)
            if journal is not None:
                undo(journal, layer=QuickLayer())
            assert _same(shop.state(), before) or _same(shop.state(), after)


def _same(one: dict[str, object], other: dict[str, object]) -> bool:
    """Whether two states are the same, the times of directories and of files that were made aside."""
    return {name: value[:2] for name, value in one.items() if isinstance(value, tuple)} == {
        name: value[:2] for name, value in other.items() if isinstance(value, tuple)
    }
