"""Topics and queues with the offsets a broker reports: from the queue files, and the log after them.

The largest offset is where the queue's units end (spec 6.6), less units that point after the end of the log, plus
messages that the log holds and no queue does yet: a broker dispatches those when it starts (spec 6.4, 6.7). The
smallest is computed as the broker of the store's release does it (spec 3.9).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from formats.rocketmq.message import TRANSACTION
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.continuity import messages_in
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.log.columns import TextIds
from rmqctl.rocketmq.log.commitlog import CommitLog, FileContext, LogBlock, LogState, walk_file
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue, queues_of
from rmqctl.rocketmq.queues.ranges import LogRange, QueueRange, last_unit, log_end, queue_range
from rmqctl.rocketmq.queues.rocksdb import RocksUnit, open_queues, rocksdb_units
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.files import BATCH_QUEUES, LIGHT, QUEUES, QueueFiles, StoreFiles

Key = tuple[str, int]


@dataclass(slots=True)
class Tail:
    """The messages of one queue after the last dispatched record of the log.

    Attributes:
        first_offset, next_offset: queue offset of the first and after the last.
        messages, bytes: how many, and bytes of their records.
        first, last: physical offsets of the first and last record.
    """

    first_offset: int
    next_offset: int
    first: int
    last: int
    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Unit:
    """A queue unit that dispatch would make."""

    key: Key
    offset: int
    count: int
    physical: int
    size: int


def undispatched(store: StoreFiles, dispatched: int, log: LogReader, *, but_first: bool = False) -> dict[Key, Tail]:
    """Tails by topic and queue id; extra queues of a record (spec 3.7) only where queues of that topic are there.

    Args:
        dispatched: physical offset after the last record that has a queue unit. Where it is negative no queue
            shows what is missing, and the answer is empty.
        but_first: leave out the record at ``dispatched`` itself, as the normal recovery of 5.3.2 and later does.
    """
    tails: dict[Key, Tail] = {}
    file = log.file_of(dispatched) if dispatched >= 0 else None
    if file is None:
        return tails
    contexts = CommitLog(store.log_files, crashed=True).contexts()
    state, ids = LogState(), TextIds()
    for context in contexts[store.log_files.index(file) :]:
        start = dispatched - file.base if context.file is file else 0
        for unit in _units(context, state, start, ids, store):
            if but_first and unit.physical == dispatched:
                continue
            tail = tails.setdefault(unit.key, Tail(unit.offset, unit.offset, unit.physical, unit.physical))
            tail.next_offset, tail.last = unit.offset + unit.count, unit.physical
            tail.messages, tail.bytes = tail.messages + unit.count, tail.bytes + unit.size
    return tails


def _units(context: FileContext, state: LogState, start: int, ids: TextIds, store: StoreFiles) -> Iterator[_Unit]:
    for found in walk_file(context, state, start=start):
        if len(found.block):
            yield from _own_units(found, ids)
            yield from _extra_units(found, store)


def _own_units(found: LogBlock, ids: TextIds) -> Iterator[_Unit]:
    block, topics = found.block, found.topics(ids)
    counts = messages_in(block)
    for row in np.flatnonzero(~np.isin(block["sys_flag"] & TRANSACTION, UNQUEUED)).tolist():
        key = ids.texts[topics[row]].decode("utf-8", "replace"), int(block["queue_id"][row])
        offset, physical = int(block["queue_offset"][row]), block.physical_of(row)
        yield _Unit(key, offset, int(counts[row]), physical, int(block.total_size[row]))


def _extra_units(found: LogBlock, store: StoreFiles) -> Iterator[_Unit]:
    """Units of INNER_MULTI_DISPATCH."""
    names, offsets = (found.pairs.named(n) for n in (b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET"))
    places = {int(row): i for i, row in enumerate(offsets.owner)}
    block = found.block
    for i, row in enumerate(names.owner.tolist()):
        topics = names.value(i).decode("utf-8", "replace").split(",")
        texts = offsets.value(places[row]).split(b",") if row in places else []
        if len(topics) != len(texts):
            continue
        for topic, text in zip(topics, texts, strict=True):
            if text.isdigit() and "/" not in topic and _has_queue(store, topic):
                queue = 0 if topic.startswith(LIGHT) else int(block["queue_id"][row])
                yield _Unit((topic, queue), int(text), 1, block.physical_of(row), int(block.total_size[row]))


def _has_queue(store: StoreFiles, topic: str) -> bool:
    return store.in_database(topic) or store.tree.stat(f"{QUEUES}/{topic}") is not None


# --- topics and queues with the offsets a broker reports --------------------------------------------


_NO_END = 1 << 62
_NO_DISPATCH, _DISPATCH_AFTER = Release(5, 0, 0), Release(5, 3, 2)  # spec 6.3, 6.7


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue.

    Attributes:
        min_offset, max_offset: first message and next offset, as the broker answers.
        messages: messages that are still in the log; those of inner batches count.
        bytes: of their records.
        first_store_timestamp, last_store_timestamp: of the first and last of them, ms; None without one.
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


def queue_rows(
    store: StoreFiles,
    wanted: Collection[Key] | None = None,
    dispatched: int | None = None,
    *,
    as_found: bool = False,
    before: int | None = None,
) -> list[QueueRow]:
    """All queues that have files, by topic and id, as their files show them.

    Args:
        as_found: the files alone count, whether or not the log has what they point to.
        before: physical offset; with ``as_found`` units of records that begin there or later do not count.
        wanted: only these queues; of the others no more than the last unit is read.
        dispatched: physical offset after the last record that has a queue unit, where that is known; queues that
            are not wanted are then not looked at.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    with LogReader(store.log_files) as log:
        releases = release_range(store)
        end = _NO_END if before is None else before
        extent = LogRange(log.min_offset, end if as_found else log_end(store).offset, releases.is_5)
        found, reached = _ranges(store, extent, wanted, look_at_all=dispatched is None)
        tails = {} if as_found else _tails(store, releases.highest, reached if dispatched is None else dispatched, log)
        if store.has_light_database and (wanted is None or any(store.in_database(topic) for topic, _ in wanted)):
            tails = {key: tail for key, tail in tails.items() if not store.in_database(key[0])}
            light, reached = _light_ranges(store, extent)
            found += [r for r in light if wanted is None or r.key in wanted]
            late = {} if as_found else _tails(store, releases.highest, reached, log)
            tails |= {key: tail for key, tail in late.items() if store.in_database(key[0])}
        rows = [_row(f, log, tails.pop(f.key, None)) for f in found]
        rows += [_new_row(key, tail, log) for key, tail in tails.items() if wanted is None or key in wanted]
    return sorted(rows, key=lambda r: (r.topic, r.queue_id))


