"""Why a question by time or by queue offset was answered as it was: the last sentence of an explanation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from formats.rocketmq.message import TRANSACTION
from rmqctl.explain import NONE, Trace, TraceStep
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.dump.record import RowOptions
from rmqctl.rocketmq.query import steps
from rmqctl.rocketmq.query.messages import UnitMessages
from rmqctl.rocketmq.query.offset import (
    EMPTY,
    NULL,
    OVERFLOW_BADLY,
    OVERFLOW_ONE,
    TOO_SMALL,
    GetMessage,
    OffsetQuestion,
    real_tags_code,
)
from rmqctl.rocketmq.query.queue_view import QueueView, hole_before, queue_on_disk
from rmqctl.rocketmq.query.records import Record
from rmqctl.rocketmq.query.time import BOUNDARIES_SINCE, Boundary, TimeAnswer, unit_at
from rmqctl.rocketmq.query.units import Unit
from rmqctl.text import number_of

_OUTSIDE = {EMPTY, TOO_SMALL, OVERFLOW_ONE, OVERFLOW_BADLY, NULL}


def cause_of_time(answer: TimeAnswer, messages: UnitMessages) -> TraceStep:
    """Return the conclusion of a question by time."""
    view, time = answer.view, answer.question.time
    if not _has_messages(view):
        return _empty(view)
    if answer.unit is not None:
        wrong = messages.why_not(answer.unit)
        if wrong is not None:
            return wrong
    side = _outside(view, time)
    if side:
        first, last = _times(view)
        place = {"topic": view.topic, "queue_id": view.queue_id}
        return steps.TIME_OUTSIDE.conclude(time=time, side=side, first=first, last=last, **place)
    if not _fits(answer):
        place = {"topic": view.topic, "queue_id": view.queue_id}
        return steps.TIME_ORDER.conclude(time=time, queue_offset=answer.queue_offset, reason=_disorder(view), **place)
    return NONE.conclude(found=f"offset {answer.queue_offset}, stored at {answer.stored}, is the answer")


def cause_of_offset(answer: GetMessage, question: OffsetQuestion, messages: UnitMessages) -> TraceStep:
    """Return the conclusion of a question by queue offset."""
    view, offset = messages.view, question.offset
    outside = _outside_queue(view, answer, offset)
    if outside is not None:
        return outside
    place = view.at(offset)
    unit = place[0].unit(place[1]) if place else None
    if unit is not None and unit.is_filler and not view.is_sound:
        with queue_on_disk(view.started, view.topic, view.queue_id) as disk:
            unqueued = _in_log(disk, offset)
        if unqueued is not None:
            return unqueued
    if unit is not None:
        wrong = messages.why_not(unit) or (_by_tag(messages, unit, question.tag) if question.tag else None)
        if wrong is not None:
            return wrong
    return NONE.conclude(found=f"{number_of(answer.count, 'message')} from offset {offset} on, status {answer.status}")


def _outside_queue(view: QueueView, answer: GetMessage, offset: int) -> TraceStep | None:
    """Why the queue has nothing at an offset; None where it has a unit."""
    if answer.status not in _OUTSIDE and view.at(offset) is not None:
        return None
    with queue_on_disk(view.started, view.topic, view.queue_id) as disk:
        return _on_disk(view, disk, offset) or _in_log(disk, offset) or _nowhere(view, disk, offset)


def _on_disk(view: QueueView, disk: QueueView, offset: int) -> TraceStep | None:
    """Return the reason where a unit of the offset is on disk, but not in the queue as a broker has it."""
    place = disk.at(offset)
    unit = place[0].unit(place[1]) if place and disk.min_offset <= offset < disk.max_offset else None
    if unit is not None and not view.is_sound:
        wrong = UnitMessages(disk, RowOptions(), Trace(on=False)).why_not(unit)
        return wrong or _cut(view, offset)
    hole = hole_before(disk, offset) if unit is None else None
    if hole is None:
        return None
    found = "it is empty" if hole == offset else f"unit {hole} is empty, and the queue ends there for a broker"
    return steps.QUEUE_HOLE.conclude(queue_offset=offset, found=found, **_names(view))


def _cut(view: QueueView, offset: int) -> TraceStep:
    recovery = view.started.recovery
    stopped = recovery.stopped_by
    reason = f"{stopped.message} ({stopped.kind.id})" if stopped is not None else "recovery ends there"
    return steps.CUT_AT_START.conclude(
        stopped.file if stopped is not None else "",
        queue_offset=offset,
        release=view.release,
        end=recovery.end,
        reason=reason,
        **_names(view),
    )


def _in_log(disk: QueueView, offset: int) -> TraceStep | None:
    """Return the reason where the log has the message of the offset and the queue on disk no unit for it."""
    found = None
    count = 0
    for physical, queue_offset in _records(disk):
        count += 1
        found = physical if queue_offset == offset else found
    if disk.last_unit() is None and count:
        return steps.QUEUE_MISSING.conclude(messages=count, **_names(disk))
    return None if found is None else steps.NO_QUEUE_UNIT.conclude(physical_offset=found, **_names(disk))


def _nowhere(view: QueueView, disk: QueueView, offset: int) -> TraceStep:
    """Return the reason where neither queue nor log has the message."""
    if not _has_messages(view) and disk.last_unit() is None:
        return steps.QUEUE_EMPTY.conclude(**_names(view))
    if offset < view.min_offset:
        return steps.UNIT_BEFORE_MIN.conclude(queue_offset=offset, min_offset=view.min_offset, **_names(view))
    if offset >= view.max_offset:
        return steps.BEYOND_MAX.conclude(queue_offset=offset, max_offset=view.max_offset, **_names(view))
    return steps.QUEUE_HOLE.conclude(queue_offset=offset, found="no file holds it", **_names(view))


def _names(view: QueueView) -> dict[str, Any]:
    return {"topic": view.topic, "queue_id": view.queue_id}


def _by_tag(messages: UnitMessages, unit: Unit, tag: str) -> TraceStep | None:
    """Why the unit asked for is not of the tag; None where it is."""
    from formats.rocketmq.tags_code import tags_code

    code, wanted = real_tags_code(messages.view, unit), tags_code(tag)
    if code is not None and (code ^ wanted) & 0xFFFFFFFF:
        return steps.TAG_CODE.conclude(code=code, tag=tag, wanted=wanted)
    record = messages.record(unit)
    if isinstance(record, Record) and not record.has_tags(tag):
        found = record.properties.get(b"TAGS", b"").decode("utf-8", "replace")
        return steps.TAG_TEXT.conclude(record.file, tag=tag, found=found or "absent")
    return None


def _has_messages(view: QueueView) -> bool:
    return view.last_unit() is not None and view.min_offset < view.max_offset


def _empty(view: QueueView) -> TraceStep:
    """Return why a queue has no messages: it was never written, or its files are gone and the log still has them."""
    with queue_on_disk(view.started, view.topic, view.queue_id) as disk:
        if disk.last_unit() is None:
            count = sum(1 for _ in _records(disk))
            if count:
                return steps.QUEUE_MISSING.conclude(messages=count, **_names(view))
        elif not view.is_sound and disk.max_offset > view.max_offset:
            return _cut(view, disk.min_offset)
    return steps.QUEUE_EMPTY.conclude(**_names(view))


def _records(view: QueueView) -> Iterator[tuple[int, int]]:
    """Physical and queue offset of the queue's records in log order, as the log has them."""
    from rmqctl.rocketmq.log.commitlog import CommitLog, LogState, walk_file
    from rmqctl.rocketmq.log.filters import Filter

    wanted, state = Filter(topics=(view.topic,), queue_id=view.queue_id), LogState()
    for context in CommitLog(view.store.log_files, crashed=True).contexts():
        for found in walk_file(context, state):
            rows = wanted.select(found.block)
            block = found.block if rows is None else found.block.take(rows)
            for row, flags in enumerate(block["sys_flag"].tolist()):
                if flags & TRANSACTION not in UNQUEUED:
                    yield block.physical_of(row), int(block["queue_offset"][row])


