"""Markers of transactions that were destroyed come back from snapshots and transaction indexes as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.kafka.directory.directory import LogDirectory
from rmqctl.kafka.loading.producers import EndedTransaction, ProducerReplay
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.repair.plan import RepairOptions, overlaid, plan_repair
from rmqctl.kafka.repair.survey import Batch, Survey
from rmqctl.release import Release
from tests.kafka.repair.judged import opened
from tests.kafka.repair.markers_helpers import PLACES, alone


def replayed(directory: LogDirectory) -> ProducerReplay:
    found = ProducerReplay()
    for log in directory.partitions[0].logs:
        source = log.open()
        for block in scan(source, Extent(log.name, log.base, size=log.size)):
            found.add(block.take(block.crc_ok))
        source.close()
    return found


def markers(survey: Survey) -> list[Batch]:
    return [batch for row in range(len(survey)) if (batch := survey.batch(row)).is_marker]


def mended(root: Path, room: Path) -> LogDirectory:
    staged = room / "staged"
    staged.mkdir(exist_ok=True)
    directory = opened(root)
    plan = plan_repair(directory, RepairOptions(Release(3, 9, 2)), staged).plan
    return overlaid(directory, plan.steps)


def damage(root: Path, survey: Survey, batch: Batch) -> None:
    path = root / survey.files[batch.segment].name
    with path.open("r+b") as file:
        file.seek(batch.position + 25)
        file.write(b"\xa5" * 50)


@pytest.mark.parametrize(
    ("name", "directory", "step"),
    [(*PLACES[0], 9), *(pytest.param(*place, 1, marks=pytest.mark.slow) for place in PLACES)],
)
def test_each_marker(name: str, directory: str, step: int, tmp_path: Path) -> None:
    before = replayed(opened(alone(name, directory, tmp_path))).ended
    survey = Survey(opened(tmp_path / "store").partitions[0])
    data = [b for row in range(len(survey)) if (b := survey.batch(row)).attributes & 0x30 == 0x10]
    open_for_good = exact = 0
    for batch in markers(survey)[::step]:
        path = tmp_path / "store" / survey.files[batch.segment].name
        sound = path.read_bytes()
        damage(tmp_path / "store", survey, batch)
        after = replayed(mended(tmp_path / "store", tmp_path)).ended
        path.write_bytes(sound)
        exact += [t[:3] + t[4:] for t in after] == [t[:3] + t[4:] for t in before]
        for b in data:
            assert fate(b, after) in {fate(b, before), None}, "committed stays committed, aborted aborted"
            open_for_good += fate(b, after) != fate(b, before)
    assert open_for_good <= 3, "only what ends after the last snapshot is not known"
    assert exact > 0.3 * len(markers(survey)[::step])


def fate(batch: Batch, ended: list[EndedTransaction]) -> bool | None:
    """Whether a batch of a transaction is committed; None where it has not ended."""
    mine = (t for t in ended if t.producer_id == batch.producer_id and t.first_offset <= batch.base_offset)
    return next((t.committed for t in mine if t.last_offset > batch.base_offset), None)


@pytest.mark.parametrize("how", ["gone", "empty"])
@pytest.mark.parametrize("directory", ["txn-a-0", pytest.param("txn-a-1", marks=pytest.mark.slow)])
def test_markers_in_a_segment_that_is_lost_as_a_whole(directory: str, how: str, tmp_path: Path) -> None:
    """Its transaction index says which transactions were aborted in it; the others that end there were committed."""
    root = alone("4.3.1-crash", directory, tmp_path)
    before = replayed(opened(root)).ended
    survey = Survey(opened(root).partitions[0])
    data = [b for row in range(len(survey)) if (b := survey.batch(row)).attributes & 0x30 == 0x10]
    for number, file in list(enumerate(survey.files))[1:-1]:
        path = root / file.name
        sound = path.read_bytes()
        if how == "gone":
            path.unlink()
        else:
            path.write_bytes(b"")
        after = replayed(mended(root, tmp_path)).ended
        path.write_bytes(sound)
        for b in (b for b in data if b.segment != number):
            assert fate(b, after) in {fate(b, before), None}, "committed stays committed, aborted aborted"


def test_markers_of_a_lost_segment_are_not_given_up(tmp_path: Path) -> None:
    """What a step says that it gives up are the offsets without the markers that it writes again."""
    root = alone("4.3.1-crash", "txn-a-0", tmp_path)
    file = Survey(opened(root).partitions[0]).files[1]
    (root / file.name).unlink()
    (tmp_path / "staged").mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release(3, 9, 2)), tmp_path / "staged").plan
    (step,) = (step for step in plan.steps if step.what.startswith("bridge"))
    after = Survey(overlaid(opened(root), plan.steps).partitions[0])
    bridged = [batch for row in range(len(after)) if (batch := after.batch(row)).segment == 1]
    made = sum(batch.is_marker for batch in bridged)
    assert made > 0
    assert step.loses == bridged[-1].last_offset + 1 - bridged[0].base_offset - made


@pytest.mark.parametrize("change", [lambda data: data[:40] + b"\n\0\n" + data[40:], lambda data: data[:40] + data[45:]])
def test_a_marker_of_another_size(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    root = alone(*PLACES[2], tmp_path)
    before, survey = replayed(opened(root)).ended, Survey(opened(root).partitions[0])
    batch = next(batch for batch in markers(survey) if batch.base_offset == 141)
    path = root / survey.files[batch.segment].name
    data, end = path.read_bytes(), batch.position + batch.size
    path.write_bytes(data[: batch.position] + change(data[batch.position : end]) + data[end:])
    assert [t[:3] + t[4:] for t in replayed(mended(root, tmp_path)).ended] == [t[:3] + t[4:] for t in before]


def test_an_end_that_nothing_knows_is_named(tmp_path: Path) -> None:
    """The marker of an abort and the transaction index of its segment are gone; a later snapshot says that it ended."""
    root = alone(*PLACES[2], tmp_path)
    log = root / "txn-b-0" / "00000000000000000094.log"
    log.write_bytes(log.read_bytes()[:1390])
    log.with_suffix(".txnindex").unlink()
    staged = tmp_path / "staged"
    staged.mkdir()
    steps = plan_repair(opened(root), RepairOptions(Release(3, 9, 2)), staged).plan.steps
    reasons = [step.why for step in steps if step.what.startswith("bridge offsets 116 to 123")]
    assert len(reasons) == 1
    assert "txn-b-0 producer 15 from offset 113 ended here, nothing left says how" in reasons[0]
