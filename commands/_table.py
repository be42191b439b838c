"""Rows as a table that people read, streamed in pieces: widths come from the rows of a piece.

An identifier or a number is never broken or cut; one of few that fill most of the screen has a line of its own, and
its row goes on below. Where the columns do not fit the terminal, in this order: a column that is equal in all rows goes
above the table, prose is broken at words, prose goes below its row, times and last columns follow it, each row becomes
a block of ``key value`` lines. Where stdout is no terminal none of it happens: a row is a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from commands import _sink
from commands._cells import cell, heading, is_number, is_time
from commands._rows import Row, keys_of, take
from commands._screen import SEVERITY_STYLES, Screen, cells_of, flow, pad

PIECE = 500
GAP = "  "
_INDENT = "    "
_PROSE = 24
"""Cells that prose may shrink to before it goes below its row."""
_MOST = 0.75
"""Part of the screen beyond which an identifier, where few are so long, has a line of its own."""
_SHORT = 0.75
"""Part of the identifiers of a column that must be shorter for that."""
_BESIDE = 2
"""Columns that a row has beside each other at least, or it is a block."""
_PAYLOAD = ("body", "raw_body", "value")
"""Bytes of messages, which may be broken anywhere."""
_IDENTIFIERS = frozenset({"file", "group", "id", "journal", "key", "member", "name", "path", "topic"})
"""Text that stays in one piece though it has spaces; other text without spaces does, too."""


@dataclass(slots=True)
class Column:
    """One column of a piece.

    Attributes:
        width, least: cells across, now and at least.
        usual: cells across but for the few texts that fill most of the screen alone.
        right: aligned to the right.
        is_prose: its texts may be broken.
        texts: one a row.
    """

    key: str
    width: int
    least: int
    usual: int
    right: bool
    is_prose: bool
    texts: list[str]


@dataclass(slots=True)
class Arrangement:
    """How a piece of a table stands on the screen.

    Attributes:
        columns: side by side; none: each row is a block.
        below: keys of what stands on lines below their row.
        above: keys of columns that are equal in all rows.
    """

    columns: list[Column]
    below: list[str]
    above: list[str]


@dataclass(slots=True)
class Table:
    """How rows are shown: the screen, the zone of times, the keys, and how the last piece stood."""

    screen: Screen
    local_time: bool
    keys: Sequence[str]
    layout: Arrangement | None = None

    def piece(self, rows: Sequence[Row], title: str = "", *, is_all: bool = False) -> Iterator[str]:
        """Yield the lines of some rows; a heading first where the columns are others than before.

        Args:
            title: a line above the first piece.
            is_all: no rows come after these.
        """
        before = self.layout
        self.layout = layout = self._laid_out(rows, is_all=is_all)
        if before is None:
            yield from self._above(title, layout.above, rows[0])
        if not layout.columns:
            yield from self._blocks(rows, [key for key in self.keys if key not in layout.above], first=before is None)
            return
        keys = [column.key for column in layout.columns]
        if before is None or keys != [column.key for column in before.columns]:
            yield from self._heading(layout.columns)
        for number, row in enumerate(rows):
            yield from self._row(number, row, layout)

    def block(self, row: Row) -> Iterator[str]:
        """One row as lines ``key value``."""
        margin = max(map(cells_of, row), default=0)
        room = self.screen.width - margin - len(GAP)
        for key, value in row.items():
            for number, part in enumerate(self._folded(key, value, self._cell(key, value), room)):
                name = self.screen.style(pad("" if number else key, margin), "bold")
                yield f"{name}{GAP}{self.screen.style(part, _style_of(key, value))}".rstrip()

    def _blocks(self, rows: Iterable[Row], keys: Sequence[str], *, first: bool) -> Iterator[str]:
        for row in rows:
            if not first:
                yield ""
            first = False
            yield from self.block({key: row[key] for key in keys if row.get(key) is not None})

    def _laid_out(self, rows: Sequence[Row], *, is_all: bool) -> Arrangement:
        columns = [self._column(key, rows) for key in self.keys]
        if self.layout is not None:
            last = {column.key: column.width for column in self.layout.columns}
            wide = [replace(column, width=max(column.width, last.get(column.key, 0))) for column in columns]
            columns, above = wide if self._fits(wide) else columns, []
        else:
            above = self._hoist(columns, rows) if is_all and len(rows) > 1 else []
        if not self._fits(columns):
            for column in columns:
                column.width = min(column.width, column.usual)
        for column in sorted(columns, key=lambda column: -column.width):
            spare = self._wide(columns) - self.screen.width
            if column.is_prose and self.screen.folds and spare > 0:
                column.width = max(column.width - spare, column.least)
        beside = list(columns)
        giving = sorted(enumerate(columns), key=lambda each: (each[1].is_prose, is_time(each[1].key), each[0]))
        while beside and not self._fits(beside):
            beside.remove(giving.pop()[1])
        below = [column.key for column in columns if column not in beside]
        return Arrangement([], [], above) if below and len(beside) < _BESIDE else Arrangement(beside, below, above)

    def _hoist(self, columns: list[Column], rows: Sequence[Row]) -> list[str]:
        """Take columns that are equal in all rows out of a table that is too wide, the widest first."""
        above = []
        while len(columns) > 1 and not self._fits(columns):
            equal = [c for c in columns if all(row.get(c.key) == rows[0].get(c.key) for row in rows)]
            if not equal:
                break
            columns.remove(widest := max(equal, key=lambda column: column.width))
            above.append(widest.key)
        return [key for key in self.keys if key in above]

    def _fits(self, columns: Sequence[Column]) -> bool:
        return not self.screen.folds or self._wide(columns) <= self.screen.width

    def _wide(self, columns: Sequence[Column]) -> int:
        return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)

    def _column(self, key: str, rows: Sequence[Row]) -> Column:
        values = [row.get(key) for row in rows]
        texts = [self._cell(key, value) for value in values]
        words = heading(key)
        name = max(map(len, words)) if self.screen.folds else len(" ".join(words))
        right = all(value is None or is_number(key, value) for value in values) and any(texts)
        natural = max(name, *map(cells_of, texts))
        is_prose = not right and any(_is_prose(key, *each) for each in zip(values, texts, strict=True))
        least = natural
        if is_prose:
            whole = () if key in _PAYLOAD else {word for text in texts for word in text.split(" ")}
            least = min(natural, max([name, _PROSE, *map(cells_of, whole)]))
        usual = natural
        most = int(self.screen.width * _MOST)
        if not is_prose and not right and natural > most:
            widths = sorted(map(cells_of, texts))
            short = [width for width in widths if width <= most]
            usual = max(name, short[-1]) if len(short) >= _SHORT * len(widths) else natural
        return Column(key, natural, least, usual, right, is_prose, texts)

    def _above(self, title: str, keys: Sequence[str], row: Row) -> Iterator[str]:
        if title:
            yield from (self.screen.style(line, "bold") for line in self.screen.fold(title))
        if keys:
            words = ["every", "row:"]
            for key in keys:
                text = self._cell(key, row.get(key)) or "none"
                words += [*heading(key), *([text] if key in _IDENTIFIERS else text.split(" "))]
                words[-1] += "" if key == keys[-1] else ","
            yield from flow(words, " ", self.screen.width)
        if title or keys:
            yield ""

    def _heading(self, columns: list[Column]) -> Iterator[str]:
        names = [self._name(column) for column in columns]
        height = max(map(len, names))
        for line in zip(*([""] * (height - len(name)) + name for name in names), strict=True):
            yield self.screen.style(_beside(list(line), columns, [""] * len(columns), self.screen), "bold")
        yield GAP.join("-" * column.width for column in columns)

    def _name(self, column: Column) -> list[str]:
        return self.screen.fold(" ".join(heading(column.key)), column.width)

    def _row(self, number: int, row: Row, layout: Arrangement) -> Iterator[str]:
        columns = layout.columns
        cells = [self._folded(c.key, row.get(c.key), c.texts[number], c.width) for c in columns]
        styles = [_style_of(column.key, row.get(column.key)) for column in columns]
        for place, column in enumerate(columns):
            if self.screen.folds and cells_of(column.texts[number]) > column.width >= column.usual:
                alone = ["" for _ in columns]
                alone[place] = column.texts[number]
                yield _beside(alone, columns, styles, self.screen)
                cells[place] = []
        for line in zip_longest(*cells, fillvalue=""):
            if any(line):
                yield _beside(line, columns, styles, self.screen)
        yield from self._below({key: row[key] for key in layout.below if row.get(key) not in (None, "", [])})

    def _below(self, row: Row) -> Iterator[str]:
        """What stands below a row: short values side by side, prose on lines of its own; its name only where there
        are several.
        """
        texts = {key: self._cell(key, value) for key, value in row.items()}
        prose = [key for key, value in row.items() if _is_prose(key, value, texts[key])]
        short = [f"{' '.join(heading(key))} {text}" for key, text in texts.items() if key not in prose]
        for line in flow(short, ", ", self.screen.width - len(_INDENT) if self.screen.folds else 0):
            yield _INDENT + line
        for key in prose:
            indent = f"{_INDENT}{' '.join(heading(key))}: " if len(row) > 1 else _INDENT
            for part in self._folded(key, row[key], texts[key], self.screen.width - len(indent)):
                yield f"{indent}{part}"
                indent = " " * len(indent)

    def _folded(self, key: str, value: Any, text: str, width: int) -> list[str]:
        """Lines of a cell; what is no prose stays in one piece, even where it passes the margin."""
        if not self.screen.folds or cells_of(text) <= width or is_number(key, value) or not _is_prose(key, value, text):
            return [text]
        return self.screen.fold(text, width, anywhere=key in _PAYLOAD)

    def _cell(self, key: str, value: Any) -> str:
        return cell(key, value, local_time=self.local_time)


def _is_prose(key: str, value: Any, text: str) -> bool:
    """Whether a value may be broken: words, lists, and the bytes of messages."""
    return key in _PAYLOAD or (" " in text and key not in _IDENTIFIERS and not is_number(key, value))


def _beside(texts: Sequence[str], columns: Sequence[Column], styles: Sequence[str], screen: Screen) -> str:
    """One line of a row: each text in its column, or as far right of it as longer texts before it demand."""
    parts: list[str] = []
    at = start = 0
    for text, column, style in zip(texts, columns, styles, strict=True):
        if text:
            size = cells_of(text)
            wanted = start + column.width - size if column.right else start
            place = max(wanted, at + len(GAP) if at else wanted, 0)
            parts.append(" " * (place - at) + (screen.style(text, style) if style else text))
            at = place + size
        start += column.width + len(GAP)
    return "".join(parts)


def write_table(
    rows: Iterable[Row | None], columns: Sequence[str] | None = None, *, title: str = "", local_time: bool = False
) -> int:
    """Write rows as one table, streamed; returns the number of rows. No rows, no output.

    Args:
        columns: keys to show; default: every key of the first 500 rows.
    """
    count = 0

    def lines() -> Iterator[str | None]:
        nonlocal count
        stream, table, ended = iter(rows), None, False
        while not ended:
            some, ended = take(stream, PIECE, patient=False)
            if not some:
                break
            table = table or Table(Screen.here(), local_time, list(columns or keys_of(some)))
            is_all = ended and not count
            count += len(some)
            yield from table.piece(some, title, is_all=is_all)
            yield None

    _sink.write_text(lines())
    return count


def _style_of(key: str, value: Any) -> str:
    return SEVERITY_STYLES.get(str(value), "") if key == "severity" else ""
