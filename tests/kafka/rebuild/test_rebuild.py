"""Derived files of the golden log directories: made again from the logs, they are the brokers' own or answer alike."""

from __future__ import annotations

import random
import shutil
import struct
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.findings import Severity
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.rebuild.build import Builder, interval_of
from rmqctl.kafka.rebuild.rebuild import RebuildOptions, Rebuilt, rebuild, write_into
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.store import KafkaStore
from rmqctl.kafka.verify import driver
from rmqctl.kafka.verify.driver import Verification, VerifyOptions
from rmqctl.kafka.verify.indexes import intervals_shown
from rmqctl.release import Release
from rmqctl.repair import apply
from tests.conftest import Rmqctl

DERIVED = {".index", ".timeindex", ".txnindex", ".snapshot"}
SMALL = {"leader-epoch-checkpoint", "partition.metadata"}
ASKED = {"2.8.2": ("v1-gzip", 0), "3.9.2": ("txn-a", 0), "4.3.1": ("txn-a", 0)}


def store(root: Path) -> KafkaStore:
    return KafkaStore(LogDirectories([read_directory(LocalTree(str(root)))]))


def rebuilt(root: Path, **options: Any) -> tuple[Rebuilt, Replicas]:
    replicas = store(root).replicas
    return rebuild(replicas, replicas.directories[0], RebuildOptions(**options)), replicas


def derived(root: Path) -> list[Path]:
    """Derived files of the partitions that are served."""
    found = [p for p in root.rglob("*") if p.suffix in DERIVED or p.name in SMALL]
    return [p for p in found if not p.parent.name.endswith("-delete")]


def wrong(root: Path) -> set[tuple[str, str]]:
    found = Verification(read_directory(LocalTree(str(root)))).findings()
    return {(f.kind.id, f.file) for f in found if f.level is not Severity.NOTE}


def asked(root: Path, name: str) -> list[Any]:
    """What lookups answer that go through indexes."""
    topic, number = ASKED[name[:5]]
    opened = store(root)
    end = next(row["log_end_offset"] for row in opened.topics(topic=topic) if row["partition"] == number)
    rows = [list(opened.query_offset(topic, number, offset)) for offset in range(0, end, 11)]
    first = next(row["first_timestamp"] for row in opened.topics(topic=topic) if row["partition"] == number)
    return rows + [list(opened.query_time(topic, number, first + step * 50)) for step in range(-1, 40, 3)]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "4.3.1-crash" else pytest.mark.slow) for n in golden.KAFKA_NAMES]
)
def test_what_a_broker_wrote_stays(name: str) -> None:
    found, _ = rebuilt(golden.pristine(name))
    counts = Counter(change.change for change in found.changes)
    assert set(counts) <= {"equal", "keep"}
    assert counts["equal"] > 2 * counts["keep"], "most are equal byte for byte"
    assert not found.left
    assert not found.damage


