"""Rows as a table that people read, streamed: widths come from the first rows, later ones keep to them.

Where even the narrowest columns do not fit the terminal, each row becomes a block of ``key value``
lines. The text is the same whether or not stdout is a terminal; only the colour is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from commands import _sink
from commands._cells import cell, is_number
from commands._rows import Row, keys_of, take
from commands._screen import SEVERITY_STYLES, Screen, cells_of, fold, pad

HEAD_ROWS = 500
GAP = "  "
_NARROW = 12
"""Text columns may shrink to this many cells before a table turns into blocks."""
_NUMBER = 13
"""Digits of an offset in a log of some terabytes."""


@dataclass(slots=True)
class Column:
    """One column: its key, cells across now and at least, and alignment."""

    key: str
    width: int
    least: int
    right: bool


@dataclass(frozen=True, slots=True)
class Table:
    """How rows are shown: the screen, the zone of times, and the keys."""

    screen: Screen
    local_time: bool
    keys: Sequence[str]

    def lines(self, rows: Iterable[Row | None], columns: list[Column]) -> Iterator[str | None]:
        """Yield a heading, then each row on one line, or on several where a value is too long."""
        yield from self._heading(columns)
        for row in rows:
            yield from (None,) if row is None else self._row(row, columns)

    def blocks(self, rows: Iterable[Row | None]) -> Iterator[str | None]:
        """Each row as lines ``key value``, with an empty line between rows."""
        first = True
        for row in rows:
            if row is None:
                yield None
                continue
            if not first:
                yield ""
            first = False
            yield from self.block({key: row[key] for key in self.keys if row.get(key) is not None})

    def block(self, row: Row) -> Iterator[str]:
        """One row as lines ``key value``."""
        margin = max(map(len, row), default=0)
        room = max(self.screen.width - margin - len(GAP), _NARROW)
        for key, value in row.items():
            for number, part in enumerate(fold(self._cell(key, value), room)):
                name = self.screen.style(pad("" if number else key, margin), "bold")
                yield f"{name}{GAP}{self.screen.style(part, _style_of(key, value))}".rstrip()

    def layout(self, head: Sequence[Row], *, more: bool = False) -> list[Column] | None:
        """Columns that fit the screen, or None where none do.

        Args:
            more: rows come after ``head`` whose values may be longer; columns get room for that if there is any.
        """
        columns = [self._column(key, head) for key in self.keys]
        if more:
            for column in columns:
                column.width = max(column.width, _NUMBER if column.right else column.width * 3 // 2)
        room = self.screen.width - len(GAP) * (len(columns) - 1)
        for _ in range(sum(c.width for c in columns) - room):
            widest = max(columns, key=lambda c: (c.width > c.least, c.width))
            if widest.width == widest.least:
                return None
            widest.width -= 1
        return columns

    def _column(self, key: str, head: Sequence[Row]) -> Column:
        values = [row[key] for row in head if row.get(key) is not None]
        heading = max(map(len, key.split("_")))
        natural = max([heading, *(cells_of(self._cell(key, value)) for value in values)])
        breakable = any(isinstance(value, (str, bytes, list, Mapping)) for value in values)
        least = max(heading, min(natural, _NARROW)) if breakable else natural
        return Column(key, natural, least, bool(values) and all(is_number(key, value) for value in values))

    def _heading(self, columns: list[Column]) -> Iterator[str]:
        names = [fold(column.key.replace("_", " "), column.width) for column in columns]
        height = max(map(len, names))
        for line in zip(*([""] * (height - len(name)) + name for name in names), strict=True):
            cells = [pad(text, column.width, right=column.right) for text, column in zip(line, columns, strict=True)]
            yield self.screen.style(GAP.join(cells).rstrip(), "bold")
        yield GAP.join("-" * column.width for column in columns)

    def _row(self, row: Row, columns: list[Column]) -> Iterator[str]:
        cells = [self._folded(column, row.get(column.key)) for column in columns]
        for line in zip_longest(*cells, fillvalue=""):
            parts = []
            for text, column in zip(line, columns, strict=True):
                padded = pad(text, column.width, right=column.right)
                parts.append(self.screen.style(padded, _style_of(column.key, row.get(column.key))))
            yield GAP.join(parts).rstrip()

    def _folded(self, column: Column, value: Any) -> list[str]:
        """Lines of a cell; a number stays in one piece, even where it passes the margin."""
        text = self._cell(column.key, value)
        return [text] if column.right and is_number(column.key, value) else fold(text, column.width)

    def _cell(self, key: str, value: Any) -> str:
        return cell(key, value, local_time=self.local_time)


def write_table(
    rows: Iterable[Row | None], columns: Sequence[str] | None = None, *, title: str = "", local_time: bool = False
) -> int:
    """Write rows as one table, streamed; returns the number of rows. No rows, no output.

    Args:
        columns: keys to show; default: every key of the first 500 rows.
    """
    counted = _Counted(rows)
    stream = iter(counted)
    head, ended = take(stream, HEAD_ROWS, patient=False)
    if not head:
        return 0
    table = Table(Screen.here(), local_time, list(columns or keys_of(head)))
    layout = table.layout(head, more=not ended)
    every = chain(head, stream)
    above = [table.screen.style(title, "bold"), ""] if title else []
    _sink.write_text(chain(above, table.lines(every, layout) if layout else table.blocks(every)))
    return counted.count


def write_document(document: Row, *, local_time: bool = False) -> None:
    """One object as lines ``key value``; nested keys, and places in lists of objects, joined by dots."""
    flat = dict(_flat(document))
    _sink.write_text(Table(Screen.here(), local_time, list(flat)).block(flat))


class _Counted:
    """A stream that knows how many rows have gone through it."""

    def __init__(self, rows: Iterable[Row | None]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[Row | None]:
        for row in self._rows:
            self.count += row is not None
            yield row


def _flat(document: Row, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        key = name.removeprefix(".") if prefix else name  # endings of file names have a dot of their own
        if isinstance(value, Mapping) and value and list(value) != ["base64"]:
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                yield from _flat(item, f"{prefix}{key}.{number}.")
        else:
            yield f"{prefix}{key}", value


def _style_of(key: str, value: Any) -> str:
    return SEVERITY_STYLES.get(str(value), "") if key == "severity" else ""
