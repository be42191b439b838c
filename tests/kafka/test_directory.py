"""What lies in a log directory, by names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectory, proves_log_directory, read_directory, read_partition
from rmqctl.kafka.directory.file_names import DirectoryState, FileKind, meaning_of, partition_of


def test_every_file_of_a_golden_directory_is_found(golden_name: str, directory: LogDirectory) -> None:
    files = golden.manifest(golden_name)["files"]
    assert {f.name: f.size for f in directory.all_files()} == {name: facts["size"] for name, facts in files.items()}
    assert not directory.others
    assert not [f.name for f in directory.all_files() if f.kind is FileKind.OTHER]
    assert directory.is_clean is golden_name.endswith("clean")
    assert not directory.is_running()
    topics = {p.rpartition("-")[0] for p in golden.oracle(golden_name)["partitions"]}
    assert topics <= set(directory.topics())


def test_kraft_and_zookeeper(golden_name: str, directory: LogDirectory) -> None:
    log = directory.metadata_log
    assert (log is None) is golden_name.startswith("2.8.2")
    if log is not None:
        assert log.logs
        assert log.of_kind(FileKind.KRAFT_SNAPSHOT)[0].meaning.epoch == 0


@pytest.mark.parametrize(
    ("name", "topic", "partition", "state"),
    [
        ("t-0", "t", 0, ""),
        ("a-b-c-12", "a-b-c", 12, ""),
        ("x-delete-0", "x-delete", 0, ""),
        ("a.b-3", "a.b", 3, ""),
        ("t-0." + "0" * 32 + "-delete", "t", 0, "delete"),
        ("t-0." + "a" * 32 + "-future", "t", 0, "future"),
        ("t-0." + "a" * 32 + "-stray", "t", 0, "stray"),
        ("cut." + "a" * 32 + "-delete", "cut", None, "delete"),
    ],
)
def test_partition_names(name: str, topic: str, partition: int | None, state: str) -> None:
    found = partition_of(name)
    assert found is not None
    assert (found.topic, found.partition, found.state) == (topic, partition, DirectoryState(state))


@pytest.mark.parametrize("name", ["lost+found", "t", "-0", "t-", "t-x", "t-99999999999", "t-4294967296", "t-٣"])
def test_names_of_no_partition(name: str) -> None:
    assert partition_of(name) is None


@pytest.mark.parametrize(
    ("name", "kind", "base", "leftover"),
    [
        ("00000000000000000042.log", FileKind.LOG, 42, ""),
        ("00000000000000000042.log.deleted", FileKind.LOG, 42, ".deleted"),
        ("00000000000000000042.timeindex.swap", FileKind.TIME_INDEX, 42, ".swap"),
        ("00000000000000000042.snapshot", FileKind.PRODUCER_SNAPSHOT, 42, ""),
        ("00000000000000000042-0000000007.checkpoint", FileKind.KRAFT_SNAPSHOT, 42, ""),
        ("00000000000000000042-0000000007.checkpoint.part", FileKind.KRAFT_SNAPSHOT, 42, ".part"),
        ("bootstrap.checkpoint", FileKind.KRAFT_SNAPSHOT, None, ""),
        ("replication-offset-checkpoint.tmp", FileKind.HIGH_WATERMARKS, None, ".tmp"),
        ("foo.log", FileKind.LOG, None, ""),
        ("09223372036854775807.log", FileKind.LOG, (1 << 63) - 1, ""),
        ("09223372036854775808.log", FileKind.LOG, None, ""),
        ("99999999999999999999.snapshot", FileKind.PRODUCER_SNAPSHOT, None, ""),
        ("99999999999999999999-0000000007.checkpoint", FileKind.KRAFT_SNAPSHOT, None, ""),
        ("²" * 20 + ".log", FileKind.LOG, None, ""),
        ("readme", FileKind.OTHER, None, ""),
        ("x.checkpoint", FileKind.KRAFT_SNAPSHOT, None, ""),
    ],
)
def test_file_names(name: str, kind: FileKind, base: int | None, leftover: str) -> None:
    found = meaning_of(name)
    assert (found.kind, found.base, found.leftover) == (kind, base, leftover)


def test_what_does_not_belong_there(tmp_path: Path) -> None:
    for name in ("t-0", "lost+found", "remote-log-index-cache", "t-1"):
        (tmp_path / name).mkdir()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(b"")
    (tmp_path / "t-0" / "00000000000000000007.index").write_bytes(b"")
    (tmp_path / "t-0" / "foo.log").write_bytes(b"")
    (tmp_path / "t-0" / "sub").mkdir()
    (tmp_path / "t-1").rmdir()
    (tmp_path / "t-1").symlink_to(tmp_path / "nowhere")
    found = read_directory(LocalTree(tmp_path))
    assert found.others == ["lost+found", "remote-log-index-cache"]
    (partition,) = found.partitions
    assert [(s.base, s.log is not None) for s in partition.segments] == [(0, True), (7, False)]
    assert len(partition.files) == 3
    assert [f.name for f in found.dangling] == ["t-1"]


def test_a_lone_partition_directory_of_any_name(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000005.log").write_bytes(b"")
    found = read_partition(LocalTree(tmp_path), "")
    assert found.partition is None
    assert found.label == tmp_path.name
    assert [log.name for log in found.logs] == ["00000000000000000005.log"]


def test_signs_of_a_log_directory() -> None:
    assert proves_log_directory(["meta.properties"])
    assert not proves_log_directory(["commitlog", "consumequeue", "lock", "abort"])
