"""An overlay shows what a plan would leave: held against real files that get the same edits."""

from __future__ import annotations

import os
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.files.local import WrittenRanges
from rmqctl.files.tree import LocalTree
from rmqctl.repair.edited_file import Overlay
from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Quarantine, SetTimes

CONTENT = bytes(range(1, 200))
Change = tuple[str, int, int]


def carried_out(root: Path, change: Change) -> Edit:
    """One edit of the file ``d/a``, made from small numbers, and done to the file itself as well."""
    kind, low, high = change
    path = root / "d" / "a"
    size = path.stat().st_size
    data = path.read_bytes()
    edit: Edit
    if kind == "extend":
        edit = Extend("d/a", size, size + high)
        os.truncate(path, size + high)
    elif kind == "cut":
        edit = Cut("d/a", size, low % (size + 1))
        os.truncate(path, low % (size + 1))
    else:
        offset = low % (size + 1)
        after = bytes([high % 256]) * min(high, size - offset)
        edit = Overwrite("d/a", offset, data[offset : offset + len(after)], after)
        path.write_bytes(data[:offset] + after + data[offset + len(after) :])
    return edit


@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "extend", "cut"]), st.integers(0, 300), st.integers(0, 60)), max_size=12
    )
)
def test_reads_are_those_of_the_edited_file(changes: list[Change]) -> None:
    with tempfile.TemporaryDirectory() as below, tempfile.TemporaryDirectory() as real:
        for directory in (below, real):
            (Path(directory) / "d").mkdir()
            (Path(directory) / "d" / "a").write_bytes(CONTENT)
        overlay = Overlay(LocalTree(below), [carried_out(Path(real), change) for change in changes])
        expected = (Path(real) / "d" / "a").read_bytes()
        source = overlay.child("d").open("a")
        assert source.size() == len(expected)
        assert source.read_at(0, len(expected) + 9) == expected
        for at in range(0, len(expected), 17):
            buffer = bytearray(23)
            got = source.read_into(at, memoryview(buffer))
            assert bytes(buffer[:got]) == expected[at : at + 23]
        held = bytearray(len(expected))
        for low, high in source.data_ranges(0, len(expected)):
            held[low:high] = expected[low:high]
        assert bytes(held) == expected
        source.close()


@pytest.fixture
def tree(tmp_path: Path) -> LocalTree:
    for name in ("a/1", "a/2", "b/c/3"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return LocalTree(tmp_path)


def names(overlay: Overlay, path: str) -> list[str]:
    return [e.name for e in overlay.entries(path)]


def test_files_come_and_go(tree: LocalTree, tmp_path: Path) -> None:
    source = tmp_path / "built"
    source.write_bytes(b"made elsewhere")
    overlay = Overlay(tree, [Quarantine("a/1"), Create("a/9", b"new", size=10), Create("n/m/0", source=source)])
    assert names(overlay, "a") == ["2", "9"]
    assert overlay.stat("a/1") is None
    assert overlay.open("a/9").read_at(0, 99) == b"new" + bytes(7)
    assert names(overlay, "n") == ["m"]
    assert overlay.open("n/m/0").read_at(5, 99) == b"elsewhere"
    directory = overlay.stat("n/m")
    assert directory is not None
    assert directory.is_directory


def test_a_directory_in_quarantine_is_empty(tree: LocalTree) -> None:
    overlay = Overlay(tree, [Quarantine("b")])
    assert names(overlay, "") == ["a"]
    assert names(overlay, "b/c") == []
    assert names(overlay.child("b"), "c") == []
    with pytest.raises(FileNotFoundError):
        overlay.open("b/c/3")


def test_a_name_may_be_taken_again(tree: LocalTree) -> None:
    overlay = Overlay(tree, [Quarantine("a/1"), Create("a/1", b"other"), SetTimes("a/1", 5_000_000)])
    entry = overlay.stat("a/1")
    assert entry is not None
    assert (entry.size, entry.mtime_ms) == (5, 5)
    assert overlay.open("a/1").read_at(0, 9) == b"other"


def test_nothing_below_changes(tree: LocalTree) -> None:
    overlay = Overlay(tree, [Overwrite("a/1", 0, b"a", b"z")])
    overlay.apply([Overwrite("a/1", 1, b"/", b"!")])
    assert overlay.open("a/1").read_at(0, 9) == b"z!1"
    assert tree.open("a/1").read_at(0, 9) == b"a/1"


@given(st.lists(st.tuples(st.integers(0, 40), st.binary(max_size=12)), max_size=14), st.integers(0, 50))
def test_runs_hold_what_was_written_last(writes: list[tuple[int, bytes]], size: int) -> None:
    """WrittenRanges that touch or overlap are one, and a buffer gets what lies over it from any place on."""
    runs, expected, written = WrittenRanges(), bytearray(b"." * 60), set[int]()
    for offset, data in writes:
        runs.put(offset, data)
        expected[offset : offset + len(data)] = data
        written.update(range(offset, offset + len(data)))
    for begin in (0, 7, 30):
        buffer = bytearray(b"." * 20)
        runs.lay_over(begin, buffer)
        assert buffer == expected[begin : begin + 20]
    assert {at for begin, end in runs.spans() for at in range(begin, end)} == written
    assert all(end < begin for (_, end), (begin, _) in pairwise(runs.spans()))
    assert runs.end == max(written, default=-1) + 1
    runs.clip(size)
    assert {at for begin, end in runs.spans() for at in range(begin, end)} == {at for at in written if at < size}
