"""One task of an export: a stretch of the log in, its files out (Parquet, ORC, CSV, JSON lines), and a note of what was
done.

Rows are held until they take some memory, and are then sorted by partition: what makes a row group is written, the
rest waits in a file without a name. In the end the partitions are written one after the other. Neither the stretch nor
a partition is held as a whole, however many partitions there are, and they make no small row groups. Names of files
follow from the stretch, and their bytes from the log, so that a task that runs twice writes the same. The note is
written last: what has no note was not done.
"""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.arrow import group_codes
from rmqctl.parallel import Tally, noted
from rmqctl.pipeline.export_manifest import DAY, DONE, HOUR, Bucket, ExportedFile, ExportLayout, Format
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


def writer(layout: ExportLayout, stream: BinaryIO, schema: pa.Schema, *, sorts: bool = False) -> Writer:
    """Return a writer of the layout's format onto a stream.

    Args:
        sorts: rows of a row group ascend by the order of the layout, not by their place alone.
    """
    if layout.format == Format.PARQUET:
        order = layout.order if sorts else [name for name in (layout.place,) if name in schema.names]
        return _Parquet(layout, stream, schema, order)
    return _WRITERS[Format(layout.format)](layout, stream, schema)


class _Parquet:
    def __init__(self, layout: ExportLayout, stream: BinaryIO, schema: pa.Schema, ascending: Sequence[str]) -> None:
        import pyarrow.parquet as pq

        order = [pq.SortingColumn(schema.names.index(name)) for name in ascending] or None
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


