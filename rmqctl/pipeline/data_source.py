"""``spark.read.format("rocketmq")``: a thin shell around the tables.

It takes no filters from Spark. Spark 4.3 keeps what a reader in Python made of the filters of one query with the
DataFrame, and uses it for later queries over it, even for those without filters: they would count too few messages. So
filters and columns are options of the source; :func:`rmqctl.pipeline.messages` makes them of a condition in SQL.

What every Python worker of Spark does before it works.

Following a log that grows: offsets are physical ones and always lie between two whole records.

What lies between two offsets never changes, so a batch that is read again gives the same messages.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from rmqctl.errors import RmqctlError
from rmqctl.pipeline.cluster import cores_of
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.tables.message_table import MessageTable, first_record
from rmqctl.rocketmq.tables.options import EARLIEST, LATEST, BadOption, Start, TableOptions, stream_start, table_options
from rmqctl.rocketmq.tables.splits import SPLIT_SIZE, log_of, log_splits, log_tip
from rmqctl.rocketmq.tables.tables import Table, table
from rmqctl.rocketmq.verify.splits import Split

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


class LostMessages(RmqctlError):
    """The log no longer holds what was to be read next."""


@dataclass(frozen=True, slots=True)
class MessageStream:
    """The messages of a store as they come."""

    options: TableOptions
    start: Start

    def first(self) -> int:
        """The offset to begin at.

        Raises:
            OSError: the store cannot be read.
        """
        store = self.options.store()
        if self.start.offset == LATEST:
            return log_tip(store)
        begin = log_of(store).min_offset
        return begin if self.start.offset == EARLIEST else max(int(self.start.offset), 0)

    def latest(self, known: int, most_bytes: int | None = None) -> int:
        """Behind the last whole record; with ``most_bytes`` behind the last of those that fit, at least one.

        Raises:
            OSError: the store cannot be read.
        """
        store = self.options.store()
        tip = log_tip(store, known)
        if most_bytes is None or tip - known <= most_bytes:
            return tip
        return self._boundary(store, known, known + most_bytes, tip)

    def _boundary(self, store: RocketMQStore, known: int, wanted: int, tip: int) -> int:
        """The start of the first record at or behind an offset; a file's end where none follows in it."""
        for context in log_of(store).contexts():
            file = context.file
            if wanted < file.base + file.size and tip > file.base:
                at = max(wanted, file.base, known + 1) - file.base
                place = first_record(Split(context, at, None))
                return min(file.base + (file.size if place is None else place), tip)
        return tip

    def parts(self, start: int, end: int) -> list[Split]:
        """The splits between two offsets.

        Raises:
            LostMessages: files below ``start`` that were not read are gone.
            OSError: the store cannot be read.
        """
        store = self.options.store()
        begin = log_of(store).min_offset
        if start < begin and start < end and self.start.fail_on_loss:
            raise LostMessages(
                f"the log of {self.options.path} begins at {begin}, but was read up to {start} only: files in between "
                "were deleted; set the option failOnDataLoss to false to go on behind them"
            )
        found = []
        for split in log_splits(store, self.options.split_size or SPLIT_SIZE, end):
            base, size = split.context.file.base, split.context.file.size
            low, high = max(split.start, start - base), min(size if split.stop is None else split.stop, end - base)
            if low < high:
                found.append(Split(split.context, low, None if split.stop is None and high >= size else high))
        return found

    def read(self, part: Split) -> Iterator[pa.RecordBatch]:
        """The wanted messages of one split."""
        return MessageTable(self.options).read(part)


# --- spark ------------------------------------------------------------------------------------------


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
    """Tables of a RocketMQ store; the option ``table`` says which, see :mod:`rmqctl.rocketmq.tables.tables`."""

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
