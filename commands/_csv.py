"""Rows as CSV (RFC 4180): commas, CR LF, a header, quotes where needed, nested values as JSON text."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from itertools import chain
from typing import Any

from commands import _sink
from commands._json import encode
from commands._rows import Row, keys_of, take
from rmqctl.text import plain

HEAD_ROWS = 1000
REST = "other"


Header = Sequence[str] | Callable[[], Sequence[str]] | None
"""Columns, in order; what is asked for them once the first rows are read; None: the keys of the rows."""


def write_csv(rows: Iterable[Row | None], columns: Header = None) -> int:
    """Write a header and a line per row, streamed; returns the number of rows.

    Args:
        columns: the header; other keys of a row are left out. Default: every key of the first
            1,000 rows. If there are more rows than that, a last column ``other`` holds what their
            keys beyond those are, as JSON. Where it is asked for, it stands before those keys.
    """
    rows = iter(rows)
    head: list[Row] = []
    if columns is None or callable(columns):
        head, ended = take(rows, HEAD_ROWS)
        columns = list(dict.fromkeys([*(columns() if columns is not None else ()), *keys_of(head)]))
        columns = columns if ended else [*columns, REST]
    keys = [key for key in columns if key != REST]
    has_rest = len(keys) < len(columns)
    return _write(chain(head, rows), columns, keys, has_rest)


def _write(rows: Iterable[Row | None], header: Sequence[str], keys: list[str], has_rest: bool) -> int:
    count = 0
    known = set(keys)
    with _sink.batch() as add:
        if header:
            add(_line(header))
        for row in rows:
            if row is None:
                add(None)
                continue
            cells = [_cell(row.get(key)) for key in keys]
            if has_rest:
                rest = {key: value for key, value in row.items() if key not in known}
                cells.append(_cell(rest or None))
            add(_line(cells))
            count += 1
    return count


def _line(cells: Sequence[str]) -> bytes:
    text = StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if value is None:
        return ""
    if not isinstance(value, (bool, int, float)):
        value = plain(value)
    if isinstance(value, str):
        return value
    return encode(value).decode().rstrip("\n")