class _Lent:
    """A stream for somebody who closes what it writes to, though that is not its own."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self.write, self.flush = stream.write, stream.flush

    def close(self) -> None:
        pass


class _Lines:
    """Text, one row a line, compressed on the way."""

    def __init__(self, layout: ExportLayout, stream: BinaryIO, schema: pa.Schema) -> None:
        self._out: Any = stream
        if layout.compression != "none":
            self._out = pa.CompressedOutputStream(pa.PythonFile(_Lent(stream), "w"), layout.compression)

    def write(self, table: pa.Table) -> None:
        for batch in table.to_batches(max_chunksize=_LINES):
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
    Format.ORC: _Orc,
    Format.CSV: _Csv,
    Format.JSONL: _Lines,
}


# --- one task of an export --------------------------------------------------------------------------


ROW_GROUP = 16 << 20
"""Bytes of a partition that make a row group."""
MOST_BYTES = 64 << 20
"""Bytes of all partitions that are held before they are written, or wait in a file without a name."""
MOST_OPEN = 8
"""Files that are open while rows come; and files that are completed at once when all have come."""

_LINES = 1000
"""Rows that are made into text at once: as objects of Python they take several times their bytes."""
_BLOCK = 1 << 20
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
        name, before = self.log.name_of(part), noted()
        with ExitStack() as stack:
            files = _Files(self.layout, self.output, name, self.directory, stack)
            for batch in self.log.read(part):
                files.add(batch)
            found = files.finish()
        read = noted().plus(before, -1)
        yield written_down(self.layout, self.output, f"{self.directory}/{DONE}/{name}.json", name, found, read)


def written_down(
    layout: ExportLayout, output: Output, place: str, name: str, found: list[ExportedFile], read: Tally
) -> pa.RecordBatch:
    """Write the note of a task that is done: its files, and what it has read of the log; what it reports."""
    files = [file.document(layout.place, layout.time) for file in found]
    with output.create(place) as stream:
        stream.write(orjson.dumps({"files": files, "read": read.document()}))
    row = {"name": name, "rows": sum(f.rows for f in found), "size": sum(f.size for f in found)}
    return pa.RecordBatch.from_pylist([row], schema=NOTE_SCHEMA)


class FileWriter:
    """The files of one partition, one after the other: another is begun where one has its size.

    Args:
        name: of the first, without the end that says the format.
        stack: keeps an open file, and removes it where the work fails.
        sorts: rows of a row group are put in the order of the layout.
        of: files whose rows these are; their places and times are taken for those of the rows.
    """

    def __init__(
        self,
        layout: ExportLayout,
        output: Output,
        name: str,
        stack: ExitStack,
        *,
        sorts: bool,
        of: Sequence[ExportedFile] = (),
    ) -> None:
        self._layout, self._output, self._name, self._sorts, self._of = layout, output, name, sorts, of
        self._outer, self._stack = stack, ExitStack()
        self._writer: Writer | None = None
        self._stream: Any = None
        self._now = ExportedFile("", 0, 0, 0, 0, None, None)
        self.done: list[ExportedFile] = []

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    def write(self, table: pa.Table) -> None:
        """Add rows, in row groups of about a size."""
        groups = max(table.nbytes // ROW_GROUP, 1)
        step = -(-len(table) // groups)
        for begin in range(0, len(table), step):
            self._write_group(table.slice(begin, step))

    def _write_group(self, rows: pa.Table) -> None:
        if self._of:
            self._now = replace(ExportedFile.around(self._of), rows=self._now.rows + len(rows), path=self._now.path)
        else:
            self._now = _with_rows(self._now, rows, self._layout)
        if self._sorts and self._layout.order:
            rows = rows.sort_by([(name, "ascending") for name in self._layout.order])
        chosen = numbered(rows.select(list(self._layout.columns)), self._layout.field_ids)
        if self._writer is None:
            number = f"-{len(self.done)}" if self.done else ""
            self._now = replace(self._now, path=f"{self._name}{number}{self._layout.suffix}")
            self._outer.enter_context(self._stack)
            self._stream = self._stack.enter_context(self._output.create(self._output.staged(self._now.path)))
            self._writer = writer(self._layout, self._stream, chosen.schema, sorts=self._sorts)
            self._stack.callback(self._give_up)
        self._writer.write(chosen)
        if self._stream.tell() >= self._layout.target_size:
            self.close()

    def close(self) -> None:
        """Complete the file under way."""
        if self._writer is None:
            return
        self._writer.close()
        self.done.append(replace(self._now, size=self._stream.tell()))
        self._writer, self._now = None, ExportedFile("", 0, 0, 0, 0, None, None)
        self._stack.close()

    def _give_up(self) -> None:
        """Have nothing that wants to write into a file that goes."""
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()


def numbered(rows: pa.Table, ids: Mapping[str, int]) -> pa.Table:
    """Return rows whose columns have their numbers, as files of Iceberg need them; as they are where there are none."""
    return rows.cast(pa.schema([_numbered(one, one.name, ids) for one in rows.schema])) if ids else rows


def _numbered(one: pa.Field, name: str, ids: Mapping[str, int]) -> pa.Field:
    kind = one.type
    if pa.types.is_map(kind):
        key, item = (_numbered(inner, f"{name}.{inner.name}", ids) for inner in (kind.key_field, kind.item_field))
        kind = pa.map_(key, item)
    elif pa.types.is_list(kind):
        kind = pa.list_(_numbered(kind.value_field.with_name("element"), f"{name}.element", ids))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_numbered(inner, f"{name}.{inner.name}", ids) for inner in kind])
    return one.with_type(kind).with_metadata({"PARQUET:field_id": str(ids[name])})


def _with_rows(file: ExportedFile, rows: pa.Table, layout: ExportLayout) -> ExportedFile:
    places = pc.min_max(rows.column(layout.place)).as_py()
    times = pc.min_max(rows.column(layout.time).cast(pa.int64())).as_py()
    known = [ms for ms in (file.earliest, file.latest) if ms is not None]
    known += [us // 1000 for us in times.values() if us is not None]
    return replace(
        file,
        rows=file.rows + len(rows),
        first=min(file.first, places["min"]) if file.rows else places["min"],
        last=max(file.last, places["max"]) if file.rows else places["max"],
        earliest=min(known, default=None),
        latest=max(known, default=None),
    )


class _Run:
    """Rows in the order of their partitions: in memory, or in blocks of a file without a name."""

    def __init__(self, rows: pa.RecordBatch, file: BinaryIO | None = None) -> None:
        self._rows, self._file = rows if file is None else None, file
        self._step, self._places = max(rows.num_rows * _BLOCK // max(rows.nbytes, 1), 1), list[tuple[int, int]]()
        self._cached: tuple[int, Any] = (-1, None)
        if file is None:
            return
        for begin in range(0, rows.num_rows, self._step):
            block, at = rows.slice(begin, self._step), file.tell()
            with pa.ipc.new_stream(file, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
                stream.write_batch(block)
            self._places.append((at, file.tell() - at))

    def rows(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows between two numbers."""
        if self._rows is not None:
            yield self._rows.slice(begin, end - begin)
            return
        for number in range(begin // self._step, -(-end // self._step)):
            first = number * self._step
            block = self._block(number)
            low, high = max(begin - first, 0), min(end - first, block.num_rows)
            yield block.slice(low, high - low)

    def _block(self, number: int) -> pa.RecordBatch:
        if self._cached[0] != number:
            assert self._file is not None
            at, size = self._places[number]
            self._file.seek(at)
            self._cached = number, pa.ipc.open_stream(self._file.read(size)).read_next_batch()
            self._file.seek(0, os.SEEK_END)
        found: pa.RecordBatch = self._cached[1]
        return found


@dataclass(slots=True)
class _Partition:
    """One partition of one stretch, under way.

    Attributes:
        pieces: rows that wait, in log order: run, begin and end in it.
        waiting: their bytes.
    """

    files: FileWriter
    pieces: list[tuple[_Run, int, int]] = field(default_factory=list)
    waiting: int = 0

    def taken(self) -> pa.Table:
        """All rows that wait; none is left."""
        found = pa.Table.from_batches([rows for run, begin, end in self.pieces for rows in run.rows(begin, end)])
        self.pieces, self.waiting = [], 0
        return found


class _Files:
    """The files of one stretch by partition."""

    def __init__(self, layout: ExportLayout, output: Output, name: str, directory: str, stack: ExitStack) -> None:
        self.layout, self.output, self.name, self.directory, self.stack = layout, output, name, directory, stack
        self._sorts = any(map(Bucket.of, layout.partition_by))
        self._numbers: dict[str, int] = {}
        self._parts: list[_Partition] = []
        self._held: list[tuple[pa.RecordBatch, npt.NDArray[np.int64]]] = []
        self._bytes = 0
        self._file: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch, each to its partition."""
        if not batch.num_rows:
            return
        codes, values = _codes(batch, self.layout)
        self._held.append((batch, np.array([self._number(one) for one in values])[codes]))
        self._bytes += batch.nbytes
        if self._bytes >= MOST_BYTES:
            self._sort_out(is_last=False)

    def _number(self, values: tuple[Any, ...]) -> int:
        where = self.layout.directory(values)  # null and empty text may have one
        if where not in self._numbers:
            self._numbers[where] = len(self._parts)
            name = "/".join(filter(None, (self.directory, where, self.name)))
            self._parts.append(_Partition(FileWriter(self.layout, self.output, name, self.stack, sorts=self._sorts)))
        return self._numbers[where]

    def _sort_out(self, *, is_last: bool) -> None:
        """Write the row groups that are full, and put the other rows aside, sorted by partition."""
        if not self._held:
            return
        codes = np.concatenate([codes for _, codes in self._held])
        run = pa.concat_batches([batch for batch, _ in self._held])
        self._held, self._bytes = [], 0
        if (np.diff(codes) < 0).any():
            order = np.argsort(codes, kind="stable")
            codes, run = codes[order], run.take(pa.array(order))
        bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        rest = list[tuple[_Partition, int, int]]()
        for begin, end in pairwise(bounds):
            part = self._parts[int(codes[begin])]
            part.waiting += run.slice(begin, end - begin).nbytes
            if part.waiting >= ROW_GROUP and (part.files.is_open or self._may_open()):
                part.pieces.append((_Run(run), begin, end))
                part.files.write(part.taken())
            else:
                rest.append((part, begin, end))
        if not rest:
            return
        if len(rest) < len(bounds) - 1:
            run = pa.concat_batches([run.slice(begin, end - begin) for _, begin, end in rest])
        aside, begin = _Run(run, None if is_last else self._aside()), 0
        for part, low, high in rest:
            part.pieces.append((aside, begin, begin + high - low))
            begin += high - low

    def _may_open(self) -> bool:
        return sum(part.files.is_open for part in self._parts) < MOST_OPEN

    def _aside(self) -> BinaryIO:
        if self._file is None:
            self._file = self.stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - as long as the stack
        found: BinaryIO = self._file
        return found

    def finish(self) -> list[ExportedFile]:
        """Complete all files; what there is to know of each."""
        self._sort_out(is_last=True)
        with ThreadPoolExecutor(MOST_OPEN) as pool:
            under_way = deque[tuple[Future[None], int]]()
            for part in self._parts:
                while len(under_way) > MOST_OPEN or sum(size for _, size in under_way) > MOST_BYTES // 2:
                    under_way.popleft()[0].result()
                rows = part.taken() if part.pieces else None
                size = 0 if rows is None else rows.nbytes
                under_way.append((pool.submit(_complete, part.files, rows), size))
                del rows
            for one, _ in under_way:
                one.result()
        return [file for part in self._parts for file in part.files.done]


def _complete(files: FileWriter, rows: pa.Table | None) -> None:
    if rows is not None:
        files.write(rows)
    files.close()


def _codes(batch: pa.RecordBatch, layout: ExportLayout) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...]]]:
    """Return the partition of each row as a number, shape (n,), and what the numbers stand for."""
    return group_codes([_partition_column(batch, name, layout) for name in layout.partition_by], batch.num_rows)


def _partition_column(batch: pa.RecordBatch, name: str, layout: ExportLayout) -> Any:
    if name in {DAY, HOUR}:
        form, width = ("%Y-%m-%d", _DAY_US) if name == DAY else ("%Y-%m-%dT%H", _HOUR_US)
        moments = batch.column(layout.time)
        steps = np.floor_divide(pc.fill_null(moments.cast(pa.int64()), 0).to_numpy(), width)
        found = pa.array(steps, mask=moments.is_null().to_numpy(zero_copy_only=False))
        few = found.dictionary_encode(null_encoding="encode")  # each is written out once
        begins = pc.multiply(few.dictionary, width).cast(moments.type).cast(pa.timestamp("s", tz="UTC"))
        return pa.DictionaryArray.from_arrays(few.indices, pc.strftime(begins, form))
    bucket = Bucket.of(name)
    if bucket is None:
        return batch.column(name)
    few = batch.column(bucket.column).dictionary_encode(null_encoding="encode")
    is_iceberg = bool(layout.field_ids)
    known = [bucket.number(value, in_iceberg=is_iceberg) for value in few.dictionary.to_pylist()]
    numbers = pa.array(known, pa.int32())
    return numbers.take(few.indices)


def _named(layout: ExportLayout) -> list[str]:
    names = [(bucket.column if (bucket := Bucket.of(name)) else name) for name in layout.partition_by]
    return [name for name in names if name not in {DAY, HOUR}]


def columns_to_read(layout: ExportLayout) -> tuple[str, ...]:
    """Return the columns that a task needs: those written, those in directories, and what is noted of files."""
    return tuple(dict.fromkeys([*layout.columns, *_named(layout), layout.place, layout.time]))
