"""`query-offset` and `query-time` of a RocketMQ store: messages of a queue by offset and by time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqctl.answer import Answer, Row, Section
from rmqctl.explain import step_lines
from rmqctl.filters import Filters, Rendering
from rmqctl.release import Release
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.verbs.common import LAYOUT, begin, show_of

if TYPE_CHECKING:
    from rmqctl.rocketmq.query.records import Record
    from rmqctl.rocketmq.query.recovered_store import StartedStore
    from rmqctl.rocketmq.query.steps import Step

_TIME_COLUMNS = (
    "topic",
    "queue_id",
    "queue_offset",
    "previous_store_timestamp",
    "store_timestamp",
    "next_store_timestamp",
)


def query_offset(
    store: RocketMQStore,
    topic: str,
    queue: int,
    offset: int,
    filters: Filters,
    rendering: Rendering,
    *,
    explain: bool,
    as_release: Release | None,
    as_found: bool,
) -> Answer:
    """Give the status, then messages of a queue from an offset on."""
    from rmqctl.rocketmq.query.offset import OffsetQuestion, offset_rows
    from rmqctl.rocketmq.query.queue_view import open_queue

    show = show_of(rendering, as_release)
    question = OffsetQuestion(
        offset, filters.limit, filters.tag, as_release is not None, explain, show, _filter(filters, strict=show.strict)
    )
    answer = begin(store)

    def rows() -> Iterator[Row]:
        with _started(store, as_release, as_found=as_found) as started:
            meant = _queues_meant(started, topic, queue)
            if not isinstance(meant, list):
                yield from _no_queue(answer, meant, explain=explain)
                return
            found = 0
            with open_queue(started, topic, queue) as view:
                for row in offset_rows(view, question):
                    found += row["kind"] == "message"
                    yield row
            answer.is_no = not found

    answer.rows, answer.sections = rows(), lambda: _page(iter(answer))
    return answer


def query_time(
    store: RocketMQStore,
    topic: str,
    queue: int | None,
    time: int,
    rendering: Rendering,
    *,
    boundary: str,
    explain: bool,
    as_release: Release | None,
    as_found: bool,
) -> Answer:
    """Give for each queue the offset that a broker answers for a time, and the message there."""
    from rmqctl.rocketmq.query.time import BOUNDARIES_SINCE, Boundary, TimeQuestion, time_rows

    question = TimeQuestion(time, Boundary(boundary), explain, show_of(rendering, as_release))
    answer = begin(store)

    def rows() -> Iterator[Row]:
        with _started(store, as_release, as_found=as_found) as started:
            if boundary == "upper" and started.release < BOUNDARIES_SINCE:
                answer.remark(
                    f"a broker of {started.release} knows no boundary: the message nearest to the time is the answer"
                )
            meant = _queues_meant(started, topic, queue)
            if not isinstance(meant, list):
                yield from _no_queue(answer, meant, explain=explain)
                return
            messages = 0  # of the queues, whether or not one is the answer
            for row in time_rows(started, topic, meant, question):
                if row["kind"] == "time_answer":
                    messages += max(row["max_offset"] - row["min_offset"], 0)
                yield row
            answer.is_no = not messages

    answer.rows, answer.sections = rows(), lambda: _times(iter(answer))
    return answer


def _started(store: RocketMQStore, release: Release | None, *, as_found: bool) -> StartedStore:
    """The store as a broker of the release, or of the one the store shows, has it."""
    from rmqctl.rocketmq.query.recovered_store import StartedStore
    from rmqctl.rocketmq.state.releases import release_range

    return StartedStore(store, release or release_range(store).highest, as_found=as_found)


def _queues_meant(started: StartedStore, topic: str, queue: int | None) -> list[int] | Step:
    from rmqctl.rocketmq.query.lag import wanted_queues

    return wanted_queues(started, topic, queue)


def _no_queue(answer: Answer, reason: Step, *, explain: bool) -> Iterator[Row]:
    """The reason why the name means no queue, as a step or as a remark."""
    answer.is_no = True
    if explain:
        yield reason.row()
    else:
        answer.remark(reason.result)


def _filter(filters: Filters, *, strict: bool) -> Callable[[Record], bool] | None:
    """The filters beside tag and number; None without any."""
    rest = replace(filters, tag=None, limit=None)
    if rest.is_empty:
        return None
    from rmqctl.rocketmq.log.filters import Filter
    from rmqctl.rocketmq.query.messages import passing

    wanted = Filter.of(rest, strict=strict)
    return lambda record: bool(passing([record], wanted))


def _page(rows: Iterator[Row]) -> Iterator[Section]:
    """The status in words, the messages, the steps."""
    steps: list[Row] = []
    status = next(rows, None)
    if status is None or status["kind"] == "step":
        yield Section(lines=step_lines([] if status is None else [status, *rows]))
        return

    def messages() -> Iterator[Row]:
        for row in rows:
            if row["kind"] == "message":
                yield row
            else:
                steps.append(row)

    span = f"the queue is [{status['min_offset']}, {status['max_offset']})"
    yield Section(lines=[f"{status['status']}: {span}, a consumer goes on at {status['next_offset']}"])
    yield Section(rows=messages(), layout=LAYOUT, is_optional=True)
    yield Section(lines=step_lines(steps, apart=True))


def _times(rows: Iterator[Row]) -> Iterator[Section]:
    """One line a queue; after all of them the steps of each."""
    answers: list[Row] = []
    steps: list[tuple[str, list[Row]]] = []
    for row in rows:
        if row["kind"] == "time_answer":
            answers.append(row)
            steps.append((f"{row['topic']}/{row['queue_id']}", []))
        elif row["kind"] == "message":
            answers[-1] = {**answers[-1], **({"body": row["body"]} if "body" in row else {})}
        elif answers:
            steps[-1][1].append(row)
        else:
            yield Section(lines=step_lines([row]))
            return
    if answers:
        body = ["body"] if any("body" in a for a in answers) else []
        yield Section(rows=answers, columns=[*_TIME_COLUMNS, *body])
    for name, found in steps:
        yield Section(lines=step_lines(found, title=name if len(steps) > 1 else "", apart=True))
