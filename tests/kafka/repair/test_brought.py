"""Bytes of another partition over a log: whole batches among them keep no place in it, though their offsets fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.files.tree import LocalTree
from rmqctl.findings import Severity
from rmqctl.kafka.directory.directory import read_directory
from rmqctl.kafka.repair.plan import Repair, RepairOptions, plan_repair
from rmqctl.release import Release
from rmqctl.repair.edited_file import Overlay
from tests.kafka.batches import batch, record
from tests.kafka.salvage.salvage_helpers import partition

NAME = f"{0:020d}.log"


def log(text: bytes, first: int = 0, count: int = 12) -> list[bytes]:
    """Batches of one record, each of another size."""
    every = range(first, first + count)
    return [batch(n, [record(0, b"%d" % n, text * (3 + n % 4))], partition_leader_epoch=0) for n in every]


def repaired(root: Path, room: Path) -> tuple[Repair, bytes, bytes]:
    """What a plan makes of the logs of two partitions."""
    (root / ".kafka_cleanshutdown").touch()
    (staged := room / "staged").mkdir()
    found = plan_repair(read_directory(LocalTree(str(root))), RepairOptions(Release(4, 3, 1)), staged)
    made = list[bytes]()
    for place in ("a-0", "b-0"):
        source = Overlay(LocalTree(str(root)), found.plan.edits).open(f"{place}/{NAME}")
        made.append(source.read_at(0, source.size()))
        source.close()
    assert found.books is not None
    assert found.books.problems == []
    assert [f.kind.id for f in found.after if f.level is Severity.ERROR and f.file.endswith(".log")] == []
    return found, made[0], made[1]


def two(room: Path, one: bytes, other: bytes) -> Path:
    root = partition(room / "logs", "a-0", [one], "0\n1\n0 0\n")
    (root / "b-0").mkdir()
    shutil.copy(root / "a-0/leader-epoch-checkpoint", root / "b-0")
    (root / "b-0" / NAME).write_bytes(other)
    return root


def sized(batches: list[bytes], until: int) -> int:
    return sum(map(len, batches[:until]))


@pytest.mark.parametrize("head", [20, 40])
def test_a_stretch_of_another_log_goes(head: int, tmp_path: Path) -> None:
    """Its first whole batch has just the offset that is missing there."""
    mine, theirs = log(b"mine"), log(b"of the other one")
    begin, end = sized(theirs, 5) - head, sized(theirs, 6) + 45
    at = sized(mine, 4) + 30
    data = b"".join(mine)
    stretch = b"".join(theirs)[begin:end]
    data = data[:at] + stretch + data[at + len(stretch) :]
    found, one, other = repaired(two(tmp_path, data, b"".join(theirs)), tmp_path)
    assert other == b"".join(theirs)
    assert theirs[5] not in one
    assert all(b in one for b in [*mine[:4], *mine[9:]])
    assert found.books is not None
    assert found.books.given_up == 0


def test_a_stretch_of_another_place_is_not_healed_into_this(tmp_path: Path) -> None:
    """The offsets of its batches are a bit from such as are missing: 128 more; they go on one after the other."""
    mine, theirs = log(b"mine", 125, 20), log(b"of another one", 0, 10)
    root = two(tmp_path, b"".join(mine), b"".join(theirs))
    data, at = b"".join(mine), sized(mine, 2) + 20
    stretch = b"".join(theirs)[sized(theirs, 2) + 9 : sized(theirs, 6) + 31]
    (root / "a-0" / NAME).write_bytes(data[:at] + stretch + data[at + len(stretch) :])
    (root / "a-0" / NAME).rename(root / f"a-0/{125:020d}.log")
    (root / ".kafka_cleanshutdown").touch()
    (staged := tmp_path / "staged").mkdir()
    found = plan_repair(read_directory(LocalTree(str(root))), RepairOptions(Release(4, 3, 1)), staged)
    assert found.books is not None
    assert (found.books.problems, found.books.given_up) == ([], 0)
    assert [f.kind.id for f in found.after if f.level is Severity.ERROR and f.file.endswith(".log")] == []
    source = Overlay(LocalTree(str(root)), found.plan.edits).open(f"a-0/{125:020d}.log")
    made = source.read_at(0, source.size())
    source.close()
    assert all(b in made for b in [*mine[:2], *mine[12:]])
    assert not any(b[17:] in made for b in theirs)


def test_of_two_logs_with_the_same_batches_none_goes(tmp_path: Path) -> None:
    mine = log(b"the same in both")
    data = bytearray(b"".join(mine))
    for number in (4, 6):
        at = sized(mine, number)
        data[at + 40 : at + 80] = bytes(40)
    _, one, other = repaired(two(tmp_path, bytes(data), b"".join(mine)), tmp_path)
    assert all(b in one for n, b in enumerate(mine) if n not in (4, 6))
    assert other == b"".join(mine)
