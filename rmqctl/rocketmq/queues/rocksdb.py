"""RocksDB consume queues, read through the extra ``rocksdb`` (spec 10.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from formats.layout import plan_of
from formats.rocketmq.rocksdb import (
    CHECKPOINT_TOPIC,
    LARGEST_OFFSET,
    OFFSET_FAMILY,
    UNIT_FAMILY,
    QueueEnd,
    QueueEndKey,
    QueueUnitValue,
    dispatched_end,
    parse_unit_key,
    queue_prefix,
)
from rmqctl.rocketmq.store.databases import Database, DatabaseDamaged, open_database
from rmqctl.rocketmq.store.files import QUEUES, StoreFiles

if TYPE_CHECKING:  # imported only where it is needed
    import numpy as np
    import numpy.typing as npt

_VALUE = plan_of(QueueUnitValue).runs[0]
_END = plan_of(QueueEnd).runs[0]
_CHECKPOINT: bytes = QueueEndKey.build({"topic": CHECKPOINT_TOPIC, "end": b"max", "queue_id": 0})
Key = tuple[str, int]
UNIT_FIELDS = "queue_offset", "physical_offset", "size", "tags_code"
"""Of the arrays of :meth:`QueueDatabase.windows`, int64 each."""
WINDOW = 1 << 16
"""Units that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class RocksUnit:
    """One unit: its queue, its queue offset, and the record it stands for."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int


class QueueDatabase:
    """The open database of a store's queues; :func:`open_queues` makes one."""

    def __init__(self, database: Database) -> None:
        self._families = database
        self._database: Any = database.family(UNIT_FAMILY)

    def units(self) -> Iterator[RocksUnit]:
        """All units, by topic length, topic, queue and queue offset."""
        yield from self._from(b"")

    def units_of(self, topic: str, queue_id: int, first: int = 0) -> Iterator[RocksUnit]:
        """Yield the units of one queue from an offset on, ascending."""
        prefix = queue_prefix(topic.encode(), queue_id)
        for unit in self._from(prefix + max(first, 0).to_bytes(8, "big")):
            if (unit.topic, unit.queue_id) != (topic, queue_id):
                return
            yield unit

    def windows(
        self, topic: str, queue_id: int, first: int = 0, last: int = LARGEST_OFFSET
    ) -> Iterator[npt.NDArray[np.void]]:
        """Yield the units of one queue between two queue offsets, ascending, in arrays with their fields."""
        import numpy as np

        dtype = np.dtype([(name, np.int64) for name in UNIT_FIELDS])
        units = takewhile(lambda unit: unit.queue_offset <= last, self.units_of(topic, queue_id, first))
        rows = ((u.queue_offset, u.physical_offset, u.size, u.tags_code) for u in units)
        while len(window := np.fromiter(islice(rows, WINDOW), dtype)):
            yield window

    def queues(self) -> Iterator[Key]:
        """Topic and id of every queue that has a unit; jumps from queue to queue."""
        keys = queues_in(self._families)
        return ((topic.decode("utf-8", "replace"), queue_id) for topic, queue_id in keys)

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> RocksUnit | None:
        """One unit; None where there is none."""
        key = queue_prefix(topic.encode(), queue_id) + queue_offset.to_bytes(8, "big")
        value = self._families.get(UNIT_FAMILY, key)
        if value is None or len(value) != _VALUE.packer.size:
            return None
        return RocksUnit(topic, queue_id, queue_offset, *_VALUE.packer.unpack(value))

    def last_unit(self, topic: str, queue_id: int) -> RocksUnit | None:
        """Return the last unit of a queue; None in one without units."""
        prefix = queue_prefix(topic.encode(), queue_id)
        cursor = self._database.iter()
        cursor.seek_for_prev(prefix + LARGEST_OFFSET.to_bytes(8, "big"))
        self._families.check(cursor)
        found = parse_unit_key(bytes(cursor.key())) if cursor.valid() else None
        if found is None or found[:2] != (topic.encode(), queue_id):
            return None
        return self.unit(topic, queue_id, found[2])

    def dispatched_end(self) -> int:
        """Physical offset after the last record that has a unit, by the checkpoint of the database; 0 without."""
        return dispatched_end(self._families.get(OFFSET_FAMILY, _CHECKPOINT))

    def end_of(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Physical and queue offset of the last unit, as the row ``max`` of a queue has them; None without a row."""
        key = QueueEndKey.build({"topic": topic.encode(), "end": b"max", "queue_id": queue_id})
        value = self._families.get(OFFSET_FAMILY, key)
        return None if value is None or len(value) != _END.packer.size else _END.packer.unpack(value)

    def _from(self, key: bytes) -> Iterator[RocksUnit]:
        for found, value in self._families.rows(UNIT_FAMILY, start=key):
            parsed = parse_unit_key(found)
            if parsed is not None and len(value) == _VALUE.packer.size:
                topic = parsed[0].decode("utf-8", "replace")
                yield RocksUnit(topic, parsed[1], parsed[2], *_VALUE.packer.unpack(value))


def queues_in(database: Database) -> Iterator[tuple[bytes, int]]:
    """Topic and id of every queue that has a unit in the family of units, jumping from queue to queue."""
    cursor = database.family(UNIT_FAMILY).iter()
    cursor.seek_to_first()
    while cursor.valid():
        unit = parse_unit_key(bytes(cursor.key()))
        if unit is None:
            cursor.next()
            continue
        yield unit[:2]
        cursor.seek(queue_prefix(*unit[:2])[:-1] + b"\x02")
    database.check(cursor)


@contextmanager
def open_queues(store: StoreFiles, path: str = "") -> Iterator[QueueDatabase]:
    """Give the database of a store's queues, for reading.

    Args:
        path: of the database; default: the one that a broker uses.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        DatabaseDamaged: the database cannot be opened.
    """
    with open_database(store, path or store.queue_database or QUEUES, "reading RocksDB queues") as database:
        yield QueueDatabase(database)


def rocksdb_units(store: StoreFiles) -> Iterator[RocksUnit]:
    """All units, by topic length, topic, queue and queue offset.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        DatabaseDamaged: the database cannot be opened.
    """
    with open_queues(store) as database:
        yield from database.units()


def sound_units(store: StoreFiles) -> Iterator[RocksUnit]:
    """Yield the same, and none where the database cannot be opened: for work to which the log is enough.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
    """
    with suppress(DatabaseDamaged):
        yield from rocksdb_units(store)
