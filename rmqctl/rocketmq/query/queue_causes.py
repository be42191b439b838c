"""Why a question by time or by queue offset was answered as it was: the last sentence of an explanation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqctl.rocketmq.query import steps
from rmqctl.rocketmq.query.messages_of import UnitMessages
from rmqctl.rocketmq.query.neighbours import TimeAnswer, unit_at
from rmqctl.rocketmq.query.offset import (
    EMPTY,
    NULL,
    OVERFLOW_BADLY,
    OVERFLOW_ONE,
    TOO_SMALL,
    GetMessage,
    real_tags_code,
)
from rmqctl.rocketmq.query.queue_view import QueueView
from rmqctl.rocketmq.query.records import Record
from rmqctl.rocketmq.query.steps import Step
from rmqctl.rocketmq.query.time import BOUNDARIES_SINCE, Boundary
from rmqctl.rocketmq.query.units import Unit

if TYPE_CHECKING:
    from rmqctl.rocketmq.query.page import OffsetQuestion

_TRANSACTION, _UNQUEUED = 0xC, (0x4, 0xC)  # prepared and rollback records get no unit


def cause_of_time(answer: TimeAnswer, messages: UnitMessages) -> Step:
    """The conclusion of a question by time.

    Raises:
        OSError: a file cannot be read.
    """
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
    return steps.NONE.conclude(found=f"offset {answer.queue_offset}, stored at {answer.stored}, is the answer")


def cause_of_offset(answer: GetMessage, question: OffsetQuestion, messages: UnitMessages) -> Step:
    """The conclusion of a question by queue offset.

    Raises:
        OSError: a file cannot be read.
    """
    view, offset = messages.view, question.offset
    outside = _outside_queue(view, answer, offset)
    if outside is not None:
        return outside
    place = view.at(offset)
    unit = place[0].unit(place[1]) if place else None
    if unit is not None:
        wrong = messages.why_not(unit) or (_by_tag(messages, unit, question.tag) if question.tag else None)
        if wrong is not None:
            return wrong
    return steps.NONE.conclude(found=f"{answer.count} messages from offset {offset} on, status {answer.status}")


def _outside_queue(view: QueueView, answer: GetMessage, offset: int) -> Step | None:
    """Why the queue has nothing at an offset; None where it has a unit."""
    place = {"topic": view.topic, "queue_id": view.queue_id}
    if answer.status == EMPTY or not _has_messages(view):
        return _in_log(view, offset) or _empty(view)
    if answer.status == TOO_SMALL:
        return steps.UNIT_BEFORE_MIN.conclude(queue_offset=offset, min_offset=view.min_offset, **place)
    if answer.status in (OVERFLOW_ONE, OVERFLOW_BADLY):
        unqueued = _in_log(view, offset)
        return unqueued or steps.BEYOND_MAX.conclude(queue_offset=offset, max_offset=view.max_offset, **place)
    hole = answer.status == NULL or view.at(offset) is None
    return steps.QUEUE_HOLE.conclude(queue_offset=offset, found="no file holds it", **place) if hole else None


def _by_tag(messages: UnitMessages, unit: Unit, tag: str) -> Step | None:
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


def _empty(view: QueueView) -> Step:
    """A queue without messages: never written, or its files are gone and the log still has them."""
    place = {"topic": view.topic, "queue_id": view.queue_id}
    if view.last_unit() is None:
        count = sum(1 for _ in _records(view))
        if count:
            return steps.QUEUE_MISSING.conclude(messages=count, **place)
    return steps.QUEUE_EMPTY.conclude(**place)


def _in_log(view: QueueView, offset: int) -> Step | None:
    """The record of a queue offset that has no unit; None where the log has none either."""
    for physical, queue_offset in _records(view):
        if queue_offset == offset:
            place = {"topic": view.topic, "queue_id": view.queue_id}
            if view.last_unit() is None:
                return _empty(view)
            return steps.NO_QUEUE_UNIT.conclude(physical_offset=physical, **place)
    return None


def _records(view: QueueView) -> Iterator[tuple[int, int]]:
    """Physical and queue offset of the queue's records behind its last unit, in log order, as the log has them."""
    from rmqctl.rocketmq.commitlog import CommitLog, LogState, walk_file
    from rmqctl.rocketmq.filters import Filter

    last = view.last_unit()
    start = last.physical_offset + last.size if last is not None and not last.is_filler else view.log_begin
    wanted = Filter(topics=(view.topic,), queue_id=view.queue_id, from_offset=start)
    state = LogState()
    for context in CommitLog(view.store.log_files, crashed=True).contexts():
        base, size = context.file.base, context.file.size
        if base + size <= start:
            continue
        for found in walk_file(context, state, start=max(start - base, 0)):
            rows = wanted.select(found.block)
            block = found.block if rows is None else found.block.take(rows)
            for row, flags in enumerate(block["sys_flag"].tolist()):
                if flags & _TRANSACTION not in _UNQUEUED:
                    yield int(block.physical[row]), int(block["queue_offset"][row])


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
