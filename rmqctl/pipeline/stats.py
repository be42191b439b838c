"""The figures of `stats`: of a store by topic, queue, hour and what else its family groups by.

Figures of one part of a log are records, and the messages in them, counted by what they have in common; sizes and
latencies in buckets. They are small however many messages there are, so that a job sends little from task to task. A
value up to 256 is a bucket of its own; above, a bucket spans less than 0.8 % of its values.

Keys are as many as messages. They are counted where they are read, divided into shares by their text, and packed: Spark
moves a share as one value, and a task counts it. Row by row they cost the JVM more than reading the log.

On Spark each job is a function from DataFrame to DataFrame, and :func:`collect` runs them all. For a store that needs
no cluster :func:`collect_here` makes the same figures in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.arrow import group_codes
from rmqctl.fleet_tables import FleetTables
from rmqctl.parallel import Tally, noted, taken
from rmqctl.pipeline.cluster import cores_of
from rmqctl.tables import Figures, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SIZE, LATENCY, MOMENT, KEYS = "size", "latency", "time", "keys"
UNIQUE, KEY = "unique", "key"
STEPS_MS = (1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000)
_MOMENTS = 200
SUMS = ("records", "messages", "bytes", "body_bytes", "body_bytes_decompressed", "bad_crc")
_HOUR, _PACKED = "hour_timestamp", "packed"
_COUNTED = ["topic", "kind", "text", "n"]
_EXACT_BITS = 8
_HOUR_US = 3_600_000_000
_TIME = pa.timestamp("us", tz="UTC")
Ints = npt.NDArray[np.int64]


def bucket(values: Ints) -> Ints:
    """Return the lowest value of the bucket of each value; what is below zero counts as zero."""
    values = np.maximum(values, 0)
    bits = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    drop = np.maximum(bits - _EXACT_BITS, 0)
    return values >> drop << drop


class StatsTable:
    """The partial figures of a store, part by part.

    One row a group and bucket. ``measure`` ``size``: ``value`` is the size of a message in bytes; ``latency``: how long
    it waited, ms; ``time``: its time in steps, epoch ms, by topic alone; ``keys``: unique keys and keys of one share,
    whose number is ``value``, in ``packed``.

    Attributes:
        keys: the columns by which groups differ.
        step_ms: the narrowest step of time that divides the time of the wanted messages into few.
    """

    def __init__(self, figures: Figures, shares: int = 1) -> None:
        """
        Args:
            shares: into how many the keys are divided; a key is in the same one wherever it is read.
        """
        self.figures, self._shares = figures, shares
        columns = (name for group in figures.groups.values() for name in group)
        self.keys = tuple(dict.fromkeys(columns))
        span = figures.span
        found = (step for step in STEPS_MS if span is None or span < step * _MOMENTS)
        self.step_ms = next(found, STEPS_MS[-1])
        rows = figures.rows.schema()
        kinds = [(name, _TIME if name == _HOUR else rows.field(name).type) for name in self.keys]
        sums = [(name, pa.int64()) for name in SUMS]
        self._schema = pa.schema(
            [*kinds, ("measure", pa.string()), ("value", pa.int64()), *sums, (_PACKED, pa.binary())]
        )

    def schema(self) -> pa.Schema:
        """Return the groups, ``measure``, ``value``, :data:`SUMS`, ``packed``."""
        return self._schema

    def parts(self) -> Sequence[Any]:
        """Those of the log."""
        return self.figures.rows.parts()

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Yield the figures of one part."""
        found, keys = list[pa.Table](), list[pa.Table]()
        for batch in self.figures.rows.read(part):
            found += self._figures(batch)
            keys += _keys(batch)
        if found:
            yield from self.summed(pa.concat_tables(found)).combine_chunks().to_batches()
        if keys:
            yield from self._of_keys(counted(keys)).to_batches()

    def _of_keys(self, counts: pa.Table) -> pa.Table:
        """Return counts of keys as rows of this table, one a share."""
        share = _share_of(counts.column("text").combine_chunks().cast(pa.string()), self._shares)
        order = np.argsort(share, kind="stable")
        counts, bounds = counts.take(order), np.searchsorted(share[order], np.arange(self._shares + 1))
        found = np.flatnonzero(np.diff(bounds))
        own: dict[str, Any] = {
            "measure": [KEYS] * len(found),
            "value": found,
            _PACKED: [_packed(counts.slice(bounds[n], bounds[n + 1] - bounds[n])) for n in found],
        }
        columns = [
            pa.array(own[field.name], field.type) if field.name in own else pa.nulls(len(found), field.type)
            for field in self._schema
        ]
        return pa.table(columns, schema=self._schema)

    def _figures(self, batch: pa.RecordBatch) -> list[pa.Table]:
        moment, count = batch.column("time").cast(pa.int64()), batch.num_rows
        hour = pc.multiply(pc.divide(moment, _HOUR_US), _HOUR_US).cast(_TIME)
        base: dict[str, Any] = {name: hour if name == _HOUR else batch.column(name) for name in self.keys}
        one = pa.repeat(1, count)
        messages = batch.column("messages") if "messages" in batch.schema.names else one
        sums = {"records": one, "messages": messages, **{name: batch.column(name) for name in SUMS[2:]}}
        alone = {"records": one, **{name: pa.repeat(0, count) for name in SUMS[1:]}}
        steps = pc.multiply(pc.divide(moment, self.step_ms * 1000), self.step_ms)
        by_topic = {
            name: base[name] if name == "topic" else pa.nulls(count, self._schema.field(name).type)
            for name in self.keys
        }
        moments = self._table(by_topic, MOMENT, pc.fill_null(steps, 0), {**alone, "messages": messages}, exact=True)
        found = [
            self.summed(moments.filter(pc.is_valid(steps))),
            self.summed(self._table(base, SIZE, batch.column("size"), sums)),
        ]
        waited = batch.column("waited_ms")
        if waited.null_count < count:
            found.append(self.summed(self._table(base, LATENCY, pc.fill_null(waited, 0), alone)))
        return found

    def _table(
        self, base: dict[str, Any], measure: str, values: Any, sums: dict[str, Any], *, exact: bool = False
    ) -> pa.Table:
        value = values if exact else pa.array(bucket(values.to_numpy(zero_copy_only=False)))
        none = pa.nulls(len(value), pa.binary())
        columns = {**base, "measure": pa.repeat(measure, len(value)), "value": value, **sums, _PACKED: none}
        return pa.table([columns[name] for name in self._schema.names], schema=self._schema)

    def summed(self, table: pa.Table) -> pa.Table:
        """Figures added up, one row a group and bucket."""
        names = [*self.keys, "measure", "value"]
        found = table.group_by(names, use_threads=False).aggregate([(name, "sum") for name in SUMS])
        found = found.rename_columns([n.removesuffix("_sum") for n in found.column_names])
        return found.append_column(_PACKED, pa.nulls(len(found), pa.binary())).select(self._schema.names)


