"""Files of the log that were cut, emptied or exchanged: one sentence, and nothing that only follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.findings import Finding
from rmqctl.release import Release
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Level, Verification, VerifyOptions

SIZE = 131072
SECOND, THIRD = f"{SIZE:020d}", f"{2 * SIZE:020d}"


def loud(root: Path, **options: object) -> list[Finding]:
    found = Verification(open_store_at(str(root)), VerifyOptions(**options)).findings()  # type: ignore[arg-type]
    return [f for f in found if f.level != "note"]


@pytest.fixture(params=["4.9.8-clean", "5.5.0-clean", "5.3.3-crash"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return golden.unpack(request.param, tmp_path)


def cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize("name", [f"{0:020d}", SECOND])
@pytest.mark.parametrize("size", [0, 1, 4096, 70_001, SIZE - 9])
@pytest.mark.parametrize("split_size", [64 << 20, 1 << 15])
def test_a_file_that_was_cut(size: int, name: str, split_size: int, root: Path) -> None:
    cut(root / "commitlog" / name, size)
    found = loud(root, split_size=split_size)
    assert [(f.kind.id, f.level, f.file, f.offset) for f in found] == [
        ("log.file-length", "error", f"commitlog/{name}", size)
    ]
    assert f"offsets {int(name) + size} to {int(name) + SIZE} of the log are lost" in found[0].message


def test_damage_in_front_of_the_cut_is_still_named(root: Path) -> None:
    path = root / "commitlog" / f"{0:020d}"
    cut(path, 120_001)
    with path.open("r+b") as file:
        file.seek(4)
        file.write(b"\0\0\0\0")
    assert [f.kind.id for f in loud(root)] == ["log.file-length", "log.bad-record"]


@pytest.mark.parametrize("level", [Level.STRUCTURE, Level.FULL])
def test_two_files_exchanged(level: Level, root: Path) -> None:
    one, two = root / "commitlog" / SECOND, root / "commitlog" / THIRD
    one.rename(root / "x")
    two.rename(one)
    (root / "x").rename(two)
    found = loud(root, level=level)
    assert [(f.kind.id, f.file) for f in found] == [("log.file-name", f"commitlog/{THIRD}")]
    assert f"{SECOND} and {THIRD} are exchanged" in found[0].message


@pytest.mark.parametrize(
    ("release", "level"), [(None, None), (Release(5, 1, 2), "error"), (Release(5, 1, 3), "warning")]
)
def test_an_empty_last_file(release: Release | None, level: str | None, root: Path) -> None:
    """The release that the store shows decides, or the one that it is meant for."""
    last = max(path for path in (root / "commitlog").iterdir())
    empty = last.with_name(f"{int(last.name) + SIZE:020d}")
    empty.touch()
    expected = level or ("error" if root.name.startswith("4") else "warning")
    found = loud(root, as_release=release)
    assert [(f.kind.id, f.level, f.file) for f in found if f.file.startswith("commitlog")] == [
        ("file.empty", expected, f"commitlog/{empty.name}")
    ]
