"""The last batches of a log with a leader epoch that no leader had: no later batch shows it, but files beside it do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.repair.edited_file import Overlay
from tests.kafka.repair.attacked import Verdict, judge_root, outermost

LOG = "plain-none-0/00000000000000000094.log"
CHECKPOINT = "plain-none-0/leader-epoch-checkpoint"


def repaired(name: str, root: Path, count: int, epoch: int, room: Path) -> tuple[Verdict, dict[str, bytes], bytes]:
    """Give the last batches an epoch and repair; what comes of the log and the checkpoint, and the log as it was."""
    right = (root / LOG).read_bytes()
    data = bytearray(right)
    for at, _ in list(outermost(right))[-count:]:
        data[at + 12 : at + 16] = epoch.to_bytes(4, "big")
    (root / LOG).write_bytes(data)
    verdict = judge_root(Verdict(0, [str(epoch)]), root, name, room, applies=True)
    left = [error for error in verdict.errors if not error.startswith("metadata.missing-log ")]
    assert (verdict.lost, verdict.invented, left) == ([], [], [])
    assert verdict.repair is not None
    made = dict[str, bytes]()
    for path in (LOG, CHECKPOINT):
        source = Overlay(LocalTree(str(root)), verdict.repair.plan.edits).open(path)
        made[path] = source.read_at(0, source.size())
        source.close()
    return verdict, made, right


@pytest.mark.parametrize("name", ["4.3.1-clean", "4.3.1-crash"])
@pytest.mark.parametrize(("count", "epoch"), [(1, 8), (2, 1 << 20)])
def test_it_goes_back_to_that_of_the_last_leader(name: str, count: int, epoch: int, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    known = (root / CHECKPOINT).read_bytes()
    verdict, made, right = repaired(name, root, count, epoch, tmp_path)
    assert made == {LOG: right, CHECKPOINT: known}
    assert verdict.repair is not None
    assert [step.id for step in verdict.repair.plan.steps] == ["batch.leader-epoch"] * count


def test_after_a_crash_without_metadata_it_is_believed(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-crash", tmp_path)
    shutil.rmtree(root / "__cluster_metadata-0")
    _, made, right = repaired("4.3.1-crash", root, 1, 8, tmp_path)
    assert made[LOG] != right
    assert b"\n8 135\n" in made[CHECKPOINT]


def test_of_many_batches_it_is_believed(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    _, made, right = repaired("4.3.1-clean", root, 3, 8, tmp_path)
    assert made[LOG] != right
    assert b"\n8 " in made[CHECKPOINT]
