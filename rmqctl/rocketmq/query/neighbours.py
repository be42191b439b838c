"""The answers to a question by time, queue by queue: the offset, the message there, the times of its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rmqctl.rocketmq.query.messages_of import Row, UnitMessages
from rmqctl.rocketmq.query.queue_view import QueueView, open_queue
from rmqctl.rocketmq.query.records import Record
from rmqctl.rocketmq.query.started import StartedStore
from rmqctl.rocketmq.query.steps import Trace, rows_of
from rmqctl.rocketmq.query.time import BOUNDARIES_SINCE, Boundary, offset_by_time
from rmqctl.rocketmq.query.units import Unit
from rmqctl.rocketmq.rows.show import Show


@dataclass(frozen=True, slots=True)
class TimeQuestion:
    """What is asked.

    Attributes:
        time: epoch ms.
        boundary: counts from 5.1.1 on.
        explain: add the steps, and the sentence that says why the answer is what it is.
    """

    time: int
    boundary: Boundary = Boundary.LOWER
    explain: bool = False
    show: Show = field(default_factory=Show)


@dataclass(frozen=True, slots=True)
class TimeAnswer:
    """One queue's answer.

    Attributes:
        queue_offset: as the broker answers it; the end of the queue where all messages are older.
        unit: of the message there, None where there is none.
        previous, stored, next: store times of the message in front of it, its own and the one behind, ms.
    """

    view: QueueView
    question: TimeQuestion
    queue_offset: int
    unit: Unit | None
    previous: int | None
    stored: int | None
    next: int | None

    def row(self) -> Row:
        """The JSON object of the contract."""
        bounded = self.view.release >= BOUNDARIES_SINCE
        return {
            "kind": "time_answer",
            "topic": self.view.topic,
            "queue_id": self.view.queue_id,
            "time": self.question.time,
            "queue_offset": self.queue_offset,
            "boundary": str(self.question.boundary) if bounded else "nearest",
            "min_offset": self.view.min_offset,
            "max_offset": self.view.max_offset,
            "previous_store_timestamp": self.previous,
            "store_timestamp": self.stored,
            "next_store_timestamp": self.next,
        }


def time_rows(started: StartedStore, topic: str, queues: Iterable[int], question: TimeQuestion) -> Iterator[Row]:
    """For each queue its answer and the message there; with ``explain`` the steps behind them.

    Raises:
        OSError: a file cannot be read.
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
                from rmqctl.rocketmq.query.queue_causes import cause_of_time

                yield from rows_of([*trace, cause_of_time(answer, messages)])


def answer_of(view: QueueView, question: TimeQuestion, trace: Trace | None = None) -> TimeAnswer:
    """The answer of one queue, with what lies around it.

    Raises:
        OSError: a file cannot be read.
    """
    offset = offset_by_time(view, question.time, question.boundary, trace)
    unit = unit_at(view, offset)
    behind = offset + (unit.count if unit else 1)
    around = (unit_at(view, offset - 1), unit, unit_at(view, behind))
    previous, stored, after = (None if u is None else _stored(view, u) for u in around)
    return TimeAnswer(view, question, offset, unit, previous, stored, after)


def unit_at(view: QueueView, offset: int) -> Unit | None:
    """The unit of a message; None outside the queue and for fillers."""
    if not view.min_offset <= offset < view.max_offset:
        return None
    place = view.at(offset)
    unit = place[0].unit(place[1]) if place else None
    return None if unit is None or unit.is_filler else unit


def _stored(view: QueueView, unit: Unit) -> int | None:
    stored = view.store_time(unit)
    return stored if stored >= 0 else None
