"""Header fields of very many batches, kept small: most are the same in all of them, or go up by the same.

A log of 1 GiB may have fourteen million batches, and a plan looks at several versions of it. A field takes nothing
where it is a constant or a count, and else as few bytes as its values need; a whole column is made when asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqctl.kafka.log.block import Flags, Ints

_CHUNK = 1 << 14
"""Rows that are packed together."""
_SMALL = (np.uint8, np.uint16, np.uint32)


class _Packed(NamedTuple):
    """Numbers as a first one with a step, or as what each is more than the smallest."""

    low: int
    step: int
    rest: npt.NDArray[Any] | None


class Chunk(NamedTuple):
    """Some rows in a row, packed."""

    length: int
    columns: Mapping[str, _Packed]

    def column(self, name: str) -> Ints:
        low, step, rest = self.columns[name]
        if rest is not None:
            return rest.astype(np.int64) + np.int64(low)
        return np.arange(self.length, dtype=np.int64) * np.int64(step) + np.int64(low)

    def kept(self, rows: Flags, **constants: int) -> Iterator[Chunk]:
        """Yield those of its rows that are wanted, with columns that are the same in all of them."""
        more = {name: np.full(int(rows.sum()), number, np.int64) for name, number in constants.items()}
        if rows.all():
            yield Chunk(self.length, {**self.columns, **{name: _packed(column) for name, column in more.items()}})
        else:
            yield from Columns.packed({name: self.column(name)[rows] for name in self.columns} | more)


class Columns:
    """Columns of int64 by name, of as many rows each.

    Args:
        chunks: of :meth:`packed`, or of other columns.
    """

    def __init__(self, chunks: Iterable[Chunk] = ()) -> None:
        self._chunks: Sequence[Chunk] = tuple(chunks)
        self.starts = np.cumsum([0, *(chunk.length for chunk in self._chunks)]).tolist()

    @staticmethod
    def packed(part: Mapping[str, Ints]) -> Iterator[Chunk]:
        """Yield the rows of some columns, packed."""
        count = len(next(iter(part.values())))
        for at in range(0, count, _CHUNK):
            piece = {name: column[at : at + _CHUNK] for name, column in part.items()}
            yield Chunk(min(count - at, _CHUNK), {name: _packed(column) for name, column in piece.items()})

    @property
    def chunks(self) -> Sequence[Chunk]:
        """The rows as they are kept, for columns of the same and more rows."""
        return self._chunks

    def __len__(self) -> int:
        found: int = self.starts[-1]
        return found

    def __getitem__(self, name: str) -> Ints:
        """Return a column, made by each call, shape (n,)."""
        found = np.empty(len(self), np.int64)
        for start, chunk in zip(self.starts, self._chunks, strict=False):
            found[start : start + chunk.length] = chunk.column(name)
        return found

    def value(self, name: str, row: int) -> int:
        """Return one number; a row below 0 counts from the end."""
        row = row + len(self) if row < 0 else row
        number = bisect_right(self.starts, row) - 1
        low, step, rest = self._chunks[number].columns[name]
        at = row - self.starts[number]
        return low + step * at if rest is None else low + int(rest[at])

    def rows(self, names: Sequence[str], rows: Ints) -> Iterator[tuple[int, ...]]:
        """Yield the numbers of some rows, given ascending."""
        for start, chunk in zip(self.starts, self._chunks, strict=False):
            here = rows[slice(*np.searchsorted(rows, (start, start + chunk.length)))] - start
            if len(here):
                yield from zip(*(chunk.column(name)[here].tolist() for name in names), strict=True)

    def search(self, name: str, number: int, side: str = "left") -> int:
        """Return the row before which a number goes in a column that ascends, as `bisect` does."""
        at = self._lows(name)
        chunk = int(np.searchsorted(at, number, "left" if side == "left" else "right")) - 1
        if chunk < 0:
            return 0
        found = np.searchsorted(self._chunks[chunk].column(name), number, "left" if side == "left" else "right")
        return int(self.starts[chunk] + found)

    def _lows(self, name: str) -> Ints:
        found = self._firsts.get(name)
        if found is None:
            found = np.array([chunk.column(name)[0] for chunk in self._chunks], np.int64)
            self._firsts[name] = found
        return found

    @cached_property
    def _firsts(self) -> dict[str, Ints]:
        return {}

    def stretches(self, *names: str, overlap: int = 1) -> Iterator[tuple[int, tuple[Ints, ...]]]:
        """Yield the columns in stretches: the first row, and the numbers from it on.

        Args:
            overlap: 1: each begins with the last row of the one before, so that rows can be compared with the next.
        """
        before: tuple[Ints, ...] = tuple(np.zeros(0, np.int64) for _ in names)
        for start, chunk in zip(self.starts, self._chunks, strict=False):
            own = tuple(chunk.column(name) for name in names)
            yield start - len(before[0]), tuple(np.concatenate(pair) for pair in zip(before, own, strict=True))
            before = tuple(column[len(column) - overlap :] for column in own)

    def take(self, rows: Ints) -> Columns:
        """Return some rows, in the order given."""
        names = list(self._chunks[0].columns) if self._chunks else []
        if len(rows) == len(self) and (np.diff(rows) > 0).all():
            return self
        whole = {name: self[name][rows] for name in names}
        return Columns(Columns.packed(whole) if names else ())


def _packed(column: Ints) -> _Packed:
    low, high = int(column.min()), int(column.max())
    steps = np.diff(column)
    step = int(steps[0]) if len(steps) else 0
    if high - low == abs(step) * len(steps) and (steps == step).all():
        return _Packed(int(column[0]), step, None)
    kind = next((kind for kind in _SMALL if high - low <= np.iinfo(kind).max), None)
    return _Packed(0, 0, column.copy()) if kind is None else _Packed(low, 0, (column - low).astype(kind))
