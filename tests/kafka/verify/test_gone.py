"""What was there and is not any more: all segments of a partition, or its directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import cli
from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory import read_directory
from rmqctl.kafka.verify.driver import Verification, VerifyOptions


def bad(root: Path, level: str = "full") -> list[tuple[str, str, str]]:
    found = Verification(read_directory(LocalTree(str(root))), VerifyOptions(level)).findings()
    return [(str(f.level), f.kind.id, f.file) for f in found if str(f.level) != "note"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return golden.unpack("4.3.1-clean", tmp_path)


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_partition_without_any_segment_is_an_error(root: Path, checkpoints: bool) -> None:
    for path in (root / "idem-0").glob("*.log"):
        path.unlink()
    for path in () if checkpoints else root.glob("*-offset-checkpoint"):
        path.unlink()
    assert bad(root, "quick") == bad(root) == [("error", "directory.lost-log", "idem-0/")]
    said = CliRunner().invoke(cli, ["recover", str(root)])
    assert (said.exit_code, "gone before a broker starts: idem-0 has offset" in said.output) == (0, True)


def test_a_partition_that_the_metadata_gives_to_the_node_is_an_error_without_its_directory(root: Path) -> None:
    shutil.rmtree(root / "idem-0")
    assert bad(root) == [("error", "directory.lost-partition", "replication-offset-checkpoint")]
    assert CliRunner().invoke(cli, ["verify", str(root)]).exit_code == 1
    said = CliRunner().invoke(cli, ["recover", str(root)])
    assert (said.exit_code, "gone before a broker starts: idem-0 has offset 132" in said.output) == (0, True)


def test_what_was_empty_deleted_or_is_elsewhere_is_no_loss(root: Path) -> None:
    shutil.rmtree(root / "empty-topic-0")  # had no record
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        version, count, *lines = (root / name).read_text().splitlines()
        lines.append("long-gone 0 99")  # of a topic that the metadata does not have
        (root / name).write_text("\n".join([version, str(int(count) + 1), *lines]) + "\n")
    assert bad(root) == []
    (root / "idem-0").rename(root / "idem-0.0123456789abcdef0123456789abcdef-stray")
    assert [kind for _, kind, _ in bad(root)] == ["directory.stray"]


def test_without_metadata_nothing_says_that_a_directory_belongs_here(root: Path) -> None:
    shutil.rmtree(root / "__cluster_metadata-0")
    shutil.rmtree(root / "idem-0")
    assert not [kind for _, kind, _ in bad(root) if kind.startswith("directory.lost")]


def test_of_several_directories_each_is_asked(root: Path, tmp_path: Path) -> None:
    """A partition that was moved to another disk after its old one wrote a checkpoint is not lost."""
    other = tmp_path / "other-disk"
    other.mkdir()
    shutil.copy(root / "meta.properties", other)
    (root / "idem-0").rename(other / "idem-0")
    said = CliRunner().invoke(cli, ["verify", f"{root},{other}", "--no-notes"])
    assert "lost" not in said.output
