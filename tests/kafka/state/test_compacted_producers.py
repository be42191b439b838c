"""Producers of logs that were compacted: what a broker knows of them when it starts, and what the log alone does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from formats.kafka.record_batch import Attributes
from rmqctl.files.local import LocalFile
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.engine.config import EngineConfig
from rmqctl.kafka.loading.producers import ProducerReplay
from rmqctl.kafka.log.indexes import read_producer_snapshot
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.rebuild.rebuild import RebuildOptions, rebuild
from rmqctl.kafka.state.replicas import Replicas
from tests.kafka.engine.cleaner_helpers import COMPACT, cleaned_often, logs_of

SEEDS = range(6)


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cleaned") / "store"
    cleaned_often(root, len(SEEDS), EngineConfig(), COMPACT)
    return root


def replicas(root: Path) -> Replicas:
    return Replicas(LogDirectories([read_directory(LocalTree(str(root)))]))


def rows_of(snapshot: Path) -> dict[int, dict[str, int]]:
    return {row["producer_id"]: row for row in read_producer_snapshot(LocalFile(snapshot, "")).rows()}


def test_producers_are_those_of_the_newest_snapshot(cleaned: Path) -> None:
    found, from_logs = {}, {}
    for log in replicas(cleaned).served:
        directory = cleaned / log.partition.directory
        snapshot = max(directory.glob("*.snapshot"))
        known = {row["producer_id"]: row for row in log.replayed.producers.rows()}
        found[log.partition.directory] = known == rows_of(snapshot)
        alone = ProducerReplay()
        for _, block in log.blocks():
            alone.add(block)
        from_logs[log.partition.directory] = {row["producer_id"]: row for row in alone.rows()} == rows_of(snapshot)
    assert all(found.values())
    assert not all(from_logs.values()), "the logs alone would have been enough"


def test_an_emptied_control_batch_makes_a_producer_of_which_nothing_is_known(cleaned: Path) -> None:
    seen = 0
    for path in (path for seed in SEEDS for path in logs_of(cleaned / f"t-{seed}")):
        for block in scan(LocalFile(path, path.name), Extent(path.name)):
            emptied = block.take(block.flag(Attributes.CONTROL) & (block["records_count"] == 0))
            replay = ProducerReplay()
            replay.add(emptied)
            assert set(replay.producers) == set(emptied["producer_id"].tolist())
            for producer in replay.producers.values():
                assert (producer.producer_epoch, producer.last_sequence, producer.last_timestamp) == (-1, -1, -1)
                seen += 1
    assert seen


def test_a_snapshot_that_is_made_again_goes_on_from_those_that_are_left(cleaned: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(cleaned, root)
    lost = {max((root / f"t-{seed}").glob("*.snapshot")): b"" for seed in SEEDS}
    for path in lost:
        lost[path] = path.read_bytes()
        path.unlink()
    of = replicas(root)
    made = {one.name: one.content for one in rebuild(of, of.directories[0], RebuildOptions()).changes}
    assert {str(path.relative_to(root)): made[str(path.relative_to(root))] for path in lost} == {
        str(path.relative_to(root)): content for path, content in lost.items()
    }
