"""Rows as text for reading: a heading a row, below it what it holds, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from commands._cells import cell
from commands._rows import Row

_IN_HEADING = {"kind", "file", "position", "offset", "severity", "id"}
_INDENT = "  "


def text_lines(rows: Iterable[Row | None], *, local_time: bool = False) -> Iterator[str | None]:
    """Lines of all rows, with an empty line between rows; None passes through."""
    first = True
    for row in rows:
        if row is None:
            yield None
            continue
        if not first:
            yield ""
        first = False
        yield _heading(row)
        yield from _fields(row, 1, local_time)


def _heading(row: Row) -> str:
    place = row.get("file")
    at = row.get("position", row.get("offset"))
    words = [row["kind"], *(str(row[key]) for key in ("severity", "id") if key in row)]
    if place is not None:
        words.append(f"{cell('file', place)}:{at}" if at is not None else cell("file", place))
    return " ".join(words)


def _fields(fields: Mapping[str, Any], depth: int, local_time: bool) -> Iterator[str]:
    for key, value in fields.items():
        if depth == 1 and key in _IN_HEADING:
            continue
        yield from _field(cell("name", key), value, depth, local_time)


def _field(key: str, value: Any, depth: int, local_time: bool) -> Iterator[str]:
    indent = _INDENT * depth
    if isinstance(value, Mapping) and value and list(value) != ["base64"]:
        yield f"{indent}{key}:"
        yield from _fields(value, depth + 1, local_time)
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        yield f"{indent}{key}:"
        for number, item in enumerate(value):
            yield from _field(str(number), item, depth + 1, local_time)
    else:
        text = cell(key, value, local_time=local_time)
        yield f"{indent}{key}: {text}".rstrip()