def _keys(batch: pa.RecordBatch) -> list[pa.Table]:
    """Return unique keys and keys of rows: ``topic``, ``kind``, ``text`` and how many, ``n``."""
    if "keys" not in batch.schema.names:
        return []
    topics, unique, lists = (batch.column(name) for name in ("topic", "unique_key", "keys"))
    is_there, flat = unique.is_valid(), pc.list_flatten(lists)
    pairs = (
        (UNIQUE, topics.filter(is_there), unique.filter(is_there)),
        (KEY, topics.take(pc.list_parent_indices(lists)), flat),
    )
    return [
        pa.table({"topic": topic, "kind": pa.repeat(kind, len(text)), "text": text, "n": pa.repeat(1, len(text))})
        for kind, topic, text in pairs
    ]


def counted(tables: list[pa.Table]) -> pa.Table:
    """Keys of many rows, equal ones counted: one row a topic and key."""
    found = pa.concat_tables(tables).group_by(_COUNTED[:3], use_threads=False).aggregate([("n", "sum")])
    return found.select([*_COUNTED[:3], "n_sum"]).rename_columns(_COUNTED)


def _share_of(texts: pa.StringArray, shares: int) -> Ints:
    """Return a number below ``shares`` for each text, by its length and last bytes, in which keys differ most."""
    _, places, data = texts.buffers()
    at = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    size, found = np.diff(at), np.diff(at).astype(np.uint64)
    octets = np.frombuffer(data or b"\0", np.uint8)
    for back in range(1, _LAST + 1):
        found = found * np.uint64(_FACTOR) + np.where(size >= back, octets[np.maximum(at[1:] - back, 0)], 0)
    return ((found >> np.uint64(32)) % np.uint64(shares)).astype(np.int64)


