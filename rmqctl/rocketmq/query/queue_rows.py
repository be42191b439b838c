"""The answers to questions by queue offset and by time as rows, with the sentence that says what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmqctl.answer import Row
from rmqctl.explain import Trace
from rmqctl.rocketmq.query.messages import UnitMessages
from rmqctl.rocketmq.query.offset import PULL_COUNT, GetMessage, OffsetQuestion, browse, get_message
from rmqctl.rocketmq.query.queue_causes import cause_of_offset, cause_of_time
from rmqctl.rocketmq.query.queue_view import QueueView, open_queue
from rmqctl.rocketmq.query.records import Absence, Record
from rmqctl.rocketmq.query.time import TimeQuestion, answer_of
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore


def offset_rows(view: QueueView, question: OffsetQuestion) -> Iterator[Row]:
    """Yield the status, the messages, and with ``explain`` the steps."""
    trace = Trace(on=question.explain)
    answer = _answer(view, question, trace)
    place = {"topic": view.topic, "queue_id": view.queue_id, "offset": question.offset}
    yield {**answer.row(), **place}
    messages = UnitMessages(view, question.show, trace)
    for unit in answer.units:
        record = messages.record(unit)
        if not isinstance(record, Absence) and _passes(record, question, trace):
            yield messages.row(record)
    if question.explain:
        yield from (step.row() for step in [*trace, cause_of_offset(answer, question, messages)])


def time_rows(started: RecoveredStore, topic: str, queues: Iterable[int], question: TimeQuestion) -> Iterator[Row]:
    """For each queue its answer and the message there; with ``explain`` the steps after them.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    for queue_id in queues:
        with open_queue(started, topic, queue_id) as view:
            trace = Trace(on=question.explain)
            answer = answer_of(view, question, trace)
            yield answer.row()
            messages = UnitMessages(view, question.show, trace)
            record = messages.record(answer.unit) if answer.unit is not None else None
            if isinstance(record, Record):
                yield messages.row(record)
            if question.explain:
                yield from (step.row() for step in [*trace, cause_of_time(answer, messages)])


def _answer(view: QueueView, question: OffsetQuestion, trace: Trace) -> GetMessage:
    if question.one_call:
        return get_message(view, question.offset, question.count or PULL_COUNT, question.tag, trace)
    return browse(view, question.offset, question.count or 1, question.tag, trace)


def _passes(record: Record, question: OffsetQuestion, trace: Trace) -> bool:
    """Whether a record passes the consumer's own test of the tag, and the filters."""
    if question.tag not in (None, "*") and not record.has_tags(str(question.tag)):
        trace.add(record.file, f"record {record.physical_offset}", f"its tag is not {question.tag}; dropped")
        return False
    if question.wanted is not None and not question.wanted(record):
        trace.add(record.file, f"record {record.physical_offset}", "does not pass the filters; dropped")
        return False
    return True
