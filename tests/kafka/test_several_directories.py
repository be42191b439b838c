"""Several log directories of one broker given together: what they may not have together, and what one of them lacks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fixtures import golden
from tests.conftest import Rmqctl

OTHER_ID = "kLm3Qw8RT2uXvYz0aBcDeF"[:21] + "g"


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A golden directory in two, each partition in one; the second has an id of its own."""
    first, second = golden.unpack("4.3.1-crash", tmp_path), tmp_path / "second"
    second.mkdir()
    moved = [path for path in first.iterdir() if path.is_dir() and path.name.startswith(("plain", "idem"))]
    for path in moved:
        shutil.move(path, second / path.name)
    for path in first.glob("*-checkpoint"):
        version, _, *lines = path.read_text("utf-8").splitlines()
        there = {path.name for path in moved}
        parts = [[line for line in lines if ("-".join(line.split()[:2]) in there) is is_moved] for is_moved in (0, 1)]
        for root, part in zip((first, second), parts, strict=True):
            (root / path.name).write_text("\n".join([version, str(len(part)), *part, ""]), "utf-8")
    named(second, (first / "meta.properties").read_text(), "directory.id", OTHER_ID)
    return first, second


def named(root: Path, text: str, name: str, value: str) -> None:
    """Write meta.properties with one property changed."""
    lines = [line for line in text.splitlines() if not line.startswith(f"{name}=")]
    (root / "meta.properties").write_text("\n".join([*lines, f"{name}={value}", ""]))


def errors(rmqctl: Rmqctl, *places: Path) -> list[str]:
    done = rmqctl("verify", ",".join(map(str, places)), "-o", "json", "--level", "structure")
    found = json.loads(done.stdout)["findings"]
    wrong = [f"{row['id']} {row['message']}" for row in found if row["severity"] != "note"]
    assert done.exit_code == (1 if wrong else 0)
    return wrong


def start(rmqctl: Rmqctl, *places: Path, release: str = "4.3.1") -> tuple[bool, str | None]:
    found = json.loads(rmqctl("recover", ",".join(map(str, places)), "--as-release", release, "-o", "json").stdout)
    return found["starts"], found["error"]


def test_two_that_go_together(rmqctl: Rmqctl, two: tuple[Path, Path]) -> None:
    assert errors(rmqctl, *two) == []
    assert start(rmqctl, *two) == (True, None)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("directory.id", "", "is that of"),
        ("cluster.id", "MkU3OEVBNTcwNTJENDM2Qk", "cluster.id MkU3OEVBNTcwNTJENDM2Qk, in the meta.properties of"),
        ("node.id", "7", "node id 7, in the meta.properties of"),
        ("directory.id", "AAAAAAAAAAAAAAAAAAAAAQ", "is one of the 100 that stand for no directory"),
    ],
)
def test_ids_that_lie(name: str, value: str, why: str, rmqctl: Rmqctl, two: tuple[Path, Path]) -> None:
    first, second = two
    text = (first / "meta.properties").read_text()
    own = next(line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{name}="))
    named(second, text if name == "directory.id" else (second / "meta.properties").read_text(), name, value or own)
    wrong = [line for line in errors(rmqctl, *two) if line.startswith("directory.meta-properties")]
    assert len(wrong) == 1
    assert why in wrong[0]
    starts, error = start(rmqctl, *two)
    assert not starts
    assert why in str(error)


def test_a_partition_in_both(rmqctl: Rmqctl, two: tuple[Path, Path]) -> None:
    first, second = two
    for name in ("txn-a-0", "txn-a-1"):
        shutil.copytree(first / name, second / name)
    (second / "txn-a-1").rename(second / f"txn-a-1.{'0' * 32}-future")
    assert errors(rmqctl, *two) == [f"directory.double txn-a-0 is in {first}, too"]
    assert start(rmqctl, *two) == (False, "duplicate log directories for txn-a-0 are found")


def test_what_lies_in_another_directory_is_not_lost(rmqctl: Rmqctl, two: tuple[Path, Path]) -> None:
    """Nor is it copied, for no broker starts on a partition that lies in two of its directories."""
    first, second = two
    assert rmqctl("repair", f"{first},{second}").exit_code == 13
    (first / "replication-offset-checkpoint").write_text("0\n1\nplain-none 0 139\n")
    alone = json.loads(rmqctl("repair", first, "-o", "json").stdout)
    assert [step["id"] for step in alone["left"]] == ["directory.lost-partition"]
    both = json.loads(rmqctl("repair", first, "--from", second, "-o", "json").stdout)
    assert [step["id"] for step in both["steps"] + both["left"]] == []
