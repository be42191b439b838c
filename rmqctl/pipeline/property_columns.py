"""The properties of a block's records as Arrow columns: the map, and the three that have columns of their own."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.pipeline.texts import PROPERTIES, TEXTS, scattered, strings
from rmqctl.rocketmq.block import Ints
from rmqctl.rocketmq.columns import Pairs, TextIds
from rmqctl.rocketmq.rows.properties import KEYS, TAGS, UNIQUE_KEY, split_keys
from rmqctl.rocketmq.rows.property_json import slices_of
from rmqctl.rocketmq.rows.text import name_of

_BITS = 32  # different names told apart by a bit each


class PropertyColumns:
    """Columns of ``count`` records, each made when asked for."""

    def __init__(self, pairs: Pairs, count: int) -> None:
        self._pairs, self._count = pairs, count

    @cached_property
    def tags(self) -> Any:
        return strings(self._values(TAGS))

    @cached_property
    def unique_key(self) -> Any:
        return strings(self._values(UNIQUE_KEY))

    @cached_property
    def keys(self) -> Any:
        """The parts of KEYS between single spaces, empty ones dropped; no parts without KEYS."""
        raw = pc.fill_null(self._values(KEYS), b"")
        if pc.any(pc.match_substring(raw, b" ")).as_py():
            return pa.array([list(map(name_of, split_keys(keys))) for keys in raw.to_pylist()], TEXTS)
        bounds = np.zeros(len(raw) + 1, np.int32)
        full = pc.not_equal(raw, b"")
        np.cumsum(full.to_numpy(zero_copy_only=False), out=bounds[1:])
        return pa.ListArray.from_arrays(pa.array(bounds), strings(raw.filter(full)))

    @cached_property
    def all(self) -> Any:
        """Every property by name; of repeated names the last value."""
        pairs = self._unique()
        names = strings(_slices(pairs, pairs.name_at, pairs.name_size))
        values = strings(_slices(pairs, pairs.value_at, pairs.value_size))
        bounds = np.searchsorted(pairs.owner, np.arange(self._count + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(bounds), names, values).cast(PROPERTIES)

    def _values(self, name: bytes) -> Any:
        found = self._pairs.named(name)
        return scattered(_slices(found, found.value_at, found.value_size), found.owner, self._count)

    def _unique(self) -> Pairs:
        """The pairs less those whose name comes again in the same record."""
        pairs = self._pairs
        if not len(pairs):
            return pairs
        ids = TextIds().numbers(pairs.data, pairs.name_at, pairs.name_size)
        if not _repeats(pairs.owner, ids):
            return pairs
        key = pairs.owner * (int(ids.max()) + 1) + ids
        _, last = np.unique(key[::-1], return_index=True)
        return pairs.take(np.sort(len(key) - 1 - last))


def _repeats(owner: Ints, ids: Ints) -> bool:
    """Whether any record may have a name twice: the sum of its names' bits is then not their union."""
    if int(ids.max()) >= _BITS:
        return True
    bits = np.left_shift(np.int64(1), ids)
    first = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
    return bool((np.add.reduceat(bits, first) != np.bitwise_or.reduceat(bits, first)).any())


def _slices(pairs: Pairs, at: Ints, size: Ints) -> Any:
    if not len(at):
        return pa.array([], pa.binary())
    return slices_of(pa.py_buffer(pairs.data), at, at + size)