def _times(view: QueueView) -> tuple[int | None, int | None]:
    """Store times of the first and last message of a queue, ms."""
    first, last = unit_at(view, view.min_offset), view.last_unit()
    times = (view.store_time(u) if u is not None else -1 for u in (first, last))
    low, high = (t if t >= 0 else None for t in times)
    return low, high


def _outside(view: QueueView, time: int) -> str:
    first, last = _times(view)
    if first is not None and time < first:
        return "before"
    return "behind" if last is not None and time > last else ""


def _fits(answer: TimeAnswer) -> bool:
    """Whether the neighbours bear the answer out."""
    time, stored = answer.question.time, answer.stored
    if stored is None:
        return False
    if answer.view.release < BOUNDARIES_SINCE:
        beside = answer.next if stored < time else answer.previous
        return stored == time or beside is None or (stored < time) == (beside >= time)
    if answer.question.boundary is Boundary.LOWER:
        return (answer.previous is None or answer.previous < time) and stored >= time
    return stored <= time and (answer.next is None or answer.next > time)


def _disorder(view: QueueView) -> str:
    if view.release < BOUNDARIES_SINCE:
        return "brokers up to 5.1.0 choose the queue file by its modification time, which a copy or a restore changes"
    return "the store times of the queue do not only rise (the broker's clock was set), which bisection misses"
