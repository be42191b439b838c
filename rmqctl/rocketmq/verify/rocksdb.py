"""RocksDB queues as the queues of files that the checks compare with the log (spec 10.1).

The end of the checks of RocksDB queues: what each queue of the database has beyond what the log claimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from rmqctl.findings import Finding
from rmqctl.rocketmq.findings.derived import QUEUE_DATABASE
from rmqctl.rocketmq.queues.files import UNIT, Queue, Units
from rmqctl.rocketmq.queues.rocksdb import QueueDatabase, open_queues
from rmqctl.rocketmq.store.databases import DatabaseDamaged, can_read
from rmqctl.rocketmq.store.files import QUEUES, QueueFiles, RocketMQStore, StoreFile
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.unmatched import Claim, Key, Missing, finish_queues

_CHUNK_UNITS = 1 << 16


@dataclass(slots=True)
class DatabaseQueue(Queue):
    """A queue whose units lie in the database; its one file stands for the span of their offsets."""

    database: QueueDatabase | None = None

    @classmethod
    def of(cls, database: QueueDatabase, topic: str, queue_id: int, store: RocketMQStore) -> DatabaseQueue:
        """Return the queue; without a file where it has no unit, or none that can be read."""
        place = store.queue_database or QUEUES
        where = QueueFiles(QUEUES, topic, queue_id, f"{place}/{topic}/{queue_id}", store.tree)
        first = last = None
        with suppress(DatabaseDamaged):  # the end of the checks says it
            first = next(database.units_of(topic, queue_id), None)
            last = database.last_unit(topic, queue_id)
        files = []
        if first is not None and last is not None:
            base, count = first.queue_offset, last.queue_offset - first.queue_offset + 1
            files = [StoreFile(place, base * UNIT.itemsize, count * UNIT.itemsize, store.tree, place)]
        return cls(where, files, UNIT, database)

    def read(self, file: StoreFile, first: int = 0, count: int | None = None) -> Units:
        """Units from number ``first`` of the span on; one that is not there is zero."""
        span = file.size // UNIT.itemsize
        units = np.zeros(max(span - first if count is None else min(count, span - first), 0), UNIT)
        base = file.base // UNIT.itemsize + first
        assert self.database is not None
        with suppress(DatabaseDamaged):
            for unit in self.database.units_of(*self.key, base):
                at = unit.queue_offset - base
                if at >= len(units):
                    break
                units[at] = (unit.physical_offset, unit.size, unit.tags_code)
        return units

    def chunks(self, file: StoreFile) -> Iterator[tuple[int, Units]]:
        """Yield the pieces of the span that hold a unit, each with the number of its first one.

        A row with a damaged key may have any queue offset, and lie an age away from the others.
        """
        assert self.database is not None
        base, first = file.base // UNIT.itemsize, 0
        while (unit := next(self.database.units_of(*self.key, base + first), None)) is not None:
            first = (unit.queue_offset - base) // _CHUNK_UNITS * _CHUNK_UNITS
            yield first, self.read(file, first, _CHUNK_UNITS)
            first += _CHUNK_UNITS

    def file_name(self, position: int) -> str:
        """Return the database as a whole."""
        return self.files[0].name if self.files else QUEUES


# --- the end of the checks of rocksdb queues --------------------------------------------------------


def finish_database(
    store: RocketMQStore, claims: dict[Key, Claim], missing: list[Missing], context: LogContext, file_size: int
) -> Iterator[Finding]:
    """Yield findings of the queues that are read from the database, and of records without a unit; none without the
    extra.

    Raises:
        Refused: the store is remote.
    """
    if not can_read():
        return
    context = replace(context, dispatched=max((claim.end for claim in claims.values()), default=-1))
    try:
        with open_queues(store) as database:
            for _ in database.units():  # a block that cannot be read is no missing unit
                pass
            opened = (DatabaseQueue.of(database, *key, store) for key in database.queues() if store.in_database(key[0]))
            yield from finish_queues(
                store, lambda _: (queue for queue in opened if queue.files), claims, missing, context, file_size
            )
    except DatabaseDamaged as error:
        yield Finding(
            QUEUE_DATABASE, store.queue_database or QUEUES, 0, 0, f"the database cannot be opened: {error.reason}"
        )