def test_the_interval_of_a_partition_is_what_its_densest_index_shows(tmp_path: Path) -> None:
    """Entries are farther apart than that where a broker started, for it counts from 0 again."""
    (tmp_path / "t-0").mkdir()
    for base, places in ((0, (900, 1900)), (50, (120, 400)), (90, ())):
        (tmp_path / f"t-0/{base:020d}.log").touch()
        entries = (struct.pack(">ii", 1 + number, place) for number, place in enumerate(places))
        (tmp_path / f"t-0/{base:020d}.index").write_bytes(b"".join(entries))
    (partition,) = read_directory(LocalTree(str(tmp_path))).partitions
    assert (interval_of(partition, None), interval_of(partition, 700)) == (119, 700)
    assert intervals_shown(partition.segments) == [900, 120]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "3.9.2-clean" else pytest.mark.slow) for n in golden.KAFKA_NAMES]
)
def test_all_of_them_are_made_again(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    for path in derived(root):
        if "cluster_metadata" not in str(path) or path.suffix in DERIVED:
            path.unlink()
    found, replicas = rebuilt(root)
    apply(found.plan(replicas.directories[0]), lock=".lock")
    assert not wrong(root) - wrong(golden.pristine(name))
    assert asked(root, name) == asked(golden.pristine(name), name)
    again, _ = rebuilt(root)
    assert {change.change for change in again.changes} <= {"equal", "keep"}
    equal = [
        p for p in derived(golden.pristine(name)) if _bytes(p) == _bytes(root / p.relative_to(golden.pristine(name)))
    ]
    if name.startswith("2.8.2"):  # only ZooKeeper knows how far index entries are apart; snapshots need no setting
        made = [p for p in root.rglob("*.snapshot") if (golden.pristine(name) / p.relative_to(root)).exists()]
        assert len([p for p in equal if p.suffix == ".snapshot"]) == len(made) > 20
    else:
        assert len(equal) > 0.6 * len(derived(golden.pristine(name)))


def _bytes(path: Path) -> bytes | None:
    """The content without the room of an index that is written."""
    return path.read_bytes().rstrip(b"\0") if path.exists() else None


def test_only_what_is_wrong_is_written(tmp_path: Path) -> None:
    root = golden.unpack("3.9.2-clean", tmp_path)
    (root / "plain-none-0/leader-epoch-checkpoint").write_text("garbage")
    (root / "plain-none-0/00000000000000000047.index").write_bytes(b"\0\0\0\1\0\0\0\3" * 2)
    (root / "recovery-point-offset-checkpoint").write_text("0\n2\nplain-none 0 9999\n")
    (root / "plain-none-0/00000000000000000007.index").write_bytes(b"")
    found, replicas = rebuilt(root)
    changed = {change.name: change.change for change in found.changes if change.change not in {"equal", "keep"}}
    assert changed == {
        "plain-none-0/00000000000000000007.index": "remove",
        "plain-none-0/00000000000000000047.index": "replace",
        "plain-none-0/leader-epoch-checkpoint": "replace",
        "recovery-point-offset-checkpoint": "replace",
    }
    logs = {p: p.read_bytes() for p in root.rglob("*.log")}
    apply(found.plan(replicas.directories[0]), lock=".lock")
    assert {p: p.read_bytes() for p in root.rglob("*.log")} == logs
    assert not wrong(root)
    for name in ("plain-none-0/leader-epoch-checkpoint", "plain-none-0/00000000000000000047.index"):
        assert (root / name).read_bytes() == (golden.pristine("3.9.2-clean") / name).read_bytes()


def test_parts_topics_and_another_directory(tmp_path: Path) -> None:
    found, _ = rebuilt(golden.pristine("3.9.2-clean"), parts=["index"], topics=["txn-a"], fresh=True)
    write_into(found, tmp_path)
    names = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert names
    assert all(name.startswith("txn-a-") and name.endswith("index") for name in names)


def test_an_id_that_can_be_read_is_never_written_over(tmp_path: Path) -> None:
    """That of a topic which was deleted, whose directory lies in the place of another; one that no topic had; a flip."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    shutil.rmtree(root / "plain-none-0")
    next(root.glob("goner-1.*-delete")).rename(root / "plain-none-0")
    (root / "plain-none-1/partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    flipped = root / "plain-none-2/partition.metadata"
    sound = flipped.read_text()
    flipped.write_text(sound[:-4] + ("A" if sound[-4] != "A" else "B") + sound[-3:])
    found, replicas = rebuilt(root)
    changed = {change.name: change.content for change in found.changes if change.name.endswith("metadata")}
    changed = {name: content for name, content in changed.items() if (root / name).read_bytes() != content}
    assert changed == {"plain-none-2/partition.metadata": sound.encode()}
    assert "that of topic goner, which was deleted" in found.left["plain-none-0/partition.metadata"]
    assert "which the metadata log does not name" in found.left["plain-none-1/partition.metadata"]
    start = recover(replicas, Release(4, 3, 1))
    assert {one.loaded.partition.directory for one in start.partitions if one.is_stray} == {
        f"plain-none-{number}" for number in range(3)
    }


def test_the_command_puts_them_in_place_and_takes_them_out_again(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("3.9.2-clean", tmp_path)
    missing = root / "txn-a-0/00000000000000000037.txnindex"
    content = missing.read_bytes()
    missing.unlink()
    assert rmqctl("rebuild", root).exit_code == 1
    assert rmqctl("rebuild", root, "--apply").exit_code == 0
    assert missing.read_bytes() == content
    assert rmqctl("rebuild", root).exit_code == 0
    assert rmqctl("rebuild", root, "--queues").exit_code == 2
    assert rmqctl("undo", root).exit_code == 0
    assert not missing.exists()
    into = tmp_path / "into"
    assert rmqctl("rebuild", root, "--into", into, "--topic", "txn-a", "--index").exit_code == 0
    assert (into / "txn-a-0" / missing.name).read_bytes() == content


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "4.3.1-crash" else pytest.mark.slow) for n in golden.KAFKA_NAMES]
)
def test_logs_built_while_they_are_verified(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large logs are read once, for the check and for what is derived: in any splits that is what reading them gives."""
    root = golden.unpack(name, tmp_path)
    rng = random.Random(7)
    for damaged in (False, True):
        for path in sorted(root.rglob("*.log")) if damaged else ():
            data = bytearray(path.read_bytes())
            if data and rng.random() < 0.6:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                path.write_bytes(data)
        read, _ = rebuilt(root, fresh=True)
        with monkeypatch.context() as patch:
            patch.setattr(driver, "LARGEST", -1)
            patch.setattr("rmqctl.kafka.rebuild.rebuild.VerifyOptions", partial(VerifyOptions, split_size=1 << 14))
            patch.setattr(Builder, "run", None)
            watched, _ = rebuilt(root, fresh=True, processes=2 if damaged else 1)
        assert watched.changes == read.changes
        assert watched.left == read.left
