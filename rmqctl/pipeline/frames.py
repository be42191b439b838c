"""Tables as DataFrames without the data source: planned on the driver, one task a part, Arrow on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqctl.pipeline.data_source import conform, settle, spark_schema
from rmqctl.rocketmq.tables.tables import Table
from rmqctl.rocketmq.tables.tally import counters, taken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]


def frame(spark: SparkSession, source: Table) -> DataFrame:
    """The rows of a table.

    Raises:
        OSError: the store cannot be listed.
    """
    return tasks(spark, source.parts(), source.read, source.schema())


def tasks(spark: SparkSession, parts: Sequence[Any], read: Callable[[Any], Batches], schema: pa.Schema) -> DataFrame:
    """What ``read`` gives for each part, one task a part; part and function travel to the executors."""
    if not parts:
        return spark.createDataFrame([], spark_schema(schema))

    counted = counters(spark)

    def run(batches: Batches) -> Batches:
        from pyspark.sql.pandas.types import to_arrow_schema

        settle()
        wanted = to_arrow_schema(given, timezone="UTC")
        for batch in batches:
            for number in batch.column(0).to_pylist():
                taken()  # what a task left that was cancelled
                for found in read(parts[number]):
                    yield conform(found, wanted)
                if counted is not None:
                    counted.add(taken())

    given = spark_schema(schema)
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(run, given)
