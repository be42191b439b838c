"""RocketMQ stores as data: tables for Spark, and the jobs of `export`, `sql` and `stats`.

    from rmqctl import pipeline

    spark = pipeline.session()
    pipeline.messages(spark, "/data/rocketmq/store", columns="topic,size").groupBy("topic").count().show()
    pipeline.messages(spark, "/data/rocketmq/store", where="topic = 'orders' and queue_id = 3").show()
    spark.read.format("rocketmq").option("table", "topics").load("/data/rocketmq/store").show()

The only package that imports pyspark, and only when something of it is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqctl.rocketmq.tables.options import TableOptions


def session(
    master: str = "local[*]", conf: Mapping[str, str] | None = None, *, remote: str | None = None
) -> SparkSession:
    """A Spark session that knows ``spark.read.format("rocketmq")``; the one that is there, or a new one.

    Args:
        master: ``local[*]``, ``spark://host:7077``, ``yarn``, ``k8s://...``.
        conf: settings of Spark.
        remote: ``sc://host:port`` of a Spark Connect server, instead of ``master``.

    Raises:
        MissingExtra: PySpark or Java is not installed.
        SparkFailure: Spark does not start.
    """
    from rmqctl.pipeline.cluster import start
    from rmqctl.pipeline.settings import Cluster

    spark = start(Cluster(master, conf or {}, remote))
    from rmqctl.pipeline.data_source import register

    register(spark)
    return spark


def messages(
    spark: SparkSession,
    path: str,
    *,
    where: str | None = None,
    columns: Iterable[str] | str | None = None,
    **options: Any,
) -> DataFrame:
    """The messages of a store in log order, as :data:`~rmqctl.rocketmq.tables.messages.MESSAGE_SCHEMA` names them.

    Only the columns that are asked for are decoded, and bodies only with them. What ``where`` says of topic, queue_id,
    store_timestamp and physical_offset, joined by AND, also spares the reading of stretches in which nothing can match.

    Args:
        path: a store, local or a URL.
        where: a condition as Spark's SQL has it, such as ``topic = 'orders' and store_timestamp >= '2026-11-01'``.
        columns: of the result; default: all.
        options: those of the data source: ``body``, ``split_size``, ``topic``, ``after``, ...

    Raises:
        NotAStore, BadOption: the path or an option is wrong.
        ParseException, AnalysisException: Spark does not take the condition.
    """
    from dataclasses import replace

    from rmqctl.pipeline.frames import frame
    from rmqctl.pipeline.sql_text import narrowed_options, uses
    from rmqctl.rocketmq.tables.message_table import MessageTable

    given = _options(spark, path, options)
    wanted = columns.split(",") if isinstance(columns, str) else columns
    shown = MessageTable(replace(given, columns=None if wanted is None else tuple(name.strip() for name in wanted)))
    if where is None:
        return frame(spark, shown)
    names = shown.schema().names
    chosen = ", ".join(f"`{name}`" for name in names)
    possible = MessageTable(replace(given, columns=None)).schema().names
    use = uses(f"SELECT {chosen} FROM messages WHERE ({where})", {"messages": possible})["messages"]  # noqa: S608 - read only
    return frame(spark, MessageTable(narrowed_options(given, use))).where(where).select(*names)


def table(spark: SparkSession, path: str, name: str, **options: Any) -> DataFrame:
    """A table of a store; planned here, read by the executors. Names: :mod:`rmqctl.rocketmq.tables.tables`."""
    from rmqctl.pipeline.frames import frame
    from rmqctl.rocketmq.tables.tables import table as find

    given = _options(spark, path, options)
    if name == "findings":
        from rmqctl.pipeline.verify import findings

        return findings(spark, given)
    return frame(spark, find(name, given))


def _options(spark: SparkSession, path: str, given: Mapping[str, Any]) -> TableOptions:
    from dataclasses import replace

    from rmqctl.pipeline.cluster import cores_of
    from rmqctl.rocketmq.tables.options import table_options

    found = table_options({"path": path, **{key: _text(value) for key, value in given.items()}})
    return replace(found, cores=cores_of(spark))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple, set)) else str(value)


__all__ = ["messages", "session", "table"]
