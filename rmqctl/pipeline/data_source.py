"""``spark.read.format("rocketmq")``: a thin shell around the tables.

It takes no filters from Spark. Spark 4.3 keeps what a reader in Python made of the filters of one query with the
DataFrame, and uses it for later queries over it, even for those without filters: they would count too few messages. So
filters and columns are options of the source; :func:`rmqctl.pipeline.messages` makes them of a condition in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from rmqctl.pipeline.cluster import cores_of
from rmqctl.pipeline.options import BadOption, TableOptions, stream_start, table_options
from rmqctl.pipeline.stream import MessageStream
from rmqctl.pipeline.tables import Table, table
from rmqctl.pipeline.workers import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "rocketmq"
DEFAULT_TABLE = "messages"
_OFFSET = "physical_offset"


def register(spark: SparkSession) -> None:
    """Make the source known to a session by its name."""
    at_once = cores_of(spark)

    class Source(RocketMQSource):  # of a function, so that it travels with what it knows
        cores = at_once

    spark.dataSource.register(Source)


class RocketMQSource(DataSource):
    """Tables of a RocketMQ store; the option ``table`` says which, see :mod:`rmqctl.pipeline.tables`."""

    cores: int | None = None
    """Tasks that run at once in the session, where somebody said so."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(self._table().schema())

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options(schema)
        return TableReader(self._name(), options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        if self._name() != DEFAULT_TABLE:
            raise BadOption(f"only {DEFAULT_TABLE} can be followed, not {self._name()}; use spark.read")
        return StreamReader(MessageStream(self._options(schema), stream_start(self.options)), schema)

    def _table(self) -> Table:
        return table(self._name(), table_options(self.options))

    def _name(self) -> str:
        return self.options.get("table", DEFAULT_TABLE)

    def _options(self, schema: StructType) -> TableOptions:
        return replace(table_options(self.options), columns=tuple(schema.fieldNames()), cores=self.cores)


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=False)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same batch with exactly the types that Spark expects; nothing is copied where they are the same."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([batch.column(f.name).cast(f.type) for f in schema], schema=schema)


def _conformed(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """What a task of a reader gives Spark."""
    settle()
    wanted = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        yield conform(batch, wanted)


@dataclass
class TablePart(InputPartition):
    """One part of a table."""

    value: Any


class TableReader(DataSourceReader):
    """Reads one table in batch queries."""

    def __init__(self, name: str, options: TableOptions, schema: StructType) -> None:
        self._name, self._options, self._schema = name, options, schema

    def partitions(self) -> list[InputPartition]:
        return [TablePart(part) for part in table(self._name, self._options).parts()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TablePart):  # Spark's own where there is no part at all
            return
        yield from _conformed(table(self._name, self._options).read(partition.value), self._schema)


class StreamReader(DataSourceStreamReader):
    """Reads messages as they come."""

    def __init__(self, stream: MessageStream, schema: StructType) -> None:
        self._stream, self._schema = stream, schema

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {_OFFSET: self._stream.first()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return {_OFFSET: self._stream.latest(start[_OFFSET], most)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._stream.start.most_bytes
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [TablePart(part) for part in self._stream.parts(start[_OFFSET], end[_OFFSET])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, TablePart):
            yield from _conformed(self._stream.read(partition.value), self._schema)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to be done: the log is not ours to shorten."""
