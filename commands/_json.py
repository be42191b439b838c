"""Rows as JSON: one object per line, or one document."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from commands import _sink
from commands._rows import Row
from rmqctl.text import text_or_base64

_LINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
_PRETTY = orjson.OPT_INDENT_2 | _LINE


def plain(value: Any) -> Any:
    """``value`` made of JSON's own types only: bytes, paths, tuples and text with stray bytes resolved."""
    match value:
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case str():
            return value if _encodable(value) else text_or_base64(value.encode("utf-8", "surrogateescape"))
        case int() | float() | None:
            return value
        case _:
            return _foreign(value)


def encode(row: Any, options: int = _LINE) -> bytes:
    """Return a value as JSON with a newline at the end."""
    try:
        return orjson.dumps(row, _foreign, options)
    except TypeError:  # text from a file name that is not UTF-8, or an integer beyond 64 bits
        indent = 2 if options & orjson.OPT_INDENT_2 else None
        separators = None if indent else (",", ":")
        return json.dumps(plain(row), ensure_ascii=False, indent=indent, separators=separators).encode() + b"\n"


def write_lines(rows: Iterable[Row | None]) -> int:
    """One object per line, streamed; returns the number of rows. None asks to write what is held."""
    dumps, foreign, options = orjson.dumps, _foreign, _LINE
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


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _foreign(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return text_or_base64(bytes(value))
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):  # a number from numpy
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")
