"""Units of RocksDB queues as rows, through the extra ``rocksdb`` (spec 10.1)."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.rocketmq.filters import Filter
from rmqctl.rocketmq.rocksdb_queues import QueueDatabase, RocksUnit, open_queues
from rmqctl.rocketmq.rows.units import Row
from rmqctl.rocketmq.store import QUEUES, RocketMQStore

_KEYS = ("topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code", "store_timestamp")


def database_rows(store: RocketMQStore, wanted: Filter) -> Iterator[Row]:
    """One row a unit, by topic length, topic, queue and offset; a database has no position.

    Args:
        wanted: of queues that it leaves out no unit is read; other filters are applied to the rows later.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        IOFailure: the database cannot be opened.
    """
    with open_queues(store) as database:
        for unit in _units(database, wanted):
            values = {key: getattr(unit, key) for key in _KEYS}
            yield {"kind": "queue_unit", "file": QUEUES, "position": None, **values}


def _units(database: QueueDatabase, wanted: Filter) -> Iterator[RocksUnit]:
    if not wanted.topics and wanted.queue_id is None:
        yield from database.units()
        return
    for topic, queue in database.queues():
        if (not wanted.topics or topic in wanted.topics) and wanted.queue_id in (None, queue):
            yield from database.units_of(topic, queue)
