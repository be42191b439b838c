"""The answer to a question by queue offset as rows: the broker's status, the messages, and why one is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rmqctl.rocketmq.query.messages_of import Row, UnitMessages
from rmqctl.rocketmq.query.offset import PULL_COUNT, GetMessage, browse, get_message
from rmqctl.rocketmq.query.queue_view import QueueView
from rmqctl.rocketmq.query.records import Absence, Record
from rmqctl.rocketmq.query.steps import Trace, rows_of
from rmqctl.rocketmq.rows.show import Show

Wanted = Callable[[Record], bool]


@dataclass(frozen=True, slots=True)
class OffsetQuestion:
    """What is asked.

    Attributes:
        count: messages wanted; None: one, or with ``one_call`` as many as a consumer asks for.
        tag: only messages of this tag: by code as the broker compares it, then by text as the consumer does.
        one_call: answer as one `getMessage` call does, which ends with the queue file.
        wanted: which records pass besides.
        explain: add the steps, and the sentence that says what is missing.
    """

    offset: int
    count: int | None = None
    tag: str | None = None
    one_call: bool = False
    explain: bool = False
    show: Show = field(default_factory=Show)
    wanted: Wanted | None = None


def offset_rows(view: QueueView, question: OffsetQuestion) -> Iterator[Row]:
    """The status, the messages, and with ``explain`` the steps.

    Raises:
        OSError: a file cannot be read.
    """
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
        from rmqctl.rocketmq.query.queue_causes import cause_of_offset

        yield from rows_of([*trace, cause_of_offset(answer, question, messages)])


def _answer(view: QueueView, question: OffsetQuestion, trace: Trace) -> GetMessage:
    if question.one_call:
        return get_message(view, question.offset, question.count or PULL_COUNT, question.tag, trace)
    return browse(view, question.offset, question.count or 1, question.tag, trace)


def _passes(record: Record, question: OffsetQuestion, trace: Trace) -> bool:
    """The consumer's own test of the tag, and the filters."""
    if question.tag not in (None, "*") and not record.has_tags(str(question.tag)):
        trace.add(record.file, f"record {record.physical_offset}", f"its tag is not {question.tag}; dropped")
        return False
    if question.wanted is not None and not question.wanted(record):
        trace.add(record.file, f"record {record.physical_offset}", "does not pass the filters; dropped")
        return False
    return True
