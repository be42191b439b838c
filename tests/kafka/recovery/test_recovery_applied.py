"""A start that was carried out by plan: a second one finds the same log and nothing to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures import golden, kafka_damage
from rmqctl import repair
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.recovery.plan import recovery_plan
from rmqctl.kafka.recovery.replay import Recovery, recover
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release

LEFT = {
    "crash/leader-epoch-beyond-leo": {"plain-none-0/leader-epoch-checkpoint"},
    "clean/log-start-beyond-leo": {"plain-none-0/00000000000000100000.snapshot"},
}
"""What a second start of a broker changes once more: epochs of batches that a wrong later epoch kept out, and the
snapshot that it took at a log start, which is none above it."""
TELLING = {
    "crash/crc-body-older-segment-no-recovery-point",
    "crash/leader-epoch-beyond-leo",
    "clean/both-indexes-active-deleted",
}
VARIANTS = [
    pytest.param(
        release,
        variant,
        id=f"{release}-{variant['variant']}",
        marks=() if variant["variant"] in TELLING and release == "4.3.1" else pytest.mark.slow,
    )
    for release in ("3.9.2", "4.3.1")
    for variant in golden.recovery_oracle(release)["variants"]
    if variant["started"]
]


@pytest.mark.parametrize(("release", "variant"), VARIANTS)
def test_second_start_has_nothing_to_do(release: str, variant: dict[str, Any], tmp_path: Path) -> None:
    name = variant["variant"]
    root = golden.unpack(f"{release}-{name.partition('/')[0]}", tmp_path)
    kafka_damage.apply(variant["recipe"], root)
    first = start(root, release)
    repair.apply(recovery_plan(first[0].directories, first[1]), journal_dir=tmp_path / "journal", lock=".lock")
    second = start(root, release)
    assert second[1].starts
    assert logs(second[1]) == logs(first[1])
    left = {edit.file for edit in recovery_plan(second[0].directories, second[1]).edits}
    assert left == LEFT.get(name, set())


def start(root: Path, release: str) -> tuple[LogDirectories, Recovery]:
    place = LogDirectories([read_directory(LocalTree(str(root)))])
    return place, recover(Replicas(place), Release.parse(release))


def logs(found: Recovery) -> dict[str, tuple[int, int, list[int]]]:
    loaded = {partition.key: partition.loaded for partition in found.partitions}
    return {key: (of.log_start_offset, of.log_end_offset, of.bases) for key, of in loaded.items()}
