"""Queues and index built on Spark equal those built here, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures import golden

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", ["4.9.8-crash", "5.5.0-clean"])
def test_files_are_those_of_the_local_engine(
    name: str, rmqctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqctl.pipeline.rebuild.SPLIT_SIZE", 20_000)
    here, there = tmp_path / "here", tmp_path / "there"
    local = rmqctl("rebuild", golden.pristine(name), "--into", here, "-o", "jsonl")
    spread = rmqctl("rebuild", golden.pristine(name), "--into", there, "-o", "jsonl", "--engine", "spark")
    assert (spread.exit_code, spread.stdout) == (local.exit_code, local.stdout), spread.stderr
    assert files(there) == files(here)
    assert files(here)
    assert not list(there.glob(".build-*"))


def test_index_files_go_on_after_expired_messages(rmqctl: Any, golden: Any, tmp_path: Path) -> None:
    root = golden("5.5.0-clean")
    min((root / "commitlog").iterdir()).unlink()
    for name, more in (("here", ()), ("there", ("--engine", "spark"))):
        made = rmqctl("rebuild", root, "--index", "--into", tmp_path / name, *more)
        assert made.exit_code == 0, made.stderr
    assert files(tmp_path / "here") == files(tmp_path / "there")
    assert files(tmp_path / "here" / "index") == files(root / "index")


def test_a_plan_is_the_local_one(rmqctl: Any, golden: Any) -> None:
    root = golden("5.3.3-clean")
    queue = next((root / "consumequeue" / "LabLog" / "0").iterdir())
    queue.write_bytes(bytes(queue.stat().st_size))
    local, spread = (rmqctl("rebuild", root, "--queues", "-o", "jsonl", *more) for more in ((), ("--engine", "spark")))
    assert (spread.exit_code, spread.stdout) == (1, local.stdout), spread.stderr
