"""What a run needs, disk by disk, and whose the new files are."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.errors import Refused
from rmqctl.repair import Create, Cut, Extend, Overwrite, Quarantine, apply, undo
from rmqctl.repair.changes import changes_of
from rmqctl.repair.write_journal import room_needed
from tests.repair.faults import QuickLayer
from tests.repair.stores import INDEX, LOG, QUEUE, plan_of, put, rich_plan, state_of
from tests.repair.workshop import Workshop

LARGE = 400_000
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away and mounts file systems")


class Free(QuickLayer):
    """File systems with so many free bytes, by device."""

    def __init__(self, free: dict[int, int]) -> None:
        self.free = free

    def free_bytes(self, path: str) -> int:
        return self.free[os.stat(path).st_dev]


@pytest.fixture
def disks(shop: Workshop, tmp_path: Path) -> Iterator[list[Path]]:
    """Directories for journals and for a log on file systems of their own."""
    made = []
    for name in ("journals", "log"):
        place = tmp_path / name
        place.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "none", place], capture_output=True, check=False).returncode:
            pytest.skip("only root can mount a file system")
        made.append(place)
    yield made
    for place in made:
        subprocess.run(["umount", "-l", place], check=True)


def plan_with_much(shop: Workshop, log: Path | str = "log") -> object:
    for name in "abc":
        put(shop.root, f"old/{name}", os.urandom(LARGE))
    if isinstance(log, Path):
        put(log, "1", os.urandom(LARGE))
    else:
        put(shop.root, f"{log}/1", os.urandom(LARGE))
    return plan_of(
        shop.root,
        *(Quarantine(f"old/{name}") for name in "abc"),
        *(Create(f"new/{name}", os.urandom(LARGE), size=10 * LARGE) for name in "abc"),
        Cut(f"{log}/1", LARGE, 0),
        Extend(f"{log}/1", 0, 3 * LARGE),
        Overwrite(f"{log}/1", 0, bytes(LARGE), b"x" * LARGE),
        Overwrite(f"{log}/1", LARGE + 5000, bytes(1000), b"y" * 1000),
        Overwrite(f"{log}/1", 2 * LARGE, bytes(1000), b"z" * 1000),
        Create(f"{log}/2", os.urandom(LARGE)),
    )


def test_one_disk(shop: Workshop) -> None:
    plan = plan_with_much(shop)
    device = shop.root.stat().st_dev
    needed = room_needed(changes_of(plan, "0001"), shop.base)
    assert set(needed) == {device}
    assert 6 * LARGE < needed[device] < 6.5 * LARGE  # four new files, and the bytes of one on both sides
    before = state_of(shop.home)
    with pytest.raises(Refused, match=f"{needed[device]:,} bytes are needed .* .1 are missing"):
        apply(plan, layer=Free({device: needed[device] - 1}))
    assert state_of(shop.home) == before
    done = apply(plan, layer=Free({device: needed[device]}))
    assert done.journal is not None
    used = _used(shop.base) + sum(p.stat().st_blocks * 512 for p in (shop.root / "new").iterdir())
    assert used - 3 * LARGE <= needed[device]  # what lies in quarantine was there before


@as_root
def test_three_disks(shop: Workshop, disks: list[Path]) -> None:
    journals, log = disks
    plan = plan_with_much(shop, log)
    store, journal, third = (path.stat().st_dev for path in (shop.root, journals, log))
    needed = room_needed(changes_of(plan, "0001"), journals)
    assert set(needed) == {store, journal, third}
    assert needed[store] == 3 * LARGE  # the new files
    assert needed[third] == LARGE + 2000
    assert 9 * LARGE < needed[journal] < 9.5 * LARGE  # the new and the old files, and the bytes on both sides
    before = [state_of(path, directories=False) for path in (shop.home, log)]
    for device, place in ((store, shop.root), (journal, journals), (third, log)):
        short = dict(needed) | {device: needed[device] - 1}
        with pytest.raises(Refused, match=f"too little room in {place}.*{needed[device]:,} bytes") as caught:
            apply(plan, journal_dir=journals, outside=[log], layer=Free(short))
        assert ("--journal DIR" in str(caught.value)) == (device == journal)
        assert [state_of(path, directories=False) for path in (shop.home, log)] == before
    done = apply(plan, journal_dir=journals, outside=[log], layer=Free(dict(needed)))
    assert done.journal is not None and _used(journals) <= needed[journal]
    undo(done.journal, outside=[log], layer=QuickLayer())
    assert [state_of(path, directories=False) for path in (shop.home, log)] == before


def _used(directory: Path) -> int:
    return sum(p.lstat().st_blocks * 512 for p in directory.rglob("*") if p.is_file())


@as_root
def test_new_files_belong_to_whom_their_directory_belongs(shop: Workshop) -> None:
    for path in (shop.root, shop.root / "index"):
        os.chown(path, 4321, 4322)
        path.chmod(0o750)
    os.chown(shop.root / LOG, 77, 78)
    plan = plan_of(
        shop.root,
        Create("index/1", b"content"),
        Create("index/2", source=_built(shop)),
        Create("deep/er/3", b"x"),
        Overwrite(LOG, 0, b"\0\1", b"xy"),
    )
    journal = apply(plan, layer=QuickLayer()).journal
    assert journal is not None
    for name, mode in (("index/1", 0o640), ("index/2", 0o640), ("deep/er", 0o750), ("deep/er/3", 0o640)):
        found = (shop.root / name).stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4321, 4322, mode), name
    assert (shop.root / LOG).stat().st_uid == 77
    back = undo(journal, layer=QuickLayer()).journal
    assert back is not None
    undo(back, layer=QuickLayer())
    assert (shop.root / "index/2").stat().st_uid == 4321


def _built(shop: Workshop) -> Path:
    path = shop.home / "built"
    path.write_bytes(b"built by root")
    return path


def test_hard_links_are_said_before_anything_is_written(shop: Workshop) -> None:
    snapshot = shop.home / "snapshot"
    subprocess.run(["cp", "-al", shop.root, snapshot], check=True)
    before = state_of(shop.home)
    with pytest.raises(Refused, match=r"further names \(hard links.*--force"):
        apply(rich_plan(shop.root), layer=QuickLayer())
    assert state_of(shop.home) == before
    journal = apply(plan_of(shop.root, Quarantine(INDEX), Create("index/new", b"x")), layer=QuickLayer()).journal
    assert journal is not None  # only names change
    assert (snapshot / INDEX).exists() and not (snapshot / "index/new").exists()
    undo(journal, layer=QuickLayer())
    journal = apply(plan_of(shop.root, Cut(QUEUE, 600, 0)), layer=QuickLayer(), force=True).journal
    assert journal is not None and (snapshot / QUEUE).stat().st_size == 0
    with pytest.raises(Refused, match="hard links"):
        undo(journal, layer=QuickLayer())
    undo(journal, layer=QuickLayer(), force=True)
    assert (snapshot / QUEUE).stat().st_size == 600
