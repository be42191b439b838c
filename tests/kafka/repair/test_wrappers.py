"""Compressed messages of magic 0 whose own offset is wrong: those inside state theirs under the CRC."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import read_directory
from rmqctl.kafka.verify.driver import Verification
from rmqctl.opening import open_store
from rmqctl.repair.edited_file import Overlay
from tests.kafka.repair.attacked import Verdict, judge_root, outermost

CHANGES: dict[str, Callable[[int], int]] = {
    "one more": lambda offset: offset + 1,
    "one less": lambda offset: offset - 1,
    "zero": lambda offset: 0,
    "far": lambda offset: offset + 77_777,
    "beyond a segment": lambda offset: offset + (1 << 40),
}
PLACES = [("v0-gzip-0", 0, 0), ("v0-lz4-0", 0, 3), ("v0-snappy-1", 0, -1), ("v0-gzip-1", 1, 0), ("v0-lz4-1", -1, -1)]
"""Partition, segment, batch."""


def damaged(room: Path, place: tuple[str, int, int], change: Callable[[int], int]) -> tuple[Path, str, bytes, int]:
    """Return a directory with a wrong offset, the file, its bytes before, and where the message lies."""
    part, number, row = place
    root = golden.unpack("2.8.2-clean", room)
    path = [path for path in sorted((root / part).glob("*.log")) if path.stat().st_size][number]
    data = path.read_bytes()
    at, message = list(outermost(data))[row]
    wrong = change(int.from_bytes(message[:8], "big")).to_bytes(8, "big", signed=True)
    path.write_bytes(data[:at] + wrong + data[at + 8 :])
    return root, f"{part}/{path.name}", data, at


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "place", [PLACES[2], *(pytest.param(p, marks=pytest.mark.slow) for p in (*PLACES[:2], *PLACES[3:]))]
)
def test_the_offset_of_the_last_one_inside_goes_back(place: tuple[str, int, int], change: str, tmp_path: Path) -> None:
    root, name, right, at = damaged(tmp_path, place, CHANGES[change])
    if (root / name).read_bytes() == right:
        return  # it was zero
    found = list(Verification(read_directory(LocalTree(str(root)))).findings())
    errors = [(f.kind.id, f.file, f.offset) for f in found if f.kind.id.startswith(("batch.", "segment."))]
    assert errors == [("batch.wrapper-offset", name, at)]
    verdict = judge_root(Verdict(0, [change]), root, "2.8.2-clean", tmp_path, applies=True)
    assert (verdict.lost, verdict.invented, verdict.errors) == ([], [], [])
    assert verdict.repair is not None
    after = Overlay(LocalTree(str(root)), verdict.repair.plan.edits).open(name)
    assert after.read_at(0, after.size()) == right
    after.close()


@pytest.mark.parametrize("change", ["one more", "zero"])
def test_salvage_takes_the_message_with_its_right_offset(change: str, tmp_path: Path) -> None:
    root, name, right, _ = damaged(tmp_path / "source", PLACES[1], CHANGES[change])
    open_store(str(root)).salvage(tmp_path / "into").prepare()
    made = b"".join(p.read_bytes() for p in sorted((tmp_path / "into" / name).parent.glob("*.log")))
    assert right in made
