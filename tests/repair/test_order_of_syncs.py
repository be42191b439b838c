"""What a run changes is on the disk before what rests on it: the journal before the store, all of it before "done"."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from rmqctl.files.writing import FileLayer
from rmqctl.repair import Applied, apply, undo
from rmqctl.repair.journal_directory import POINTER, STATE
from tests.repair.faults import AcrossLayer
from tests.repair.stores import rich_plan
from tests.repair.workshop import Workshop

T = TypeVar("T")
_NAMES = {"create", "rename", "link", "symlink", "unlink", "mkdir", "rmdir"}


class Watched(FileLayer):
    """Keeps in mind which files and directories have changed since their last sync.

    Attributes:
        at_first: those when the store itself is first changed; None before.
        at_last: those when the journal last said how far it has come.
    """

    root: Path

    def __init__(self) -> None:
        super().__init__()
        self.changed: set[str] = set()
        self.at_first: set[str] | None = None
        self.at_last: set[str] = set()

    def request(self, operation: str, path: str, act: Callable[[], T]) -> T:
        is_inside = Path(path).is_relative_to(self.root) and not path.endswith(POINTER)
        if is_inside and operation != "fsync" and self.at_first is None:
            self.at_first = set(self.changed)
        if os.path.basename(path) == STATE and operation == "write":
            self.at_last = self.changed - {path}
        done = super().request(operation, path, act)
        if operation == "fsync":
            self.changed.discard(path)
        elif operation in _NAMES:
            self.changed.add(os.path.dirname(path))
            if operation in {"unlink", "rmdir"}:
                self.changed.discard(path)
        elif operation in {"write", "truncate"}:
            self.changed.add(path)
        return done

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.changed.add(os.path.dirname(old))
        self.changed = {new + path[len(old) :] if path.startswith(old) else path for path in self.changed}


class Across(AcrossLayer, Watched):
    """The journal lies on another file system."""


@pytest.mark.parametrize("layer", [Watched, Across])
def test_what_rests_on_it_comes_after_the_sync(layer: type[Watched], shop: Workshop) -> None:
    journal = watch(layer(), shop, lambda by: apply(rich_plan(shop.root), layer=by))
    watch(layer(), shop, lambda by: undo(journal, layer=by))


def watch(layer: Watched, shop: Workshop, run: Callable[[Watched], Applied]) -> Path:
    layer.root = shop.root
    journal = run(layer).journal
    assert journal is not None
    assert layer.at_first == set(), "the journal is whole before the store is changed"
    assert layer.at_last == set(), "all is on the disk before the journal says so"
    assert layer.changed == set()
    return journal
