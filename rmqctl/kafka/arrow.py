"""Records as Arrow tables: keys and values copied out of the window, so that they outlive it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rmqctl.kafka.block import Bytes8, Ints
from rmqctl.kafka.records import Records

HEADERS = pa.list_(pa.struct([pa.field("name", pa.binary(), nullable=False), pa.field("value", pa.binary())]))
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
    """The strings ``data[at:at+size]``, which do not overlap; null for a negative size."""
    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    if (at[1:] < at[:-1]).any():  # batches of several magics, decoded apart
        order = np.argsort(at, kind="stable")
        back = np.empty(count, np.int64)
        back[order] = np.arange(count)
        return binary_of(data, at[order], size[order]).take(pa.array(back))
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = at
    bounds[1::2] = at + np.maximum(size, 0)
    pieces: Any = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    taken: Any = pieces.take(pa.array(np.arange(0, 2 * count, 2)))
    null = size < 0
    if not null.any():
        return taken
    _, offsets, joined = taken.buffers()
    valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.BinaryArray.from_buffers(pa.binary(), count, [valid, offsets, joined], int(null.sum()), taken.offset)
