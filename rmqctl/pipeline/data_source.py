"""The formats that Spark reads by name, such as ``spark.read.format("rocketmq")``: thin shells around the tables.

They take no filters from Spark. Spark 4.3 keeps what a reader in Python made of the filters of one query with the
DataFrame, and uses it for later queries over it, even for those without filters: they would count too few messages.
So filters and columns are options of a format; :func:`rmqctl.pipeline.rows` makes them of a condition in SQL.

A log that grows can be followed: what lies between two places never changes, so a batch that is read again gives the
same.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqctl.errors import MissingExtra
from rmqctl.pipeline.cluster import cores_of
from rmqctl.tables import (
    BARE,
    EARLIEST,
    FORMATS,
    LATEST,
    BadOption,
    Log,
    LostMessages,
    Places,
    StreamStart,
    Table,
    Tables,
    stream_start,
    tables_of,
)

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes
except ModuleNotFoundError as error:  # whoever wants Spark comes by here
    raise MissingExtra("Spark", "spark", error.name or "pyspark") from error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@cache
def settle() -> None:
    """Have garbage collections pass over what is loaded by now.

    PySpark runs a full one after every task, and with all modules of a worker in it that takes as long as a small task.
    """
    gc.collect()
    gc.freeze()


# --- following a log that grows ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Following:
    """The rows of a log as they come."""

    path: str
    log: Log
    start: StreamStart

    def first(self) -> Places:
        """Return the places to begin at.

        Raises:
            BadOption: it was given places that the log does not have.
        """
        wanted = self.start.offset
        if wanted == LATEST:
            return self.log.end()
        begin = self.log.begin()
        if wanted == EARLIEST:
            return begin
        if isinstance(wanted, dict):
            unknown = set(wanted) - set(begin)
            if unknown:
                raise BadOption(
                    f"startingOffset names {min(unknown)}, and there is no such log; there are {', '.join(begin)}"
                )
            return begin | wanted
        return {name: max(int(wanted), 0) for name in begin}

    def latest(self, known: Places, most_bytes: int | None = None) -> Places:
        """After the last whole row; with ``most_bytes`` after the last of those that fit, at least one."""
        return self.log.end(known, most_bytes)

    def parts(self, start: Places, end: Places) -> list[Any]:
        """Return the parts between two places.

        Raises:
            LostMessages: files below ``start`` that were not read are gone.
        """
        begin = self.log.begin()
        for name, low in start.items():
            lost = low < begin.get(name, low) and low < end.get(name, low)
            if lost and self.start.fail_on_loss:
                raise LostMessages(
                    f"the log of {self.path} begins at {name} {begin[name]}, but was read up to {low} only: files in "
                    "between were deleted; set the option failOnDataLoss to false to go on after them"
                )
        return self.log.parts(start, end)

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Return the wanted rows of one part."""
        return self.log.read(part)


# --- spark ------------------------------------------------------------------------------------------


def register(spark: SparkSession) -> None:
    """Make the formats known to a session by their names."""
    at_once = cores_of(spark)
    for format_name in FORMATS:

        class Source(TableSource):  # of a function, so that it travels with what it knows
            cores = at_once
            format = format_name

        spark.dataSource.register(Source)


class TableSource(DataSource):
    """Tables of a store; the option ``table`` says which."""

    cores: int | None = None
    """Tasks that run at once in the session, where somebody said so."""
    format = ""

    @classmethod
    def name(cls) -> str:
        return cls.format

    def schema(self) -> StructType:
        bare = {} if "columns" in self.options else BARE.get(self.format, {})
        return spark_schema(tables_of(self.format, {**bare, **self.options}).table(self._name()).schema())

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self._asked(schema).table(self._name()), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        found = self._asked(schema)
        if self._name() != found.names[0]:
            raise BadOption(f"only {found.names[0]} can be followed, not {self._name()}; use spark.read")
        start = stream_start(self.format, self.options)
        return StreamReader(Following(found.path, found.log(), start), schema)

    def _tables(self) -> Tables:
        return tables_of(self.format, self.options)

    def _name(self) -> str:
        return self.options.get("table", self._tables().names[0])

    def _asked(self, schema: StructType) -> Tables:
        return self._tables().asked(tuple(schema.fieldNames())).for_cores(self.cores)


def spark_schema(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=False)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same batch with exactly the types that Spark expects; nothing is copied where they are the same."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([batch.column(f.name).cast(f.type) for f in schema], schema=schema)


def _conformed(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield what a task of a reader gives Spark."""
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

    def __init__(self, source: Table, schema: StructType) -> None:
        self._source, self._schema = source, schema

    def partitions(self) -> list[InputPartition]:
        return [TablePart(part) for part in self._source.parts()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TablePart):  # Spark's own where there is no part at all
            return
        yield from _conformed(self._source.read(partition.value), self._schema)


class StreamReader(DataSourceStreamReader):
    """Reads rows as they come."""

    def __init__(self, stream: Following, schema: StructType) -> None:
        self._stream, self._schema = stream, schema

    def initialOffset(self) -> Places:  # noqa: N802 - Spark's name
        return self._stream.first()

    def latestOffset(self, start: Places, limit: ReadLimit) -> Places:  # noqa: N802 - Spark's name
        return self._stream.latest(start, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._stream.start.most_bytes
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def partitions(self, start: Places, end: Places) -> list[InputPartition]:
        return [TablePart(part) for part in self._stream.parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, TablePart):
            yield from _conformed(self._stream.read(partition.value), self._schema)

    def commit(self, end: Places) -> None:
        """Nothing to be done: the log is not ours to shorten."""
