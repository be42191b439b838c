"""`query-key`, `query-id`, `query-offset` and `query-time` of a RocketMQ store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqctl import questions
from rmqctl.answer import Answer, Row, Section
from rmqctl.errors import WrongUsage
from rmqctl.explain import step_lines
from rmqctl.filters import TIME_WORDS, Filters, asked_time
from rmqctl.findings import header_of
from rmqctl.release import Release
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.verbs.common import (
    LAYOUT,
    MESSAGE_KEYS,
    STEP_KEYS,
    answer_messages,
    begin,
    message_rows,
    row_options,
)
from rmqctl.text import typed

if TYPE_CHECKING:
    from rmqctl.explain import Trace, TraceStep
    from rmqctl.rocketmq.query.ids import IdAnswer, MessageId
    from rmqctl.rocketmq.query.key import KeyAnswer, KeyQuery
    from rmqctl.rocketmq.query.records import Record
    from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore


_MAX = 64
"""Candidates that a broker gives at most."""

_STATUS_KEYS = "kind status next_offset min_offset max_offset topic queue_id offset"
_TIME_KEYS = """
    kind topic queue_id time queue_offset boundary min_offset max_offset previous_store_timestamp store_timestamp
    next_store_timestamp
"""


def query_key(store: StoreFiles, asked: questions.QueryKey) -> Answer:
    """Find messages by key in the index as a broker does, or in the log."""
    show, times = row_options(asked.rendering, asked.as_release), asked.times
    answer = begin(store, Answer(header=header_of(MESSAGE_KEYS, STEP_KEYS, damage=True)))
    answer.total = sum(f.size for f in store.log_files)
    if asked.scan:
        _refuse_with_scan(asked)
        answer.work = "scan"
        return answer_messages(
            answer,
            lambda: (message_rows(_scanned(store, asked, times, answer, strict=show.strict), show), ()),
            lambda count: _no_unless(answer, count),
        )
    from rmqctl.rocketmq.query.key import KeyQuery

    if asked.topic is None:
        raise WrongUsage("TOPIC", "is needed, as the index holds the hash of topic and key; --scan does without it.")
    answer.work = "explain"
    most = _MAX if asked.most is None else asked.most
    query = KeyQuery(asked.topic, asked.key, asked.unique, asked.filters.tag, *times, most, show.strict)

    def look_up() -> tuple[Iterable[Row], Sequence[TraceStep]]:
        records, steps = _looked_up(store, query, asked, answer)
        return message_rows(records, show), steps

    def last(count: int) -> None:
        _no_unless(answer, count)
        if not count and not asked.explain:
            way = "--explain says why, --scan reads the log instead of the index"
            answer.remark(_nothing(store, query.topic, way))

    return answer_messages(answer, look_up, last)


def _no_unless(answer: Answer, count: int) -> None:
    answer.is_no = not count


def _refuse_with_scan(asked: questions.QueryKey) -> None:
    if asked.raw:
        raise WrongUsage("--raw", "shows candidates of the index, which --scan does not use.")
    if asked.explain:
        raise WrongUsage("--explain", "follows the index, and reads the log by itself; leave out --scan.")


def _looked_up(
    store: StoreFiles, query: KeyQuery, asked: questions.QueryKey, said: Answer
) -> tuple[Sequence[Record], list[TraceStep]]:
    from rmqctl.explain import Trace
    from rmqctl.rocketmq.query.key import by_key
    from rmqctl.rocketmq.query.steps import FILTERED

    trace = Trace(on=asked.explain)
    answer = by_key(store, query, trace)
    records: Sequence[Record] = answer.raw if asked.raw else answer.messages
    rest = replace(asked.filters, topic=None, tag=None, limit=None)  # the index knows these
    if not rest.is_empty:
        from rmqctl.rocketmq.log.filters import Filter
        from rmqctl.rocketmq.query.messages import passing

        kept = passing(records, Filter.of(rest, strict=query.strict))
        for record in records:
            if record not in kept:
                trace.add(record.file, f"record {record.physical_offset}", "left out by the filters")
        records = kept
    if answer.walk.endless:
        said.remark("an index file has a chain that runs in a circle: a broker asked for this key would never answer")
    limit = query.index_query().limit
    if len(answer.walk.candidates) >= limit and query.max >= _MAX:  # what a broker leaves out is not missing
        said.remark(f"these are the newest {limit} candidates; a broker gives no more (older ones: --end, or --scan)")
    if not asked.explain:
        return records[: asked.filters.limit], []
    if not records and answer.messages:
        return [], [*trace, FILTERED.conclude(count=len(answer.messages))]
    return records[: asked.filters.limit], _explained(store, query, answer, trace, said)


def _explained(store: StoreFiles, query: KeyQuery, answer: KeyAnswer, trace: Trace, said: Answer) -> list[TraceStep]:
    from rmqctl.rocketmq.query.explain import explain_key

    last = explain_key(store, query, answer, trace, said.advance)  # adds steps of its own
    return [*trace, last]


def _nothing(store: StoreFiles, topic: str | None, way: str) -> str:
    """Why the answer may be empty, as far as that is known without reading the log."""
    from rmqctl.rocketmq.state.config import did_you_mean
    from rmqctl.rocketmq.state.config import known_topics as topic_names

    names = topic_names(store)
    if topic is not None and topic not in names:
        return f"nothing found; the store knows no topic {topic}{did_you_mean(topic, names, store.root)}"
    return f"nothing found; {way}"


def _scanned(
    store: StoreFiles, asked: questions.QueryKey, times: tuple[int, int], said: Answer, *, strict: bool
) -> list[Record]:
    from rmqctl.rocketmq.log.filters import Filter
    from rmqctl.rocketmq.query.log_search import Search, search_log
    from rmqctl.rocketmq.query.records import KEYS, UNIQUE_KEY

    topic = asked.filters.topic if asked.topic is None else asked.topic
    wanted = Filter.of(replace(asked.filters, topic=topic, key=asked.key), strict=strict)
    search = Search(wanted, (UNIQUE_KEY,) if asked.unique else (KEYS,))
    limit = asked.filters.limit
    records: list[Record] = []
    damaged = 0
    for part in search_log(store, search, processes=asked.processes, progress=said.advance):
        records += [r for r in part.records if times[0] <= r.store_timestamp <= times[1]]
        damaged += len(part.findings)
        if limit is not None and len(records) >= limit:
            break
    if damaged:
        places = "1 place" if damaged == 1 else f"{damaged} places"
        said.remark(f"the log is damaged in {places}; what lay there cannot be found: {typed('verify', store.root)}")
    return records[:limit]


# --- by id --------------------------------------------------------------------------------------------


def query_id(store: StoreFiles, asked: questions.QueryId) -> Answer:
    """Find the message with an offsetMsgId or a unique key."""
    from rmqctl.rocketmq.query.ids import NotAMessageId, parse_message_id

    try:
        wanted = parse_message_id(asked.message_id)
    except NotAMessageId as error:
        reason = f"{asked.message_id!r} is no message id: {error}. For a key of another shape: query-key --unique."
        raise WrongUsage("MESSAGE_ID", reason) from None
    if asked.scan and asked.explain:
        raise WrongUsage("--explain", "reads the log by itself; leave out --scan.")
    show = row_options(asked.rendering, asked.as_release)
    answer = begin(store, Answer(header=header_of(MESSAGE_KEYS, STEP_KEYS, damage=True)))
    answer.work, answer.total = "scan" if asked.scan else "explain", sum(f.size for f in store.log_files)
    more = 0

    def look_up() -> tuple[Iterable[Row], Sequence[TraceStep]]:
        nonlocal more
        records, steps = _of_id(store, wanted, asked, answer, strict=show.strict)
        shown = records if asked.every else records[:1]
        more = len(records) - len(shown)
        return message_rows(shown, show), steps

    def last(count: int) -> None:
        if more:
            answer.remark(f"{more} more messages have this unique key; --all shows them")
        answer.is_no = not count
        if not count and not asked.explain:
            answer.remarks += [f"read as {line}" for line in wanted.describe()]
            ways = "--explain says why, --scan looks for the unique key in the log"
            answer.remark(_nothing(store, asked.topic, "the whole log was read" if asked.scan else ways))

    return answer_messages(answer, look_up, last)


def _of_id(
    store: StoreFiles,
    wanted: MessageId,
    asked: questions.QueryId,
    said: Answer,
    *,
    strict: bool,
) -> tuple[list[Record], list[TraceStep]]:
    from rmqctl.explain import Trace
    from rmqctl.rocketmq.query.ids import by_id

    if asked.scan:
        return _scanned_id(store, wanted, asked.topic, said, strict=strict), []
    trace = Trace(on=asked.explain)
    answer = by_id(store, wanted, (asked.topic,) if asked.topic is not None else (), trace, strict=strict)
    said.remarks += _unusual(answer)
    if not asked.explain:
        return answer.messages, []
    from rmqctl.rocketmq.query.explain import conclude_id

    last = conclude_id(store, wanted, answer, trace, said.advance)  # adds steps of its own
    return answer.messages, [*trace, last]


def _unusual(answer: IdAnswer) -> Iterator[str]:
    """Yield what is unusual about a message that was found."""
    if answer.foreign_host:
        yield f"the id names broker {answer.foreign_host}, which did not write this record"
    if answer.late is not None:
        yield "the producer's clock was ahead of the broker's: clients that ask from the key's time on get CODE 208"


def _scanned_id(store: StoreFiles, wanted: MessageId, topic: str | None, said: Answer, *, strict: bool) -> list[Record]:
    from rmqctl.rocketmq.log.filters import Filter
    from rmqctl.rocketmq.query.ids import rank
    from rmqctl.rocketmq.query.log_search import Search, search_log
    from rmqctl.rocketmq.query.records import UNIQUE_KEY

    topics = (topic,) if topic is not None else ()
    search = Search(Filter(topics, key=wanted.text, strict=strict), (UNIQUE_KEY,))
    return sorted((r for part in search_log(store, search, progress=said.advance) for r in part.records), key=rank)


# --- by offset and by time -----------------------------------------------------------------------------


_TIME_COLUMNS = (
    "topic",
    "queue_id",
    "queue_offset",
    "previous_store_timestamp",
    "store_timestamp",
    "next_store_timestamp",
)


def query_offset(store: StoreFiles, asked: questions.QueryOffset) -> Answer:
    """Give the status, then messages of a queue from an offset on."""
    from rmqctl.rocketmq.query.offset import OffsetQuestion
    from rmqctl.rocketmq.query.queue_rows import offset_rows
    from rmqctl.rocketmq.query.queue_view import open_queue

    filters, show = asked.filters, row_options(asked.rendering, asked.as_release)
    question = OffsetQuestion(
        asked.offset, filters.limit, filters.tag, asked.as_release is not None, asked.explain, show,
        _filter(filters, strict=show.strict),
    )  # fmt: skip
    answer = begin(store, Answer(header=header_of(_STATUS_KEYS, MESSAGE_KEYS, STEP_KEYS, damage=True)))

    def rows() -> Iterator[Row]:
        with _started(store, asked.as_release, as_found=asked.as_found) as started:
            meant = _queues_meant(started, asked.topic, asked.queue)
            if not isinstance(meant, list):
                yield from _no_queue(answer, meant, explain=asked.explain)
                return
            found = 0
            with open_queue(started, asked.topic, asked.queue) as view:
                for row in offset_rows(view, question):
                    found += row["kind"] == "message"
                    yield row
            answer.is_no = not found

    answer.rows, answer.sections = rows(), lambda: _page(iter(answer))
    return answer


def query_time(store: StoreFiles, asked: questions.QueryTime) -> Answer:
    """Give for each queue the offset that a broker answers for a time, and the message there."""
    from rmqctl.rocketmq.query.queue_rows import time_rows
    from rmqctl.rocketmq.query.time import BOUNDARIES_SINCE, Boundary, TimeQuestion

    if asked.time in TIME_WORDS:
        raise WrongUsage("TIME", f"{asked.time!r} is for Kafka; give a time.")
    time, show = asked_time("TIME", asked.time), row_options(asked.rendering, asked.as_release)
    question = TimeQuestion(time, Boundary(asked.boundary), asked.explain, show)
    answer = begin(store, Answer(header=header_of(_TIME_KEYS, MESSAGE_KEYS, STEP_KEYS, damage=True)))

    def rows() -> Iterator[Row]:
        with _started(store, asked.as_release, as_found=asked.as_found) as started:
            if asked.boundary == "upper" and started.release < BOUNDARIES_SINCE:
                answer.remark(
                    f"a broker of {started.release} knows no boundary: the message nearest to the time is the answer"
                )
            meant = _queues_meant(started, asked.topic, asked.queue)
            if not isinstance(meant, list):
                yield from _no_queue(answer, meant, explain=asked.explain)
                return
            messages = 0  # of the queues, whether or not one is the answer
            for row in time_rows(started, asked.topic, meant, question):
                if row["kind"] == "time_answer":
                    messages += max(row["max_offset"] - row["min_offset"], 0)
                yield row
            answer.is_no = not messages

    answer.rows, answer.sections = rows(), lambda: _times(iter(answer))
    return answer


def _started(store: StoreFiles, release: Release | None, *, as_found: bool) -> RecoveredStore:
    """Return the store as a broker of the release, or of the one the store shows, has it."""
    from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
    from rmqctl.rocketmq.state.releases import release_range

    meant = release or store.starts.get(None)
    if meant is None:
        meant = store.starts[None] = release_range(store).highest
    return RecoveredStore(store, meant, as_found=as_found)


def _queues_meant(started: RecoveredStore, topic: str, queue: int | None) -> list[int] | TraceStep:
    from rmqctl.rocketmq.query.lag import wanted_queues

    return wanted_queues(started, topic, queue)


def _no_queue(answer: Answer, reason: TraceStep, *, explain: bool) -> Iterator[Row]:
    """Yield the reason why the name means no queue, as a step or as a remark."""
    answer.is_no = True
    if explain:
        yield reason.row()
    else:
        answer.remark(reason.result)


def _filter(filters: Filters, *, strict: bool) -> Callable[[Record], bool] | None:
    """Return the filters beside tag and number; None without any."""
    rest = replace(filters, tag=None, limit=None)
    if rest.is_empty:
        return None
    from rmqctl.rocketmq.log.filters import Filter
    from rmqctl.rocketmq.query.messages import passing

    wanted = Filter.of(rest, strict=strict)
    return lambda record: bool(passing([record], wanted))


def _page(rows: Iterator[Row]) -> Iterator[Section]:
    """Yield the status in words, the messages, the steps."""
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
