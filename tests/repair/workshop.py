"""A store that can be had again in the same state, journals included."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from tests.repair.stores import state_of

T = TypeVar("T")
State = dict[str, object]


def chosen(requests: Sequence[T], stride: int) -> Iterator[tuple[int, T]]:
    """Every so many of the requests, with their numbers; each kind of place comes up in the end."""
    return islice(enumerate(requests), len(requests) % stride, None, stride)


class Workshop:
    def __init__(self, home: Path) -> None:
        self.home, self.root = home, home / "store"
        self.base = home / "store.rmqctl-journal"
        self._saved = home.with_name(home.name + "-saved")

    def save(self) -> None:
        shutil.rmtree(self._saved, ignore_errors=True)
        shutil.copytree(self.home, self._saved, symlinks=True)

    def restore(self) -> None:
        shutil.rmtree(self.home)
        shutil.copytree(self._saved, self.home, symlinks=True)

    def state(self) -> State:
        return state_of(self.root)
