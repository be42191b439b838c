"""Keys, values and headers as Arrow arrays, copied out of the window, so that they outlive it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rmqctl.kafka.block import Bytes8, Ints

_INLINE = 12


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