_LAST, _FACTOR = 16, 0x9E3779B97F4A7C15


def _packed(counts: pa.Table) -> bytes:
    """Return counts of keys as one value."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, counts.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(counts)
    return bytes(out.getvalue())


def _unpacked(values: pa.ChunkedArray) -> list[pa.Table]:
    """Return the counts of keys in values."""
    return [pa.ipc.open_stream(value.as_buffer()).read_all() for value in values if value.is_valid]


# --- the job of `stats` -----------------------------------------------------------------------------


Row = dict[str, Any]

PERCENTILES = (50, 90, 99, 99.9)
_MEASURES = ((SIZE, ""), (LATENCY, "_ms"))
"""What has percentiles, with the end of their names."""
TOP_KEYS = 20
_MOST_SHARES = 1 << 14


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of a store.

    Attributes:
        groups: rows by the names of the groups of the family.
        duplicates: per topic, how many UNIQ_KEYs come more than once, and how many records too many that makes.
        top_keys: the keys with most records.
        timeline: messages by ``time`` (epoch ms) and ``topic``.
        step_ms: between two times of the timeline.
        columns: those that name a group, by the name of the kind of group.
        read: what was read of the log for them; None where nobody counts, as with Spark Connect.
    """

    groups: dict[str, list[Row]]
    duplicates: list[Row]
    top_keys: list[Row]
    timeline: list[Row]
    step_ms: int
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    read: Tally | None = field(default=None, compare=False)


def collected(
    figures: Figures,
    rows: Iterable[tuple[str, Row]],
    bars: Iterable[Row],
    duplicates: list[Row],
    keys: list[Row],
    moments: tuple[list[Row], int],
) -> Stats:
    """Figures from the rows of an engine, in order.

    Args:
        rows: what they are grouped by, and sums and percentiles of a group.
        bars: records by topic (null: all), measure and power of two.
        moments: messages by step of time and topic, and the step.
    """
    groups: dict[str, list[Row]] = {by: [] for by in figures.groups}
    for by, row in rows:
        groups[by].append(_row(by, figures.groups[by], row))
    for by, columns in figures.groups.items():
        groups[by].sort(key=lambda row: [(row[c] is None, row[c] if row[c] is not None else "") for c in columns])
    _add_histograms(groups, bars)
    return Stats(groups, duplicates, keys, *moments, dict(figures.groups))


def grouped(source: StatsTable, parts: DataFrame) -> DataFrame:
    """Return the figures of all groups, one row a group; ``mask`` says of which kind."""
    quoted = {name: f"`{name}`" for name in source.keys}  # some are words of the language
    sets = ", ".join(f"({', '.join(quoted[name] for name in columns)})" for columns in source.figures.groups.values())
    keys = ", ".join(quoted.values())
    points = f"array({', '.join(str(p / 100) for p in PERCENTILES)})"
    sums = ", ".join(f"sum({name}) AS {name}" for name in SUMS[1:])
    return parts.sparkSession.sql(
        f"""
        SELECT grouping_id({keys}) AS mask, {keys},
          sum(records) FILTER (WHERE measure = '{SIZE}') AS records, {sums},
          percentile(value, {points}, records) FILTER (WHERE measure = '{SIZE}') AS size,
          percentile(value, {points}, records) FILTER (WHERE measure = '{LATENCY}') AS latency
        FROM {{parts}} WHERE measure IN ('{SIZE}', '{LATENCY}') GROUP BY GROUPING SETS ({sets})
        """,  # noqa: S608 - of names in this module only
        parts=parts,
    )


def histograms(parts: DataFrame) -> DataFrame:
    """Return records by topic (null: all), measure, and power of two of the value."""
    return parts.sparkSession.sql(
        """
        SELECT topic, measure, power, sum(records) AS records
        FROM (SELECT topic, measure, records, CASE WHEN value < 1 THEN -1 ELSE length(bin(value)) - 1 END AS power
              FROM {parts} WHERE measure IN ('size', 'latency'))
        GROUP BY GROUPING SETS ((topic, measure, power), (measure, power)) ORDER BY power
        """,
        parts=parts,
    )


