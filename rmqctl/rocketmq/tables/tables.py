"""The tables of a store: what columns they have, how they are divided among tasks, how a part is read.

A table knows nothing of Spark; it travels to executors as it is.

Tables that are small or need the whole store at once: ``topics``, ``consumer_offsets``, ``findings``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa

from rmqctl.rocketmq.dispatch.queue_ends import queue_rows
from rmqctl.rocketmq.state.config import consumer_offsets
from rmqctl.rocketmq.tables.message_table import MessageTable
from rmqctl.rocketmq.tables.options import BadOption, TableOptions
from rmqctl.rocketmq.tables.texts import TIME, in_calendar
from rmqctl.rocketmq.tables.units import IndexTable, UnitTable
from rmqctl.rocketmq.verify.driver import Level, Verification, VerifyOptions

Row = dict[str, Any]

TOPIC_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("min_offset", pa.int64()),
        ("max_offset", pa.int64()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("first_store_timestamp", TIME),
        ("last_store_timestamp", TIME),
    ]
)
"""Columns of the command ``topics``: one row a queue."""

CONSUMER_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("consumer_offset", pa.int64()),
        ("file", pa.string()),
    ]
)
"""How far each consumer group is in a queue: the next queue offset that it wants."""

FINDING_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("severity", pa.string()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("physical_offset", pa.int64()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("message", pa.string()),
        ("remedy", pa.string()),
    ]
)
"""Keys of the findings of ``verify``; null where a fact is absent."""

_ROWS = 4096
_INT32 = range(-(1 << 31), 1 << 31)


@dataclass(frozen=True, slots=True)
class TopicTable:
    """Queues with the offsets a broker answers."""

    options: TableOptions

    def schema(self) -> pa.Schema:
        return TOPIC_SCHEMA

    def parts(self) -> list[int]:
        return [0]

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        rows = (row.row() for row in queue_rows(self.options.store()) if self._wants(row.topic, row.queue_id))
        return _batches((_timed(row) for row in rows), TOPIC_SCHEMA)

    def _wants(self, topic: str, queue_id: int) -> bool:
        wanted = self.options.wanted
        return (not wanted.topics or topic in wanted.topics) and wanted.queue_id in {None, queue_id}


def _timed(row: Row) -> Row:
    return {key: _moment(value) if key.endswith("timestamp") else value for key, value in row.items()}


def _moment(milliseconds: int | None) -> int | None:
    """Microseconds, null for what no calendar holds."""
    return milliseconds * 1000 if milliseconds is not None and in_calendar(milliseconds) else None


@dataclass(frozen=True, slots=True)
class ConsumerTable:
    """Offsets of consumer groups."""

    options: TableOptions

    def schema(self) -> pa.Schema:
        return CONSUMER_SCHEMA

    def parts(self) -> list[int]:
        return [0]

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        rows = (
            {"group": o.group, "topic": o.topic, "queue_id": o.queue_id, "consumer_offset": o.offset, "file": o.file}
            for o in consumer_offsets(self.options.store())
            if o.queue_id in _INT32
        )
        return _batches(rows, CONSUMER_SCHEMA)


@dataclass(frozen=True, slots=True)
class FindingTable:
    """What `verify` finds, by one task; :func:`rmqctl.pipeline.verify.findings` shares the work among many."""

    options: TableOptions

    def schema(self) -> pa.Schema:
        return FINDING_SCHEMA

    def parts(self) -> list[int]:
        return [0]

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        verification = Verification(self.options.store(), VerifyOptions(Level(self.options.level)))
        return finding_batches(finding.row() for finding in verification.findings())


def finding_batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Rows of findings as batches."""
    return _batches(rows, FINDING_SCHEMA)


def _batches(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    left = iter(rows)
    while some := list(islice(left, _ROWS)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


# --- the tables of a store --------------------------------------------------------------------------


class Table(Protocol):
    """One table of a store."""

    def schema(self) -> pa.Schema:
        """Its columns."""
        ...

    def parts(self) -> Sequence[Any]:
        """What the tasks read, in order; each can be pickled."""
        ...

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        ...


TABLES: dict[str, Callable[[TableOptions], Table]] = {
    "messages": MessageTable,
    "queue_units": UnitTable,
    "index_entries": IndexTable,
    "findings": FindingTable,
    "topics": TopicTable,
    "consumer_offsets": ConsumerTable,
}


def table(name: str, options: TableOptions) -> Table:
    """A table of a store.

    Raises:
        BadOption: there is no table of this name.
    """
    if name not in TABLES:
        raise BadOption(f"a store has no table {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name](options)
