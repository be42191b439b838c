"""A disk that is really full: what is needed and what is free, exit 13, and nothing half done."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from commands import cli
from fixtures import golden
from rmqctl.errors import Refused
from tests.repair.stores import state_of


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("only root can mount a file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def store(disk: Path) -> Path:
    """A store whose index is to be made anew."""
    root = golden.unpack("5.3.3-clean", disk)
    for path in (root / "index").iterdir():
        with path.open("r+b") as file:
            file.seek(24)
            file.write(b"\x7f" * 16)
    return root


def fill(disk: Path, left: int) -> None:
    found = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes([1]) * max(found.f_bavail * found.f_frsize - left, 0))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], standalone_mode=False)


@pytest.mark.parametrize("left", [0, 65536, 1 << 20, 5 << 20, 14 << 20])
@pytest.mark.parametrize("name", ["repair", "rebuild"])
def test_a_full_disk(store: Path, disk: Path, name: str, left: int) -> None:
    fill(disk, left)
    before = state_of(disk, directories=False)
    result = run(name, store, "--apply", *(["--index"] if name == "rebuild" else []))
    if result.exception is None:  # it fits
        assert left >= 1 << 20
        return
    assert isinstance(result.exception, Refused), result.exception
    assert "standard output" not in str(result.exception)
    needed, free = map(_number, re.search(r"([\d,]+) bytes[^.]*?([\d,]+) are free", str(result.exception)).groups())
    assert needed > free
    assert state_of(disk, directories=False) == before


def test_another_disk_for_the_journal_takes_what_is_built(store: Path, disk: Path, tmp_path: Path) -> None:
    fill(disk, 4096)
    assert isinstance(run("rebuild", store, "--index", "--apply").exception, Refused)
    result = run("rebuild", store, "--index", "--apply", "--journal", tmp_path / "journal")
    assert isinstance(result.exception, Refused) and str(disk) in str(result.exception)  # the new files do not fit
    (disk / "ballast").unlink()
    assert run("rebuild", store, "--index", "--apply", "--journal", tmp_path / "journal").exception is None
    assert sorted(p.name for p in disk.iterdir()) == [store.name]


def _number(text: str) -> int:
    return int(text.replace(",", ""))
