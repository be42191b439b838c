"""Messages that the log holds and no queue does yet: a broker dispatches them when it starts (spec 6.4, 6.7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rmqctl.rocketmq.columns import TextIds
from rmqctl.rocketmq.commitlog import CommitLog, FileContext, LogBlock, LogState, walk_file
from rmqctl.rocketmq.dispatch.request import TRANSACTION, UNQUEUED
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.store import LIGHT, QUEUES, RocketMQStore
from rmqctl.rocketmq.verify.continuity import inner_counts

_INNER_BATCH = 0x80
Key = tuple[str, int]


@dataclass(slots=True)
class Tail:
    """The messages of one queue behind the last dispatched record of the log.

    Attributes:
        first_offset, next_offset: queue offset of the first and behind the last.
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


def undispatched(store: RocketMQStore, dispatched: int, log: LogReader, *, but_first: bool = False) -> dict[Key, Tail]:
    """Tails by topic and queue id; extra queues of a record (spec 3.7) only where queues of that topic are there.

    Args:
        dispatched: physical offset behind the last record that has a queue unit. Where it is negative no queue
            tells what is missing, and the answer is empty.
        but_first: leave out the record at ``dispatched`` itself, as the normal recovery of 5.3.2 and later does.

    Raises:
        OSError: a file of the log cannot be read.
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


def _units(context: FileContext, state: LogState, start: int, ids: TextIds, store: RocketMQStore) -> Iterator[_Unit]:
    for found in walk_file(context, state, start=start):
        if len(found.block):
            yield from _own_units(found, ids)
            yield from _extra_units(found, store)


def _own_units(found: LogBlock, ids: TextIds) -> Iterator[_Unit]:
    block, topics = found.block, found.topics(ids)
    counts = dict(inner_counts(block, np.flatnonzero(block["sys_flag"] & _INNER_BATCH)))
    for row in np.flatnonzero(~np.isin(block["sys_flag"] & TRANSACTION, UNQUEUED)).tolist():
        key = ids.texts[topics[row]].decode("utf-8", "replace"), int(block["queue_id"][row])
        offset, physical = int(block["queue_offset"][row]), int(block.physical[row])
        yield _Unit(key, offset, counts.get(row, 1), physical, int(block.total_size[row]))


def _extra_units(found: LogBlock, store: RocketMQStore) -> Iterator[_Unit]:
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
                yield _Unit((topic, queue), int(text), 1, int(block.physical[row]), int(block.total_size[row]))


def _has_queue(store: RocketMQStore, topic: str) -> bool:
    return store.in_database(topic) or store.tree.stat(f"{QUEUES}/{topic}") is not None
