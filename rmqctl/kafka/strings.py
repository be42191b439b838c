"""Keys and values of records as Arrow arrays, and the JSON of those."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.columns import Cell, text_of
from rmqctl.kafka.log.block import Bytes8, Ints
from rmqctl.text import Text

_INLINE = 12
_QUOTE, _BACKSLASH = b'"\\'
_LETTERED, _LETTERS = b'"\\\t\n\r', b'"\\tnr'
_FOREIGN, _CONTROL = len(_LETTERED), len(_LETTERED) + 1
"""Kinds of bytes: those of other than ASCII characters, and those that no text is shown with."""


def binary_of(data: Bytes8, at: Ints, size: Ints) -> pa.BinaryArray:
    """Return the strings ``data[at:at+size]``, copied; null for a negative size. ``data`` goes on for 12 bytes after
    the last.

    They are made as Arrow's views (a length, then the string itself up to 12 bytes, else a prefix that nobody looks
    at, the number of the buffer and the offset), which its cast turns into one run of bytes.
    """
    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    null = size < 0
    views = np.zeros((count, 4), np.int32)
    views[:, 0], views[:, 3] = np.where(null, 0, size), at
    short = np.flatnonzero(size <= _INLINE)
    if len(short):
        strings = np.ndarray((len(data) - _INLINE + 1,), f"V{_INLINE}", data, 0, (1,))
        views[short, 1:] = strings[at[short]].view(np.int32).reshape(-1, 3)
    valid = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
    array: Any = pa.Array.from_buffers(pa.binary_view(), count, [valid, pa.py_buffer(views), pa.py_buffer(data)])
    return array.cast(pa.binary())


def json_of(strings: pa.BinaryArray, show: Callable[[bytes], Text], end: bytes) -> tuple[Cell, ...]:
    """Return the JSON of strings, with ``end`` after each: nearly all only need quotes, or backslashes, too, which all
    get at once.

    Args:
        show: how one is shown that is not plain text.
    """
    data, bounds = text_of(strings), _bounds_of(strings)
    found = np.frombuffer(data, np.uint8)
    special = np.flatnonzero((found - np.uint8(0x20) >= 0x5F) | (found == _QUOTE) | (found == _BACKSLASH))
    if not len(special):
        return (b'"', strings, b'"' + end) if not strings.null_count else (_quoted(strings), end)
    kinds = _escapes()[found[special]]
    foreign = _rows_of(special[kinds == _FOREIGN], bounds)
    if len(foreign) and not (kinds == _CONTROL).any() and _is_utf8(strings):
        foreign = foreign[:0]
    single = np.union1d(foreign, _rows_of(special[kinds == _CONTROL], bounds))
    escaped = special[kinds < _FOREIGN]
    if len(escaped):
        strings = _escaped(strings, found, bounds, escaped, kinds[kinds < _FOREIGN])
    quoted = _quoted(strings)
    if not len(single):
        return quoted, end
    mask = np.zeros(len(strings), np.bool_)
    mask[single] = True
    texts = [orjson.dumps(show(bytes(data[bounds[row] : bounds[row + 1]]))) for row in single.tolist()]
    return pc.replace_with_mask(quoted, pa.array(mask), pa.array(texts, pa.binary())), end


def _quoted(strings: pa.BinaryArray) -> pa.BinaryArray:
    return pc.fill_null(pc.binary_join_element_wise(b'"', strings, b'"', b""), b"null")


def _escaped(strings: pa.BinaryArray, found: Bytes8, bounds: Ints, at: Ints, kinds: Any) -> pa.BinaryArray:
    """Return the strings with a backslash before each byte at these places, which becomes the letter of its kind."""
    to = at + np.arange(len(at))
    text = np.empty(len(found) + len(at), np.uint8)
    kept = np.ones(len(text), np.bool_)
    kept[to] = False
    text[kept] = found
    text[to], text[to + 1] = _BACKSLASH, np.frombuffer(_LETTERS, np.uint8)[kinds]
    moved = bounds + np.searchsorted(at, bounds)
    buffers = [strings.buffers()[0], pa.py_buffer(moved.astype(np.int32)), pa.py_buffer(text)]
    escaped: Any = pa.Array.from_buffers(pa.binary(), len(strings), buffers)
    return escaped


def _rows_of(at: Ints, bounds: Ints) -> Ints:
    """Return the strings in which any of the places lies."""
    return np.flatnonzero(np.diff(np.searchsorted(at, bounds)))


def _is_utf8(strings: Any) -> bool:
    try:
        strings.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


@cache
def _escapes() -> Any:
    """Of each byte what it needs in JSON: the number of its letter after a backslash, or a look at the whole string."""
    table = np.full(256, _FOREIGN, np.uint8)
    table[:0x20] = table[0x7F] = _CONTROL
    table[list(_LETTERED)] = np.arange(len(_LETTERED))
    return table


def _bounds_of(strings: pa.BinaryArray) -> Ints:
    """Return where each string begins in what ``text_of`` gives, and where the last one ends, shape (n + 1,)."""
    found = np.frombuffer(strings.buffers()[1], np.int32, len(strings) + 1, strings.offset * 4).astype(np.int64)
    return found - found[0]
