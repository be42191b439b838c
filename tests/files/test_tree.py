"""A local directory tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.files.tree import LocalTree


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300], ids=["zero byte", "half a pair", "too long"])
def test_names_that_no_file_can_have_are_not_there(name: str, tmp_path: Path) -> None:
    tree = LocalTree(tmp_path)
    assert tree.entries(name) == []
    assert tree.stat(name) is None
