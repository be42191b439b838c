"""The end of the checks of RocksDB queues: what each queue of the database has beyond what the log claimed."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.database_queue import DatabaseQueue
from rmqctl.rocketmq.databases import DatabaseDamaged, can_read
from rmqctl.rocketmq.rocksdb_queues import open_queues
from rmqctl.rocketmq.store import QUEUES, RocketMQStore
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.queue_rest import Claim, Key, Missing, finish_queues


def finish_database(
    store: RocketMQStore, claims: dict[Key, Claim], missing: list[Missing], context: LogContext, file_size: int
) -> Iterator[Finding]:
    """Findings of the queues that are read from the database, and of records without a unit; none without the extra.

    Raises:
        Refused: the store is remote.
    """
    if not can_read():
        return
    try:
        with open_queues(store) as database:
            opened = (DatabaseQueue.of(database, *key, store) for key in database.queues() if store.in_database(key[0]))
            yield from finish_queues(
                store, lambda _: (queue for queue in opened if queue.files), claims, missing, context, file_size
            )
    except DatabaseDamaged as error:
        yield Finding(
            kinds.QUEUE_DATABASE, store.queue_database or QUEUES, 0, 0, f"the database cannot be opened: {error.reason}"
        )
