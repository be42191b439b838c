"""The job behind `stats`: figures of a store by topic, queue, tag, hour and producer host.

On Spark each job is a function from DataFrame to DataFrame, and :func:`collect` runs them all. The same figures of a
small store are made in one process by :mod:`rmqctl.pipeline.local_stats`.

Figures of one part of a log: messages counted by what they have in common, sizes and latencies in buckets.

Small however many messages there are, so that a job sends little from task to task. A value up to
256 is a bucket of its own; above, a bucket spans less than 0.8 % of its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.pipeline.cluster import cores_of
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.queues.log_end import log_end
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.tables.message_table import MessageTable
from rmqctl.rocketmq.tables.options import TableOptions
from rmqctl.rocketmq.tables.splits import log_of
from rmqctl.rocketmq.tables.texts import TIME
from rmqctl.rocketmq.verify.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SIZE, LATENCY, MOMENT = "size", "latency", "time"
STEPS_MS = (1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000)
_MOMENTS = 200
KEYS = ("topic", "queue_id", "tags", "hour_timestamp", "born_host")
SUMS = ("messages", "bytes", "body_bytes", "body_bytes_decompressed", "bad_crc")
_COLUMNS = (
    "topic", "queue_id", "tags", "born_host", "born_timestamp", "store_timestamp", "size", "body_crc_ok", "body_size",
    "body_size_decompressed",
)  # fmt: skip
_EXACT_BITS = 8
_HOUR_US = 3_600_000_000

PARTIAL_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("tags", pa.string()),
        ("born_host", pa.string()),
        ("hour_timestamp", TIME),
        ("measure", pa.string()),
        ("value", pa.int64()),
        *((name, pa.int64()) for name in SUMS),
    ]
)
"""One row a group and bucket. ``measure`` ``size``: ``value`` is TOTALSIZE in bytes; ``latency``: born to store, ms;
``time``: store time in steps, epoch ms, by topic alone."""


def step_of(store: RocketMQStore, wanted: Filter) -> int:
    """The width of a step of time, ms: the narrowest that divides the time of the wanted messages into few.

    Raises:
        OSError: the log cannot be read.
    """
    first = next((int(f.block["store_timestamp"][0]) for f in log_of(store).walk() if len(f.block)), None)
    last = log_end(store).store_timestamp
    if first is None or last is None:
        return STEPS_MS[0]
    span = min(last, wanted.before or last) - max(first, wanted.after or first)
    return next((step for step in STEPS_MS if span < step * _MOMENTS), STEPS_MS[-1])


def bucket(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The lowest value of the bucket of each value; what is below zero counts as zero."""
    values = np.maximum(values, 0)
    bits = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    drop = np.maximum(bits - _EXACT_BITS, 0)
    return values >> drop << drop


class StatsTable:
    """The partial figures of a store, part by part."""

    def __init__(self, options: TableOptions) -> None:
        self.messages = MessageTable(replace(options, columns=_COLUMNS))
        self.step_ms = step_of(options.store(), options.wanted)

    def schema(self) -> pa.Schema:
        """The columns, see :data:`PARTIAL_SCHEMA`."""
        return PARTIAL_SCHEMA

    def parts(self) -> list[Split]:
        """Splits of the log.

        Raises:
            OSError: a file cannot be read.
        """
        return self.messages.parts()

    def read(self, part: Split) -> Iterator[pa.RecordBatch]:
        """The figures of one split.

        Raises:
            OSError: the file cannot be read.
        """
        found = [table for batch in self.messages.read(part) for table in _figures(batch, self.step_ms)]
        if found:
            yield from summed(pa.concat_tables(found)).combine_chunks().to_batches()


