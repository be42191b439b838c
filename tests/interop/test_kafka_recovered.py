"""Random damage to Kafka log directories, started by released brokers and by the replay: no difference in any file."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest

from fixtures import golden
from formats.kafka.checkpoint import LOG_START, RECOVERY_POINT, PartitionOffset, format_offsets, parse_offsets
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.recovery.replay import RecoveredPartition, Recovery, recover
from rmqctl.kafka.repair.survey import Survey
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, Brokers, rounds
from tests.interop.kafka_produced_helpers import SETTINGS, content, damage_randomly, is_lasting

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
STARTS = rounds(3, 30)
"""Starts of each release; each judges a dozen damaged partitions."""


def move_checkpoints(root: Path, draw: random.Random) -> None:
    """Give partitions other recovery points, and rarely another log start, as an older or a newer file would."""
    for kind, odds in ((RECOVERY_POINT, 0.3), (LOG_START, 0.1)):
        path = root / kind
        if not path.exists():
            continue
        known = parse_offsets(path.read_bytes()).offsets
        moved = {
            key: draw.randrange(0, offset + 30) if offset and draw.random() < odds else offset
            for key, offset in known.items()
        }
        path.write_bytes(format_offsets(PartitionOffset(*key, offset) for key, offset in moved.items()))


def replay(root: Path, release: str) -> Recovery:
    place = LogDirectories([read_directory(LocalTree(str(root)))])
    return recover(Replicas(place), Release.parse(release), {name: str(value) for name, value in SETTINGS.items()})


def files_replayed(partition: RecoveredPartition) -> dict[str, object]:
    files = partition.loaded.files
    return {name: content(files.read(name)) for name in files.names() if is_lasting(name)}


def files_of(directory: Path) -> dict[str, object]:
    found = (path for path in directory.iterdir() if is_lasting(path.name))
    return {path.name: content(path.read_bytes()) for path in found}


def differences(found: Recovery, copied: Path) -> list[str]:
    """Where the files after a replay are not those of a broker when it had loaded all logs."""
    out = []
    for partition in found.partitions:
        name = partition.loaded.partition.directory
        if partition.loaded.partition.is_metadata_log or partition.is_stray:
            continue
        mine, theirs = files_replayed(partition), files_of(copied / name)
        differing = (file for file in sorted({*mine, *theirs}) if mine.get(file) != theirs.get(file))
        out += [f"{name}/{file}: replayed {mine.get(file)}, the broker's {theirs.get(file)}" for file in differing]
    return out


@pytest.mark.parametrize("release", RELEASES)
def test_random_damage_is_started_as_a_broker_does(release: str, tmp_path: Path, compiled: Path) -> None:
    judged, wrong = 0, list[str]()
    with Brokers(release, compiled, **SETTINGS) as brokers:
        for seed in range(STARTS):
            count, found = start_with(brokers, release, seed, tmp_path)
            judged, wrong = judged + count, [*wrong, *(f"seed {seed}: {text}" for text in found)]
    assert judged > 8 * STARTS
    assert wrong == []


def start_with(brokers: Brokers, release: str, seed: int, room: Path) -> tuple[int, list[str]]:
    """Damage a directory, and start it; how many damaged partitions were judged, and where the two differ.

    Where the broker does not start, what keeps it from that is made whole, and it is started again.
    """
    root, name, hit = damage_randomly(release, seed, room / str(seed))
    sound, draw = golden.pristine(name), random.Random(seed)
    if draw.random() < 0.5:
        move_checkpoints(root, draw)
    judged, wrong = len(hit), list[str]()
    for attempt in range(len(hit) + 1):
        found = replay(root, release)
        copy, copied = room / f"{seed}-{attempt}", room / f"{seed}-{attempt}-loaded"
        shutil.copytree(root, copy)
        outcome = brokers.load(copy, copied)
        if found.starts != (outcome == "loaded"):
            errors = [line for line in brokers.log.splitlines() if "ERROR" in line][:3]
            return judged, [
                *wrong,
                f"replayed {found.error or 'starts'}, the broker's outcome {outcome}: {errors}; {hit}",
            ]
        if found.starts:
            wrong += [f"{text} after {hit.get(text.partition('/')[0])}" for text in differences(found, copied)]
            break
        culprit = (found.error or "").partition(":")[0]
        shutil.rmtree(root / culprit)
        shutil.copytree(sound / culprit, root / culprit)
    shutil.rmtree(room / str(seed))
    for path in room.glob(f"{seed}-*"):
        shutil.rmtree(path)
    return judged, wrong


def copy_batches(root: Path, draw: random.Random) -> list[str]:
    """Write a batch of the last segment of every partition once more at the end of its log; the partitions."""
    done = []
    for partition in read_directory(LocalTree(str(root))).partitions:
        if not partition.is_plain or partition.is_metadata_log:
            continue
        survey = Survey(partition)
        last = [survey.batch(row) for row in range(len(survey)) if survey.batch(row).segment == len(survey.files) - 1]
        if len(last) > 1 and not survey.damages:
            with (root / survey.files[-1].name).open("ab") as log:
                log.write(survey.bytes_of(draw.choice(last)))
            done.append(partition.directory)
    return done


@pytest.mark.parametrize("release", RELEASES)
def test_copies_at_the_end_are_started_as_a_broker_does(release: str, tmp_path: Path, compiled: Path) -> None:
    """Offsets that fall at the end of a segment: what a broker reads on from depends on its release."""
    judged, wrong = 0, list[str]()
    with Brokers(release, compiled, **SETTINGS) as brokers:
        for seed in range(STARTS):
            root = golden.unpack(f"{release}-{'crash' if seed % 2 else 'clean'}", tmp_path / str(seed))
            (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
            judged += len(copy_batches(root, random.Random(seed)))
            found = replay(root, release)
            copy, copied = tmp_path / f"{seed}-copy", tmp_path / f"{seed}-loaded"
            shutil.copytree(root, copy)
            outcome = brokers.load(copy, copied)
            assert (outcome == "loaded") == found.starts, found.error
            wrong += differences(found, copied) if found.starts else []
            wrong += [text for text in ends_differ(found, brokers.log) if found.starts]
    assert judged > 20 * STARTS
    assert wrong == []


def ends_differ(found: Recovery, said: str) -> list[str]:
    """Where the log end offsets of a replay are not those that a broker logged."""
    loads = re.finditer(r"Completed load of Log\(dir=[^,]*/([^,/]+), .*log-end-offset (\d+) in", said)
    ends = {load[1]: int(load[2]) for load in loads}
    assert ends
    mine = {one.loaded.partition.directory: one.loaded.log_end_offset for one in found.partitions}
    return [f"{name} ends at {mine[name]}, the broker's at {ends[name]}" for name in ends if ends[name] != mine[name]]
