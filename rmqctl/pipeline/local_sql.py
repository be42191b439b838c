"""SQL over stores in this process, by DuckDB: the same tables, the same language and the same results as on Spark.

Only queries are run of which every part means the same there: what is not known to be so is refused, and is for Spark.
Rows come from the tables as they are read, so that memory holds what the query keeps, not the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from rmqctl.errors import MissingExtra
from rmqctl.parallel import Tally, noted
from rmqctl.pipeline.mounted import BadQuery, Mounted, Row, plain, unreadable
from rmqctl.pipeline.shipping import own_directory
from rmqctl.tables import Table, Tables


def is_installed() -> bool:
    """Whether the libraries of the local engine of `sql` are there."""
    return find_spec("duckdb") is not None and find_spec("sqlglot") is not None


_ROWS = 1 << 12
_VARCHAR: Any = "VARCHAR"
_SETTINGS = (
    "TimeZone = 'UTC'", "enable_progress_bar = false", "python_enable_replacements = false",
    "autoinstall_known_extensions = false", "enable_external_access = false", "lock_configuration = true",
)  # fmt: skip
"""DuckDB opens no file and no network by itself, and takes no variable of this program for a table."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """A table as a stream of Arrow batches, begun again for every place of a query that names it."""

    source: Table
    schema: pa.Schema
    failed: list[Exception] = field(default_factory=list)
    read: dict[int, Tally] = field(default_factory=dict)  # by the number of the part, whichever place reads it

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            before = noted()
            parts = self.source.parts()
            self.read[-1] = noted().plus(before, -1)
            for number, part in enumerate(parts):
                yield from self._counted(number, self.source.read(part))
        except Exception as error:
            self.failed.append(error)  # DuckDB keeps only its text
            raise

    def _counted(self, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a part, and note what was read of it; other tables may be read in between."""
        found = Tally()
        while True:
            before = noted()
            batch = next(batches, None)
            found = found.plus(noted().plus(before, -1))
            known = self.read.get(number)
            if known is None or found.messages >= known.messages:
                self.read[number] = found
            if batch is None:
                return
            yield batch


class LocalQueries:
    """Queries run by DuckDB, one after the other, each in a database of its own that knows nothing but the tables.

    Raises:
        MissingExtra: DuckDB or the reader of Spark's SQL is not installed.
    """

    def __init__(self, stores: Iterable[Mounted]) -> None:
        if not is_installed():
            raise MissingExtra("the local engine of sql", "sql", "duckdb")
        self._tables: dict[str, tuple[str, Tables]] = {}
        for store in stores:
            found = store.tables()
            self._tables |= {store.prefix + name: (name, found) for name in found.names}
        self.header: list[str] = []
        """The columns of the last query's result, once its first row was asked for."""
        self._failed: list[Exception] = []
        self._read: list[dict[int, Tally]] = []

    @property
    def read(self) -> Tally:
        """What was read of the tables since this was asked last, each part of a table once a query."""
        found = Tally()
        for tally in (one for parts in self._read for one in parts.values()):
            found = found.plus(tally)
        self._read.clear()
        return found

    @property
    def names(self) -> list[str]:
        """The names of the tables."""
        return list(self._tables)

    @property
    def unreadable(self) -> dict[str, str]:
        """Why stores could not be read whose rows were asked for, by name."""
        return unreadable(store for _, store in self._tables.values())

    def rows(self, text: str, *, readable: bool = False) -> Iterator[Row]:
        """Yield the rows of a query's result as JSON-ready objects.

        Args:
            readable: times as ISO 8601 in UTC, for people, instead of epoch milliseconds.

        Raises:
            NotForLocalEngine, BadQuery: the query is not one for this engine, or is wrong.
        """
        with self._prepared(text) as (connection, query), self._judged():
            reader = connection.sql(query).to_arrow_reader(_ROWS)
            makers = [_maker(field.type, readable) for field in reader.schema]
            self.header = names = reader.schema.names
            for batch in reader:
                made = [list(map(make, column.to_pylist())) for make, column in zip(makers, batch.columns, strict=True)]
                yield from (dict(zip(names, row, strict=True)) for row in zip(*made, strict=True))

    def plan(self, text: str) -> list[str]:
        """How DuckDB would run a query.

        Raises:
            NotForLocalEngine, BadQuery: see :meth:`rows`.
        """
        with self._prepared(text) as (connection, query), self._judged():
            lines = [row[1] for row in connection.sql(f"EXPLAIN {query}").fetchall()]
            return [line for text in lines for line in text.splitlines()]

    @contextmanager
    def _prepared(self, text: str) -> Iterator[tuple[Any, str]]:
        """Yield a database with what the query needs of each table, and the query as DuckDB has it."""
        import duckdb

        from rmqctl.pipeline.sql_text import FULL_CASE, translated, uses

        schemas = {name: store.table(kind).schema() for name, (kind, store) in self._tables.items()}
        query = translated(text, schemas)
        self._failed.clear()
        config: dict[str, Any] = {"temp_directory": os.fspath(own_directory("duckdb"))}
        with duckdb.connect(":memory:", config=config) as connection:
            for setting in _SETTINGS:
                connection.execute(f"SET {setting}").fetchall()
            for case in (str.upper, str.lower):
                connection.create_function(f"{FULL_CASE}{case.__name__}", case, [_VARCHAR], _VARCHAR)
            now = {id(store): store.anew() for _, store in self._tables.values()}
            for name, use in uses(text, {name: schema.names for name, schema in schemas.items()}).items():
                kind, store = self._tables[name]
                source = now[id(store)].asked(use.columns, use.conditions).table(kind)
                rows = _Rows(source, source.schema(), self._failed)
                self._read.append(rows.read)
                connection.register(name, rows)
            yield connection, query

    @contextmanager
    def _judged(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        """Return what became of an exception of DuckDB: the error of a reader after which it came, or its first
        sentence.
        """
        if self._failed:
            return self._failed.pop()
        text = str(error).strip()
        said = text.splitlines()[0].partition("Error: ")[2] or text if text else type(error).__name__
        if said.startswith("Table with name"):
            said = f"{said.rstrip('!')}; there are {', '.join(sorted(self._tables))}"
        return BadQuery(said)


def _maker(kind: pa.DataType, readable: bool) -> Callable[[Any], Any]:
    """Return what makes JSON-ready values of a type's Python values."""
    if pa.types.is_map(kind):
        return lambda pairs: None if pairs is None else {str(k): plain(v, readable=readable) for k, v in pairs}
    if pa.types.is_list(kind):
        inner = _maker(kind.value_type, readable)
        return lambda items: None if items is None else list(map(inner, items))
    if pa.types.is_struct(kind):
        fields: Mapping[str, Callable[[Any], Any]] = {f.name: _maker(f.type, readable) for f in kind}
        return lambda row: None if row is None else {name: make(row[name]) for name, make in fields.items()}
    return lambda value: plain(value, readable=readable)
