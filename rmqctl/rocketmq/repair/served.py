"""Whole records that a plan would take out of their queues: a broker serves nothing to which no unit leads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from formats.rocketmq.message import TRANSACTION, decode_record
from formats.rocketmq.properties import split_properties
from rmqctl.repair.edits import Plan
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.measure import is_whole_record
from rmqctl.rocketmq.log.record import LogReader, record_name
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue, Units, is_pre_blank, queues_of
from rmqctl.rocketmq.repair.placeholder import is_stand_in
from rmqctl.rocketmq.repair.queue_references import Place, place_of
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, RocketMQStore, StoreFile


def hidden(before: RocketMQStore, after: RocketMQStore, plan: Plan) -> list[str]:
    """Return a sentence for each queue in files in which a plan leaves a whole record at home without the unit that
    leads to it, the only one for its place.

    Args:
        before, after: the store on both sides of the plan.
    """
    found = []
    touched = [edit.file.split("/")[:3] for edit in plan.edits]
    with LogReader(after.log_files) as log:
        for kind, dtype in ((QUEUES, UNIT), (BATCH_QUEUES, BATCH_UNIT)):
            parts = [names for names in touched if names[0] == kind]
            now = {queue.key: queue for queue in queues_of(after.queues(kind), dtype)} if parts else {}
            for queue in queues_of(before.queues(kind), dtype) if parts else ():
                own = [kind, queue.where.topic, str(queue.where.queue_id)]
                if any(own[: len(names)] == names for names in parts):
                    names = list(_taken(queue, now.get(queue.key), log))
                    found += [f"no unit of {queue.where.path} leads to {names[0]} any more"] if names else []
    return found


def _taken(was: Queue, now: Queue | None, log: LogReader) -> Iterator[str]:
    """Yield names of records that have lost their units."""
    offsets, physical = _units(was)
    kept, leads = _units(now) if now is not None else (offsets[:0], physical[:0])
    row = np.minimum(np.searchsorted(kept, offsets), max(len(kept) - 1, 0))
    is_kept = (kept[row] == offsets) & (leads[row] == physical) if len(kept) else np.zeros(len(offsets), bool)
    for offset, at in zip(offsets[~is_kept].tolist(), physical[~is_kept].tolist(), strict=True):
        raw = log.record(at)
        fields: dict[str, Any] = decode_record(raw)[0] if raw is not None else {}
        if raw is None or fields["physical_offset"] != at or is_stand_in(fields) or not is_whole_record(raw):
            continue
        if (*was.key, offset) in _places(fields):
            yield record_name(fields)


def _units(queue: Queue) -> tuple[Ints, Ints]:
    """Queue offsets of all units of a queue, ascending, and the physical offsets to which they lead."""
    offsets, physical = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    is_batch = queue.dtype is BATCH_UNIT
    for file in queue.files:
        for first, units in _chunks(queue, file):
            rows = np.flatnonzero(queue.valid(units) & ~is_pre_blank(units))
            begin = file.base // queue.dtype.itemsize + first
            offsets.append(units["base_offset"][rows].astype(np.int64) if is_batch else rows + begin)
            physical.append(units["physical_offset"][rows].astype(np.int64))
    found = np.concatenate(offsets)
    order = np.argsort(found, kind="stable")
    return found[order], np.concatenate(physical)[order]


def _chunks(queue: Queue, file: StoreFile) -> Iterator[tuple[int, Units]]:
    """Yield the units of a file; none of one that cannot be read, which leads nowhere."""
    with suppress(OSError):
        yield from queue.chunks(file)


def _places(fields: dict[str, Any]) -> set[Place]:
    """Return the places in queues that a record names: its own, and those in light queues."""
    if fields["sys_flag"] & TRANSACTION in UNQUEUED:
        return set()
    properties = dict(split_properties(fields["properties"]))
    texts = [properties.get(name, b"") for name in (b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET")]
    light = zip(*(text.split(b",") for text in texts), strict=False)
    own = {(name.decode("utf-8", "surrogateescape"), 0, int(at)) for name, at in light if at.isdigit()}
    return {place_of(fields), *own}
