"""One task of an export: a stretch of the log in, its files out (Parquet, ORC, CSV, JSON lines), and a note of what was
done.

The records of each block are put in the order of their partitions before columns are made of them, so that the rows
of a partition are slices. Slices are gathered until they make a row group, in a file of their own where they would
take too much memory: neither the stretch nor a partition is held as a whole, and many partitions make no small row
groups. Names of files follow from the stretch, and their bytes from the log, so that a task that runs twice writes
the same. The note is written last: what has no note was not done.
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.arrow import group_codes
from rmqctl.pipeline.export_manifest import DAY, DONE, HOUR, ExportedFile, ExportLayout, Format
from rmqctl.pipeline.outputs import Output
from rmqctl.tables import Log
from rmqctl.text import text_or_base64


class Writer(Protocol):
    """A file under way."""

    def write(self, table: pa.Table) -> None:
        """Add rows; in Parquet they become a row group."""
        ...

    def close(self) -> None:
        """Write what ends the file; the stream stays open."""
        ...


def writer(layout: ExportLayout, stream: BinaryIO, schema: pa.Schema) -> Writer:
    """Return a writer of the layout's format onto a stream."""
    return _WRITERS[Format(layout.format)](layout, stream, schema)


class _Parquet:
    def __init__(self, layout: ExportLayout, stream: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        order = [pq.SortingColumn(schema.names.index(layout.place))] if layout.place in schema.names else None
        self._file = pq.ParquetWriter(
            stream, schema, compression=layout.compression, sorting_columns=order, write_page_index=True,
            use_dictionary=[name for name in schema.names if name in _RECURRING],
        )  # fmt: skip

    def write(self, table: pa.Table) -> None:
        self._file.write_table(table, row_group_size=len(table))

    def close(self) -> None:
        self._file.close()


_RECURRING = {
    "file", "magic", "queue_id", "flag", "sys_flag", "born_host", "store_host", "reconsume_times", "topic", "tags",
    "transaction", "compression", "body_crc_ok", "properties", "partition", "leader_epoch", "producer_id",
    "producer_epoch", "transactional", "timestamp_type", "control_type", "crc_ok",
}  # fmt: skip


class _Orc:
    def __init__(self, layout: ExportLayout, stream: BinaryIO, schema: pa.Schema) -> None:
        from pyarrow import orc

        codec = "uncompressed" if layout.compression == "none" else layout.compression
        self._file, self._schema = orc.ORCWriter(stream, compression=codec), schema
        self._empty = True

    def write(self, table: pa.Table) -> None:
        self._file.write(table)
        self._empty = False

    def close(self) -> None:
        if self._empty:
            self._file.write(self._schema.empty_table())
        self._file.close()


class _Lines:
    """Text, one row a line, compressed on the way."""

    def __init__(self, layout: ExportLayout, stream: BinaryIO, schema: pa.Schema) -> None:
        self._out: Any = stream
        if layout.compression != "none":
            self._out = pa.CompressedOutputStream(pa.PythonFile(stream, "w"), layout.compression)
        self._times = [f.name for f in schema if pa.types.is_timestamp(f.type)]
        self._names = schema.names

    def write(self, table: pa.Table) -> None:
        for batch in table.to_batches():
            self._out.write(self._text(self._rows(batch)))

    def _rows(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        columns = {name: _values(batch.column(i)) for i, name in enumerate(batch.schema.names)}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _text(self, rows: list[dict[str, Any]]) -> bytes:
        return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)

    def close(self) -> None:
        if isinstance(self._out, pa.CompressedOutputStream):
            self._out.close()


class _Csv(_Lines):
    """With a line of names; lists and maps are JSON in a cell, bodies text or ``base64:...``."""

    def __init__(self, layout: ExportLayout, stream: BinaryIO, schema: pa.Schema) -> None:
        super().__init__(layout, stream, schema)
        self._out.write(_csv_text([schema.names]))

    def _text(self, rows: list[dict[str, Any]]) -> bytes:
        return _csv_text([[_cell(value) for value in row.values()] for row in rows])


def _csv_text(rows: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def _cell(value: Any) -> Any:
    if isinstance(value, dict) and list(value) == ["base64"]:
        return f"base64:{value['base64']}"
    if isinstance(value, bool):
        return str(value).lower()
    return orjson.dumps(value).decode() if isinstance(value, (dict, list)) else value


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column as ``dump`` has them in JSON: times in ms, maps as objects, bytes as text."""
    if pa.types.is_timestamp(column.type):
        return [None if us is None else us // 1000 for us in column.cast(pa.int64()).to_pylist()]
    make = _maker(column.type)
    return list(column.to_pylist()) if make is None else [None if v is None else make(v) for v in column.to_pylist()]


def _maker(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what makes values for JSON of a type's Python values that are not null; None where they need nothing."""
    if pa.types.is_map(kind):
        return dict
    if pa.types.is_binary(kind):
        return text_or_base64
    if pa.types.is_list(kind):
        inner = _maker(kind.value_type)
        return None if inner is None else lambda items: [None if item is None else inner(item) for item in items]
    if pa.types.is_struct(kind):
        makes: dict[str, Callable[[Any], Any]] = {field.name: _maker(field.type) or _same for field in kind}
        return lambda row: {name: None if value is None else makes[name](value) for name, value in row.items()}
    return None


def _same(value: Any) -> Any:
    return value


_WRITERS: dict[Format, Callable[[ExportLayout, BinaryIO, pa.Schema], Writer]] = {
    Format.PARQUET: _Parquet,
    Format.ORC: _Orc,
    Format.CSV: _Csv,
    Format.JSONL: _Lines,
}


# --- one task of an export --------------------------------------------------------------------------


ROW_GROUP = 16 << 20
"""Bytes of a partition that are gathered before they are written."""
MOST_BYTES = 64 << 20
"""Bytes of all partitions that are gathered in memory before the largest of them waits in a file."""
SHARED = 32 << 20
"""Bytes of batches after which slices of them are copied: a small one would keep its whole batch in memory."""

_CLOSING = 8
"""Files that are brought to the disk at once."""
_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000
NOTE_SCHEMA = pa.schema([("name", pa.string()), ("rows", pa.int64()), ("size", pa.int64())])
"""What a task reports: its name, rows, and bytes written."""


@dataclass(frozen=True, slots=True)
class ExportTask:
    """What all tasks of an export share.

    Attributes:
        directory: of the output, for the files.
    """

    log: Log
    layout: ExportLayout
    output: Output
    directory: str

    def run(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Write the files of one part of the log; one row about it."""
        name = self.log.name_of(part)
        with ExitStack() as stack:
            files = _Files(self.layout, self.output, name, self.directory, stack)
            for batch in self.log.read(part, PartitionOrder(self.layout) if self.layout.partition_by else None):
                files.add(batch)
            done = files.finish()
        found = [ExportedFile(size=self.output.size(facts["path"]), **facts) for facts in done]
        notes = [file.document(self.layout.place, self.layout.time) for file in found]
        with self.output.create(f"{self.directory}/{DONE}/{name}.json") as stream:
            stream.write(orjson.dumps(notes))
        row = {"name": name, "rows": sum(f.rows for f in found), "size": sum(f.size for f in found)}
        yield pa.RecordBatch.from_pylist([row], schema=NOTE_SCHEMA)


class _Aside(AbstractContextManager["_Aside"]):
    """Rows of a partition that wait in a file without a name for the rest of their row group."""

    def __init__(self) -> None:
        self.size = 0
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this
        self._writer: Any = None

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, tables: list[pa.Table]) -> None:
        """Take rows after those that are there."""
        for table in tables:
            if self._writer is None:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                self._writer = pa.ipc.new_stream(self._file, table.schema, options=options)
            self._writer.write_table(table)

    def taken(self) -> list[pa.Table]:
        """All rows in order; nothing is left."""
        if self._writer is None:
            return []
        self._writer.close()
        self._file.seek(0)
        found = pa.ipc.open_stream(self._file).read_all()
        self._file.seek(0)
        self._file.truncate()
        self.size, self._writer = 0, None
        return [found]


@dataclass(slots=True)
class _OpenPartition:
    """One partition of one stretch, under way."""

    tables: list[pa.Table] = field(default_factory=list)
    waiting: int = 0
    aside: _Aside | None = None
    writer: Writer | None = None
    stack: ExitStack = field(default_factory=ExitStack)
    rows: int = 0
    first: int = 0
    last: int = 0
    earliest: int | None = None
    latest: int | None = None

    def own(self) -> None:
        """Copy the rows that wait, so that the batches they are slices of can go."""
        if len(self.tables) > 1:
            self.tables = [pa.concat_tables(self.tables).combine_chunks()]
        elif self.tables:
            self.tables = [self.tables[0].take(pa.array(np.arange(self.tables[0].num_rows)))]


class _Files:
    """The files of one stretch by partition."""

    def __init__(self, layout: ExportLayout, output: Output, name: str, directory: str, stack: ExitStack) -> None:
        self.layout, self.output, self.name, self.directory, self.stack = layout, output, name, directory, stack
        self.parts: dict[tuple[Any, ...], _OpenPartition] = {}
        self.waiting = self.shared = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch, each to its partition."""
        if not batch.num_rows:
            return
        self.shared += batch.nbytes
        for values, rows in _partitions(batch, self.layout):
            part = self.parts.setdefault(values, _OpenPartition())
            self._note(part, rows)
            table = pa.Table.from_batches([rows.select(list(self.layout.columns))])
            part.tables.append(table)
            size = max(table.nbytes, 1)
            part.waiting += size
            self.waiting += size
            if part.waiting + (part.aside.size if part.aside else 0) >= ROW_GROUP:
                self._write(values, part)
        while self.waiting >= MOST_BYTES:
            self._put_aside(max(self.parts.values(), key=lambda part: part.waiting))
        if self.shared >= SHARED:
            self.shared = 0
            for part in self.parts.values():
                part.own()

    def _note(self, part: _OpenPartition, rows: pa.RecordBatch) -> None:
        places = pc.min_max(rows.column(self.layout.place)).as_py()
        part.first = min(part.first, places["min"]) if part.rows else places["min"]
        part.last = max(part.last, places["max"]) if part.rows else places["max"]
        part.rows += rows.num_rows
        bounds = pc.min_max(rows.column(self.layout.time).cast(pa.int64())).as_py()
        if bounds["min"] is not None:
            low, high = bounds["min"] // 1000, bounds["max"] // 1000
            part.earliest = low if part.earliest is None else min(part.earliest, low)
            part.latest = high if part.latest is None else max(part.latest, high)

    def _put_aside(self, part: _OpenPartition) -> None:
        if part.aside is None:
            part.aside = self.stack.enter_context(_Aside())
        part.aside.add(part.tables)
        part.aside.size += part.waiting
        self.waiting -= part.waiting
        part.tables, part.waiting = [], 0

    def _write(self, values: tuple[Any, ...], part: _OpenPartition) -> None:
        table = pa.concat_tables([*(part.aside.taken() if part.aside else []), *part.tables])
        if part.writer is None:
            self.stack.enter_context(part.stack)
            stream = part.stack.enter_context(self.output.create(self._path(values)))
            part.writer = writer(self.layout, stream, table.schema)
        part.writer.write(table)
        self.waiting -= part.waiting
        part.tables, part.waiting = [], 0

    def finish(self) -> list[dict[str, Any]]:
        """Complete all files; what there is to know of each."""
        self._close()
        return [
            {
                "path": self._path(values),
                "rows": part.rows,
                "first": part.first,
                "last": part.last,
                "earliest": part.earliest,
                "latest": part.latest,
            }
            for values, part in self.parts.items()
        ]

    def _close(self) -> None:
        for values, part in self.parts.items():
            if part.tables or (part.aside and part.aside.size):
                self._write(values, part)
            assert part.writer is not None
            part.writer.close()
        with ThreadPoolExecutor(_CLOSING) as pool:
            list(pool.map(lambda part: part.stack.close(), self.parts.values()))

    def _path(self, values: tuple[Any, ...]) -> str:
        return "/".join(filter(None, (self.directory, self.layout.directory(values), self.name + self.layout.suffix)))


class PartitionOrder:
    """Puts rows in the order of their partitions (`rmqctl.tables.Order`)."""

    def __init__(self, layout: ExportLayout) -> None:
        self._layout = layout
        self.columns = tuple(dict.fromkeys((*_named(layout), layout.time)))

    def codes(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return _codes(batch, self._layout)[0]


def _partitions(batch: pa.RecordBatch, layout: ExportLayout) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the rows of a batch in runs of one partition."""
    codes, values = _codes(batch, layout)
    bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for begin, end in pairwise(bounds):
        yield values[codes[begin]], batch.slice(begin, end - begin)


def _codes(batch: pa.RecordBatch, layout: ExportLayout) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...]]]:
    """Return the partition of each row as a number, shape (n,), and what the numbers stand for."""
    return group_codes([_partition_column(batch, name, layout.time) for name in layout.partition_by], batch.num_rows)


def _partition_column(batch: pa.RecordBatch, name: str, time: str) -> Any:
    if name in {DAY, HOUR}:
        form, width = ("%Y-%m-%d", _DAY_US) if name == DAY else ("%Y-%m-%dT%H", _HOUR_US)
        moments = batch.column(time)
        steps = np.floor_divide(pc.fill_null(moments.cast(pa.int64()), 0).to_numpy(), width)
        found = pa.array(steps, mask=moments.is_null().to_numpy(zero_copy_only=False))
        few = found.dictionary_encode(null_encoding="encode")  # each is written out once
        begins = pc.multiply(few.dictionary, width).cast(moments.type).cast(pa.timestamp("s", tz="UTC"))
        return pa.DictionaryArray.from_arrays(few.indices, pc.strftime(begins, form))
    return batch.column(name)


def _named(layout: ExportLayout) -> list[str]:
    return [name for name in layout.partition_by if name not in {DAY, HOUR}]


def columns_to_read(layout: ExportLayout) -> tuple[str, ...]:
    """Return the columns that a task needs: those written, those in directories, and what is noted of files."""
    return tuple(dict.fromkeys([*layout.columns, *_named(layout), layout.place, layout.time]))
