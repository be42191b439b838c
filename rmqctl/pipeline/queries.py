"""SQL over stores on Spark: the tables as views, and of them only what a query uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqctl.pipeline.cluster import cores_of
from rmqctl.pipeline.data_source import NAME, register
from rmqctl.pipeline.frames import frame
from rmqctl.pipeline.mounted import Mounted, Row, plain
from rmqctl.pipeline.sql_text import Use, narrowed_options, uses
from rmqctl.rocketmq.tables.message_table import MessageTable
from rmqctl.rocketmq.tables.options import table_options
from rmqctl.rocketmq.tables.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkQueries:
    """Queries run by Spark, one after the other.

    The tables are temporary views. For each query the views that it uses are made again, with the columns that this
    query uses and without the messages that its conditions leave out; before that, all are what they were at first.
    Findings come from checks by executors, made once a session.
    """

    def __init__(self, spark: SparkSession, stores: Iterable[Mounted]) -> None:
        self.spark = spark
        self._views: dict[str, tuple[Mounted, str]] = {s.prefix + t: (s, t) for s in stores for t in TABLES}
        self._whole: dict[str, DataFrame] = {}
        self._replaced: set[str] = set()
        self._checked: set[str] = set()  # of the views of findings those whose checks were made
        register(spark)
        for name, (store, table) in self._views.items():
            self._whole[name] = spark.read.format(NAME).options(**store.options).option("table", table).load()
            self._whole[name].createOrReplaceTempView(name)

    @property
    def names(self) -> list[str]:
        """The names of the tables."""
        return list(self._views)

    def query(self, text: str) -> DataFrame:
        """The result of a query.

        Raises:
            AnalysisException, ParseException: Spark does not take the query.
        """
        for name in self._replaced:
            self._whole[name].createOrReplaceTempView(name)
        self._replaced.clear()
        for name, use in uses(text, {name: self._whole[name].columns for name in self._views}).items():
            narrow = self._narrow(name, use)
            if narrow is not None:
                narrow.createOrReplaceTempView(name)
                self._replaced.add(name)
        return self.spark.sql(text)

    def _narrow(self, name: str, use: Use) -> DataFrame | None:
        """What a query needs of a view, None where that is all of it."""
        store, table = self._views[name]
        if table == "findings":
            if name not in self._checked:
                from rmqctl.pipeline.verify import findings

                self._whole[name] = findings(self.spark, table_options(store.options))
                self._checked.add(name)
            return self._whole[name]
        options = narrowed_options(table_options(store.options), use)
        if table != "messages" or options == table_options(store.options):
            return None
        return frame(self.spark, MessageTable(replace(options, cores=cores_of(self.spark))))


def plan_of(found: DataFrame) -> str:
    """How Spark would run a query."""
    from contextlib import redirect_stdout
    from io import StringIO

    text = StringIO()
    with redirect_stdout(text):
        found.explain("formatted")
    return text.getvalue()


def rows(found: DataFrame, *, readable: bool = False) -> Iterator[Row]:
    """The rows of a result as JSON-ready objects, one partition after the other.

    Args:
        readable: times as ISO 8601 in UTC, for people, instead of epoch milliseconds.
    """
    for row in found.toLocalIterator(prefetchPartitions=True):
        yield {key: plain(value, readable=readable) for key, value in zip(row.__fields__, row, strict=True)}
