"""A log that the golden batches are appended to gets the golden files: segments, indexes, snapshots, epochs, checkpoints.

Of 2.8.2 there are no such files: its golden directories hold messages of the older formats, which the engine does not write.
What the cleaner made of compacted partitions is in ``test_cleaner.py``.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.kafka.checkpoint import (
    CLEANER,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    parse_leader_epochs,
    parse_offsets,
)
from rmqctl.files.writing import Disk
from rmqctl.kafka.engine.config import LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.engine.log import LogPlace, WritableLog
from rmqctl.release import Release

CLEAN = ["3.9.2-clean", "4.3.1-clean"]


def stored_batches(name: str) -> dict[str, list[tuple[int, bytes]]]:
    """Leader epoch and bytes of each batch, by partition directory, in order."""
    found: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    data: dict[str, bytes] = {}
    for line in golden.truth(name):
        if line["t"] == "batch" and line["file"].endswith(".log"):
            file = line["file"]
            if file not in data:
                data[file] = (golden.pristine(name) / file).read_bytes()
            batch = data[file][line["position"] : line["position"] + line["size"]]
            found[file.partition("/")[0]].append((line["partitionLeaderEpoch"], batch))
    return found


def place_of(name: str, directory: Path, config: dict[str, str]) -> LogPlace:
    manifest = golden.manifest(name)
    topic, _, number = directory.name.rpartition("-")
    log = LogConfig().with_settings(config, manifest["config"])
    return LogPlace(topic, int(number), directory, log, Release.parse(manifest["kafka"]), lambda: 1 << 40, Disk())


def replayed(name: str, directory: str, batches: list[tuple[int, bytes]], config: dict[str, str], into: Path) -> Path:
    """Append the batches; where the leader's epoch changes the broker was stopped and started."""
    place = place_of(name, into / directory, config)
    base = int.from_bytes(batches[0][1][:8], "big")
    log = WritableLog(place, base)
    last = batches[0][0]
    for epoch, batch in batches:
        if epoch != last:
            log.close()
            log = WritableLog(place, log.start)
            log.active.unindexed = 0
            last = epoch
        log.append_stored(batch)
    golden_epochs = golden.pristine(name) / directory / "leader-epoch-checkpoint"
    for entry in parse_leader_epochs(golden_epochs.read_bytes()).entries:
        log.epochs.begin(entry.epoch, log.end)  # of a leader that wrote nothing
    log.delete_records(offsets_of(golden.pristine(name) / LOG_START).get((place.topic, place.number), log.start))
    log.close()
    return place.directory


@pytest.mark.parametrize("name", CLEAN)
def test_files_equal_the_golden_ones(name: str, tmp_path: Path) -> None:
    topics = golden.oracle(name)["topics"]
    compared, seen = 0, set[str]()
    for directory, batches in stored_batches(name).items():
        topic = directory.rpartition("-")[0]
        config: dict[str, Any] = topics.get(topic, {}).get("config", {})
        if topic == "compacted" or directory.endswith("-delete"):  # cleaned; not closed, so that nothing is trimmed
            continue
        made, root = replayed(name, directory, batches, config, tmp_path), golden.pristine(name) / directory
        names = {p.name for p in root.iterdir()} - {"partition.metadata"}
        wanted = {n for n in names if not n.endswith((".deleted", ".checkpoint")) and n != "quorum-state"}
        assert {p.name for p in made.iterdir()} >= wanted, directory
        for file in sorted(wanted):
            assert (made / file).read_bytes() == (root / file).read_bytes(), f"{directory}/{file}"
        compared += len(wanted)
        seen.add(directory)
    every = {p.name for p in golden.pristine(name).iterdir() if any(log.stat().st_size for log in p.glob("*.log"))}
    assert {n for n in every - seen if not n.endswith("-delete")} == {"compacted-0", "compacted-1"}
    assert compared > 350


def offsets_of(path: Path) -> dict[tuple[str, int], int]:
    return parse_offsets(path.read_bytes()).offsets if path.exists() else {}


@pytest.mark.parametrize("name", ["2.8.2-clean", *CLEAN])
def test_checkpoints_equal_the_golden_ones(name: str, tmp_path: Path) -> None:
    """Opened and closed again, the engine writes what the broker did; the order of lines is that of a hash map there."""
    path = golden.unpack(name, tmp_path)
    with KafkaEngine.open(path):
        pass
    for file in (RECOVERY_POINT, HIGH_WATERMARK, LOG_START, CLEANER):
        assert sorted((path / file).read_bytes().splitlines()) == sorted(
            (golden.pristine(name) / file).read_bytes().splitlines()
        ), file