def _figures(batch: pa.RecordBatch, step_ms: int) -> list[pa.Table]:
    stored = batch.column("store_timestamp").cast(pa.int64())
    born = batch.column("born_timestamp").cast(pa.int64())
    hour = pc.multiply(pc.divide(stored, _HOUR_US), _HOUR_US).cast(TIME)
    count = batch.num_rows
    base: dict[str, Any] = {name: hour if name == "hour_timestamp" else batch.column(name) for name in KEYS}
    size = batch.column("size").cast(pa.int64())
    body = batch.column("body_size").cast(pa.int64())
    sums = {
        "messages": pa.repeat(1, count),
        "bytes": size,
        "body_bytes": body,
        "body_bytes_decompressed": pc.coalesce(batch.column("body_size_decompressed").cast(pa.int64()), body),
        "bad_crc": pc.invert(batch.column("body_crc_ok")).cast(pa.int64()),
    }
    waited = pc.fill_null(pc.divide(pc.subtract(stored, born), 1000), 0)
    nothing = {name: pa.repeat(0, count) for name in SUMS[1:]}
    steps = pc.multiply(pc.divide(stored, step_ms * 1000), step_ms)
    alone = {name: base[name] if name == "topic" else pa.nulls(count, PARTIAL_SCHEMA.field(name).type) for name in KEYS}
    moments = _table(alone, MOMENT, pc.fill_null(steps, 0), {"messages": sums["messages"], **nothing}, exact=True)
    return [
        summed(moments.filter(pc.is_valid(steps))),
        summed(_table(base, SIZE, size, sums)),
        summed(_table(base, LATENCY, waited, {"messages": sums["messages"], **nothing})),
    ]


def _table(base: dict[str, Any], measure: str, values: Any, sums: dict[str, Any], *, exact: bool = False) -> pa.Table:
    value = values if exact else pa.array(bucket(values.to_numpy(zero_copy_only=False)))
    columns = {**base, "measure": pa.repeat(measure, len(value)), "value": value, **sums}
    return pa.table([columns[name] for name in PARTIAL_SCHEMA.names], schema=PARTIAL_SCHEMA)


def summed(table: pa.Table) -> pa.Table:
    """Figures added up, one row a group and bucket."""
    names = [*KEYS, "measure", "value"]
    found = table.group_by(names, use_threads=False).aggregate([(name, "sum") for name in SUMS])
    return found.rename_columns([name.removesuffix("_sum") for name in found.column_names]).select(PARTIAL_SCHEMA.names)


# --- the job behind `stats` -------------------------------------------------------------------------


Row = dict[str, Any]

GROUPS: dict[str, tuple[str, ...]] = {
    "all": (),
    "topic": ("topic",),
    "queue": ("topic", "queue_id"),
    "tag": ("topic", "tags"),
    "hour": ("hour_timestamp",),
    "host": ("born_host",),
}
"""What figures are grouped by, and the columns that name a group."""

PERCENTILES = (50, 90, 99, 99.9)
TOP_KEYS = 20
KEY_COLUMNS = ("topic", "unique_key", "keys")


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of a store.

    Attributes:
        groups: rows by the names of :data:`GROUPS`.
        duplicates: per topic, how many UNIQ_KEYs come more than once, and how many messages too many that makes.
        top_keys: the keys with most messages.
        timeline: messages by ``time`` (epoch ms) and ``topic``.
        step_ms: between two times of the timeline.
    """

    groups: dict[str, list[Row]]
    duplicates: list[Row]
    top_keys: list[Row]
    timeline: list[Row]
    step_ms: int


def collected(
    rows: Iterable[tuple[str, Row]],
    bars: Iterable[Row],
    duplicates: list[Row],
    keys: list[Row],
    moments: tuple[list[Row], int],
) -> Stats:
    """Figures from the rows of an engine, in order.

    Args:
        rows: what they are grouped by, and sums and percentiles of a group.
        bars: messages by topic (null: all), measure and power of two.
        moments: messages by step of time and topic, and the step.
    """
    groups: dict[str, list[Row]] = {by: [] for by in GROUPS}
    for by, row in rows:
        groups[by].append(_row(by, row))
    for by, columns in GROUPS.items():
        groups[by].sort(key=lambda row: [(row[c] is None, row[c] if row[c] is not None else "") for c in columns])
    _add_histograms(groups, bars)
    return Stats(groups, duplicates, keys, *moments)


def partials(spark: SparkSession, source: StatsTable) -> DataFrame:
    """Figures of each split, see :data:`rmqctl.pipeline.stats.PARTIAL_SCHEMA`."""
    from rmqctl.pipeline.frames import frame

    return frame(spark, source)


def figures(parts: DataFrame) -> DataFrame:
    """The figures of all groups of :data:`GROUPS`, one row a group; ``by`` says which kind."""
    sets = ", ".join(f"({', '.join(columns)})" for columns in GROUPS.values())
    mask = "grouping_id(" + ", ".join(KEYS) + ")"
    points = f"array({', '.join(str(p / 100) for p in PERCENTILES)})"
    sums = ", ".join(f"sum({name}) AS {name}" for name in ("bytes", "body_bytes", "body_bytes_decompressed", "bad_crc"))
    return parts.sparkSession.sql(
        f"""
        SELECT {mask} AS mask, {", ".join(KEYS)},
          sum(messages) FILTER (WHERE measure = '{SIZE}') AS messages, {sums},
          percentile(value, {points}, messages) FILTER (WHERE measure = '{SIZE}') AS size,
          percentile(value, {points}, messages) FILTER (WHERE measure = '{LATENCY}') AS latency
        FROM {{parts}} WHERE measure <> '{MOMENT}' GROUP BY GROUPING SETS ({sets})
        """,  # noqa: S608 - of names in this module only
        parts=parts,
    )


def histograms(parts: DataFrame) -> DataFrame:
    """Messages by topic (null: all), measure, and power of two of the value."""
    return parts.sparkSession.sql(
        """
        SELECT topic, measure, power, sum(messages) AS messages
        FROM (SELECT topic, measure, messages, CASE WHEN value < 1 THEN -1 ELSE length(bin(value)) - 1 END AS power
              FROM {parts} WHERE measure <> 'time')
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


