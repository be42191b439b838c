"""The formats that Spark reads by name, such as ``spark.read.format("rocketmq")``: thin shells around the tables.

They take no filters from Spark. Spark 4.3 keeps what a reader in Python made of the filters of one query with the
DataFrame, and uses it for later queries over it, even for those without filters: they would count too few messages.
So filters and columns are options of a format; :func:`rmqctl.pipeline.rows` makes them of a condition in SQL.

A log that grows can be followed: what lies between two places never changes, so a batch that is read again gives the
same.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqctl.errors import MissingExtra
from rmqctl.fleet_tables import tables_of
from rmqctl.pipeline.cluster import cores_of
from rmqctl.tables import (
    EARLIEST,
    FORMATS,
    LATEST,
    MARKS,
    UNASKED_OPTIONS,
    BadOption,
    Change,
    Log,
    LostMessages,
    Places,
    StreamStart,
    Table,
    Tables,
    stream_start,
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


Offset = dict[str, Any]
"""Places as a stream keeps them; by the key :data:`~rmqctl.tables.MARKS` what lay in front of them."""


@dataclass(frozen=True, slots=True)
class Following:
    """The rows of a log as they come."""

    path: str
    log: Log
    start: StreamStart

    def first(self) -> Offset:
        """Return where to begin.

        Raises:
            BadOption: it was given places that the log does not have.
        """
        wanted = self.start.offset
        if wanted == LATEST:
            return self._marked(self.log.end())
        begin = self.log.begin()
        if wanted == EARLIEST:
            return self._marked(begin)
        if isinstance(wanted, dict):
            unknown = set(wanted) - set(begin)
            if unknown:
                raise BadOption(
                    f"startingOffset names {min(unknown)}, and there is no such log; there are {', '.join(begin)}"
                )
            return self._marked(begin | wanted)
        return self._marked({name: max(int(wanted), 0) for name in begin})

    def latest(self, known: Offset, most_bytes: int | None = None) -> Offset:
        """After the last whole row; with ``most_bytes`` after the last of those that fit, at least one.

        Where the log was cut since ``known`` and rows may be lost, without ``failOnDataLoss``, it is where to go on.

        Raises:
            LostMessages: the log is no longer the one that was read up to ``known``.
        """
        places = places_of(known)
        begin = self.log.begin()
        if MARKS not in known and any(place > begin.get(name, place) for name, place in places.items()):
            warnings.warn(
                f"the offset of this stream of {self.path} is of an earlier release: whether the log was cut in front "
                "of it cannot be told",
                stacklevel=2,
            )
        changed = self._changed(known)
        for change in changed:
            warnings.warn(f"{change.what}; the stream goes on at {change.go_on}", stacklevel=2)
        going_on = places | {change.name: change.go_on for change in changed}
        return self._marked(going_on if going_on != places else self.log.end(places, most_bytes))

    def parts(self, start: Offset, end: Offset) -> list[Any]:
        """Return the parts between two places.

        Raises:
            LostMessages: files below ``start`` that were not read are gone, or the log was cut.
        """
        low, high = places_of(start), places_of(end)
        begin = self.log.begin()
        for name, place in low.items():
            lost = place < begin.get(name, place) and place < high.get(name, place)
            if lost and self.start.fail_on_loss:
                raise LostMessages(
                    f"the log of {self.path} begins at {name} {begin[name]}, but was read up to {place} only: files in "
                    "between were deleted; set the option failOnDataLoss to false to go on after them"
                )
        self._changed(end)  # what lies in front of it is then the same, back to the start
        return self.log.parts(low, high)

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Return the wanted rows of one part."""
        return self.log.read(part)

    def _marked(self, places: Places) -> Offset:
        return {**places, MARKS: self.log.marks(places)}

    def _changed(self, offset: Offset) -> list[Change]:
        """Return what became of the log since an offset was noted.

        Raises:
            LostMessages: something, and that is to end the stream.
        """
        changed = self.log.changes(places_of(offset), offset.get(MARKS, {}))
        if changed and self.start.fail_on_loss:
            raise LostMessages(
                f"{self.path}: {changed[0].what}. What was written since may have gone unread; begin anew with another "
                f"checkpoint, or set the option failOnDataLoss to false to go on at {changed[0].go_on}"
            )
        return changed


def places_of(offset: Offset) -> Places:
    return {name: place for name, place in offset.items() if name != MARKS}


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
        bare = {} if "columns" in self.options else UNASKED_OPTIONS.get(self.format, {})
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
    """Return a batch with exactly the types that Spark expects; nothing is copied where they are the same."""
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

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return self._stream.first()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        return self._stream.latest(start, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._stream.start.most_bytes
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [TablePart(part) for part in self._stream.parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, TablePart):
            yield from _conformed(self._stream.read(partition.value), self._schema)

    def commit(self, end: Offset) -> None:
        """Nothing to be done: the log is not ours to shorten."""
