"""Segments that are gone as a whole: what becomes of the transactions around the hole, against the whole log."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory
from rmqctl.kafka.log.indexes import read_txn_index
from rmqctl.kafka.repair.log import UNBALANCED
from rmqctl.kafka.repair.plan import Repair, RepairOptions, overlaid, plan_repair
from rmqctl.kafka.repair.survey import Survey
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release
from tests.kafka.repair.judged import opened
from tests.kafka.repair.markers_helpers import alone
from tests.kafka.repair.test_leftovers import made, named, run

DIRECTORIES = [f"{release}-{state}" for release in ("4.3.1", "3.9.2") for state in ("clean", "crash")]
PARTITIONS = ["txn-a-0", "txn-a-1", "txn-b-0"]
MIDDLE = [
    (name, partition, path.stem)
    for name in DIRECTORIES
    for partition in PARTITIONS
    for path in sorted((golden.pristine(name) / partition).glob("*.log"))[1:-1]
]
Outcomes = dict[tuple[int, int], str]
"""By first offset and producer of a batch of a transaction."""


def outcomes(directory: LogDirectory) -> Outcomes:
    """What readers of committed records get of each batch of a transaction, by the transaction indexes."""
    [partition] = directory.partitions
    spans = list[tuple[int, int, int]]()
    for segment in partition.segments:
        if segment.txn_index is not None:
            source = segment.txn_index.open()
            index = read_txn_index(source)
            source.close()
            spans += zip(*(index[n].tolist() for n in ("producer_id", "first_offset", "last_offset")), strict=True)
    still_open = Replicas(LogDirectories([directory])).all[0].replayed.producers.open
    survey, found = Survey(partition), Outcomes()
    for batch in map(survey.batch, range(len(survey))):
        if batch.attributes & 0x30 == 0x10 and batch.records_count:
            place, producer = batch.base_offset, batch.producer_id
            is_aborted = any(who == producer and first <= place <= last for who, first, last in spans)
            is_open = place >= still_open.get(producer, 1 << 62)
            found[place, producer] = "aborted" if is_aborted else "open" if is_open else "committed"
    return found


def whole(name: str, partition: str, room: Path) -> Path:
    root = alone(name, partition, room)
    for file in golden.pristine(name).iterdir():
        if file.is_file() and file.name != "meta.properties":
            shutil.copy(file, root / file.name)
    return root


def repaired(root: Path, name: str, room: Path) -> tuple[Repair, Outcomes]:
    (room / "staged").mkdir()
    directory = opened(root)
    repair = plan_repair(directory, RepairOptions(Release.parse(name[:5])), room / "staged")
    return repair, outcomes(overlaid(directory, repair.plan.steps))


def unnamed(before: Outcomes, after: Outcomes, repair: Repair) -> list[str]:
    """Transactions whose outcome has changed, and that no step names."""
    text = " ".join(f"{step.what} {step.why}" for step in (*repair.plan.steps, *repair.left))
    changed = {key: (before[key], told) for key, told in after.items() if before.get(key) not in {told, None}}
    return [f"{key}: {how}" for key, how in changed.items() if f"producer {key[1]} from offset" not in text]


@pytest.mark.parametrize(
    ("name", "partition", "segment"),
    [
        pytest.param(*place, marks=() if place[:2] == ("4.3.1-clean", "txn-a-0") else pytest.mark.slow)
        for place in MIDDLE
    ],
)
def test_every_transaction_that_a_hole_leaves_open_is_named(
    name: str, partition: str, segment: str, tmp_path: Path
) -> None:
    root = whole(name, partition, tmp_path)
    before = outcomes(opened(root))
    for path in (root / partition).glob(f"{segment}.*"):
        path.unlink()
    entries = {path: path.read_bytes() for path in (root / partition).glob("*.txnindex")}
    repair, after = repaired(root, name, tmp_path)
    assert unnamed(before, after, repair) == []
    assert not any(before.get(key) == "committed" and told == "aborted" for key, told in after.items())
    touched = {edit.file for step in repair.plan.steps for edit in step.edits}
    assert not touched & {f"{partition}/{path.name}" for path in entries}, "sound entries stay"


@pytest.mark.parametrize("seed", [84, 106, *(pytest.param(n, marks=pytest.mark.slow) for n in range(80))])
def test_holes_and_damage_at_random(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    name, partition = draw.choice(DIRECTORIES), draw.choice(PARTITIONS)
    root = whole(name, partition, tmp_path)
    before = outcomes(opened(root))
    harm(root / partition, draw)
    repair, after = repaired(root, name, tmp_path)
    assert unnamed(before, after, repair) == []


def harm(directory: Path, draw: random.Random) -> None:
    """Remove segments with all or some of their files, and destroy pieces of what is left but the last segment."""
    segments = sorted(directory.glob("*.log"))
    gone = draw.sample(segments[1:-1], min(len(segments) - 2, draw.choice([0, 1, 1, 2])))
    for segment in gone:
        how = draw.choice(["all", "log", "some"])
        for path in sorted(directory.glob(f"{segment.stem}.*")):
            if how == "all" or path.suffix == ".log" or (how == "some" and draw.random() < 0.5):
                path.unlink()
    left = sorted(directory.glob("*.log"))[:-1]
    for _ in range(draw.choice([0, 0, 1, 2]) if gone else draw.choice([1, 2])):
        path = draw.choice(left)
        data = bytearray(path.read_bytes())
        at, size = draw.randrange(max(len(data) - 100, 1)), draw.choice([1, 40, 300, 1500])
        data[at : at + size] = draw.randbytes(min(size, len(data) - at))
        path.write_bytes(data)


@pytest.mark.parametrize(("whole_to", "what"), [(3, "bridge offsets 3 to 8 with"), (5, "bridge offsets 5 to 8 with")])
def test_offsets_of_a_segment_that_is_gone_are_filled_once(whole_to: int, what: str, tmp_path: Path) -> None:
    """The segment before it is damaged up to its end: what takes the place of that holds them, too."""
    logs = {base: run(base, base + 3) for base in (0, 3, 6, 9)}
    logs[3] = run(3, whole_to) + bytes(len(logs[3]) - len(run(3, whole_to)))
    files = {named(base, ".log"): data for base, data in logs.items() if base != 6}
    root = made(tmp_path / "d", {**files, named(6, ".index"): bytes(8)}, replication=12, recovery_point=12)
    (tmp_path / "staged").mkdir()
    repair = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), tmp_path / "staged")
    assert [step.what[: len(what)] for step in repair.plan.steps if step.loses] == [what]
    assert [step.what for step in repair.left if step.id == UNBALANCED] == []
    [partition] = overlaid(opened(root), repair.plan.steps).partitions
    survey = Survey(partition)
    assert survey.columns["base_offset"].tolist() == [*range(whole_to + 1), 9, 10, 11]
    assert survey.damages == []
