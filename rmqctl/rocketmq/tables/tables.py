"""The tables of a store by name, read part by part or as one stream, and what statistics are made of.

Tables that are small or need the whole store at once are made here: ``topics``, ``consumer_offsets``, ``findings``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.arrow import TIME, ArrowTable, batched
from rmqctl.files.remote import unpacked
from rmqctl.filters import Filters
from rmqctl.parallel import Share, note
from rmqctl.rocketmq.dispatch.continuity import messages_in
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.query.lag import lag_rows
from rmqctl.rocketmq.queues.ranges import log_end
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore, queue_ends
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.tables.columns import BodyOption, TableOptions, table_options
from rmqctl.rocketmq.tables.message_table import MessageLog, MessageTable, limited
from rmqctl.rocketmq.tables.messages import MessageBatches
from rmqctl.rocketmq.tables.splits import SPLIT_SIZE, log_of
from rmqctl.rocketmq.tables.units import IndexTable, UnitTable
from rmqctl.rocketmq.verify.driver import Level, SplitResult, Verification, VerifyOptions, check_split
from rmqctl.rocketmq.verify.splits import Job, Split
from rmqctl.store import Place
from rmqctl.tables import Figures, OptionTables, ReadingTable, RowTable, Table, check_reachable

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
        ("max_offset", pa.int64()),
        ("lag", pa.int64()),
        ("lag_bytes", pa.int64()),
        ("lag_ms", pa.int64()),
        ("anomaly", pa.string()),
        ("min_offset", pa.int64()),
        ("last_consumed_timestamp", TIME),
        ("next_store_timestamp", TIME),
        ("file", pa.string()),
    ]
)
"""Columns of the command ``lag``: one row a group in a queue."""

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
        ("messages", pa.int64()),
        ("about", pa.string()),
        ("cause", pa.string()),
        ("folded_under", pa.string()),
        ("message", pa.string()),
        ("remedy", pa.string()),
    ]
)
"""Keys of the findings of ``verify``; null where a fact is absent."""


def _topics(options: TableOptions) -> Iterator[Row]:
    wanted = options.wanted
    for row in queue_ends(options.store(), processes=1).rows:
        if wanted.includes_topic(row.topic) and wanted.queue_id in {None, row.queue_id}:
            yield row.row()


def _consumers(options: TableOptions) -> Iterator[Row]:
    store = options.store()
    with RecoveredStore(store, release_range(store).highest) as started:
        yield from (row.row() for row in lag_rows(started))


def _findings(options: TableOptions) -> Iterator[Row]:
    """Return what `verify` finds, by one task; :func:`rmqctl.pipeline.verify.findings` shares the work among many."""
    checked = Verification(options.store(), VerifyOptions(Level(options.level)))
    return (finding.row() for finding in checked.findings())


# --- the tables of a store --------------------------------------------------------------------------


TABLES: dict[str, Callable[[TableOptions], Table]] = {
    "messages": MessageTable,
    "queue_units": UnitTable,
    "index_entries": IndexTable,
    "findings": partial(RowTable, FINDING_SCHEMA, _findings),
    "topics": partial(RowTable, TOPIC_SCHEMA, _topics),
    "consumer_offsets": partial(RowTable, CONSUMER_SCHEMA, _consumers),
    "reading": lambda options: ReadingTable(MessageTable(options)),
}


def tables_of(given: Mapping[str, str]) -> RocketMQTables:
    """Return the tables of a store by the options of the data source.

    Raises:
        BadOption: one is not known, or its value is no such thing.
    """
    return RocketMQTables(table_options(given))


@dataclass(frozen=True, slots=True)
class RocketMQTables(OptionTables[TableOptions]):
    """The tables of one store."""

    OF, KINDS, PLACE = "store", TABLES, "position"
    MEANING: ClassVar = {"topic": "topic", "queue_id": "queue", "store_timestamp": "time", "physical_offset": "place"}

    def findings(self, share: Share) -> Iterator[pa.RecordBatch]:
        options = VerifyOptions(Level(self.options.level), split_size=SPLIT_SIZE)
        checked = Verification(self.options.store(), options, share=splits_shared(share))
        return batched((finding.row() for finding in checked.findings()), FINDING_SCHEMA)

    def log(self) -> MessageLog:
        return MessageLog(self.options)

    def figures(self, *, keys: bool = True) -> Figures:
        return Figures(GROUPS, FigureTable(self.options, keys), self._span())

    def _span(self) -> int | None:
        store, wanted = self.options.store(), self.options.wanted
        first = next((int(f.block["store_timestamp"][0]) for f in log_of(store).walk() if len(f.block)), None)
        last = log_end(store).store_timestamp
        if first is None or last is None:
            return None
        return min(last, wanted.before or last) - max(first, wanted.after or first)

    def described(self) -> dict[str, Any]:
        wanted = asdict(self.options.wanted)
        if self.options.wanted.grep is not None:
            wanted["grep"] = self.options.wanted.grep.pattern.decode("utf-8", "replace")
        return wanted


def splits_shared(share: Share) -> Callable[[Job, list[Split]], Iterable[SplitResult]]:
    """Return splits of a verification checked elsewhere."""
    return lambda job, splits: share(partial(_checked, job), splits)


def _checked(job: Job, split: Split) -> SplitResult:
    check_reachable(split.context.file.tree)
    checked = check_split(job, split)
    note(checked.partials.log.messages, (split.stop or split.context.file.size) - split.start)
    return checked


# --- what figures are made of -------------------------------------------------------------------------


GROUPS: dict[str, tuple[str, ...]] = {
    "all": (),
    "topic": ("topic",),
    "queue": ("topic", "queue_id"),
    "tag": ("topic", "tags"),
    "hour": ("hour_timestamp",),
    "host": ("born_host",),
}
"""What figures are grouped by, and the columns that name a group."""

_FIGURES = (
    "topic", "queue_id", "tags", "born_host", "born_timestamp", "store_timestamp", "size", "body_crc_ok", "body_size",
    "body_size_decompressed",
)  # fmt: skip
_KEYS = ("unique_key", "keys")


@dataclass(frozen=True, slots=True)
class FigureTable:
    """Messages as :class:`rmqctl.tables.Figures` has them."""

    options: TableOptions
    keys: bool = True

    def schema(self) -> pa.Schema:
        return pa.schema(
            [("topic", pa.string()), ("queue_id", pa.int32()), ("tags", pa.string()), ("born_host", pa.string())]
        )

    def parts(self) -> list[Split]:
        return MessageTable(self.options).parts()

    def read(self, part: Split) -> Iterator[pa.RecordBatch]:
        table = MessageTable(replace(self.options, columns=_FIGURES + (_KEYS if self.keys else ())))
        batches = MessageBatches(table.schema(), self.options.body)
        for batch, messages in ((b, m) for block in table.blocks(part) for b, m in _counted(batches, block)):
            size, body = batch.column("size").cast(pa.int64()), batch.column("body_size").cast(pa.int64())
            stored, born = (batch.column(f"{name}_timestamp").cast(pa.int64()) for name in ("store", "born"))
            columns = {
                **{name: batch.column(name) for name in ("topic", "queue_id", "tags", "born_host")},
                "time": batch.column("store_timestamp"),
                "waited_ms": pc.fill_null(pc.divide(pc.subtract(stored, born), 1000), 0),
                "size": size,
                "bytes": size,
                "body_bytes": body,
                "body_bytes_decompressed": pc.coalesce(batch.column("body_size_decompressed").cast(pa.int64()), body),
                "bad_crc": pc.invert(batch.column("body_crc_ok")).cast(pa.int64()),
                "messages": messages,
                **({name: batch.column(name) for name in _KEYS} if self.keys else {}),
            }
            yield pa.RecordBatch.from_pydict(columns)


def _counted(batches: MessageBatches, block: Block) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]:
    """Yield the rows of a block, and how many messages each stands for: those of an inner batch count one by one."""
    counts, at = messages_in(block), 0
    for batch in batches.of(block):
        yield batch, counts[at : at + len(batch)]
        at += len(batch)


# --- for a store that is open -----------------------------------------------------------------------


def as_tables(
    store: StoreFiles, place: Place | None, filters: Filters, split_size: int | None, body: str
) -> RocketMQTables:
    """Return the tables of the store, to be read part by part; with a limit the log is walked here up to its last
    message.
    """
    options = TableOptions(
        unpacked(store.root if place is None else place.path),
        body=BodyOption(body),
        wanted=Filter.of(filters),
        split_size=split_size,
        commit_log=() if place is None else tuple(map(unpacked, place.commit_log)),
        broker_conf=None if place is None else place.broker_conf,
    )
    return RocketMQTables(options if filters.limit is None else limited(options, filters.limit))


_OPENED = {"body", "body_size_decompressed", "inner"}


def stream(
    store: StoreFiles, place: Place | None, name: str, wanted: Filter, columns: Sequence[str] | None
) -> ArrowTable:
    """Return a table of the store as one stream with the wanted rows and columns.

    Bodies are read only where they are among the columns.
    """
    opens = columns is None or bool(_OPENED & set(columns))
    options = TableOptions(
        unpacked(store.root),
        None if columns is None else tuple(columns),
        BodyOption.DECOMPRESSED if opens else BodyOption.NONE,
        wanted=wanted,
        commit_log=() if place is None else tuple(map(unpacked, place.commit_log)),
        broker_conf=None if place is None else place.broker_conf,
    )
    return RocketMQTables(options).stream(name)
