"""The tables of log directories by name: ``records``, ``batches``, and small ones with the rows of the verbs.

What figures are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from formats.kafka.record_batch import HEADER_SIZE
from rmqctl import questions
from rmqctl.arrow import TIME, ArrowTable, batched, strings
from rmqctl.errors import WrongUsage
from rmqctl.filters import Filters
from rmqctl.kafka.filters import Wanted
from rmqctl.kafka.tables.columns import RECORD_SCHEMA
from rmqctl.kafka.tables.records import BatchTable, KafkaOptions, RecordLog, RecordTable, kafka_options, limited
from rmqctl.kafka.tables.stretches import IndexedSegment, KafkaFilter, Stretch, segments_of
from rmqctl.kafka.verbs import looking
from rmqctl.kafka.verbs.checking import findings_of
from rmqctl.parallel import Share
from rmqctl.tables import Figures, OptionTables, ReadingTable, RowTable, Table

Rows = Iterable[Mapping[str, Any] | None]

TOPIC_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("topic_id", pa.string()),
        ("log_start_offset", pa.int64()),
        ("log_end_offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("last_stable_offset", pa.int64()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("segments", pa.int32()),
        ("first_timestamp", TIME),
        ("last_timestamp", TIME),
    ]
)
"""Columns of the command ``topics``: one row a partition."""

CONSUMER_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("consumer_offset", pa.int64()),
        ("log_end_offset", pa.int64()),
        ("lag", pa.int64()),
        ("metadata", pa.string()),
        ("leader_epoch", pa.int32()),
        ("commit_timestamp", TIME),
        ("anomaly", pa.string()),
        ("pending_offset", pa.int64()),
    ]
)
"""Columns of the command ``lag``: one row a group in a partition."""

TRANSACTION_SCHEMA = pa.schema(
    [
        ("transactional_id", pa.string()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("state", pa.string()),
        ("partitions", pa.list_(pa.string())),
        ("start_timestamp", TIME),
        ("timeout_ms", pa.int64()),
        ("last_update", TIME),
        ("hanging", pa.bool_()),
    ]
)
"""Columns of the command ``transactions``."""

FINDING_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("severity", pa.string()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("messages", pa.int64()),
        ("cause", pa.string()),
        ("folded_under", pa.string()),
        ("message", pa.string()),
        ("remedy", pa.string()),
    ]
)
"""Keys of the findings of ``verify``; null where a fact is absent."""


def _topics(options: KafkaOptions) -> Rows:
    rows = looking.topics(options.replicas(), questions.Topics()).rows
    wanted = options.wanted
    for row in filter(None, rows):
        if wanted.includes_topic(row["topic"]) and wanted.queue_id in {None, row["partition"]}:
            yield row


def _consumers(options: KafkaOptions) -> Rows:
    return looking.lag(options.replicas(), questions.Lag()).rows


def _transactions(options: KafkaOptions) -> Rows:
    return looking.transaction_states(options.replicas(), questions.Transactions()).rows


def _findings(options: KafkaOptions) -> Rows:
    return (finding.row() for finding in findings_of(options.replicas().place, options.level))


TABLES: dict[str, Callable[[KafkaOptions], Table]] = {
    "records": RecordTable,
    "batches": BatchTable,
    "findings": partial(RowTable, FINDING_SCHEMA, _findings),
    "topics": partial(RowTable, TOPIC_SCHEMA, _topics),
    "consumer_offsets": partial(RowTable, CONSUMER_SCHEMA, _consumers),
    "transactions": partial(RowTable, TRANSACTION_SCHEMA, _transactions),
    "reading": lambda options: ReadingTable(RecordTable(options)),
}


def tables_of(given: Mapping[str, str]) -> KafkaTables:
    """Return the tables of log directories by the options of the data source.

    Raises:
        BadOption: one is not known, or its value is no such thing.
    """
    return KafkaTables(kafka_options(given))


@dataclass(frozen=True, slots=True)
class KafkaTables(OptionTables[KafkaOptions]):
    """The tables of one broker's log directories."""

    OF, KINDS, PLACE = "log directory", TABLES, "partition"
    MEANING: ClassVar = {"topic": "topic", "partition": "queue", "timestamp": "time", "offset": "place"}

    def findings(self, share: Share) -> Iterator[pa.RecordBatch]:
        found = findings_of(self.options.replicas().place, self.options.level, share)
        return batched((finding.row() for finding in found), FINDING_SCHEMA)

    def log(self) -> RecordLog:
        return RecordLog(self.options)

    def figures(self, *, keys: bool = True) -> Figures:
        return Figures(GROUPS, FigureTable(self.options, keys=keys), _span(self.options))

    def described(self) -> dict[str, Any]:
        found = asdict(self.options.wanted)
        rest = found.pop("rest")
        if rest["grep"] is not None:
            rest["grep"] = rest["grep"].pattern.decode("utf-8", "replace")
        return {**found, **{k: v for k, v in rest.items() if v}, "read_committed": self.options.read_committed}