def by_topic(rows: Iterable[QueueRow]) -> list[dict[str, Any]]:
    """Return the rows added up, one a topic."""
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


def _ranges(
    store: StoreFiles, log: LogRange, wanted: Collection[Key] | None, *, look_at_all: bool
) -> tuple[list[QueueRange], int]:
    """Return the wanted queues, and the physical offset after the last record that any queue has a unit for; -1
    without.
    """
    found: list[QueueRange] = []
    ends = {QUEUES: -1, BATCH_QUEUES: -1}
    for queue in _queues(store) if wanted is None or look_at_all else _named(store, wanted):
        if wanted is None or queue.key in wanted:
            found.append(queue_range(queue, log))
            end = found[-1].dispatched
        else:
            end = _last_end(queue, log)
        ends[queue.where.kind] = max(ends[queue.where.kind], end)
    if store.is_rocksdb:
        ranges = _rocksdb_ranges(store, log)
        ends[QUEUES] = max([log.begin, *(r.dispatched for r in ranges)])
        found += [r for r in ranges if wanted is None or r.key in wanted]
    return found, max(ends.values()) if ends[QUEUES] >= 0 else -1


def _tails(store: StoreFiles, release: Release, dispatched: int, log: LogReader) -> dict[Key, Tail]:
    """Return what the next start dispatches: after a clean stop 5.0.0 to 5.3.1 nothing, later all but one record."""
    if store.state != "clean" or release < _NO_DISPATCH:
        return undispatched(store, dispatched, log)
    return undispatched(store, dispatched, log, but_first=True) if release >= _DISPATCH_AFTER else {}


