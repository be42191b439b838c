"""`dump --follow` of a partition that a broker appends to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.files.tree import LocalTree
from rmqctl.filters import Filters
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.dump.dumping import Follow
from rmqctl.kafka.dump.segments import SegmentDump
from rmqctl.kafka.filters import Wanted
from tests.conftest import Rmqctl
from tests.kafka.batches import segment

PARTS = segment(10)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "t-0").mkdir()
    file = tmp_path / "t-0" / f"{0:020d}.log"
    file.write_bytes(b"".join(PARTS[:3]) + PARTS[3][:40])
    return file


def test_what_is_appended_is_shown_once_it_is_whole(log: Path) -> None:
    def append(data: bytes, file: Path = log) -> Callable[[], object]:
        def write() -> None:
            with file.open("ab") as out:
                out.write(data)

        return write

    steps = [
        append(PARTS[3][40:100]),
        append(PARTS[3][100:] + PARTS[4] + bytes(30)),
        append(b"", log.with_name(f"{15:020d}.log")),
        append(PARTS[5] + PARTS[6], log.with_name(f"{15:020d}.log")),
    ]

    def sleep(_: float) -> None:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    seen: list[int | None] = []
    logs = LogDirectories([read_directory(LocalTree(log.parents[1]))])
    follow = Follow(SegmentDump(Wanted(Filters())), logs, logs.partitions, sleep)
    with pytest.raises(KeyboardInterrupt):
        seen.extend(row and row["base_offset"] for row in follow.rows())
    assert seen == [0, 3, 6, None, None, 9, 12, None, None, 15, 18, None]


def test_a_limit_ends_it(log: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("dump", log.parent, "--follow", "--records", "-n", 7, "-o", "jsonl")
    assert result.exit_code == 0
    assert result.stdout.count('"kind":"record"') == 7


def test_a_file_is_not_followed(log: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("dump", log, "--follow").exit_code == 2
