"""`Disk` keeps every directory in mind whose names changed, until they are on the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.files import writing
from rmqctl.files.writing import Disk


def made(disk: Disk, root: Path) -> Path:
    os.close(disk.open(root / "inner" / "new", 64))
    return root / "inner"


def replaced(disk: Disk, root: Path) -> Path:
    (root / "temporary").write_bytes(b"new")
    disk.replace(root / "temporary", root / "name")
    return root


def removed(disk: Disk, root: Path) -> Path:
    (root / "name").write_bytes(b"old")
    disk.remove(root / "name")
    return root


def above(disk: Disk, root: Path) -> Path:
    disk.make_directory(root / "one" / "two")
    return root / "one"


@pytest.mark.parametrize("change", [made, replaced, removed, above])
@pytest.mark.parametrize("how", ["settle", "sync", "through"])
def test_names_are_synced_with_the_next_sync_of_any_file(
    change: Callable[[Disk, Path], Path], how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, synced = Disk(), list[str]()
    other = disk.open(tmp_path / "other", 4096)
    disk.settle()
    monkeypatch.setattr(writing, "sync_path", lambda path: synced.append(os.fspath(path)))
    directory = change(disk, tmp_path)
    assert synced == []
    if how == "settle":
        disk.settle()
    elif how == "sync":
        disk.sync(other)
    elif not disk.write_through(other, b"x", 0):
        pytest.skip("this system has no such call")
    assert os.fspath(directory) in synced
    synced.clear()
    disk.settle()
    assert synced == [], "once is enough"
    os.close(other)
