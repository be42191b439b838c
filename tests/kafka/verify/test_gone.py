"""What was there and is not any more: the first segments of a partition, all of them, or its directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import cli
from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import read_directory
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.repair.plan import RepairOptions, plan_repair
from rmqctl.kafka.state.metadata import MetadataImage
from rmqctl.kafka.verify.driver import Verification, VerifyOptions
from rmqctl.kafka.verify.state import read_image
from rmqctl.release import Release


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
    assert said.exit_code == 1
    assert "loses nothing more" in said.output and "idem-0: idem-0 has offset" in said.output


def test_a_partition_that_the_metadata_gives_to_the_node_is_an_error_without_its_directory(root: Path) -> None:
    shutil.rmtree(root / "idem-0")
    assert bad(root) == [("error", "directory.lost-partition", "replication-offset-checkpoint")]
    assert CliRunner().invoke(cli, ["verify", str(root)]).exit_code == 1
    said = CliRunner().invoke(cli, ["recover", str(root)])
    assert said.exit_code == 1
    assert "loses nothing more" in said.output and "idem-0: idem-0 has offset 132" in said.output


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


# --- first segments ---------------------------------------------------------------------------------


def without_first(root: Path, name: str, count: int = 1) -> int:
    """Remove the first segments of a partition; the base offset of the first that is left."""
    logs = sorted((root / name).glob("*.log"))
    for log in logs[:count]:
        for path in (root / name).glob(f"{log.stem}.*"):
            path.unlink()
    return int(logs[count].stem)


def image_of(root: Path) -> MetadataImage:
    directory = read_directory(LocalTree(str(root)))
    image = read_image(directory, Checkpoints(directory))
    assert image is not None
    return image


@pytest.mark.parametrize(("name", "count"), [("plain-none-0", 1), ("txn-a-0", 2), ("txn-b-0", 1)])
def test_first_segments_that_nothing_deleted_are_an_error_and_a_loss(
    root: Path, name: str, count: int, tmp_path: Path
) -> None:
    first = without_first(root, name, count)
    missing = ("error", "segment.missing", f"{name}/{0:020d}.log")
    assert bad(root, "quick") == bad(root) == [missing]
    (tmp_path / "staged").mkdir()
    plan = plan_repair(read_directory(LocalTree(str(root))), RepairOptions(Release.parse("4.3.1")), tmp_path / "staged")
    assert plan.plan.steps[0].what == f"bridge offsets 0 to {first - 1} with an empty batch"
    assert plan.books is not None
    assert (plan.books.balances, plan.books.loses, plan.after) == (True, first, ())
    assert "epoch" not in {step.id.partition(".")[0] for step in plan.plan.steps}


@pytest.mark.parametrize("name", ["3.9.2-clean", "4.3.1-crash"])
def test_first_segments_are_missed_without_the_settings_too_and_come_from_a_replica(name: str, tmp_path: Path) -> None:
    root, other = (golden.unpack(name, tmp_path / side) for side in "ab")
    shutil.rmtree(root / "__cluster_metadata-0")
    before = bad(root)
    path = min((root / "plain-none-0").glob("*.log"))
    sound = path.read_bytes()
    for file in (root / "plain-none-0").glob(f"{path.stem}.*"):
        file.unlink()
    wanted = ("warning", "segment.missing", f"plain-none-0/{path.name}")
    assert set(bad(root)) - set(before) == {wanted}
    CliRunner().invoke(cli, ["repair", str(root), "--apply"])
    assert not path.exists()
    assert wanted in bad(root)
    CliRunner().invoke(cli, ["repair", str(root), "--from", str(other), "--apply"])
    assert path.read_bytes() == sound


def test_a_first_segment_that_only_its_log_was_renamed_of_comes_back(root: Path, tmp_path: Path) -> None:
    """A broker that deletes a segment renames the indexes, too."""
    path = min((root / "idem-1").glob("*.log"))
    sound = path.read_bytes()
    path.rename(f"{path}.deleted")
    assert ("error", "segment.missing", f"idem-1/{path.name}") in bad(root)
    assert CliRunner().invoke(cli, ["repair", str(root), "--apply"]).exit_code == 0
    assert path.read_bytes() == sound
    for file in [path, *(path.with_suffix(ending) for ending in (".index", ".timeindex"))]:
        file.rename(f"{file}.deleted")
    assert [kind for _, kind, _ in bad(root) if kind == "segment.missing"] == []


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"retention.ms": "604800000"},
        {"retention.ms": "-1", "retention.bytes": "1000"},
        {"retention.ms": "-1", "cleanup.policy": "compact", "remote.storage.enable": "true"},
    ],
)
def test_first_segments_that_retention_may_have_deleted_are_no_finding(root: Path, settings: dict[str, str]) -> None:
    image = image_of(root)
    image.configs["topic", "plain-none"] = settings
    without_first(root, "plain-none-0")
    checked = Verification(read_directory(LocalTree(str(root))), VerifyOptions("full"), image=image)
    assert [f for f in checked.findings() if f.kind.id == "segment.missing"] == []


def test_first_segments_that_a_broker_deleted_are_no_finding(root: Path) -> None:
    """It lets the epochs begin with what is left; deleted files wait for a minute under their new names."""
    first = without_first(root, "plain-none-0")
    epochs = root / "plain-none-0" / "leader-epoch-checkpoint"
    text = epochs.read_text()
    assert text.splitlines()[2] == "0 0"
    (root / "plain-none-0" / f"{0:020d}.log.deleted").write_bytes(b"")
    assert bad(root) == []
    (root / "plain-none-0" / f"{0:020d}.log.deleted").unlink()
    epochs.write_text(text.replace("\n0 0\n", f"\n0 {first}\n"))
    assert bad(root) == []
