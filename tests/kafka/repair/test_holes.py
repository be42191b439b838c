"""Segments that are gone as a whole: what becomes of the transactions around the hole, against the whole log."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory
from rmqctl.kafka.log.indexes import read_txn_index
from rmqctl.kafka.repair.plan import Repair, RepairOptions, overlaid, plan_repair
from rmqctl.kafka.repair.survey import Survey
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release
from tests.kafka.repair.judged import opened
from tests.kafka.repair.markers_helpers import alone

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
