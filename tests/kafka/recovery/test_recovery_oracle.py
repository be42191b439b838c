"""A broker's start, replayed, against what released brokers did with the same damaged directories."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden, kafka_damage
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.loading.files import PartitionFiles
from rmqctl.kafka.recovery.replay import RecoveredPartition, Recovery, recover
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release

RELEASES = ("3.9.2", "4.3.1", "4.4.0")
EPOCHS = "leader-epoch-checkpoint"
TELLING = {
    "crash/none", "crash/crc-body-older-segment-no-recovery-point", "crash/last-batch-base-offset-2pow40",
    "crash/base-offset-below-segment-base", "crash/leader-epoch-77", "crash/empty-middle-log", "crash/index-older-deleted",
    "crash/txnindex-older-last-offset-below-base", "crash/snapshot-all-corrupt", "crash/log-start-beyond-leo",
    "crash/partition-metadata-deleted", "crash/stray-partition-dir-unknown-topic", "crash/recovery-point-garbage",
    "clean/torn-tail-body", "clean/zero-tail-4096", "clean/index-active-garbage", "clean/leftover-swap-log-of-older",
    "clean/leader-epoch-deleted",
}  # fmt: skip
"""Variants that are judged in every run; the others are slow together."""
VARIANTS = [
    pytest.param(
        release,
        variant,
        id=f"{release}-{variant['variant']}",
        marks=() if variant["variant"] in TELLING else pytest.mark.slow,
    )
    for release in RELEASES
    for variant in golden.recovery_oracle(release)["variants"]
]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    into = tmp_path_factory.mktemp("directories")
    names = [f"{release}-{state}" for release in RELEASES for state in ("crash", "clean")]
    return {name: golden.unpack(name, into) for name in names}


@pytest.fixture
def damaged(release: str, variant: dict[str, Any], copies: dict[str, Path]) -> Iterator[Path]:
    """A directory with the damage of a variant; afterwards it is whole again."""
    name = f"{release}-{variant['variant'].partition('/')[0]}"
    root, pristine = copies[name], golden.pristine(name)
    kafka_damage.apply(variant["recipe"], root)
    yield root
    for edit in variant["recipe"]:
        for touched in (edit["file"], edit.get("to", edit["file"])):
            _restore(root / touched, pristine / touched)


def _restore(path: Path, pristine: Path) -> None:
    if path.is_dir() and not pristine.exists():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if pristine.is_file():
        shutil.copy2(pristine, path)


def start(root: Path, release: str) -> Recovery:
    return recover(Replicas(LogDirectories([read_directory(LocalTree(str(root)))])), Release.parse(release))


@pytest.mark.parametrize(("release", "variant"), VARIANTS)
def test_start_is_that_of_the_broker(release: str, variant: dict[str, Any], damaged: Path) -> None:
    found = start(damaged, release)
    assert found.starts == variant["started"] == (found.error is None)
    partitions = {partition.key: partition for partition in found.partitions}
    if not found.starts:
        assert not partitions
        return
    for key, loaded in variant["loaded"].items():
        of = partitions[key].loaded
        assert (of.log_start_offset, of.log_end_offset) == (loaded["logStartOffset"], loaded["logEndOffset"])
        assert len(of.bases) == loaded["segments"]
    strays = [name for name in variant["logdir_entries_added"] if name.endswith("-stray")]
    assert sorted(p.key for p in found.partitions if p.is_stray) == sorted(name.partition(".")[0] for name in strays)
    for key, changes in variant["changes"].items():
        if not partitions[key].is_stray:  # the oracle then shows the empty replica made in its place
            assert changed(partitions[key]) == expected(changes, partitions[key])


def changed(partition: RecoveredPartition) -> dict[str, Any]:
    """What a replay changes, in the form of the oracle."""
    files, changes = partition.loaded.files, partition.changes
    return {
        "deleted": changes.deleted,
        "created": {name: content(files, name) for name in changes.created},
        "changed": {name: content(files, name) for name in changes.changed},
    }


def expected(changes: dict[str, Any], partition: RecoveredPartition) -> dict[str, Any]:
    """What the broker changed, without what it wrote after it had loaded the log."""
    wanted: dict[str, Any] = {
        "deleted": [name for name in changes.get("deleted", []) if not name.endswith(".deleted")],
        "created": {n: told(n, c) for n, c in changes.get("created", {}).items() if is_lasting(n)},
        "changed": {n: told(n, c["after"]) for n, c in changes.get("changed", {}).items()},
    }
    for part in ("created", "changed"):
        entry = changes.get(part, {}).get(EPOCHS)
        if entry is not None and has_new_epoch(entry.get("after", entry)["text"], partition):
            mine = getattr(partition.changes, part)
            wanted[part].pop(EPOCHS)
            if EPOCHS in mine:
                wanted[part][EPOCHS] = content(partition.loaded.files, EPOCHS)
    return wanted


def has_new_epoch(text: str, partition: RecoveredPartition) -> bool:
    """Whether the broker added an epoch at the end of the log, as a leader does, to what the replay has."""
    mine = partition.loaded.files.read(EPOCHS).decode().split("\n")[2:-1]
    lines = text.split("\n")[2:-1]
    return lines[:-1] == mine and lines != mine and lines[-1].split()[1] == str(partition.loaded.log_end_offset)


def is_lasting(name: str) -> bool:
    return not name.endswith((".deleted", ".tmp"))


def content(files: PartitionFiles, name: str) -> dict[str, Any]:
    data = files.read(name)
    ending = name.rpartition(".")[2]
    if ending not in {"index", "timeindex"}:
        return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()[:24]}
    entry = 8 if ending == "index" else 12
    used = min(-(-len(data.rstrip(b"\0")) // entry), len(data) // entry)
    entries = hashlib.sha256(data[: used * entry]).hexdigest()[:24]
    return told(name, {"size": len(data), "entries": used, "sha256_entries": entries})


def told(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """What the oracle tells of a file; the room of an index that is written stands in a broker's settings, in no file."""
    left_out = {"text"} | ({"size"} if "entries" in content and content["size"] >= 65532 else set())
    return {key: value for key, value in content.items() if key not in left_out}
