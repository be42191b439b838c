"""Rows as the lines of a list: cells in columns, made where the rows are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from commands._cells import cell, heading, is_number
from commands._rows import Row
from commands._screen import SEVERITY_STYLES, cells_of, pad

Styled = Sequence[tuple[str, str]]
"""A line: texts with their rich styles."""
_WIDEST = 60
"""Cells of a column at most; a longer text moves those after it aside."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A row as a list shows it: its cells, and the same in small letters, to be searched."""

    row: Row
    cells: tuple[str, ...]
    text: str


class Columns:
    """Columns of a list: their keys, and widths that grow with what comes."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self.keys = list(keys)
        self._widths = [cells_of(self._name(key)) for key in self.keys]
        self._right = [True] * len(self.keys)

    @staticmethod
    def _name(key: str) -> str:
        return " ".join(heading(key))

    def shown(self, row: Row) -> Shown:
        """Return a row as it is shown."""
        cells = tuple(cell(key, row.get(key)) for key in self.keys)
        return Shown(row, cells, " ".join(cells).casefold())

    def fit(self, rows: Iterable[Shown]) -> None:
        """Make room for some rows."""
        for shown in rows:
            for number, text in enumerate(shown.cells):
                self._widths[number] = max(self._widths[number], min(cells_of(text), _WIDEST))
                value = shown.row.get(self.keys[number])
                self._right[number] &= value is None or is_number(self.keys[number], value)

    def line(self, shown: Shown) -> Styled:
        """Return a row as a line."""
        parts = []
        for number, text in enumerate(shown.cells):
            style = SEVERITY_STYLES.get(text, "") if self.keys[number] == "severity" else ""
            parts.append((pad(text, self._widths[number], right=self._right[number]) + "  ", style))
        return parts

    def head(self) -> Styled:
        """Return the names of the columns."""
        names = (pad(self._name(k), w, right=r) for k, w, r in zip(self.keys, self._widths, self._right, strict=True))
        return [("  ".join(names), "bold")]

    @property
    def width(self) -> int:
        return sum(self._widths) + 2 * len(self._widths)
