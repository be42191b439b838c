"""Rows as JSON: one object per line, or one document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from commands import _sink
from commands._rows import Row
from rmqctl.text import json_bytes, json_type

_LINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
_PRETTY = orjson.OPT_INDENT_2 | _LINE


def encode(row: Any, options: int = _LINE) -> bytes:
    """Return a value as JSON with a newline at the end."""
    return json_bytes(row, options)


def write_lines(rows: Iterable[Row | None]) -> int:
    """One object per line, streamed; returns the number of rows. None asks to write what is held."""
    dumps, foreign, options = orjson.dumps, json_type, _LINE
    count = 0
    with _sink.batch() as add:
        for row in rows:
            if row is None:
                add(None)
                continue
            count += 1
            try:
                add(dumps(row, foreign, options))
            except orjson.JSONEncodeError:
                add(encode(row))
    return count


def write_array(rows: Iterable[Row | None]) -> int:
    """One document, an array with a row per line, streamed; returns the number of rows."""
    count = 0
    with _sink.batch() as add:
        for row in rows:
            if row is None:
                add(None)
                continue
            add((b",\n" if count else b"[\n") + encode(row)[:-1])
            count += 1
        add(b"\n]\n" if count else b"[]\n")
    return count


def write_document(document: Row, *, lines: bool = False) -> None:
    """One object: indented for people, or on one line."""
    _sink.write(encode(document, _LINE if lines else _PRETTY))
