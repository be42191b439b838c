"""Index files that are as they should be take the short way through `verify`: it finds what the long way finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures import golden
from rmqctl.rocketmq.index import IndexFile, index_files
from rmqctl.rocketmq.store.geometry import ENTRY, index_geometry
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify import index, index_file
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

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


def both_ways(root: Path, changes: list[tuple[int, int, int]], found: Callable[[], object]) -> None:
    """What is found in a file with some bits of its entries changed, by the short way and by the long one alone."""
    path = min((root / "index").iterdir())
    data, file = path.read_bytes(), opened(root)
    changed = bytearray(data)
    for number, offset, bits in changes:
        changed[file.geometry.entry_at(number) + offset] ^= bits
    path.write_bytes(changed)
    try:
        short = found()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(index.IndexChecker, "_is_next", lambda *_: False)
            patch.setattr(index_file, "_newest", lambda _: None)
            assert found() == short
    finally:
        path.write_bytes(data)
        file.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES, chunk=st.sampled_from([1, 7, 1 << 15]))
def test_chains(root: Path, changes: list[tuple[int, int, int]], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_file, "_QUICK_CHUNK", chunk)
        both_ways(root, changes, lambda: index_file.chain_findings(opened(root), unsettled=False))


@settings(max_examples=8, deadline=None)
@given(changes=CHANGES)
def test_entries_against_the_log(root: Path, changes: list[tuple[int, int, int]]) -> None:
    def found() -> object:
        verification = Verification(open_store_at(str(root)), VerifyOptions(split_size=SPLIT))
        return [finding.row() for finding in verification.findings()]

    both_ways(root, changes, found)


def test_a_sound_file_takes_the_short_way(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    way = index.IndexChecker._is_next

    def counted(*args: object) -> bool:
        taken.append(way(*args))  # type: ignore[arg-type]
        return taken[-1]

    monkeypatch.setattr(index.IndexChecker, "_is_next", counted)
    options = VerifyOptions(split_size=SPLIT)
    assert [f for f in Verification(open_store_at(str(root)), options).findings() if f.level != "note"] == []
    assert taken.count(True) > len(taken) // 2
    assert index_file._newest(opened(root)) is not None