def _queues(store: StoreFiles) -> Iterator[Queue]:
    if not store.is_rocksdb:
        yield from queues_of(store.queues(QUEUES))
    yield from queues_of(store.queues(BATCH_QUEUES), BATCH_UNIT)


def _named(store: StoreFiles, wanted: Collection[Key]) -> Iterator[Queue]:
    """Yield the queues of these keys that are there."""
    for kind, dtype in ((QUEUES, UNIT), (BATCH_QUEUES, BATCH_UNIT)):
        places = (QueueFiles(kind, topic, queue, f"{kind}/{topic}/{queue}", store.tree) for topic, queue in wanted)
        if not (store.is_rocksdb and kind == QUEUES):
            yield from queues_of(places, dtype)


def _last_end(queue: Queue, log: LogRange) -> int:
    unit = last_unit(queue)
    if unit is None or not len(unit) or int(unit["physical_offset"][0]) >= log.end:
        return -1
    return int(unit["physical_offset"][0]) + int(unit["size"][0])


def _rocksdb_ranges(store: StoreFiles, log: LogRange) -> list[QueueRange]:
    """Return the ranges of queues in RocksDB, unit by unit."""
    return _ranges_of(rocksdb_units(store), log)


def _light_ranges(store: StoreFiles, log: LogRange) -> tuple[list[QueueRange], int]:
    """Return the light queues that lie in the database alone, and how far the database reaches in the log."""
    with open_queues(store) as database:
        units = (unit for unit in database.units() if store.in_database(unit.topic))
        return _ranges_of(units, log), max(database.dispatched_end(), log.begin)


def _ranges_of(units: Iterable[RocksUnit], log: LogRange) -> list[QueueRange]:
    found: dict[Key, QueueRange] = {}
    for unit in units:
        key = unit.topic, unit.queue_id
        own = found.setdefault(key, QueueRange(key))
        if unit.physical_offset >= log.end:
            continue
        own.max_offset = unit.queue_offset + 1
        own.dispatched = max(own.dispatched, unit.physical_offset + unit.size)
        if unit.physical_offset < log.begin:
            own.min_offset = own.max_offset
            continue
        if own.first < 0:
            own.first, own.min_offset = unit.physical_offset, unit.queue_offset
        own.last, own.bytes, own.messages = unit.physical_offset, own.bytes + unit.size, own.messages + 1
    return list(found.values())


def _row(found: QueueRange, log: LogReader, tail: Tail | None) -> QueueRow:
    topic, queue = found.key
    if tail is not None and tail.next_offset > found.max_offset:
        if found.first < 0:
            found.first = tail.first
        if not found.max_offset:
            found.min_offset = tail.first_offset
        found.max_offset, found.last = tail.next_offset, tail.last
        found.bytes, found.messages = found.bytes + tail.bytes, found.messages + tail.messages
    times = (log.store_timestamp(p) if p >= 0 else None for p in (found.first, found.last))
    return QueueRow(topic, queue, found.min_offset, found.max_offset, found.messages, found.bytes, *times)


def _new_row(key: Key, tail: Tail, log: LogReader) -> QueueRow:
    times = (log.store_timestamp(p) for p in (tail.first, tail.last))
    return QueueRow(*key, tail.first_offset, tail.next_offset, tail.messages, tail.bytes, *times)
