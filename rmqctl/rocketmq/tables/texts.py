"""Arrow columns from a block's bytes and numbers: text, times, values that recur."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqctl.arrow import TIME, by_value, chosen, group_codes, in_calendar, strings, times
from rmqctl.rocketmq.log.block import Ints

TEXTS = pa.list_(pa.string())
PROPERTIES = pa.map_(pa.string(), pa.string())

_KEPT = 1 << 16
_HEX = np.array([int.from_bytes(b"%02X" % byte, "little") for byte in range(256)], "<u2")


class Recurring:
    """Texts of values that recur from block to block, made once each."""

    def __init__(self, make: Callable[[Any], str]) -> None:
        self._make = make
        self._texts: dict[Hashable, str] = {}

    def column(self, values: Any) -> Any:
        """Return the text of each value of an Arrow array."""
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
    """Return an array of ``count`` rows with the values at ``rows`` and null elsewhere."""
    if len(rows) == count:
        return values
    place = np.zeros(count, np.int64)
    missing = np.ones(count, np.bool_)
    place[rows], missing[rows] = np.arange(len(rows)), False
    return values.take(pa.array(place, mask=missing))


__all__ = [
    "PROPERTIES", "TEXTS", "TIME", "Recurring", "by_value", "chosen", "group_codes", "hexadecimal", "in_calendar",
    "scattered", "strings", "times",
]  # fmt: skip
