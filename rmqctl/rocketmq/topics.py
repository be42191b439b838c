"""Topics and queues with the offsets a broker reports: from the queue files, and the log behind them.

The largest offset is where the queue's units end (spec 6.6), less units that point behind the end
of the log, plus messages that the log holds and no queue does yet: a broker dispatches those when
it starts. The smallest is the first unit that does not point before the log (spec 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmqctl.rocketmq.columns import TextIds, topic_numbers
from rmqctl.rocketmq.commitlog import CommitLog, FileContext, LogState, walk_file
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.queue_files import BATCH_UNIT, Queue, Units, is_pre_blank, queues_of
from rmqctl.rocketmq.releases import release_range
from rmqctl.rocketmq.rocksdb_queues import rocksdb_units
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, RocketMQStore
from rmqctl.rocketmq.verify.continuity import TRANSACTION, inner_counts

_UNQUEUED = (0x4, 0xC)


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue.

    Attributes:
        min_offset, max_offset: first message and next offset, as the broker answers.
        messages: messages in between (inner messages of batches count).
        bytes: of their records, as far as units tell.
        first_store_timestamp, last_store_timestamp: of the first and last record, ms; None without one.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    bytes: int
    first_store_timestamp: int | None
    last_store_timestamp: int | None

    def row(self) -> dict[str, Any]:
        """As the JSON object of the contract."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class _Found:
    """What a queue's files show.

    Attributes:
        units: number of its units that count; their sum of sizes is ``bytes``.
        first, last: physical offsets of the first and last record, -1 without one.
    """

    key: tuple[str, int]
    min_offset: int = 0
    max_offset: int = 0
    bytes: int = 0
    first: int = -1
    last: int = -1
    end: int = -1


def queue_rows(store: RocketMQStore) -> list[QueueRow]:
    """All queues by topic and id.

    Raises:
        OSError: a file cannot be read.
    """
    with LogReader(store.log_files) as log:
        limit = log.max_offset
        is_5 = release_range(store).is_5
        found = [_scan_queue(q, log.min_offset, limit, is_5=is_5) for q in _queues(store)]
        found += _rocksdb(store, log.min_offset, limit) if store.is_rocksdb else []
        dispatched = max((f.end for f in found), default=log.min_offset if store.is_rocksdb else -1)
        undispatched = _undispatched(store, dispatched, log)
        rows = [_row(f, log, undispatched.pop(f.key, None)) for f in found]
        rows += [_new_row(key, tail, log) for key, tail in undispatched.items()]
    return sorted(rows, key=lambda r: (r.topic, r.queue_id))


def by_topic(rows: Iterable[QueueRow]) -> list[dict[str, Any]]:
    """The rows added up, one a topic."""
    topics: dict[str, list[QueueRow]] = {}
    for row in rows:
        topics.setdefault(row.topic, []).append(row)
    return [_sum(topic, queues) for topic, queues in topics.items()]


def _sum(topic: str, queues: list[QueueRow]) -> dict[str, Any]:
    firsts = [q.first_store_timestamp for q in queues if q.first_store_timestamp is not None]
    lasts = [q.last_store_timestamp for q in queues if q.last_store_timestamp is not None]
    return {
        "topic": topic,
        "queues": len(queues),
        "messages": sum(q.messages for q in queues),
        "bytes": sum(q.bytes for q in queues),
        "first_store_timestamp": min(firsts, default=None),
        "last_store_timestamp": max(lasts, default=None),
    }


def _queues(store: RocketMQStore) -> Iterator[Queue]:
    if not store.is_rocksdb:
        yield from queues_of(store.queues(QUEUES))
    yield from queues_of(store.queues(BATCH_QUEUES), BATCH_UNIT)


