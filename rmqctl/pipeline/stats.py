"""The job behind `stats`: figures of a store by topic, queue, tag, hour and producer host.

On Spark each job is a function from DataFrame to DataFrame, and :func:`collect` runs them all. The same figures of a
small store are made in one process by :mod:`rmqctl.pipeline.local_stats`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rmqctl.pipeline.cluster import cores_of
from rmqctl.pipeline.message_table import MessageTable
from rmqctl.pipeline.options import TableOptions
from rmqctl.pipeline.stats_partials import KEYS, LATENCY, MOMENT, SIZE, StatsTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """Figures of each split, see :data:`rmqctl.pipeline.stats_partials.PARTIAL_SCHEMA`."""
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
