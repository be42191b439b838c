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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson
import pyarrow as pa

from rmqctl.errors import MissingExtra
from rmqctl.families import FORMATS
from rmqctl.fleet_tables import tables_of
from rmqctl.pipeline.cluster import cores_of
from rmqctl.tables import (
    EARLIEST,
    LATEST,
    MARKS,
    BadOption,
    Change,
    Log,
    LostMessages,
    Places,
    StreamStart,
    Table,
    fold,
    stream_start,
)

try:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructField, StructType
except ModuleNotFoundError as error:  # whoever wants Spark comes by here
    raise MissingExtra("Spark", "spark", error.name or "pyspark") from error
try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
except ModuleNotFoundError:  # Spark 3.5 has no sources in Python: tables are DataFrames there, and no formats
    DataSource = DataSourceReader = DataSourceStreamReader = InputPartition = object  # type: ignore[assignment,misc]
try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes
except ModuleNotFoundError:  # before Spark 4.2 a stream gets no place to go on from, and no limit
    ReadLimit = None  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

    def latest(self, known: Offset | None, most_bytes: int | None = None) -> Offset:
        """After the last whole row; with ``most_bytes`` after the last of those that fit, at least one. Without
        ``known`` nothing is held against the log, and all there is counts.

        Where the log was cut since ``known`` and rows may be lost, without ``failOnDataLoss``, it is where to go on.

        Raises:
            LostMessages: the log is no longer the one that was read up to ``known``.
        """
        if known is None:
            return self._marked(self.log.end())
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

    def check(self, known: Offset) -> None:
        """Hold the log against an offset.

        Raises:
            LostMessages: it is no longer the one that was read up to there.
        """
        for change in self._changed(known):
            warnings.warn(f"{change.what}; the stream goes on at {change.go_on}", stacklevel=2)

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
    """Make the formats known to a session by their names; Spark 3.5 takes none."""
    if not hasattr(spark, "dataSource"):
        return
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
        options = _options_of_table(self.options) or dict(self.options)
        bare = {} if "columns" in map(fold, options) else FORMATS[self.format].unasked
        found = _asked_for(self.format, {**bare, **options})
        return _with_options(spark_schema(found.schema()), _options_of_table(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options(schema)
        return TableReader(_asked_for(self.format, options, schema, self.cores), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = self._options(schema)
        found = tables_of(self.format, options).asked(tuple(schema.fieldNames()))
        if (name := _option(options, "table", found.names[0])) != found.names[0]:
            raise BadOption(f"only {found.names[0]} can be followed, not {name}; use spark.read")
        found = found.for_cores(_cores(options, self.cores))
        return StreamReader(Following(found.path, found.log(), stream_start(self.format, options)), schema)

    def _options(self, schema: StructType) -> dict[str, str]:
        """Return the options; of a table in a catalog those that its schema keeps."""
        kept = schema.fields[0].metadata.get(_KEPT) if schema.fields else None
        return {**(orjson.loads(kept) if kept else {}), **self.options}


_KEPT = "rmqctl.options"
"""In the metadata of the first column of a table in a catalog. Spark hands a reader in Python no options of such a
table, but its schema as the source gave it when the table was made."""
_PROVIDER, _OPTION, _PATH = "provider", "option.", "path"
_UNKNOWN_CORES = 512
"""Tasks at once where nobody says how many: a cluster that waits costs more than the starts of small tasks."""


def _options_of_table(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options among the properties with which Spark makes a table in a catalog; none where it makes none."""
    if _PROVIDER not in given:
        return {}
    found = {name.removeprefix(_OPTION): text for name, text in given.items() if name.startswith(_OPTION)}
    path = given.get(_PATH, "")
    return {**found, **({_PATH: unquote(path.removeprefix("file:"))} if path else {})}


def _with_options(schema: StructType, options: dict[str, str]) -> StructType:
    """Return a schema that keeps options."""
    if not options:
        return schema
    first, *rest = schema.fields
    kept = {**first.metadata, _KEPT: orjson.dumps(options).decode()}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *rest])


def _asked_for(
    format: str, options: Mapping[str, str], schema: StructType | None = None, cores: int | None = None
) -> Table:
    """Return the table that options name.

    Args:
        schema: columns that are asked for; None: all that options leave.
    """
    found = tables_of(format, options)
    name = _option(options, "table", found.names[0])
    if schema is not None:
        found = found.asked(tuple(schema.fieldNames())).for_cores(_cores(options, cores))
    return found.table(name)


def _cores(options: Mapping[str, str], cores: int | None) -> int:
    """Return the tasks that run at once: as an option says, as the session knows, or many."""
    given = _option(options, "cores", "")
    return int(given) if given else cores or _UNKNOWN_CORES


def _option(options: Mapping[str, str], name: str, default: str) -> str:
    return next((text for key, text in options.items() if fold(key) == name), default)


def spark_schema(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=False)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return Spark's schema as the Arrow one that it expects, with times in UTC."""
    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # before Spark 4.2 they always are


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with exactly the types that Spark expects; nothing is copied where they are the same."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([batch.column(f.name).cast(f.type) for f in schema], schema=schema)


def _conformed(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield what a task of a reader gives Spark."""
    settle()
    wanted = arrow_schema(schema)
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

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Offset | None = None, limit: ReadLimit | None = None
    ) -> Offset:
        if ReadLimit is not None:
            assert start is not None
            return self._stream.latest(start, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)
        return self._stream.latest(None)  # where the stream is, its partitions are asked for with

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._stream.start.most_bytes
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        if ReadLimit is None:
            self._stream.check(start)
        return [TablePart(part) for part in self._stream.parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, TablePart):
            yield from _conformed(self._stream.read(partition.value), self._schema)

    def commit(self, end: Offset) -> None:
        """Nothing to be done: the log is not ours to shorten."""
