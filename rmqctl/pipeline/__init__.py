"""RocketMQ stores as data: tables for Spark, and the jobs of `export`, `sql` and `stats`.

    from rmqctl import pipeline

    spark = pipeline.session()
    pipeline.messages(spark, "/data/rocketmq/store").groupBy("topic").count().show()
    spark.read.format("rocketmq").option("table", "topics").load("/data/rocketmq/store").show()

The only package that imports pyspark, and only when something of it is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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


def messages(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    """The messages of a store in log order, as :data:`~rmqctl.pipeline.message_batches.MESSAGE_SCHEMA` names them.

    Args:
        path: a store, local or a URL.
        options: those of the data source: ``columns``, ``body``, ``split_size``, ``topic``, ``after``, ...

    Raises:
        NotAStore, BadOption: the path or an option is wrong.
    """
    return table(spark, path, "messages", **options)


def table(spark: SparkSession, path: str, name: str, **options: Any) -> DataFrame:
    """A table of a store; planned here, read by the executors. See :mod:`rmqctl.pipeline.tables` for the names."""
    from rmqctl.pipeline.frames import frame
    from rmqctl.pipeline.options import table_options
    from rmqctl.pipeline.tables import table as find

    given = table_options({"path": path, **{key: _text(value) for key, value in options.items()}})
    if name == "findings":
        from rmqctl.pipeline.verify import findings

        return findings(spark, given)
    return frame(spark, find(name, given))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple, set)) else str(value)


__all__ = ["messages", "session", "table"]