def timeline(parts: DataFrame) -> DataFrame:
    """Messages by step of time and topic."""
    return parts.sparkSession.sql(
        """
        SELECT value AS time, topic, sum(messages) AS messages FROM {parts} WHERE measure = 'time'
        GROUP BY value, topic ORDER BY value, topic
        """,
        parts=parts,
    )


_NAMED = pa.schema(
    [("kind", pa.string()), ("topic", pa.string()), ("key", pa.string()), ("keys", pa.int64()), ("records", pa.int64())]
)


def named(parts: DataFrame) -> DataFrame:
    """Return what :func:`_of_keys` says of each share of the keys: rows of the kinds ``unique`` and ``key``."""
    from rmqctl.pipeline.data_source import spark_schema

    def of_share(rows: pa.Table) -> pa.Table:
        twice, most = _of_keys(counted(_unpacked(rows.column(_PACKED))))
        found = [{"kind": UNIQUE, **row} for row in twice] + [{"kind": KEY, **row} for row in most]
        return pa.Table.from_pylist(found, schema=_NAMED)

    chosen = parts.where(f"measure = '{KEYS}'").select("value", _PACKED)
    return chosen.groupBy("value").applyInArrow(of_share, spark_schema(_NAMED))


def collect(spark: SparkSession, store: Tables, *, keys: bool = True) -> Stats:
    """Run the jobs on Spark and bring the figures here; the log is read once.

    Args:
        keys: look at unique keys and keys as well, which moves every one of them between executors.
    """
    from rmqctl.pipeline.jobs import counts, planned, sharing, tasks

    counts(spark)  # what was read before is of no interest
    store = store.for_cores(cores_of(spark))
    opened = {"share": sharing(spark)} if isinstance(store, FleetTables) else {}
    made = store.figures(keys=keys, **opened)
    before = noted()
    divided = planned(spark, made.rows)
    planning = noted().plus(before, -1)
    source = StatsTable(made, min(max(len(divided), 1), _MOST_SHARES))
    masks = {_mask(source.keys, columns): by for by, columns in made.groups.items()}
    parts = tasks(spark, divided, source.read, source.schema(), planning).cache()
    try:
        rows = [row.asDict(recursive=True) for row in grouped(source, parts).collect()]
        bars = [row.asDict() for row in histograms(parts).collect()]
        moments = [row.asDict() for row in timeline(parts).collect()]
        found = [row.asDict() for row in named(parts).collect()] if keys else []
    finally:
        parts.unpersist()
    by_group = ((masks[row["mask"]], row) for row in rows)
    stats = collected(made, by_group, bars, *_together(found), (moments, source.step_ms))
    return replace(stats, read=counts(spark))


def _mask(keys: Sequence[str], columns: tuple[str, ...]) -> int:
    """Return what ``grouping_id`` is for a set of columns: a bit for each that is not in it."""
    return sum(1 << (len(keys) - 1 - i) for i, name in enumerate(keys) if name not in columns)


def _row(by: str, columns: tuple[str, ...], row: Row) -> Row:
    stored = row["body_bytes"] or 0
    found: Row = {"by": by}
    for name in columns:
        found[name] = _milliseconds(row[name]) if name == _HOUR else row[name]
    for name in ("messages", "records", "bytes", "body_bytes", "body_bytes_decompressed"):
        found[name] = row[name] or 0
    found["compression_ratio"] = round((row["body_bytes_decompressed"] or 0) / stored, 3) if stored else None
    found["bad_crc"] = row["bad_crc"] or 0
    for measure, unit in _MEASURES:
        for point, value in zip(PERCENTILES, row[measure] or [None] * len(PERCENTILES), strict=True):
            found[f"{measure}_p{point:g}{unit}".replace(".", "_")] = None if value is None else round(value)
    return found


HEADER = (
    *("messages", "records", "bytes", "body_bytes", "body_bytes_decompressed", "compression_ratio", "bad_crc"),
    *(f"{measure}_p{point:g}{unit}".replace(".", "_") for measure, unit in _MEASURES for point in PERCENTILES),
    *(f"{measure}_histogram{unit}" for measure, unit in _MEASURES),
)
"""Every figure that a row may have, in order; what it is grouped by stands before them."""


