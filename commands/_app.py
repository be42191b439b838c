"""The one way out: rows of dictionaries as table, JSON, JSON lines or CSV; messages and progress on stderr.

A command makes rows and hands them to :class:`Output`; no command formats a value. A row is a mapping
from the contract's keys to JSON values, with bytes allowed where text stands. A stream of rows may
hold None: it says that the next row may take a while, and what is held is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commands import _sink
from commands._guard import complain as complain
from commands._progress import Advance as Advance
from commands._progress import progress as progress
from commands._progress import remarks_are_wanted
from commands._rows import Row as Row


@dataclass(frozen=True, slots=True)
class Output:
    """Where rows go: stdout, in the kind that the user asked for.

    Attributes:
        kind: ``table``, ``json``, ``jsonl`` or ``csv``; with commands that have more, one of those.
        local_time: times of tables in the local zone instead of UTC.
        every: also what is alike, and what does not change, one by one.
        columns: the keys that are wanted of each row, in order; ``help``: their names only; empty: as the command says.
        sort: key by which rows are ordered, with ``-`` before it from the largest on; "": as they come.
        limit: rows at most.
        before: called once the wanted columns are found among those of the rows, before anything is written.
    """

    kind: str = "table"
    local_time: bool = False
    every: bool = False
    columns: tuple[str, ...] = ()
    sort: str = ""
    limit: int | None = None
    before: Callable[[], None] | None = None

    @property
    def chooses(self) -> bool:
        """Whether columns or an order are asked for."""
        return bool(self.columns or self.sort)

    def show(
        self,
        rows: Iterable[Row | None],
        *,
        columns: Sequence[str] | None = None,
        csv_columns: Sequence[str] | Callable[[], Sequence[str]] | None = None,
        title: str = "",
    ) -> int:
        """Write rows as they come; returns how many there were.

        Args:
            columns: keys that a table shows, in order; default: all.
            csv_columns: the header of a CSV; as `commands._csv.write_csv` takes it; default: all keys.
            title: a line above a table.
        """
        if self.columns or self.sort or self.limit is not None:
            from commands._choice import chosen, started

            rows = started(chosen(rows, self))
            columns, csv_columns = (self.columns, self.columns) if self.columns else (columns, csv_columns)
        if self.before is not None:
            self.before()
        if self.kind == "table":
            from commands._table import write_table

            return write_table(rows, columns, title=title, local_time=self.local_time)
        if self.kind == "csv":
            from commands._csv import write_csv

            return write_csv(rows, csv_columns)
        from commands._json import write_array, write_lines

        return write_array(rows) if self.kind == "json" else write_lines(rows)

    def document(self, document: Mapping[str, Any]) -> None:
        """Write one object: a JSON object, or a sheet of names and values."""
        if self.kind == "table":
            from commands._sheet import write_sheet

            write_sheet(document, local_time=self.local_time)
        elif self.kind == "csv":
            self.show([document])
        else:
            from commands import _json

            _json.write_document(document, lines=self.kind == "jsonl")

    def text(self, lines: Iterable[str | None]) -> int:
        """Write lines of a command's own kind of output (`text`, `hex`); returns how many there were."""
        return _sink.write_text(lines)


def message(text: str) -> None:
    """Say something beside the results, on stderr: ``rmqctl: ...``; nothing with ``--quiet``."""
    if remarks_are_wanted():
        complain(text)
