"""Bytes that two logs, or two places of one, exchanged in the middle of batches: all of them go back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.repair.stretches import EXCHANGED
from rmqctl.repair.edited_file import Overlay
from tests.kafka.repair.attacked import Verdict, judge_root, logs_of

Place = tuple[str, int, int]
"""Directory, base offset of the segment, and bytes into it."""


def _path(root: Path, place: Place) -> Path:
    return root / place[0] / f"{place[1]:020d}.log"


def _write(root: Path, place: Place, data: bytes) -> None:
    with open(_path(root, place), "r+b") as file:
        file.seek(place[2])
        file.write(data)


@pytest.mark.parametrize(
    ("name", "one", "other", "size"),
    [
        pytest.param("4.3.1-clean", ("recomp-0", 0, 1024), ("append_time-0", 41, 416), 512, id="two partitions"),
        pytest.param("4.3.1-clean", ("z-lz4-1", 54, 1950), ("z-lz4-1", 54, 583), 539, id="one file"),
        pytest.param("2.8.2-clean", ("v1-none-0", 0, 1024), ("v0-none-1", 0, 700), 512, id="messages of magic 0 and 1"),
        pytest.param("3.9.2-clean", ("txn-a-0", 103, 0), ("txn-b-0", 94, 0), 512, id="where their segments begin"),
        pytest.param("3.9.2-crash", ("plain-none-0", 0, 1000), ("txn-a-0", 103, 700), 900, id="no sector bounds them"),
    ],
)
def test_an_exchanged_stretch_goes_back(name: str, one: Place, other: Place, size: int, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    here, there = (_path(root, place).read_bytes()[place[2] : place[2] + size] for place in (one, other))
    assert len(here) == len(there) == size
    _write(root, one, there)
    _write(root, other, here)
    verdict = judge_root(Verdict(0, [name]), root, name, tmp_path, applies=True)
    assert (verdict.lost, verdict.invented, verdict.outcomes, verdict.errors) == ([], [], [], [])
    assert verdict.repair is not None
    after = list(logs_of(Overlay(LocalTree(str(root)), verdict.repair.plan.edits)))
    assert after == list(logs_of(LocalTree(str(golden.pristine(name)))))


def test_bytes_that_were_written_over_others_are_not_exchanged(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    one, other = ("recomp-0", 0, 1024), ("append_time-0", 41, 416)
    _write(root, one, _path(root, other).read_bytes()[other[2] : other[2] + 512])
    verdict = judge_root(Verdict(0, ["written over"]), root, "4.3.1-clean", tmp_path)
    assert (verdict.lost, verdict.invented, verdict.outcomes) == ([], [], [])
    assert verdict.repair is not None
    assert not [step for step in verdict.repair.plan.steps if step.what.startswith(EXCHANGED)]
