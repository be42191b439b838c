"""Fixed-size units as rows: the keys are the field names of the schema, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqctl.files.source import ByteSource

Row = dict[str, Any]
Records = npt.NDArray[np.void]
CHUNK_BYTES = 1 << 20


def unit_rows(
    kind: str,
    file: str,
    positions: Sequence[int],
    units: Records,
    *,
    before: Mapping[str, Sequence[Any]] | None = None,
    names: Mapping[str, str] | None = None,
) -> Iterator[Row]:
    """One row a unit: kind, file, position, what the caller puts before, then the fields.

    Args:
        positions: where each unit starts in the file, in bytes.
        before: more columns in front of the fields.
        names: other keys for some fields; ``position`` always means the place in the file.
    """
    columns: dict[str, Any] = {"kind": repeat(kind), "file": repeat(file), "position": positions, **(before or {})}
    for field in units.dtype.names or ():
        columns[(names or {}).get(field, field)] = units[field].tolist()
    keys = tuple(columns)
    for values in zip(*columns.values(), strict=False):
        yield dict(zip(keys, values, strict=True))


def chunks(source: ByteSource, dtype: np.dtype[Any], start: int, end: int) -> Iterator[tuple[int, Records]]:
    """Units of ``[start, end)`` in pieces, each with its position; holes are not read, a torn last unit is left out.

    Raises:
        OSError: the file cannot be read.
    """
    size = dtype.itemsize
    step = max(CHUNK_BYTES // size, 1) * size
    done = start
    for low, high in source.data_ranges(start, end):
        at = max(start + (low - start) // size * size, done)
        while at < high and at + size <= end:
            data = source.read_at(at, min(step, end - at))
            if len(data) < size:
                return
            yield at, np.frombuffer(data, dtype, len(data) // size)
            at += len(data) // size * size
        done = at


def used(units: Records) -> npt.NDArray[np.bool_]:
    """Which units hold anything but zeros."""
    raw = np.frombuffer(units.tobytes(), np.uint8).reshape(len(units), -1)
    return np.asarray(raw.any(axis=1))
