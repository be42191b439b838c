"""A log that the golden batches are appended to gets the golden files: segments, indexes, snapshots, epochs."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.kafka.checkpoint import parse_leader_epochs
from rmqctl.files.writing import Disk
from rmqctl.kafka.engine.config import LogConfig
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
    log.close()
    return place.directory


@pytest.mark.parametrize("name", CLEAN)
def test_files_equal_the_golden_ones(name: str, tmp_path: Path) -> None:
    topics = golden.oracle(name)["topics"]
    compared = 0
    for directory, batches in stored_batches(name).items():
        topic = directory.rpartition("-")[0]
        config: dict[str, Any] = topics.get(topic, {}).get("config", {})
        if topic not in topics or "compact" in config.get("cleanup.policy", "") or topic == "deleted-rec":
            continue
        made, root = replayed(name, directory, batches, config, tmp_path), golden.pristine(name) / directory
        names = {p.name for p in root.iterdir()} - {"partition.metadata"}
        wanted = {n for n in names if not n.endswith(".deleted")}
        assert {p.name for p in made.iterdir()} >= wanted, directory
        for file in sorted(wanted):
            assert (made / file).read_bytes() == (root / file).read_bytes(), f"{directory}/{file}"
        compared += len(wanted)
    assert compared > 200
