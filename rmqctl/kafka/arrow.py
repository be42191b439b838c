"""Records as Arrow tables: keys and values copied out of the window, so that they outlive it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rmqctl.kafka.block import Bytes8, Ints
from rmqctl.kafka.records import Records

HEADERS = pa.list_(pa.struct([pa.field("name", pa.binary(), nullable=False), pa.field("value", pa.binary())]))
_INLINE = 12
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS, nullable=False),
    ]
)
"""What :func:`to_arrow` gives; timestamps in epoch ms, -1 where there is none."""


def to_arrow(records: Records) -> pa.RecordBatch:
    """One row a record, in file order."""
    data, headers = records.data, records.headers
    names = binary_of(data, headers[:, 0], headers[:, 1])
    values = binary_of(data, headers[:, 2], headers[:, 3])
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    columns = [
        pa.array(records.offset),
        pa.array(records.timestamp),
        pa.array(records.sequence),
        binary_of(data, records.key_at, records.key_size),
        binary_of(data, records.value_at, records.value_size),
        pa.ListArray.from_arrays(pa.array(records.header_start.astype(np.int32)), pairs, type=HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def binary_of(data: Bytes8, at: Ints, size: Ints) -> pa.BinaryArray:
    """The strings ``data[at:at+size]``, copied; null for a negative size. ``data`` goes on for 12 bytes after the last.

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
