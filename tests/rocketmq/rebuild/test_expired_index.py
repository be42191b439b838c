"""Index files of brokers whose log has lost its first files to retention are those that are built, byte for byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.rocketmq.index import IndexFile, index_entries
from rmqctl.rocketmq.rebuild.compare import Change
from rmqctl.rocketmq.rebuild.expired_index import expired_index
from rmqctl.rocketmq.rebuild.rebuild import Rebuild, RebuildOptions
from rmqctl.rocketmq.store.geometry import IndexGeometry, geometry_of
from rmqctl.rocketmq.store.locate import open_store_at

FILES = [name for name in golden.NAMES if "rocksdb" not in name and "crash" not in name and "multipath" not in name]
CASES = [(name, files) for name in FILES for files in (1, 2, 3) if files == 1 or "propcrc" not in name]
HEADER = 40


def expired(name: str, files: int, directory: Path) -> Path:
    """A broker's store whose first log files retention has deleted, which leaves the index as it was."""
    root = golden.unpack(name, directory)
    for path in sorted((root / "commitlog").iterdir())[:files]:
        path.unlink()
    return root


def index_changes(root: Path, directory: Path) -> dict[str, Change]:
    """What becomes of index files that are not equal."""
    directory.mkdir()
    found = Rebuild(open_store_at(str(root)), RebuildOptions(queues=False)).run(directory)
    return {Path(change.file).name: change.change for change in found.changes}


def index_of(root: Path) -> list[IndexFile]:
    store = open_store_at(str(root))
    geometry = geometry_of(store)
    shape = IndexGeometry(geometry.index_slots, geometry.index_entries)
    return [IndexFile.open(store.tree, entry, shape) for entry in index_entries(store)]


@pytest.mark.parametrize(("name", "files"), CASES)
def test_sound_index_files_are_equal_or_kept(name: str, files: int, tmp_path: Path) -> None:
    root = expired(name, files, tmp_path)
    begin = int(min((root / "commitlog").iterdir()).name)
    changes = index_changes(root, tmp_path / "built")
    all_before = {Path(file.path).name for file in index_of(root) if file.physical_at(file.count) < begin}
    assert changes == dict.fromkeys(all_before, Change.KEEP)


def test_files_that_are_gone_come_back_behind_those_that_stay(tmp_path: Path) -> None:
    root = expired("5.5.0-clean", 2, tmp_path)
    before = {path.name: path.read_bytes() for path in sorted((root / "index").iterdir())}
    last = max(before)
    (root / "index" / last).unlink()
    directory = tmp_path / "built"
    directory.mkdir()
    found = Rebuild(open_store_at(str(root)), RebuildOptions(queues=False)).run(directory)
    assert [c.change for c in found.changes if c.change is not Change.KEEP] == [Change.CREATE]
    assert found.built.index_paths[-1].read_bytes() == before[last]


def test_one_wrong_entry_replaces_one_file(tmp_path: Path) -> None:
    root = expired("5.5.0-clean", 1, tmp_path)
    *_, last = files = index_of(root)
    path = root / last.path
    data = bytearray(path.read_bytes())
    right = bytes(data)
    at = HEADER + 4 * last.geometry.slots + 20 * 2
    data[at] ^= 1
    path.write_bytes(data)
    assert len(files) > 1
    assert index_changes(root, tmp_path / "built") == {path.name: Change.REPLACE}
    directory = tmp_path / "again"
    directory.mkdir()
    found = Rebuild(open_store_at(str(root)), RebuildOptions(queues=False)).run(directory)
    assert found.built.index_paths[-1].read_bytes() == right


@pytest.mark.parametrize("place", ["begin time", "order of entries", "length", "an entry far in front"])
def test_what_is_not_believable_is_not_followed(place: str, tmp_path: Path) -> None:
    root = expired("5.5.0-clean", 1, tmp_path)
    store = open_store_at(str(root))
    first = index_of(root)[0]
    path = root / first.path
    data = bytearray(path.read_bytes())
    entries = HEADER + 4 * first.geometry.slots + 20
    assert expired_index(store, first.geometry).count > 2
    if place == "begin time":
        data[5] ^= 4
    elif place == "order of entries":
        data[entries + 4 : entries + 12] = (1 << 40).to_bytes(8, "big")
    elif place == "length":
        del data[-20:]
    else:
        data[entries + 20 * 500 + 4 : entries + 20 * 500 + 12] = (0).to_bytes(8, "big")
    path.write_bytes(data)
    found = expired_index(open_store_at(str(root)), first.geometry)
    assert (found.kept, found.count) == ((), 0)


def test_a_repair_of_the_index_leaves_sound_files(tmp_path: Path, rmqctl: Any) -> None:
    root = expired("5.5.0-clean", 1, tmp_path)
    assert json.loads(rmqctl("verify", root, "-o", "json").stdout)["summary"]["findings"]["error"] == 0
    last = index_of(root)[-1]
    data = bytearray((root / last.path).read_bytes())
    data[HEADER + 4 * last.geometry.slots + 20 * 2] ^= 1
    (root / last.path).write_bytes(data)
    plan = json.loads(rmqctl("repair", root, "-o", "json").stdout)
    assert [step["file"] for step in plan["steps"] if step["file"].startswith("index/")] == [last.path]


def test_into_another_directory_all_of_them_are_there(tmp_path: Path, rmqctl: Any) -> None:
    root = expired("4.9.8-clean", 2, tmp_path)
    shutil.rmtree(root / "consumequeue")
    made = rmqctl("rebuild", root, "--index", "--into", tmp_path / "into")
    assert made.exit_code == 0, made.stdout
    there = {path.name: path.read_bytes() for path in (root / "index").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "into" / "index").iterdir()} == there
