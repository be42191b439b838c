"""Entries and chains of index files, held against brute force and against the log in splits of any size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures import golden
from formats.rocketmq.message import decode_record
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.rules import DispatchRules, request_of_fields
from rmqctl.rocketmq.findings.derived import INDEX_CHAIN
from rmqctl.rocketmq.index import IndexFile, index_files
from rmqctl.rocketmq.log.columns import TextIds
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.store.geometry import ENTRY, HEADER, geometry_of, index_geometry
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify import index, index_file
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from rmqctl.rocketmq.verify.splits import Job, SplitCheck, splits_of

STORE, ENTRIES, SIZE, SPLIT = "5.5.0-clean", 40, ENTRY.packer.size, 1 << 16
CHANGES = st.lists(
    st.tuples(st.integers(1, ENTRIES), st.integers(0, SIZE - 1), st.sampled_from([1, 2, 0x80])), max_size=3
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack(STORE, tmp_path_factory.mktemp("index"))


def opened(root: Path) -> IndexFile:
    store = open_store_at(str(root))
    geometry = index_geometry(store)
    assert geometry is not None
    return index_files(store, geometry)[0]


def wrong_chains(file: IndexFile) -> list[tuple[int, int]]:
    """Place and size of each entry that names a wrong one before it, and of each slot that does not hold the newest of
    its entries, entry by entry.
    """
    newest = dict[int, int]()
    found = []
    for number, entry in enumerate(file.entries(1, file.count).tolist(), 1):
        key_hash, _, _, previous = entry
        slot = key_hash % file.geometry.slots
        if key_hash < 0 or previous != newest.get(slot, 0):
            found.append((file.geometry.entry_at(number), SIZE))
        newest[slot] = number
    slots = enumerate(file.slots(0, file.geometry.slots).tolist())
    return found + [(HEADER.packer.size + 4 * n, 4) for n, value in slots if value != newest.get(n, 0)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES, chunk=st.sampled_from([1, 7, 1 << 17]))
def test_chains(root: Path, changes: list[tuple[int, int, int]], chunk: int) -> None:
    path = min((root / "index").iterdir())
    data, file = path.read_bytes(), opened(root)
    changed = bytearray(data)
    for number, offset, bits in changes:
        changed[file.geometry.entry_at(number) + offset] ^= bits
    path.write_bytes(changed)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(index_file, "_CHUNK", chunk)
            found = index_file.chain_findings(opened(root), unsettled=False)
        chains = [(one.offset, one.size) for one in found if one.kind is INDEX_CHAIN]
        is_judged = index_file.header_problem(opened(root)) is None  # chains of other files are not looked at
        assert chains == (wrong_chains(opened(root)) if is_judged else [])
    finally:
        path.write_bytes(data)
        file.close()


def test_a_slot_that_alone_is_written_among_holes_is_seen(tmp_path: Path, rmqctl: Any) -> None:
    """Most slots of a young file lie in holes, which are not read."""
    rmqctl("produce", str(tmp_path / "store"), "--topic", "T", "--count", "20", "--key", "k")
    file = opened(tmp_path / "store")
    assert file.geometry.slots == 5_000_000
    assert index_file.chain_findings(file, unsettled=False) == []
    with (tmp_path / "store" / file.path).open("r+b") as out:
        out.seek(HEADER.packer.size + 4 * 4_000_000)
        out.write(bytes([0, 0, 0, 3]))
    (found,) = index_file.chain_findings(file, unsettled=False)
    file.close()
    assert "slot 4000000 holds 3, its newest entry is 0" in found.message


@settings(max_examples=8, deadline=None)
@given(changes=CHANGES, kept=st.sampled_from([1 << 15, 1 << 30]), window=st.sampled_from([1 << 13, 1 << 15]))
def test_windows_compared_in_a_row(root: Path, changes: list[tuple[int, int, int]], kept: int, window: int) -> None:
    """Records of windows that wait are compared as those of one window, whatever is damaged."""
    queue = max((root / "consumequeue").glob("*/*/*"), key=lambda path: len(path.read_bytes().rstrip(b"\0")))
    paths = min((root / "index").iterdir()), queue
    before = [path.read_bytes() for path in paths]
    for path, data, first in zip(paths, before, (opened(root).geometry.entry_at(0), -SIZE), strict=True):
        changed = bytearray(data)
        for number, offset, bits in changes:
            changed[first + number * SIZE + offset] ^= bits
        path.write_bytes(changed)

    def found(kept: int) -> list[object]:
        store = open_store_at(str(root))
        context, log = LogContext.of(store), CommitLog(store.log_files)
        job = Job(store, geometry_of(store), context, window=window, kept=kept)
        said: list[object] = []
        for split in splits_of(log.contexts()):
            check = SplitCheck(job, split)
            said += [*(finding.row() for finding in check.findings()), check.partials.index]
            queues = check.partials.queues
            said += [queues.claims, sorted(queues.missing, key=lambda m: m.physical)]
        return said

    try:
        assert found(kept) == found(1)
    finally:
        for path, data in zip(paths, before, strict=True):
            path.write_bytes(data)


@pytest.mark.parametrize("near", [1, 400, 1 << 16])
@pytest.mark.parametrize("kept", [0, 40], ids=["no file", "a file that ends early"])
def test_records_that_no_file_holds(near: int, kept: int, tmp_path: Path) -> None:
    """The same runs as record by record."""
    root = golden.unpack(STORE, tmp_path)
    geometry, held = (
        geometry_of(open_store_at(str(root))),
        set(opened(root).entries(1, kept)["physical_offset"].tolist()),
    )
    _end_after(root, kept)
    store, rules = open_store_at(str(root)), DispatchRules(Release(4, 9, 8))
    context, ids = LogContext.of(store), TextIds()
    checker = index.IndexChecker(store, geometry, context, ids, near)
    expected, keyed = list[index.Uncovered](), 0
    for found in CommitLog(store.log_files).walk():
        checker.block(found)
        for row in range(len(found.block)):
            begin, size = int(found.block.physical[row]), int(found.block.total_size[row])
            fields = decode_record(found.block.raw(row))[0]
            if fields["sys_flag"] & 0xC == 0xC or not request_of_fields(fields, rules).key_hashes:
                continue
            keyed += 1
            if begin in held:
                continue
            if expected and begin - expected[-1].end < near:
                expected[-1] = replace(expected[-1], end=begin + size, count=expected[-1].count + 1)
            else:
                expected.append(index.Uncovered(begin, begin + size, 1, begin + size))
    partial = checker.partial()
    assert partial.uncovered == expected
    assert (partial.keyed, partial.strangers) == (keyed, [])


def _end_after(root: Path, kept: int) -> None:
    """Leave the first entries of the first index file, or no file."""
    file, (path, *others) = opened(root), sorted((root / "index").iterdir())
    for other in others if kept else [path, *others]:
        other.unlink()
    if not kept:
        return
    end, after = file.physical_at(kept), file.geometry.entry_at(kept + 1)
    with path.open("r+b") as out:
        out.seek(after)
        out.write(bytes(file.size - after))
        out.seek(HEADER.packer.size - 4)
        out.write((kept + 1).to_bytes(4, "big"))
        out.seek(24)
        out.write(end.to_bytes(8, "big"))


def test_splits_of_any_size_say_the_same_of_the_index(tmp_path: Path) -> None:
    """Entries point to places between the records of a split, and to records that are others than before."""
    root = golden.unpack(STORE, tmp_path)
    _, second, third, *_ = sorted((root / "commitlog").iterdir())
    third.write_bytes(second.read_bytes())

    def found(size: int | None) -> list[str]:
        verification = Verification(open_store_at(str(root)), VerifyOptions(split_size=size))
        return sorted(f"{finding.kind.id} {finding.row()}" for finding in verification.findings())

    expected = found(None)
    assert any(line.startswith("index.entry-mismatch") for line in expected)
    for size in (3000, 4096, 50_000):
        assert found(size) == expected
