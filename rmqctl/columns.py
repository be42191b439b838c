"""Columns of rows, each in the forms that rows have: values of objects, cells of JSON lines, Arrow arrays.

A family says once what the columns of its records are. What a number, a time, a name or a text becomes in each form
is said here, so that ``dump``, JSON lines and tables cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from rmqctl.text import name_of, raw

if TYPE_CHECKING:  # objects do without
    import pyarrow as pa

Ints: TypeAlias = npt.NDArray[Any]
Flags: TypeAlias = npt.NDArray[np.bool_]
Cell: TypeAlias = "bytes | pa.BinaryArray"
"""Of each row the same bytes, or bytes of its own."""
Row = dict[str, Any]

_HEX = np.array([int.from_bytes(b"%02X" % byte, "little") for byte in range(256)], "<u2")
_COMMA = 0x2C


class Column(Protocol):
    """The values of one key in n rows, in order."""

    def values(self) -> Sequence[Any]:
        """Return them ready for JSON."""

    def json(self, end: bytes) -> Iterable[Cell]:
        """Return cells that together are what orjson makes of each value, with ``end``, one byte, after it."""

    def arrow(self, kind: pa.DataType) -> Any:
        """Return them as an array of a type; what it has no room for is null."""


def rows_of(columns: Mapping[str, Column]) -> list[Row]:
    """Return an object for each row."""
    names = tuple(columns)
    values = [column.values() for column in columns.values()]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def lines_of(columns: Mapping[str, Column], count: int, before: Cell = b"") -> pa.BinaryArray:
    """Return what orjson makes of each row, with a newline after it, without an object for any.

    Args:
        count: rows.
        before: what stands before the line of each.
    """
    cells, last = [before], len(columns) - 1
    for number, (name, column) in enumerate(columns.items()):
        cells.append(b'%b"%b":' % (b"" if number else b"{", name.encode()))
        cells += column.json(b"," if number < last else b"}")
    return joined(count, *cells, b"\n")


def joined(count: int, *cells: Cell) -> pa.BinaryArray:
    """Return the cells of each row put together; neighbours that are the same in each row are joined before."""
    import pyarrow as pa
    import pyarrow.compute as pc

    merged: list[Any] = []
    for cell in cells:
        if isinstance(cell, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += cell
        else:
            merged.append(cell)
    if all(isinstance(cell, bytes) for cell in merged):
        return pa.array(merged * count, pa.binary())
    return pc.binary_join_element_wise(*merged, b"")


def text_of(lines: Any, start: int = 0, stop: int | None = None) -> memoryview:
    """Return rows ``start`` to ``stop`` of an Arrow array of bytes end to end."""
    data = lines.buffers()[2]
    if data is None or not len(lines):
        return memoryview(b"")
    bounds = np.frombuffer(lines.buffers()[1], np.int32, len(lines) + 1, lines.offset * 4)
    return memoryview(data)[int(bounds[start]) : int(bounds[len(lines) if stop is None else stop])]


def where(flags: Flags, yes: Cell, no: Cell) -> Cell:
    """Return one cell where the flags are set, the other elsewhere."""
    if not flags.any():
        return no
    if flags.all():
        return yes
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pa.array(flags), yes, no)


def is_one(column: npt.NDArray[Any]) -> bool:
    """Whether there are values, and all are the same."""
    return bool(len(column)) and bool(column[0] == column[-1]) and bool((column == column[0]).all())


# --- kinds of columns ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Same:
    """One value in ``count`` rows."""

    value: Any
    count: int

    def values(self) -> list[Any]:
        return [self.value] * self.count

    def json(self, end: bytes) -> tuple[Cell]:
        return (orjson.dumps(self.value) + end,)

    def arrow(self, kind: pa.DataType) -> Any:
        import pyarrow as pa

        return pa.nulls(self.count, kind) if self.value is None else pa.repeat(pa.scalar(self.value, kind), self.count)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Integers, shape (n,); null where they are ``lacking``, None for nowhere."""

    numbers: Ints
    lacking: Flags | None = None

    def values(self) -> list[Any]:
        found: list[Any] = self.numbers.tolist()
        if self.lacking is not None:
            for row in np.flatnonzero(self.lacking).tolist():
                found[row] = None
        return found

    def json(self, end: bytes) -> tuple[Cell]:
        found = _digits(self.numbers, end)
        return (found if self.lacking is None else where(self.lacking, b"null" + end, found),)

    def arrow(self, kind: pa.DataType) -> Any:
        import pyarrow as pa

        return pa.array(self.numbers.astype(kind.to_pandas_dtype(), copy=False), kind, mask=self.lacking)


@dataclass(frozen=True, slots=True)
class Times(Numbers):
    """Epoch milliseconds; a time is null where it is lacking, the number ``absent``, or in no calendar."""

    absent: int | None = None

    def arrow(self, kind: pa.DataType) -> Any:
        from rmqctl.arrow import times

        if self.absent is None:
            return times(self.numbers, self.lacking)
        none = self.numbers == self.absent
        return times(self.numbers, none if self.lacking is None else none | self.lacking)


