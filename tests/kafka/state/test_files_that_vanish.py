"""A file that a running broker renames between the listing and the reading is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import read_directory
from rmqctl.kafka.loading.files import PartitionFiles


def test_a_file_that_is_gone_is_left_out(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    temporary = root / "plain-none-0" / "leader-epoch-checkpoint.tmp"
    temporary.write_bytes(b"0\n0\n")
    partition = next(p for p in read_directory(LocalTree(str(root))).partitions if p.directory == "plain-none-0")
    assert {file.name.rpartition("/")[2] for file in partition.files} >= {temporary.name}
    partition = replace(partition, files=[replace(file, size=-1) for file in partition.files])
    temporary.unlink()
    files = PartitionFiles(partition)
    assert temporary.name not in files
    assert "leader-epoch-checkpoint" in files
