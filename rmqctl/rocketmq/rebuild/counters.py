"""Queue counters that the log can no longer prove: queues whose messages have all expired (spec 2.16, 14.2, 14.5).

A queue's next offset is stored nowhere but in its files. Without them a broker begins at 0 again, and consumers that
stand further on get nothing. Where the files are gone, the offsets that consumers have committed still tell.
"""

from __future__ import annotations

import os

from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.rocketmq.config_files import consumer_offsets, delay_offsets
from rmqctl.rocketmq.dispatch.dispatched import Key
from rmqctl.rocketmq.dispatch.queue_series import MAX_HOLE
from rmqctl.rocketmq.dispatch.queue_units import UNIT_SIZE, Appended, QueueState
from rmqctl.rocketmq.queue_files import Queue
from rmqctl.rocketmq.queue_range import LogRange, queue_range
from rmqctl.rocketmq.rebuild.build import Built
from rmqctl.rocketmq.rebuild.staging import QueueFilesWriter, queue_path
from rmqctl.rocketmq.rocksdb_queues import sound_units
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, QueueFiles, RocketMQStore

_EXPIRED_SIZE = 1


def lost_counters(store: RocketMQStore, known: set[Key]) -> dict[Key, int]:
    """Next offsets of queues that have neither records in the log nor files, as far as anything tells.

    Args:
        known: queues that were built.

    Returns:
        The largest offset known, by queue. Nothing where the log begins at offset 0: it then proves all.

    Raises:
        OSError: a file cannot be read.
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    if not store.log_files or store.log_files[0].base == 0:
        return {}
    found: dict[Key, int] = {}
    for key, offset in _told(store):
        if offset > 0 and key not in known and key[1] >= 0:
            found[key] = max(found.get(key, 0), offset)
    there = {
        (q.topic.encode("utf-8", "surrogateescape"), q.queue_id)
        for kind in (QUEUES, BATCH_QUEUES)
        if not (kind == QUEUES and store.is_rocksdb)
        for q in store.queues(kind)
        if q.files(sizes=False)[0]
    }
    return {key: offset for key, offset in found.items() if key not in there}


def _told(store: RocketMQStore) -> list[tuple[Key, int]]:
    """Every offset that says how far a queue was."""
    told = [((_name(o.topic), o.queue_id), o.offset) for o in consumer_offsets(store)]
    told += [((_name(SCHEDULE_TOPIC), level - 1), offset) for level, offset in delay_offsets(store).items()]
    if store.is_rocksdb:
        told += [((_name(u.topic), u.queue_id), u.queue_offset + 1) for u in sound_units(store)]
    return told


def _name(topic: str) -> bytes:
    return topic.encode("utf-8", "surrogateescape")


def keep_destroyed_tails(store: RocketMQStore, built: Built, files: QueueFilesWriter) -> None:
    """Let queues go on where their old files end, if their last records are destroyed in the middle of the log.

    Else a broker gives out the queue offsets of the destroyed messages again. The units in between repeat the last
    message that is left.

    Raises:
        OSError: a file cannot be read or written.
    """
    if not built.damage or store.is_rocksdb or not store.log_files:
        return
    extent = LogRange(store.log_files[0].base, built.end, is_5=True)
    for key, state in built.queues.simple.items():
        path = queue_path(QUEUES, key)
        queue = Queue.open(QueueFiles(QUEUES, os.fsdecode(key[0]), key[1], path, store.tree))
        missing = queue_range(queue, extent).max_offset - state.next_offset if queue.files else 0
        if 0 < missing <= MAX_HOLE and state.end >= UNIT_SIZE:
            last = files.read(QUEUES, key, state.end - UNIT_SIZE, UNIT_SIZE)
            files.write(QUEUES, key, Appended(state.end, last * missing))
            state.end += missing * UNIT_SIZE
            built.queues.filled[key] = built.queues.filled.get(key, 0) + missing
    files.flush()


def counter_units(next_offset: int, file_size: int) -> Appended:
    """Units of one file that keep a queue's counter: filler, and one unit of an expired record as the last.

    Filler alone will not do: as the last unit it makes a broker believe that 2 GiB of log are dispatched (spec 3.4).
    """
    state = QueueState(file_size)
    appended = state.put(0, _EXPIRED_SIZE, 0, next_offset - 1)
    assert appended is not None
    return appended
