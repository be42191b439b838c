"""The fixtures themselves: copies are what the manifests say, and damage can be done and taken back."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fixtures import damage, golden
from tests.rocketmq.damage_table import Place, Variant, variants

_SPARSE = "timerwheel"  # 37 MiB of zeros; its size is checked, its hash is not worth the time


def _hashes(root: Path) -> dict[str, tuple[int, str]]:
    return {
        path.relative_to(root).as_posix(): (
            path.stat().st_size,
            "" if path.name == _SPARSE else hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", golden.NAMES)
def test_a_copy_is_what_the_manifest_says(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    files = golden.manifest(name)["files"]
    expected = {file: (facts["size"], "" if file == _SPARSE else facts["sha256"]) for file, facts in files.items()}
    assert _hashes(root) == expected
    for file, facts in files.items():
        if "mtimeMs" in facts:
            assert (root / file).stat().st_mtime_ns // 1_000_000 == pytest.approx(facts["mtimeMs"], abs=1)


def test_holes_stay_holes(tmp_path: Path) -> None:
    wheel = golden.unpack("5.5.0-clean", tmp_path) / _SPARSE
    assert wheel.stat().st_blocks * 512 < wheel.stat().st_size // 10


@pytest.mark.parametrize("release", golden.RELEASES)
def test_damage_can_be_taken_back(release: str, tmp_path: Path) -> None:
    name = f"{release}-clean"
    root = golden.unpack(name, tmp_path)
    before = _hashes(root)
    for variant, facts in golden.recovery_oracle(release)["variants"].items():
        if variant.startswith("clean/") and facts["recipe"]:
            damage.apply(facts["recipe"], root)
            damage.undo(facts["recipe"], golden.pristine(name), root)
    assert _hashes(root) == before


@pytest.mark.parametrize("release", golden.RELEASES)
def test_rows_of_the_table_lie_on_the_edited_bytes(release: str) -> None:
    recipes = golden.recovery_oracle(release)["variants"]
    for variant in variants(release):
        for edit in recipes[variant.name]["recipe"]:
            if edit["op"] in ("write", "zero"):
                end = edit["offset"] + edit.get("length", len(edit.get("hex", "")) // 2)
                assert _covered(variant, edit["file"], edit["offset"], end), (variant.name, edit)


def _covered(variant: Variant, file: str, start: int, end: int) -> bool:
    """Whether a row lies on these bytes; whole records that vanished at the end of the log show only in their units."""
    places = [place for place in (*variant.expect, *variant.follow) if isinstance(place, Place)]
    return any(
        place.ids == ("queue.ahead",)
        or (
            place.file == file
            and (place.start is None or place.end is None or (place.start < end and start < place.end))
        )
        for place in places
    )
