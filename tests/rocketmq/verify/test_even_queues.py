"""Which queues come out even, against a count unit by unit."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.verify.unmatched import ClaimedUnits, uneven_queues

MIN_OFFSET = 1000
UNIT = struct.Struct(">qiq")
LIVE, OLD, FILLER, NONE = (1000, 10, 0), (999, 10, 0), (0, 0x7FFFFFFF, 0), (0, 0, 0)
queues = st.lists(st.lists(st.sampled_from([LIVE, OLD, FILLER, NONE]), max_size=6), min_size=1, max_size=8)


def store(root: Path, contents: list[bytes]) -> tuple[LocalTree, dict[str, tuple[tuple[str, int], ...]]]:
    """One queue of one file for each content."""
    listed = {}
    for number, content in enumerate(contents):
        path = f"consumequeue/T/{number}"
        (root / path).mkdir(parents=True)
        (root / path / f"{0:020d}").write_bytes(content)
        listed[path] = ((f"{0:020d}", len(content)),)
    return LocalTree(root), listed


@settings(max_examples=60)
@given(queues=queues, claimed=st.lists(st.integers(0, 3), min_size=8, max_size=8), torn=st.integers(0, 19))
def test_a_queue_is_even_when_its_live_units_are_those_claimed(
    tmp_path_factory: pytest.TempPathFactory,
    queues: list[list[tuple[int, int, int]]],
    claimed: list[int],
    torn: int,
) -> None:
    contents = [b"".join(UNIT.pack(*unit) for unit in units) + b"\x01" * torn for units in queues]
    tree, listed = store(tmp_path_factory.mktemp("queues"), contents)
    claims = {("T", n): ClaimedUnits(count) for n, count in enumerate(claimed) if count}
    found = list(uneven_queues(tree, listed, claims, {}, MIN_OFFSET))
    wanted = [n for n, units in enumerate(queues) if OLD in units or units.count(LIVE) != claimed[n]]
    assert found == [f"consumequeue/T/{n}" for n in wanted]


def test_units_in_a_long_file_with_holes_are_counted(tmp_path: Path) -> None:
    tree, listed = store(tmp_path, [bytes(20), bytes(20)])
    for number, units in ((0, 3), (1, 2)):
        path = tmp_path / f"consumequeue/T/{number}/{0:020d}"
        with path.open("r+b") as out:
            out.truncate(6_000_000)
            out.seek(4095 * 20)
            out.write(UNIT.pack(*LIVE) * units)
        listed[f"consumequeue/T/{number}"] = ((path.name, 6_000_000),)
    claims = {("T", 0): ClaimedUnits(3), ("T", 1): ClaimedUnits(3)}
    assert list(uneven_queues(tree, listed, claims, {}, MIN_OFFSET)) == ["consumequeue/T/1"]


def test_a_queue_that_lacks_units_or_has_several_files_is_never_even(tmp_path: Path) -> None:
    tree, listed = store(tmp_path, [UNIT.pack(*LIVE), b"", b""])
    listed["consumequeue/T/1"] = ((f"{0:020d}", 0), (f"{20:020d}", 0))
    assert list(uneven_queues(tree, listed, {("T", 0): ClaimedUnits(1)}, {("T", 0)}, MIN_OFFSET)) == [
        "consumequeue/T/0",
        "consumequeue/T/1",
    ]