def _scan_queue(queue: Queue, min_physical: int, limit: int, *, is_5: bool) -> _Found:
    found = _Found(queue.key)
    end, size = queue.end(), queue.dtype.itemsize
    for file in queue.files:
        for first, units in queue.chunks(file):
            position = file.base + first * size
            units = units[: max((end - position) // size, 0)]
            units = units[: _cut(units, limit)]
            _count(found, units, position // size, min_physical, batch=queue.dtype is BATCH_UNIT)
    if found.first < 0:
        found.min_offset = found.max_offset if is_5 and found.max_offset else 0
    return found


def _rocksdb(store: RocketMQStore, min_physical: int, limit: int) -> list[_Found]:
    """The same for RocksDB queues, unit by unit."""
    found: dict[tuple[str, int], _Found] = {}
    for unit in rocksdb_units(store):
        own = found.setdefault((unit.topic, unit.queue_id), _Found((unit.topic, unit.queue_id)))
        if unit.physical_offset >= limit:
            continue
        own.max_offset = unit.queue_offset + 1
        own.end = max(own.end, unit.physical_offset + unit.size)
        if unit.physical_offset >= min_physical:
            if own.first < 0:
                own.first, own.min_offset = unit.physical_offset, unit.queue_offset
            own.last, own.bytes = unit.physical_offset, own.bytes + unit.size
    return list(found.values())


def _cut(units: Units, limit: int) -> int:
    """How many units lie in front of the first that points behind the log."""
    beyond = np.flatnonzero((units["physical_offset"] >= limit) & ~is_pre_blank(units))
    return int(beyond[0]) if len(beyond) else len(units)


def _count(found: _Found, units: Units, number: int, min_physical: int, *, batch: bool) -> None:
    """Add the units of a chunk whose first one is unit ``number`` of the queue."""
    if not len(units):
        return
    real = np.flatnonzero(~is_pre_blank(units))
    found.max_offset = int(units["base_offset"][-1]) + int(units["batch_size"][-1]) if batch else number + len(units)
    live = real[units["physical_offset"][real] >= min_physical]
    if len(real):
        found.end = max(found.end, int(units["physical_offset"][real[-1]]) + int(units["size"][real[-1]]))
    if not len(live):
        return
    if found.first < 0:
        found.first = int(units["physical_offset"][live[0]])
        found.min_offset = int(units["base_offset"][live[0]]) if batch else number + int(live[0])
    found.last = int(units["physical_offset"][live[-1]])
    found.bytes += int(units["size"][live].sum())


@dataclass(slots=True)
class _Tail:
    """Messages of one queue behind the last dispatched one."""

    first_offset: int
    next_offset: int
    bytes: int
    first: int
    last: int


def _undispatched(store: RocketMQStore, dispatched: int, log: LogReader) -> dict[tuple[str, int], _Tail]:
    """Messages of the log that no queue holds yet, by queue; a log without any queue is left to `rebuild`."""
    tails: dict[tuple[str, int], _Tail] = {}
    file = log.file_of(dispatched) if dispatched >= 0 else None
    if file is None:
        return tails
    contexts = CommitLog(store.log_files, crashed=True).contexts()
    state, ids = LogState(), TextIds()
    for context in contexts[store.log_files.index(file) :]:
        start = dispatched - file.base if context.file is file else 0
        _walk_tail(context, state, start, ids, tails)
    return tails


def _walk_tail(
    context: FileContext, state: LogState, start: int, ids: TextIds, tails: dict[tuple[str, int], _Tail]
) -> None:
    for found in walk_file(context, state, start=start):
        block = found.block
        counts = dict(inner_counts(block, np.flatnonzero(block["sys_flag"] & 0x80))) if len(block) else {}
        topics = topic_numbers(block, ids)
        for i in range(len(block)):
            if int(block["sys_flag"][i]) & TRANSACTION in _UNQUEUED:
                continue
            key = ids.texts[topics[i]].decode("utf-8", "replace"), int(block["queue_id"][i])
            offset, physical, size = int(block["queue_offset"][i]), int(block.physical[i]), int(block.total_size[i])
            tail = tails.setdefault(key, _Tail(offset, offset, 0, physical, physical))
            tail.next_offset = offset + counts.get(i, 1)
            tail.bytes, tail.last = tail.bytes + size, physical


def _row(found: _Found, log: LogReader, tail: _Tail | None) -> QueueRow:
    topic, queue = found.key
    if tail is not None and tail.next_offset > found.max_offset:
        empty = found.first < 0
        found.first = tail.first if empty else found.first
        found.min_offset = tail.first_offset if empty and not found.max_offset else found.min_offset
        found.max_offset, found.last, found.bytes = tail.next_offset, tail.last, found.bytes + tail.bytes
    messages = found.max_offset - found.min_offset if found.first >= 0 else 0
    times = (log.store_timestamp(p) if p >= 0 else None for p in (found.first, found.last))
    return QueueRow(topic, queue, found.min_offset, found.max_offset, messages, found.bytes, *times)


def _new_row(key: tuple[str, int], tail: _Tail, log: LogReader) -> QueueRow:
    times = (log.store_timestamp(p) for p in (tail.first, tail.last))
    count = tail.next_offset - tail.first_offset
    return QueueRow(*key, tail.first_offset, tail.next_offset, count, tail.bytes, *times)


__all__ = ["QueueRow", "by_topic", "queue_rows"]
