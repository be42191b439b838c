"""Arrow columns from a block's bytes and numbers: text, times, values that recur."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqctl.rocketmq.dump.rendering import name_of
from rmqctl.rocketmq.log.block import Ints

TIME = pa.timestamp("us", tz="UTC")
TEXTS = pa.list_(pa.string())
PROPERTIES = pa.map_(pa.string(), pa.string())

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999
_KEPT = 1 << 16
_HEX = np.array([int.from_bytes(b"%02X" % byte, "little") for byte in range(256)], "<u2")


def strings(raw: Any) -> Any:
    """An Arrow array of bytes as text; what is not UTF-8 becomes ``base64:...``."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if text is None else name_of(text) for text in raw.to_pylist()], pa.string())


def times(milliseconds: npt.NDArray[np.int64]) -> Any:
    """Epoch milliseconds as timestamps; null for what no calendar holds."""
    wrong = (milliseconds < _FIRST_MS) | (milliseconds > _LAST_MS)
    if wrong.any():
        return pa.array(np.where(wrong, 0, milliseconds) * 1000, TIME, mask=wrong)
    return pa.array(milliseconds * 1000, TIME)


def in_calendar(milliseconds: int) -> bool:
    """Whether a time lies in the years 1 to 9999."""
    return _FIRST_MS <= milliseconds <= _LAST_MS


def chosen(values: Sequence[Any], which: npt.NDArray[Any], kind: Any = None) -> Any:
    """``values[which]`` as an Arrow array."""
    return pa.array(values, kind or pa.string()).take(pa.array(which.astype(np.int64)))


def by_value(numbers: npt.NDArray[Any], name: Callable[[int], str]) -> Any:
    """The name of each number, asked once for each different one."""
    if len(numbers) and (numbers == numbers[0]).all():
        return pa.repeat(pa.scalar(name(int(numbers[0]))), len(numbers))
    few, which = np.unique(numbers, return_inverse=True)
    return chosen([name(n) for n in few.tolist()], which)


class Recurring:
    """Texts of values that recur from block to block, made once each."""

    def __init__(self, make: Callable[[Any], str]) -> None:
        self._make = make
        self._texts: dict[Hashable, str] = {}

    def column(self, values: Any) -> Any:
        """The text of each value of an Arrow array."""
        encoded = values.dictionary_encode()
        if len(self._texts) > _KEPT:
            self._texts.clear()
        return pa.array([self._of(v) for v in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)

    def _of(self, value: Hashable) -> str:
        text = self._texts.get(value)
        if text is None:
            text = self._texts[value] = self._make(value)
        return text


def hexadecimal(rows: npt.NDArray[np.uint8]) -> Any:
    """Bytes of each row, shape (n, width), as upper-case hex digits."""
    width = 2 * rows.shape[1]
    bounds = np.arange(0, width * (len(rows) + 1), width, dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(_HEX[rows])]
    return pa.StringArray.from_buffers(len(rows), *buffers[1:])


def scattered(values: Any, rows: Ints, count: int) -> Any:
    """An array of ``count`` rows with the values at ``rows`` and null elsewhere."""
    if len(rows) == count:
        return values
    place = np.zeros(count, np.int64)
    missing = np.ones(count, np.bool_)
    place[rows], missing[rows] = np.arange(len(rows)), False
    return values.take(pa.array(place, mask=missing))


def group_codes(columns: Sequence[Any], count: int) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...]]]:
    """The combination of values in each of ``count`` rows as a number, shape (n,), and what the numbers stand for."""
    codes: npt.NDArray[np.int64] = np.zeros(count, np.int64)
    values: list[tuple[Any, ...]] = [()]
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        size = len(encoded.dictionary)
        codes = codes * size + encoded.indices.to_numpy(zero_copy_only=False)
        few, codes = np.unique(codes, return_inverse=True)
        texts = encoded.dictionary.to_pylist()
        values = [(*values[code // size], texts[code % size]) for code in few.tolist()]
    return codes, values
