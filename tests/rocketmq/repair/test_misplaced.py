"""Log files under a wrong name: moved back by what their records say, and never taken for other messages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.rocketmq.log.commitlog import files_to_rename, misplaced_files
from rmqctl.rocketmq.store.locate import open_store_at

NAME = "4.9.8-clean"
SIZE = 131072


def file(number: int) -> str:
    return f"{number * SIZE:020d}"


def renamed(*pairs: tuple[str, str]) -> Callable[[Path], None]:
    """Renames all at once, so that names can be swapped."""

    def change(log: Path) -> None:
        for old, _ in pairs:
            (log / old).rename(log / f"{old}.moved")
        for old, new in pairs:
            (log / f"{old}.moved").rename(log / new)

    return change


def copied(old: str, new: str) -> Callable[[Path], None]:
    def change(log: Path) -> None:
        shutil.copy2(log / old, log / new)

    return change


def state(root: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


HEALED = {
    "to the end": renamed((file(2), file(9))),
    "off the grid": renamed((file(2), f"{77:020d}")),
    "no number": renamed((file(1), "backup")),
    "two swapped": renamed((file(1), file(2)), (file(2), file(1))),
    "all shifted up": renamed(*((file(n), file(n + 1)) for n in range(4))),
    "all but the first shifted down": renamed((file(0), "first"), *((file(n), file(n - 1)) for n in range(1, 4))),
    "a copy off the grid": copied(file(2), f"{77:020d}"),
    "a copy behind a gap": copied(file(2), file(9)),
    "a copy beside": copied(file(2), f"{file(2)}.bak"),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return golden.unpack(NAME, tmp_path / "store")


@pytest.mark.parametrize("change", HEALED.values(), ids=HEALED)
def test_repair_puts_files_back(change: Callable[[Path], None], store: Path, rmqctl: Any, tmp_path: Path) -> None:
    whole = {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()}
    change(store / "commitlog")
    before = state(store)
    found = rmqctl("repair", store, "--apply", "--journal", tmp_path / "journal")
    assert found.exit_code == 0, found.output
    assert "no message is given up" in found.output
    assert {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()} == whole
    assert rmqctl("verify", store).exit_code == 0
    assert rmqctl("undo", tmp_path / "journal").exit_code == 0
    assert state(store) == before


@pytest.mark.parametrize("change", HEALED.values(), ids=HEALED)
def test_salvage_reads_files_where_they_belong(
    change: Callable[[Path], None], store: Path, rmqctl: Any, tmp_path: Path
) -> None:
    expected = messages(rmqctl, store)
    change(store / "commitlog")
    rmqctl("salvage", store, tmp_path / "into")
    assert messages(rmqctl, tmp_path / "into") == expected
    assert rmqctl("verify", tmp_path / "into").exit_code == 0


def messages(rmqctl: Any, root: Path) -> set[tuple[Any, ...]]:
    rows = map(json.loads, rmqctl("dump", root, "--body", "-o", "jsonl").stdout.splitlines())
    keys = ("topic", "queue_id", "queue_offset", "unique_key", "store_timestamp", "body_crc", "transaction")
    return {tuple(row[key] for key in keys) for row in rows if row["kind"] == "message"}


def test_salvage_takes_sound_records_of_a_copy(store: Path, rmqctl: Any, tmp_path: Path) -> None:
    """The file itself is lost; the copy that somebody made under another name is not."""
    expected = messages(rmqctl, store)
    copied(file(2), f"{file(2)}.bak")(store / "commitlog")
    (store / "commitlog" / file(2)).write_bytes(bytes(SIZE))
    rmqctl("salvage", store, tmp_path / "into")
    assert messages(rmqctl, tmp_path / "into") == expected


def test_a_damaged_offset_moves_no_file(store: Path) -> None:
    log = store / "commitlog" / file(3)
    data = bytearray(log.read_bytes())
    data[33] ^= 1 << 4  # the first record says that it lies 2^20 bytes further
    log.write_bytes(data)
    assert misplaced_files(open_store_at(str(store)), SIZE) == []


def test_a_file_of_two_records_is_left_to_the_healer(store: Path) -> None:
    """Both might be damaged."""
    log = store / "commitlog" / file(3)
    data = log.read_bytes()
    first = int.from_bytes(data[:4], "big")
    second = first + int.from_bytes(data[first : first + 4], "big")
    log.rename(log.with_name(file(5)))
    log.with_name(file(5)).write_bytes(data[:second] + bytes(SIZE - second))
    assert misplaced_files(open_store_at(str(store)), SIZE) == []


def test_of_two_copies_the_one_with_more_records_comes_home(store: Path) -> None:
    log = store / "commitlog"
    data = (log / file(2)).read_bytes()
    (log / file(2)).rename(log / file(8))
    (log / file(7)).write_bytes(data[: SIZE // 2] + bytes(SIZE // 2))
    opened = open_store_at(str(store))
    found = misplaced_files(opened, SIZE)
    assert sorted(one.file.name[-7:] for one in found) == sorted(f"{n * SIZE:07d}" for n in (7, 8))
    (home,) = files_to_rename(opened, found)
    assert home.file.base == 8 * SIZE


@pytest.mark.parametrize("name", golden.NAMES)
def test_no_file_of_a_real_store_is_misplaced(name: str) -> None:
    opened = open_store_at(str(golden.pristine(name)))
    sizes = {f.size for f in opened.log_files}
    assert all(misplaced_files(opened, size) == [] for size in sizes)