def as_tables(path: str, filters: Filters, split_size: int | None, body: str) -> KafkaTables:
    """Return the tables of log directories, to be read part by part; with a limit the log is walked here up to it.

    Raises:
        WrongUsage: a filter or a choice means nothing for Kafka.
    """
    if body == "stored":
        raise WrongUsage("--body", "stored is for RocketMQ: a batch of Kafka is compressed as a whole.")
    Wanted(filters)  # refuses what has no meaning
    options = KafkaOptions(path, body=body, split_size=split_size, wanted=KafkaFilter.of(filters))
    return KafkaTables(options if filters.limit is None else limited(options, filters.limit))


def stream(
    path: str, name: str, topics: tuple[str, ...], filters: Filters, columns: Sequence[str] | None
) -> ArrowTable:
    """Return a table with the wanted rows and columns, read while it is consumed.

    Raises:
        WrongUsage: there is no such table, or a filter means nothing for Kafka.
    """
    Wanted(filters)
    wanted = replace(KafkaFilter.of(filters), topics=topics)
    options = KafkaOptions(path, None if columns is None else tuple(columns), wanted=wanted)
    return KafkaTables(options).stream(name)


# --- what figures are made of -------------------------------------------------------------------------


GROUPS: dict[str, tuple[str, ...]] = {
    "all": (),
    "topic": ("topic",),
    "queue": ("topic", "partition"),
    "hour": ("hour_timestamp",),
    "compression": ("compression",),
    "producer": ("producer_id",),
}
"""What figures are grouped by, and the columns that name a group."""

_FIGURES = ("topic", "partition", "timestamp", "size", "compression", "batch_size", "producer_id", "crc_ok")


class FigureTable(RecordTable):
    """Records as :class:`rmqctl.tables.Figures` has them: a batch counts with the first of its records.

    ``bytes`` are those of batches as stored. ``body_bytes`` are those of keys, values and headers, compressed where the
    batch is; nobody stores how long a record waited.
    """

    def __init__(self, options: KafkaOptions, *, keys: bool = True) -> None:
        super().__init__(options)
        self.keys = keys

    def schema(self) -> pa.Schema:
        return pa.schema([RECORD_SCHEMA.field(name) for name in ("topic", "partition", "compression", "producer_id")])

    def read(self, part: list[Stretch]) -> Iterator[pa.RecordBatch]:
        names = (*_FIGURES, "key") if self.keys else _FIGURES
        for batch in RecordTable(replace(self.options, columns=names)).read(part):
            size, none = batch.column("size"), pc.equal(batch.column("compression"), "none")
            stored = batch.column("batch_size").cast(pa.int64())
            packed = pc.fill_null(pc.max_element_wise(pc.subtract(stored, HEADER_SIZE), 0, skip_nulls=False), 0)
            columns = {
                **{name: batch.column(name) for name in self.schema().names},
                "time": batch.column("timestamp"),
                "waited_ms": pa.nulls(len(batch), pa.int64()),
                "size": size,
                "bytes": pc.fill_null(stored, 0),
                "body_bytes": pc.if_else(none, size, packed),
                "body_bytes_decompressed": size,
                "bad_crc": pc.invert(batch.column("crc_ok")).cast(pa.int64()),
                **(_keys(batch.column("key")) if self.keys else {}),
            }
            yield pa.RecordBatch.from_pydict(columns)


def _keys(keys: Any) -> dict[str, Any]:
    """Return the keys of records, each a list of one; no key is meant to be unique."""
    ends = pc.cumulative_sum(keys.is_valid().cast(pa.int32())).to_pylist()
    lists = pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), strings(keys.filter(keys.is_valid())))
    return {"unique_key": pa.nulls(len(keys), pa.string()), "keys": lists}


def _span(options: KafkaOptions) -> int | None:
    """Between the first and the last time that the first and the last segments of partitions show."""
    first, last = list[int](), list[int]()
    for log in options.logs():
        segments = segments_of(log)
        for segment in segments[:1]:
            first += _times(segment, 0, "base_timestamp")[:1]
        for segment in segments[-1:]:
            last += _times(segment, segment.position(1 << 62), "max_timestamp")[-1:]
    if not first or not last:
        return None
    wanted = options.wanted
    return min(max(last), wanted.before or max(last)) - max(min(first), wanted.after or min(first))


def _times(segment: IndexedSegment, start: int, name: str) -> list[int]:
    """Return times of batches from a place on, as far as the first that has one for the start of a segment."""
    found: list[int] = []
    for block in segment.scanned(start):
        times = block[name]
        found += times[times > 0].tolist()
        if found and not start:
            break
    return found