@dataclass(frozen=True, slots=True)
class Named:
    """Numbers from 0 or flags, shape (n,), as what each of the few different ones means."""

    numbers: Ints
    meanings: Sequence[Any]

    @staticmethod
    def of(numbers: Ints, meaning: Callable[[int], Any]) -> Named | Same:
        """Return numbers of any size by what they mean, asked once for each different one."""
        if is_one(numbers):
            return Same(meaning(int(numbers[0])), len(numbers))
        few, which = np.unique(numbers, return_inverse=True)
        return Named(which, [meaning(number) for number in few.tolist()])

    def values(self) -> list[Any]:
        meanings = self.meanings
        return [meanings[number] for number in self.numbers.tolist()]

    def json(self, end: bytes) -> tuple[Cell]:
        texts = [orjson.dumps(meaning) + end for meaning in self.meanings]
        if is_one(self.numbers):
            return (texts[int(self.numbers[0])],)
        import pyarrow as pa

        return (self._taken(pa.array(texts, pa.binary())),)

    def arrow(self, kind: pa.DataType) -> Any:
        import pyarrow as pa

        return self._taken(pa.array([_as_word(meaning) for meaning in self.meanings], kind))

    def _taken(self, meanings: Any) -> Any:
        import pyarrow as pa

        return meanings.take(pa.array(self.numbers.astype(np.int64)))


class Meanings(dict[Any, Any]):
    """What values that recur from row to row and from block to block are shown as, made once each."""

    LIMIT = 1 << 16

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, value: Any) -> Any:
        if len(self) >= self.LIMIT:
            self.clear()
        found = self[value] = self._make(value)
        return found


@dataclass(frozen=True, slots=True)
class Recurring:
    """Values that recur.

    Attributes:
        listed: gives them as Python objects.
        packed: gives them as an Arrow array.
        shown: what each is shown as.
    """

    listed: Callable[[], Iterable[Any]]
    packed: Callable[[], Any]
    shown: Meanings

    def values(self) -> list[Any]:
        return [self.shown[value] for value in self.listed()]

    def json(self, end: bytes) -> tuple[Cell]:
        return self._few().json(end)

    def arrow(self, kind: pa.DataType) -> Any:
        return self._few().arrow(kind)

    def _few(self) -> Named:
        encoded = self.packed().dictionary_encode()
        few = [self.shown[value] for value in encoded.dictionary.to_pylist()]
        return Named(encoded.indices.to_numpy(zero_copy_only=False), few)


@dataclass(frozen=True, slots=True)
class Hexadecimal:
    """Bytes of each row, shape (n, width), as upper-case hex digits."""

    data: npt.NDArray[np.uint8]

    def values(self) -> list[str]:
        text, width = self.data.tobytes().hex().upper(), 2 * self.data.shape[1]
        return [text[at : at + width] for at in range(0, len(text), width)]

    def json(self, end: bytes) -> tuple[Cell, ...]:
        import pyarrow as pa

        return b'"', self.arrow(pa.string()).view(pa.binary()), b'"' + end

    def arrow(self, kind: pa.DataType) -> Any:
        import pyarrow as pa

        count, width = self.data.shape
        bounds = np.arange(0, 2 * width * (count + 1), 2 * width, dtype=np.int32)
        return pa.StringArray.from_buffers(count, pa.py_buffer(bounds), pa.py_buffer(_HEX[self.data]))


@dataclass(frozen=True, slots=True)
class Objects:
    """Values ready for JSON, made one by one."""

    made: Sequence[Any]

    def values(self) -> Sequence[Any]:
        return self.made

    def json(self, end: bytes) -> tuple[Cell]:
        import pyarrow as pa

        return (pa.array([orjson.dumps(value) + end for value in self.made], pa.binary()),)

    def arrow(self, kind: pa.DataType) -> Any:
        import pyarrow as pa

        return pa.array([_as_word(value) for value in self.made], kind)


def _as_word(value: Any) -> Any:
    """Return a shown value as a column of text has it: text that is none as ``base64:...``."""
    return name_of(raw(value)) if isinstance(value, dict) else value


def _digits(numbers: Ints, end: bytes) -> Cell:
    """Integers in decimal, a byte after each: together they are written as one JSON list, whose commas become it."""
    if is_one(numbers):
        return b"%d%b" % (numbers[0], end)
    import pyarrow as pa

    listed = orjson.dumps(np.ascontiguousarray(numbers), option=orjson.OPT_SERIALIZE_NUMPY)
    text = np.frombuffer(bytearray(listed), np.uint8)
    text[-1] = _COMMA
    ends = np.flatnonzero(text == _COMMA)
    text[ends] = ord(end)
    bounds = np.empty(len(numbers) + 1, np.int32)
    bounds[0], bounds[1:] = 1, ends + 1
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(bounds), pa.py_buffer(text)])
