"""SQL over stores on Spark: the tables as views, and of them only what a query uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqctl.parallel import Tally
from rmqctl.pipeline.cluster import cores_of
from rmqctl.pipeline.data_source import register, spark_schema
from rmqctl.pipeline.jobs import counts, frame, sharing
from rmqctl.pipeline.mounted import Mounted, Row, plain, unreadable
from rmqctl.pipeline.sql_text import Use, uses
from rmqctl.tables import Tables

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
        self._views: dict[str, tuple[Tables, str]] = {}
        self._whole: dict[str, DataFrame] = {}
        self._replaced: set[str] = set()
        self._checked: set[str] = set()  # of the views of findings those whose checks were made
        register(spark)
        for store in stores:
            found = store.tables()
            for table in found.names:
                name = store.prefix + table
                self._views[name] = (found, table)
                reader = spark.read.format(store.format).options(**store.options).option("table", table)
                if table == found.names[0]:  # with all columns, bodies among them
                    reader = reader.option("columns", ",".join(found.table(table).schema().names))
                loaded = reader.load()
                self._whole[name] = loaded
                loaded.createOrReplaceTempView(name)

    @property
    def names(self) -> list[str]:
        """The names of the tables."""
        return list(self._views)

    @property
    def unreadable(self) -> dict[str, str]:
        """Why stores could not be read whose rows were asked for, by name."""
        return unreadable(store for store, _ in self._views.values())

    @property
    def read(self) -> Tally | None:
        """What was read of the tables since this was asked last; None where nobody counts, as with Spark Connect."""
        return counts(self.spark)

    def query(self, text: str) -> DataFrame:
        """Return the result of a query.

        Raises:
            AnalysisException, ParseException: Spark does not take the query.
        """
        for name in self._replaced:
            self._whole[name].createOrReplaceTempView(name)
        self._replaced.clear()
        for name, use in uses(text, {name: self._whole[name].columns for name in self._views}).items():
            self._narrow(name, use).createOrReplaceTempView(name)
            self._replaced.add(name)
        return self.spark.sql(text)

    def _narrow(self, name: str, use: Use) -> DataFrame:
        """Return what a query needs of a view."""
        store, table = self._views[name]
        if table == "findings":
            if name not in self._checked:
                self._whole[name] = findings(self.spark, store)
                self._checked.add(name)
            return self._whole[name]
        asked = store.asked(use.columns, use.conditions)
        # planned by executors, or here: what cannot be read, and what was read, is noted here
        return frame(self.spark, asked.for_cores(cores_of(self.spark)).table(table))


def findings(spark: SparkSession, store: Tables) -> DataFrame:
    """Return the table ``findings`` with the log checked by executors; only what was found is held here."""
    schema = store.table("findings").schema()
    found = pa.Table.from_batches(store.findings(sharing(spark)), schema)
    return spark.createDataFrame(found, spark_schema(schema))


def plan_of(found: DataFrame) -> str:
    """How Spark would run a query."""
    from contextlib import redirect_stdout
    from io import StringIO

    text = StringIO()
    with redirect_stdout(text):
        found.explain("formatted")
    return text.getvalue()


def rows(found: DataFrame, *, readable: bool = False) -> Iterator[Row]:
    """Yield the rows of a result as JSON-ready objects, one partition after the other.

    Args:
        readable: times as ISO 8601 in UTC, for people, instead of epoch milliseconds.
    """
    for row in found.toLocalIterator(prefetchPartitions=True):
        yield {key: plain(value, readable=readable) for key, value in zip(row.__fields__, row, strict=True)}
