"""The figures of `stats` made in this process, for stores that need no cluster; equal to those that Spark makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.arrow import group_codes
from rmqctl.pipeline.stats import (
    LATENCY,
    MOMENT,
    PERCENTILES,
    SIZE,
    SUMS,
    TOP_KEYS,
    Row,
    Stats,
    StatsTable,
    collected,
)
from rmqctl.tables import Figures, Table, Tables, taken

Ints = npt.NDArray[np.int64]
_TOGETHER = 32
"""Parts whose figures are held before they are added up."""
_KEYS = 1 << 22
"""Keys that are held before equal ones are counted."""


def collect(store: Tables, *, keys: bool = True, advance: Callable[[int], object] = bool) -> Stats:
    """Read the log and make the figures.

    Args:
        keys: look at unique keys and keys as well, which reads the log once more.
        advance: called with the bytes of log read since its last call.

    Raises:
        OSError: a file cannot be read.
    """
    figures = store.figures()
    source = StatsTable(figures)
    parts: list[pa.Table] = []
    for part in source.parts():
        parts += [pa.Table.from_batches([batch]) for batch in source.read(part)]
        advance(taken().bytes)
        if len(parts) >= _TOGETHER:
            parts = [source.summed(pa.concat_tables(parts))]
    whole = source.summed(pa.concat_tables(parts)) if parts else source.schema().empty_table()
    found = _keys(figures.keys, advance) if keys else ([], [])
    is_moment = pc.equal(whole.column("measure"), MOMENT)
    moments, rest = whole.filter(is_moment), whole.filter(pc.invert(is_moment))
    return collected(figures, _rows(figures, rest), _bars(rest), *found, (_timeline(moments), source.step_ms))


def _rows(figures: Figures, parts: pa.Table) -> Iterator[tuple[str, Row]]:
    if not len(parts):
        return
    sums = {name: _numbers(parts, name) for name in SUMS}
    is_size = pc.equal(parts.column("measure"), SIZE).to_numpy()
    values = _numbers(parts, "value")
    for by, columns in figures.groups.items():
        codes, names = group_codes([parts.column(c).combine_chunks() for c in columns], len(parts))
        made: dict[str, Any] = {name: _added(codes, sums[name], len(names)) for name in SUMS[1:]}
        made["records"] = _added(codes[is_size], sums["records"][is_size], len(names))
        for measure, chosen in ((SIZE, is_size), (LATENCY, ~is_size)):
            made[measure] = _percentiles(codes[chosen], values[chosen], sums["records"][chosen], len(names))
        for number, name in enumerate(names):
            row = dict(zip(columns, name, strict=True))
            yield by, row | {key: column[number] for key, column in made.items()}


def _numbers(parts: pa.Table, name: str) -> Ints:
    found: Ints = parts.column(name).to_numpy()
    return found


def _added(codes: Ints, values: Ints, count: int) -> list[int]:
    made = np.zeros(count, np.int64)
    np.add.at(made, codes, values)
    return list(made.tolist())


def _percentiles(codes: Ints, values: Ints, counts: Ints, groups: int) -> list[list[float] | None]:
    """Of each group the values at :data:`PERCENTILES`, between two neighbours in proportion."""
    order = np.lexsort((values, codes))
    codes, values, counts = codes[order], values[order], counts[order]
    bounds = np.searchsorted(codes, np.arange(groups + 1))
    found: list[list[float] | None] = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        reached = np.cumsum(counts[begin:end])
        if begin == end:
            found.append(None)
            continue
        places = np.array([point / 100 for point in PERCENTILES]) * (int(reached[-1]) - 1)
        low, high = np.floor(places), np.ceil(places)
        lower, upper = (values[begin:end][np.searchsorted(reached, at + 1)].astype(float) for at in (low, high))
        between = (high - places) * lower + (places - low) * upper
        found.append(np.where(lower == upper, lower, between).tolist())
    return found


def _bars(parts: pa.Table) -> Iterator[Row]:
    values, counts = _numbers(parts, "value"), _numbers(parts, "records")
    power = np.where(values < 1, -1, np.frexp(np.maximum(values, 1).astype(np.float64))[1] - 1).astype(np.int64)
    for columns in (("topic", "measure"), ("measure",)):
        arrays = [parts.column(name).combine_chunks() for name in columns]
        codes, names = group_codes([*arrays, pa.array(power)], len(parts))
        if not len(parts):
            continue
        added = _added(codes, counts, len(names))
        for name, records in sorted(zip(names, added, strict=True), key=lambda one: int(one[0][-1])):
            yield {"topic": None, **dict(zip((*columns, "power"), name, strict=True)), "records": records}


def _timeline(parts: pa.Table) -> list[Row]:
    found = parts.select(["value", "topic", "messages"]).rename_columns(["time", "topic", "messages"])
    rows: list[Row] = found.sort_by([("time", "ascending"), ("topic", "ascending")]).to_pylist()
    return rows


def _keys(source: Table, advance: Callable[[int], object]) -> tuple[list[Row], list[Row]]:
    """Duplicates by topic, and the most frequent keys."""
    unique: list[pa.Table] = []
    keys: list[pa.Table] = []
    for part in source.parts():
        for batch in source.read(part):
            topics, lists = batch.column("topic"), batch.column("keys")
            unique.append(pa.table({"topic": topics, "unique_key": batch.column("unique_key"), "n": _ones(len(batch))}))
            flat = pc.list_flatten(lists)
            keys.append(
                pa.table({"topic": topics.take(pc.list_parent_indices(lists)), "key": flat, "n": _ones(len(flat))})
            )
        advance(taken().bytes)
        if sum(map(len, unique)) + sum(map(len, keys)) > _KEYS:
            unique, keys = [_counted(unique, "unique_key")], [_counted(keys, "key")]
    if not unique:
        return [], []
    ids, named = _counted(unique, "unique_key"), _counted(keys, "key")
    ids = ids.filter(pc.and_(pc.is_valid(ids.column("unique_key")), pc.greater(ids.column("n"), 1)))
    ids = ids.append_column("more", pc.subtract(ids.column("n"), 1))
    twice = ids.group_by("topic").aggregate([("n", "count"), ("more", "sum")])
    twice = twice.select(["topic", "n_count", "more_sum"]).rename_columns(["topic", "keys", "records"])
    order = [("records", "descending"), ("topic", "ascending")]
    most = named.rename_columns(["topic", "key", "records"]).sort_by([*order, ("key", "ascending")]).slice(0, TOP_KEYS)
    return twice.sort_by(order).to_pylist(), most.to_pylist()


def _ones(count: int) -> pa.Array:
    return pa.array(np.ones(count, np.int64))


def _counted(tables: list[pa.Table], name: str) -> pa.Table:
    found = pa.concat_tables(tables).group_by(["topic", name], use_threads=False).aggregate([("n", "sum")])
    return found.select(["topic", name, "n_sum"]).rename_columns(["topic", name, "n"])