def duplicates(messages: DataFrame) -> DataFrame:
    """Per topic: UNIQ_KEYs that more than one message has (``keys``), and how many messages that is too many."""
    return messages.sparkSession.sql(
        """
        SELECT topic, count(*) AS keys, sum(n - 1) AS messages
        FROM (SELECT topic, unique_key, count(*) AS n FROM {messages}
              WHERE unique_key IS NOT NULL GROUP BY topic, unique_key)
        WHERE n > 1 GROUP BY topic ORDER BY messages DESC, topic
        """,
        messages=messages,
    )


def top_keys(messages: DataFrame, count: int = TOP_KEYS) -> DataFrame:
    """The keys with most messages, each with its topic."""
    return messages.sparkSession.sql(
        """
        SELECT topic, key, count(*) AS messages FROM (SELECT topic, explode(keys) AS key FROM {messages})
        GROUP BY topic, key ORDER BY messages DESC, topic, key LIMIT {count}
        """,
        messages=messages,
        count=count,
    )


def collect(spark: SparkSession, options: TableOptions, *, keys: bool = True) -> Stats:
    """Run the jobs on Spark and bring the figures here.

    Args:
        keys: look at UNIQ_KEY and KEYS as well, which moves every one of them between executors.

    Raises:
        OSError: the store cannot be listed.
    """
    from rmqctl.pipeline.frames import frame

    masks = {_mask(columns): by for by, columns in GROUPS.items()}
    source = StatsTable(replace(options, cores=cores_of(spark)))
    parts = partials(spark, source).cache()
    try:
        rows = [row.asDict(recursive=True) for row in figures(parts).collect()]
        bars = [row.asDict() for row in histograms(parts).collect()]
        moments = [row.asDict() for row in timeline(parts).collect()]
    finally:
        parts.unpersist()
    found: list[list[Row]] = [[], []]
    if keys:
        messages = frame(spark, MessageTable(replace(options, columns=KEY_COLUMNS, cores=cores_of(spark))))
        found = [[row.asDict() for row in job.collect()] for job in (duplicates(messages), top_keys(messages))]
    return collected(((masks[row["mask"]], row) for row in rows), bars, found[0], found[1], (moments, source.step_ms))


def _mask(columns: tuple[str, ...]) -> int:
    """What ``grouping_id`` is for a set of columns: a bit for each that is not in it."""
    return sum(1 << (len(KEYS) - 1 - i) for i, name in enumerate(KEYS) if name not in columns)


def _row(by: str, row: Row) -> Row:
    stored = row["body_bytes"] or 0
    found: Row = {"by": by}
    for name in GROUPS[by]:
        found[name] = _milliseconds(row[name]) if name == "hour_timestamp" else row[name]
    for name in ("messages", "bytes", "body_bytes", "body_bytes_decompressed"):
        found[name] = row[name] or 0
    found["compression_ratio"] = round((row["body_bytes_decompressed"] or 0) / stored, 3) if stored else None
    found["bad_crc"] = row["bad_crc"] or 0
    for measure, unit in ((SIZE, ""), (LATENCY, "_ms")):
        for point, value in zip(PERCENTILES, row[measure] or [None] * len(PERCENTILES), strict=True):
            found[f"{measure}_p{point:g}{unit}".replace(".", "_")] = None if value is None else round(value)
    return found


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
        target[name].append({"from": low, "to": max(2 * low, 1), "messages": row["messages"]})