def _milliseconds(moment: Any) -> int | None:
    from datetime import UTC, datetime, timedelta

    if moment is None:
        return None
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _add_histograms(groups: dict[str, list[Row]], rows: Iterable[Row]) -> None:
    """Put ``size_histogram`` and ``latency_histogram_ms`` into the rows of all messages and of each topic."""
    topics = {row["topic"]: row for row in groups["topic"]}
    everything = groups["all"][0] if groups["all"] else {}
    for target in (everything, *topics.values()):
        target[f"{SIZE}_histogram"], target[f"{LATENCY}_histogram_ms"] = [], []
    for row in rows:
        target = everything if row["topic"] is None else topics.get(row["topic"], {})
        name = f"{SIZE}_histogram" if row["measure"] == SIZE else f"{LATENCY}_histogram_ms"
        low = 0 if row["power"] < 0 else 1 << row["power"]
        target[name].append({"from": low, "to": max(2 * low, 1), "records": row["records"]})


# --- the same figures in this process --------------------------------------------------------------


_TOGETHER = 32
"""Parts whose figures are held before they are added up."""
_KEYS = 1 << 22
"""Keys that are held before equal ones are counted."""


def collect_here(store: Tables, *, keys: bool = True, advance: Callable[[int], object] = bool) -> Stats:
    """Read the log and make the figures.

    Args:
        keys: look at unique keys and keys as well.
        advance: called with the bytes of log read since its last call.
    """
    figures = store.figures(keys=keys)
    source = StatsTable(figures)
    parts, texts, before = list[pa.Table](), list[pa.Table](), noted()
    divided = source.parts()
    read, _ = noted().plus(before, -1), taken()
    for part in divided:
        for batch in source.read(part):
            found = pa.Table.from_batches([batch])
            packed = _unpacked(found.column(_PACKED))
            if packed:
                texts += packed
            else:
                parts.append(found)
        tally = taken()
        advance(tally.bytes)
        read = read.plus(tally)
        if len(parts) >= _TOGETHER:
            parts = [source.summed(pa.concat_tables(parts))]
        if sum(map(len, texts)) > _KEYS:
            texts = [counted(texts)]
    whole = source.summed(pa.concat_tables(parts)) if parts else source.schema().empty_table()
    is_moment = pc.equal(whole.column("measure"), MOMENT)
    moments, rest = whole.filter(is_moment), whole.filter(pc.invert(is_moment))
    keyed = _of_keys(counted(texts)) if texts else ([], [])
    stats = collected(figures, _rows(figures, rest), _bars(rest), *keyed, (_timeline(moments), source.step_ms))
    return replace(stats, read=read)


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


def _of_keys(counts: pa.Table) -> tuple[list[Row], list[Row]]:
    """Duplicates by topic, and the most frequent keys."""
    is_unique = pc.equal(counts.column("kind"), UNIQUE)
    ids = counts.filter(pc.and_(is_unique, pc.greater(counts.column("n"), 1)))
    ids = ids.append_column("more", pc.subtract(ids.column("n"), 1))
    twice = ids.group_by("topic").aggregate([("n", "count"), ("more", "sum")])
    twice = twice.select(["topic", "n_count", "more_sum"]).rename_columns(["topic", "keys", "records"])
    found = counts.filter(pc.invert(is_unique)).select(["topic", "text", "n"])
    return _sorted(twice), _sorted(found.rename_columns(["topic", "key", "records"]), "key")[:TOP_KEYS]


def _together(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The same of all shares."""
    found = pa.Table.from_pylist(rows, schema=_NAMED)
    is_unique = pc.equal(found.column("kind"), UNIQUE)
    twice = found.filter(is_unique).group_by("topic").aggregate([("keys", "sum"), ("records", "sum")])
    twice = twice.select(["topic", "keys_sum", "records_sum"]).rename_columns(["topic", "keys", "records"])
    most = found.filter(pc.invert(is_unique)).select(["topic", "key", "records"])
    return _sorted(twice), _sorted(most, "key")[:TOP_KEYS]


def _sorted(table: pa.Table, *further: str) -> list[Row]:
    order = [("records", "descending"), ("topic", "ascending"), *((name, "ascending") for name in further)]
    rows: list[Row] = table.sort_by(order).to_pylist()
    return rows
