"""``spark.read.format("rocketmq")``: a thin shell around the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from rmqctl.pipeline.options import table_options
from rmqctl.pipeline.tables import Table, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "rocketmq"
DEFAULT_TABLE = "messages"


def register(spark: SparkSession) -> None:
    """Make the source known to a session by its name."""
    spark.dataSource.register(RocketMQSource)


class RocketMQSource(DataSource):
    """Tables of a RocketMQ store; the option ``table`` says which, see :mod:`rmqctl.pipeline.tables`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(self._table().schema())

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self._table(schema.fieldNames()), schema)

    def _table(self, columns: list[str] | None = None) -> Table:
        options = table_options(self.options)
        if columns is not None:
            options = replace(options, columns=tuple(columns))
        return table(self.options.get("table", DEFAULT_TABLE), options)


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=False)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same batch with exactly the types that Spark expects; nothing is copied where they are the same."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([batch.column(f.name).cast(f.type) for f in schema], schema=schema)


@dataclass
class TablePart(InputPartition):
    """One part of a table."""

    value: Any


class TableReader(DataSourceReader):
    """Reads one table in batch queries."""

    def __init__(self, source: Table, schema: StructType) -> None:
        self._source, self._schema = source, schema

    def partitions(self) -> list[InputPartition]:
        return [TablePart(part) for part in self._source.parts()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TablePart):  # Spark's own where there is no part at all
            return
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        for batch in self._source.read(partition.value):
            yield conform(batch, wanted)
