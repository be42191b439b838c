"""Two streams of sorted numbers side by side, in pieces that cover the same range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from rmqctl.rocketmq.block import Ints

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """Some neighbouring items of a stream.

    Attributes:
        keys: ascending, shape (n,).
        of: what the items belong to, None where there is nothing.
        first: number of the first item in it.
    """

    keys: Ints
    of: T | None = None
    first: int = 0

    def rows(self, index: Ints) -> Ints:
        """Numbers of items, in what they belong to."""
        return index + self.first


_NONE = np.zeros(0, np.int64)


class _Stream(Generic[T]):
    """A stream with what is left of its current piece."""

    def __init__(self, pieces: Iterator[tuple[Ints, T]]) -> None:
        self._pieces = pieces
        self._last = -1
        self.keys, self.at = _NONE, 0
        self._of: T | None = None

    def fill(self) -> bool:
        """Whether items are left, the next piece taken where needed; keys that do not ascend are dropped."""
        while self.at >= len(self.keys):
            piece = next(self._pieces, None)
            if piece is None:
                self.keys, self._of, self.at = _NONE, None, 0
                return False
            self.keys, self._of = piece
            self.at = int(np.searchsorted(self.keys, self._last, "right"))
        return True

    def last(self) -> int:
        return int(self.keys[-1])

    def take(self, bound: int) -> Part[T]:
        """The items up to a key."""
        begin, self.at = self.at, max(self.at, int(np.searchsorted(self.keys, bound, "right")))
        part = Part(self.keys[begin : self.at], self._of, begin)
        if len(part.keys):
            self._last = int(part.keys[-1])
        return part


def merge(a: Iterator[tuple[Ints, T]], b: Iterator[tuple[Ints, T]]) -> Iterator[tuple[Part[T], Part[T]]]:
    """Parts of both that cover the same range of keys; one of them may be empty.

    What an item belongs to must stay readable until the next part is asked for.

    Args:
        a, b: pieces with ascending keys, shape (n,), and what they belong to.
    """
    left, right = _Stream(a), _Stream(b)
    while True:
        more = left.fill(), right.fill()
        if not any(more):
            return
        bound = min(s.last() for s, is_more in zip((left, right), more, strict=True) if is_more)
        yield left.take(bound), right.take(bound)
