"""The replay of recovery against recorded starts of released classes on randomly damaged stores, without Java."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from tests.interop.recovered import replayed

DIRECTORY = Path(golden.__file__).parent / "interop"


def recorded(release: str) -> list[dict[str, Any]]:
    with lzma.open(DIRECTORY / f"{release}.recovery.json.xz", "rt", encoding="utf-8") as file:
        found: list[dict[str, Any]] = json.load(file)
    return found


@pytest.mark.parametrize("release", golden.RELEASES)
def test_the_replay_does_what_the_classes_did(release: str, tmp_path: Path) -> None:
    roots = {name: golden.unpack(name, tmp_path) for name in (f"{release}-clean", f"{release}-crash")}
    cases = recorded(release)
    assert len(cases) > 40
    for case in cases:
        root = roots[case["base"]]
        damage.apply(case["recipe"], root)
        assert replayed(root, case["base"], release) == case["result"], case["seed"]
        damage.undo(case["recipe"], golden.pristine(case["base"]), root)
