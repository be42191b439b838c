"""`table` of a RocketMQ store: its messages, units and the like as a stream of Arrow batches, or part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from rmqctl.arrow import ArrowTable
from rmqctl.errors import WrongUsage
from rmqctl.filters import Filters
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.tables.bodies import BodyOption
from rmqctl.rocketmq.tables.message_table import limited
from rmqctl.rocketmq.tables.options import TableOptions
from rmqctl.rocketmq.tables.tables import TABLES, RocketMQTables
from rmqctl.rocketmq.tables.tables import table as table_of
from rmqctl.store import Place


def as_tables(
    store: RocketMQStore, place: Place | None, filters: Filters, split_size: int | None, body: str
) -> RocketMQTables:
    """Return the tables of the store, to be read part by part; with a limit the log is walked here up to its last
    message.
    """
    options = TableOptions(
        store.root if place is None else place.path,
        body=BodyOption(body),
        wanted=Filter.of(filters),
        split_size=split_size,
        commit_log=() if place is None else place.commit_log,
        broker_conf=None if place is None else place.broker_conf,
    )
    return RocketMQTables(options if filters.limit is None else limited(options, filters.limit))


_OPENED = {"body", "body_size_decompressed", "inner"}


def table(
    store: RocketMQStore, place: Place | None, name: str, wanted: Filter, columns: Sequence[str] | None
) -> ArrowTable:
    """Return a table of the store with the wanted rows and columns; bodies are read only where they are among these."""
    if name not in TABLES:
        raise WrongUsage("table", f"{name!r} is none; there are {', '.join(TABLES)}.")
    opens = columns is None or bool(_OPENED & set(columns))
    options = TableOptions(
        store.root,
        None if columns is None else tuple(columns),
        BodyOption.DECOMPRESSED if opens else BodyOption.NONE,
        wanted=wanted,
        commit_log=() if place is None else place.commit_log,
        broker_conf=None if place is None else place.broker_conf,
    )
    found = table_of(name, options)

    def batches() -> Iterator[pa.RecordBatch]:
        for part in found.parts():
            yield from found.read(part)

    return ArrowTable(found.schema(), batches)
