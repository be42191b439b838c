"""Pieces of text formats: bytes up to a mark, and decimal numbers written that way.

The marks stay out of the value; building writes them. Numbers are ASCII digits, as Java's
``Long.parseLong`` wants them, and at most 19: more fit into no Java integer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from construct import (
    Construct,
    ConstructError,
    Container,
    ExprAdapter,
    GreedyBytes,
    MappingError,
    NullTerminated,
    Struct,
)

_NUMBER = re.compile(rb"-?[0-9]{1,19}\r?")


def until(mark: bytes, *, required: bool = True) -> Construct[bytes, bytes]:
    """Bytes up to ``mark``; where it is not ``required``, the end of the data may stand for it."""
    return NullTerminated(GreedyBytes, term=mark, require=required)


def decimal_until(mark: bytes, *, required: bool = True) -> Construct[int, int]:
    """Return a decimal number up to ``mark``; a carriage return before that belongs to the line's end."""
    return ExprAdapter(until(mark, required=required), _number, _digits) * "in decimal"


def marks_of(entry: Struct) -> tuple[bytes, ...]:
    """Return the marks that end the fields of a text entry, in order: what a reader of many entries at a time splits
    by.
    """
    found = []
    for part in entry.subcons:
        while not isinstance(part, NullTerminated) and hasattr(part, "subcon"):
            part = part.subcon
        if isinstance(part, NullTerminated):
            found.append(part.term)
    return tuple(found)


def entries(entry: Struct, data: bytes) -> Iterator[Container[Any]]:
    """Yield the entries of a text in order; what cannot be read is passed over, up to the mark of its end."""
    for piece in data.split(marks_of(entry)[-1]):
        with suppress(ConstructError):
            yield entry.parse(piece)


def _number(text: bytes, _: Any) -> int:
    if not _NUMBER.fullmatch(text):
        raise MappingError(f"{text[:40]!r} is no number")
    return int(text)


def _digits(number: int, _: Any) -> bytes:
    return b"%d" % number


def java_hash(text: str) -> int:
    """``String.hashCode`` over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        value = (31 * value + (raw[at] << 8 | raw[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
