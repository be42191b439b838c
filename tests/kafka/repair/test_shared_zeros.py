"""Bytes between two batches are gone, and the zeros with which one ends are those with which the next one begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.files.tree import LocalTree
from rmqctl.findings import Severity
from rmqctl.kafka.directory.directory import read_directory
from rmqctl.kafka.repair.plan import RepairOptions, plan_repair
from rmqctl.opening import open_store
from rmqctl.release import Release
from rmqctl.repair.edited_file import Overlay
from tests.kafka.batches import batch, record
from tests.kafka.salvage.salvage_helpers import partition

LOG = f"t-0/{0:020d}.log"


def batches(first: int) -> list[bytes]:
    """Three batches; the first ends with 12 zeros, for it has no headers."""
    texts = [bytes(11), b"text", b"next"]
    return [batch(first + n, [record(0, b"k", text)], partition_leader_epoch=0) for n, text in enumerate(texts)]


@pytest.mark.parametrize(("first", "gone"), [(0, 1), (0, 7), (254, 6)])
def test_both_are_kept(first: int, gone: int, tmp_path: Path) -> None:
    right = batches(first)
    root = partition(tmp_path / "logs", "t-0", [right[0], right[1][gone:], right[2]], "0\n1\n0 0\n")
    path = (root / LOG).rename(root / f"t-0/{first:020d}.log")
    (root / ".kafka_cleanshutdown").touch()
    open_store(str(root)).salvage(tmp_path / "into").prepare()
    assert (tmp_path / "into" / path.relative_to(root)).read_bytes() == b"".join(right)
    (staged := tmp_path / "staged").mkdir()
    found = plan_repair(read_directory(LocalTree(str(root))), RepairOptions(Release(4, 3, 1)), staged)
    assert found.books is not None
    assert (found.books.problems, found.books.given_up, found.books.loses) == ([], 0, 0)
    assert [f.kind.id for f in found.after if f.level is Severity.ERROR and f.file.endswith(".log")] == []
    source = Overlay(LocalTree(str(root)), found.plan.edits).open(f"t-0/{path.name}")
    assert source.read_at(0, source.size()) == b"".join(right)
    source.close()
