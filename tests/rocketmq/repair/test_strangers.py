"""A file of a wrong name beside the files of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.findings import Severity
from rmqctl.repair.edits import Create, Quarantine
from rmqctl.repair.execute import apply
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

SIZE = 131072


@pytest.mark.parametrize("length", [100, SIZE])
@pytest.mark.parametrize("files", [1, 4])
def test_garbage_between_two_files_or_behind_the_last_goes_into_quarantine(
    files: int, length: int, tmp_path: Path
) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    before = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    (root / "commitlog" / f"{files * SIZE + 1:020d}").write_bytes(b"\xff\0\xff".ljust(length, b"\0"))
    apply(plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path).plan, journal_dir=tmp_path / "journal")
    assert {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()} == before
    found = Verification(open_store_at(str(root)), VerifyOptions()).findings()
    assert [f for f in found if f.level is not Severity.NOTE] == []


def test_a_file_that_was_renamed_gets_its_name_back(tmp_path: Path) -> None:
    """It holds messages of the place that is empty now."""
    root = golden.unpack("4.9.8-clean", tmp_path)
    before = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    (root / "commitlog" / f"{SIZE:020d}").rename(root / "commitlog" / f"{SIZE + 1:020d}")
    repair = plan_repair(open_store_at(str(root)), RepairOptions(), tmp_path)
    assert [step.id for step in repair.plan.steps] == ["log.file-name"]
    apply(repair.plan, journal_dir=tmp_path / "journal")
    assert {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()} == before


def record_of(root: Path, number: int) -> bytes:
    """The bytes of a record of a golden store by its number in the truth; it lies in the first file."""
    true = golden.truth("4.9.8-clean")[number]
    at, size = true["commitLogOffset"], true["storeSize"]
    return (root / "commitlog" / f"{0:020d}").read_bytes()[at : at + size]


def planned(root: Path, name: str, room: Path) -> tuple[list[str], list[str], list[str]]:
    """What a plan moves away, what it makes, and whether it leaves the file of this name."""
    repair = plan_repair(open_store_at(str(root)), RepairOptions(), room)
    edits = [edit for step in repair.plan.steps for edit in step.edits]
    moved = [edit.file for edit in edits if isinstance(edit, Quarantine)]
    made = [edit.file for edit in edits if isinstance(edit, Create) and "commitlog" in edit.file]
    return moved, made, [step.file for step in repair.left if step.file == name]


@pytest.mark.parametrize(("records", "is_only_copy"), [(0, False), (1, False), (2, False), (1, True)])
def test_a_stranger_with_the_only_copy_of_a_record_is_left(records: int, is_only_copy: bool, tmp_path: Path) -> None:
    """One record does not say where the file belongs."""
    root = golden.unpack("4.9.8-clean", tmp_path)
    data = b"".join(record_of(root, number) for number in range(records))
    if is_only_copy:
        data = data[:12] + bytes([data[12] ^ 1]) + data[13:]
    name = f"commitlog/{4 * SIZE + 8:020d}"
    (root / name).write_bytes(data.ljust(SIZE, b"\0"))
    assert planned(root, name, tmp_path) == (([], [], [name]) if is_only_copy else ([name], [], []))


@pytest.mark.parametrize("place", [8, 100_000, 1 << 43])
def test_a_copy_of_one_record_behind_a_gap_is_no_end_of_the_log(place: int, tmp_path: Path) -> None:
    """No files are made to fill the gap."""
    root = golden.unpack("4.9.8-clean", tmp_path)
    name = f"commitlog/{place * SIZE:020d}"
    (root / name).write_bytes(record_of(root, 5).ljust(SIZE, b"\0"))
    assert planned(root, name, tmp_path) == ([name], [], [])


@pytest.mark.parametrize(("place", "made"), [(9, 5), (100_000, 0)])
def test_a_gap_longer_than_the_log_is_left(place: int, made: int, tmp_path: Path) -> None:
    """A file of another store in which a record is in its place: thousands of files are not made for it."""
    root = golden.unpack("4.9.8-clean", tmp_path)
    data = record_of(root, 5)
    data = data[:28] + (place * SIZE).to_bytes(8, "big") + data[36:]
    (root / f"commitlog/{place * SIZE:020d}").write_bytes(data.ljust(SIZE, b"\0"))
    first = f"commitlog/{4 * SIZE:020d}"
    _, files, left = planned(root, first, tmp_path)
    assert (len(files), left) == (made, [] if made else [first])
