"""Stores as data: tables for Spark, and the jobs of `export`, `sql` and `stats`.

    from rmqctl import pipeline

    spark = pipeline.session()
    pipeline.messages(spark, "/data/rocketmq/store", columns="topic,size").groupBy("topic").count().show()
    pipeline.messages(spark, "/data/rocketmq/store", where="topic = 'orders' and queue_id = 3").show()
    spark.read.format("rocketmq").option("table", "topics").load("/data/rocketmq/store").show()

The only package that imports pyspark, and only when something of it is called.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmqctl.pipeline.place import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqctl.parallel import Tally
    from rmqctl.tables import Tables


def session(
    master: str = "local[*]", conf: Mapping[str, str] | None = None, *, remote: str | None = None
) -> SparkSession:
    """Return a Spark session that knows ``spark.read.format("rocketmq")``; the one that is there, or a new one.

    Args:
        master: ``local[*]``, ``spark://host:7077``, ``yarn``, ``k8s://...``.
        conf: settings of Spark.
        remote: ``sc://host:port`` of a Spark Connect server, instead of ``master``.

    Raises:
        MissingExtra: PySpark or Java is not installed.
        SparkFailure: Spark does not start.
    """
    from rmqctl.pipeline.cluster import start

    spark = start(Cluster(master, conf or {}, remote))
    from rmqctl.pipeline.data_source import register

    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make the formats known to a session of your own, with the cores that it has, by which stores are divided. Without
    it they are found by their names, and take a large cluster for granted.
    """
    from rmqctl.pipeline.data_source import register as known

    known(spark)


def rows(
    spark: SparkSession,
    path: str | Sequence[str],
    *,
    format: str = "rocketmq",
    where: str | None = None,
    columns: Iterable[str] | str | None = None,
    **options: Any,
) -> DataFrame:
    """Return the main table of a store: the messages of RocketMQ, the records of Kafka, in the order of the log.

    Only the columns that are asked for are decoded, and bodies only with them. What ``where`` says of topic, queue or
    partition, offset and time, joined by AND, also spares the reading of stretches in which nothing can match.

    Args:
        path: a store, local or a URL; a list, a pattern or ``@inventory.toml``: several stores, whose rows have
            ``cluster`` and ``store`` first.
        format: ``rocketmq`` or ``kafkalog``.
        where: a condition as Spark's SQL has it, such as ``topic = 'orders' and store_timestamp >= '2026-11-01'``.
        columns: of the result; default: all.
        options: those of the data source: ``split_size``, ``topic``, ``after``, ...

    Raises:
        NotAStore, BadOption: the path or an option is wrong.
        ParseException, AnalysisException: Spark does not take the condition.
    """
    from rmqctl.pipeline.jobs import frame
    from rmqctl.pipeline.sql_text import uses

    given = _tables(spark, path, format, options)
    main = given.names[0]
    wanted = columns.split(",") if isinstance(columns, str) else columns
    asked = given if wanted is None else given.asked(tuple(name.strip() for name in wanted))
    shown = asked.table(main)
    if where is None:
        return frame(spark, shown)
    names = shown.schema().names
    chosen = ", ".join(f"`{name}`" for name in names)
    possible = given.asked(None).table(main).schema().names
    use = uses(f"SELECT {chosen} FROM {main} WHERE ({where})", {main: possible})[main]  # noqa: S608 - read only
    return frame(spark, given.asked(use.columns, use.conditions).table(main)).where(where).select(*names)


def messages(spark: SparkSession, path: str | Sequence[str], **more: Any) -> DataFrame:
    """Return the messages of a RocketMQ store; see :func:`rows`."""
    return rows(spark, path, format="rocketmq", **more)


def table(
    spark: SparkSession, path: str | Sequence[str], name: str, *, format: str = "rocketmq", **options: Any
) -> DataFrame:
    """Return a table of a store; planned here, read by the executors. ``findings`` is shared among them."""
    from rmqctl.pipeline.jobs import frame
    from rmqctl.pipeline.queries import findings

    given = _tables(spark, path, format, options)
    return findings(spark, given) if name == "findings" else frame(spark, given.table(name))


def counts(spark: SparkSession) -> Tally | None:
    """Return what the tasks of :func:`rows` and :func:`table` have read since this was called last, and what they left
    out and why; each part of a table counts once, however often Spark had it read. None with Spark Connect, where
    nobody counts, and so for ``spark.read``: there the table ``reading`` says it.
    """
    from rmqctl.pipeline.jobs import counts as found

    return found(spark)


def _tables(spark: SparkSession, path: str | Sequence[str], format: str, given: Mapping[str, Any]) -> Tables:
    from rmqctl.fleet_tables import tables_of
    from rmqctl.pipeline.cluster import cores_of

    place = {"path": path} if isinstance(path, str) else {"paths": json.dumps(list(path))}
    found = tables_of(format, {**place, **{key: _text(value) for key, value in given.items()}})
    return found.for_cores(cores_of(spark))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple, set)) else str(value)


__all__ = ["Cluster", "counts", "messages", "register", "rows", "session", "table"]
