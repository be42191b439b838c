"""The guessed releases: the true one is among them, whatever is damaged or missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fixtures import damage, golden
from rmqctl.release import Release
from rmqctl.rocketmq.state.releases import NEWEST, OLDEST, release_range
from rmqctl.rocketmq.store.locate import open_store_at

EXPECTED = {
    "4.5.2-clean": ("4.4.0", "4.5.2"),
    "4.5.2-crash": ("4.4.0", "4.5.2"),
    "4.9.8-clean": ("4.9.1", "4.9.8"),
    "4.9.8-crash": ("4.9.1", "4.9.8"),
    "5.1.4-clean": ("5.1.0", "5.1.4"),
    "5.1.4-crash": ("5.1.1", "5.1.4"),
    "5.3.3-clean": ("5.2.0", "5.3.4"),
    "5.3.3-crash": ("5.2.0", "5.3.4"),
    "5.5.0-clean": ("5.4.0", "5.5.0"),
    "5.5.0-crash": ("5.4.0", "5.5.0"),
    "5.5.0-propcrc-clean": ("5.5.0", "5.5.0"),
    "5.5.0-multipath-clean": ("5.5.0", "5.5.0"),
    "5.5.0-rocksdb-clean": ("5.4.0", "5.5.0"),
    "5.5.0-rocksdb-crash": ("5.4.0", "5.5.0"),
}


def _range(root: Path) -> tuple[str, str]:
    lowest, highest = release_range(open_store_at(str(root))).row()
    return lowest, highest


def _true(name: str) -> Release:
    return Release.parse(golden.manifest(name)["release"])


def _assert_inside(root: Path, true: Release) -> None:
    found = release_range(open_store_at(str(root)))
    assert found.lowest <= true <= found.highest, [(str(e.fact), e.lowest, e.highest) for e in found.evidence]


@pytest.mark.parametrize("name", golden.NAMES)
def test_golden_stores(name: str) -> None:
    assert _range(golden.pristine(name)) == EXPECTED[name]
    _assert_inside(golden.pristine(name), _true(name))


@pytest.mark.parametrize("name", golden.NAMES)
@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index", "checkpoint", "config"])
def test_a_part_of_a_store_proves_nothing_wrong(name: str, part: str, tmp_path: Path) -> None:
    source = golden.pristine(name)
    found = [p for p in source.iterdir() if p.name.startswith(part)]
    if not found:
        pytest.skip("the store has no such part")
    for path in found:
        if path.is_dir():
            golden.copy_tree(path, tmp_path / path.name)
        else:
            golden.copy_file(path, tmp_path / path.name)
    _assert_inside(tmp_path, _true(name))


@pytest.mark.parametrize("release", golden.RELEASES)
def test_damage_hides_no_release(release: str, tmp_path: Path) -> None:
    roots = {name: golden.unpack(name, tmp_path) for name in (f"{release}-clean", f"{release}-crash")}
    for number, (name, variant) in enumerate(golden.recovery_oracle(release)["variants"].items()):
        if number % 4 and "checkpoint" not in name and "commitlog" not in name:
            continue
        base = f"{release}-{name.partition('/')[0]}"
        damage.apply(variant["recipe"], roots[base])
        _assert_inside(roots[base], Release.parse(release))
        damage.undo(variant["recipe"], golden.pristine(base), roots[base])


@pytest.mark.parametrize("content", [b"\xff" * 4096, b"text" * 1024, b"\x01" * 100])
def test_a_damaged_checkpoint_is_no_evidence(content: bytes, tmp_path: Path) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    (root / "checkpoint").write_bytes(content)
    assert _range(root) == EXPECTED["4.9.8-clean"]


def test_nothing_to_see_leaves_every_release(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    found = release_range(open_store_at(str(tmp_path)))
    assert (found.lowest, found.highest, found.evidence) == (OLDEST, NEWEST, ())


def test_a_store_that_a_later_broker_has_opened_is_of_the_later_one(tmp_path: Path) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    (root / "abort.bak").touch()
    (root / "rocksdbstore").mkdir()
    assert _range(root) == ("5.4.0", "5.5.0")


def test_evidence_says_what_it_proves(tmp_path: Path) -> None:
    root = golden.unpack("5.1.4-crash", tmp_path)
    shutil.rmtree(root / "compaction")
    rows = {e.fact: e.row() for e in release_range(open_store_at(str(root))).evidence}
    assert rows["abort holds a process id"] == {
        "fact": "abort holds a process id",
        "lowest": "5.0.0",
        "highest": None,
    }
    assert rows["properties do not end with 0x02"]["highest"] == "5.1.4"
    assert "compaction is there" not in rows
