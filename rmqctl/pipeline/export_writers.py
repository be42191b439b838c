"""Writing batches in the formats of an export: Parquet, ORC, CSV, JSON lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

import orjson
import pyarrow as pa

from rmqctl.pipeline.export_manifest import Format, Layout
from rmqctl.rocketmq.rows.text import text_or_base64


class Writer(Protocol):
    """A file under way."""

    def write(self, table: pa.Table) -> None:
        """Add rows; in Parquet they become a row group."""
        ...

    def close(self) -> None:
        """Write what ends the file; the stream stays open."""
        ...


def writer(layout: Layout, stream: BinaryIO, schema: pa.Schema) -> Writer:
    """A writer of the layout's format onto a stream."""
    return _WRITERS[Format(layout.format)](layout, stream, schema)


class _Parquet:
    def __init__(self, layout: Layout, stream: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        order = [pq.SortingColumn(schema.names.index("physical_offset"))] if "physical_offset" in schema.names else None
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
    "transaction", "compression", "body_crc_ok", "properties",
}  # fmt: skip


class _Orc:
    def __init__(self, layout: Layout, stream: BinaryIO, schema: pa.Schema) -> None:
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

    def __init__(self, layout: Layout, stream: BinaryIO, schema: pa.Schema) -> None:
        self._out: Any = stream
        if layout.compression != "none":
            self._out = pa.CompressedOutputStream(pa.PythonFile(stream, "w"), layout.compression)
        self._times = [f.name for f in schema if pa.types.is_timestamp(f.type)]
        self._names = schema.names

    def write(self, table: pa.Table) -> None:
        for batch in table.to_batches():
            self._out.write(self._text(self._rows(batch)))

    def _rows(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        columns = {name: _column(name, batch.column(i)) for i, name in enumerate(batch.schema.names)}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _text(self, rows: list[dict[str, Any]]) -> bytes:
        return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)

    def close(self) -> None:
        if isinstance(self._out, pa.CompressedOutputStream):
            self._out.close()


class _Csv(_Lines):
    """With a line of names; lists and maps are JSON in a cell, bodies text or ``base64:...``."""

    def __init__(self, layout: Layout, stream: BinaryIO, schema: pa.Schema) -> None:
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


def _column(name: str, column: pa.Array) -> list[Any]:
    """The values of a column as ``dump`` has them in JSON: times in ms, maps as objects, bodies as text."""
    if pa.types.is_timestamp(column.type):
        return [None if us is None else us // 1000 for us in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_map(column.type):
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    if pa.types.is_binary(column.type):
        return [None if raw is None else text_or_base64(raw) for raw in column.to_pylist()]
    if name == "inner":
        return [None if found is None else [_inner(one) for one in found] for found in column.to_pylist()]
    return list(column.to_pylist())


def _inner(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "properties": dict(message["properties"]), "body": text_or_base64(message["body"])}


_WRITERS: dict[Format, Callable[[Layout, BinaryIO, pa.Schema], Writer]] = {
    Format.PARQUET: _Parquet,
    Format.ORC: _Orc,
    Format.CSV: _Csv,
    Format.JSONL: _Lines,
}
