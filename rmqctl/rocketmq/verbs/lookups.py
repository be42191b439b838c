"""`query-key` and `query-id` of a RocketMQ store: messages by key and by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rmqctl.answer import Answer, Row
from rmqctl.errors import WrongUsage
from rmqctl.filters import Filters, Rendering
from rmqctl.release import Release
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.verbs.common import answer_messages, begin, message_rows, show_of

if TYPE_CHECKING:
    from rmqctl.rocketmq.query.ids import IdAnswer, MessageId
    from rmqctl.rocketmq.query.key import KeyAnswer, KeyQuery
    from rmqctl.rocketmq.query.records import Record
    from rmqctl.rocketmq.query.steps import Step, Trace

_MAX = 64


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """What `query-key` asks; see `rmqctl.store.Store.query_key`."""

    topic: str | None
    key: str | None
    filters: Filters
    unique: bool
    begin: int
    end: int
    most: int
    raw: bool
    scan: bool
    processes: int | None
    explain: bool

    @property
    def rest(self) -> Filters:
        """The filters that are not part of the question to the index."""
        return replace(self.filters, topic=None, tag=None, limit=None)


def query_key(store: RocketMQStore, asked: KeyQuestion, rendering: Rendering, release: Release | None) -> Answer:
    """Find messages by key in the index as a broker does, or in the log."""
    show = show_of(rendering, release)
    answer = begin(store)
    answer.total = sum(f.size for f in store.log_files)
    if asked.scan:
        _refuse_with_scan(asked)
        answer.work = "scan"
        return answer_messages(
            answer,
            lambda: (message_rows(_scanned(store, asked, answer, strict=show.strict), show), ()),
            lambda count: _no_unless(answer, count),
        )
    from rmqctl.rocketmq.query.key import KeyQuery

    if asked.topic is None:
        raise WrongUsage("TOPIC", "is needed, as the index holds the hash of topic and key; --scan does without it.")
    answer.work = "explain"
    query = KeyQuery(
        asked.topic, asked.key, asked.unique, asked.filters.tag, asked.begin, asked.end, asked.most, show.strict
    )

    def look_up() -> tuple[Iterable[Row], Sequence[Step]]:
        records, steps = _looked_up(store, query, asked, answer)
        return message_rows(records, show), steps

    def last(count: int) -> None:
        _no_unless(answer, count)
        if not count and not asked.explain:
            answer.remark(_nothing(store, query.topic, "--scan reads the log instead of the index"))

    return answer_messages(answer, look_up, last)


def _no_unless(answer: Answer, count: int) -> None:
    answer.is_no = not count


def _refuse_with_scan(asked: KeyQuestion) -> None:
    if asked.raw:
        raise WrongUsage("--raw", "shows candidates of the index, which --scan does not use.")
    if asked.explain:
        raise WrongUsage("--explain", "follows the index, and reads the log by itself; leave out --scan.")


def _looked_up(
    store: RocketMQStore, query: KeyQuery, asked: KeyQuestion, said: Answer
) -> tuple[Sequence[Record], list[Step]]:
    from rmqctl.rocketmq.query.key import by_key
    from rmqctl.rocketmq.query.steps import FILTERED, Trace

    trace = Trace(on=asked.explain)
    answer = by_key(store, query, trace)
    records: Sequence[Record] = answer.raw if asked.raw else answer.messages
    if not asked.rest.is_empty:
        from rmqctl.rocketmq.log.filters import Filter
        from rmqctl.rocketmq.query.messages import passing

        kept = passing(records, Filter.of(asked.rest, strict=query.strict))
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


def _explained(store: RocketMQStore, query: KeyQuery, answer: KeyAnswer, trace: Trace, said: Answer) -> list[Step]:
    from rmqctl.rocketmq.query.explain import explain_key

    last = explain_key(store, query, answer, trace, said.advance)  # adds steps of its own
    return [*trace, last]


def _nothing(store: RocketMQStore, topic: str | None, scan: str) -> str:
    """Why the answer may be empty, as far as that is known without reading the log."""
    from rmqctl.rocketmq.state.config import did_you_mean
    from rmqctl.rocketmq.state.config import known_topics as topic_names

    names = topic_names(store)
    if topic is not None and topic not in names:
        return f"nothing found; the store knows no topic {topic}{did_you_mean(topic, names)}"
    return f"nothing found; --explain says why, {scan}"


def _scanned(store: RocketMQStore, asked: KeyQuestion, said: Answer, *, strict: bool) -> list[Record]:
    from rmqctl.rocketmq.log.filters import Filter
    from rmqctl.rocketmq.query.log_search import Search, search_log
    from rmqctl.rocketmq.query.records import KEYS, UNIQUE_KEY

    wanted = Filter.of(replace(asked.filters, topic=asked.topic, key=asked.key), strict=strict)
    search = Search(wanted, (UNIQUE_KEY,) if asked.unique else (KEYS,))
    limit = asked.filters.limit
    records: list[Record] = []
    damaged = 0
    for part in search_log(store, search, processes=asked.processes, progress=said.advance):
        records += [r for r in part.records if asked.begin <= r.store_timestamp <= asked.end]
        damaged += len(part.findings)
        if limit is not None and len(records) >= limit:
            break
    if damaged:
        places = "1 place" if damaged == 1 else f"{damaged} places"
        said.remark(f"the log is damaged in {places}; what lay there cannot be found: rmqctl verify {store.root}")
    return records[:limit]


# --- by id --------------------------------------------------------------------------------------------


def query_id(
    store: RocketMQStore,
    message_id: str,
    rendering: Rendering,
    release: Release | None,
    *,
    topic: str | None,
    every: bool,
    scan: bool,
    explain: bool,
) -> Answer:
    """Find the message with an offsetMsgId or a unique key."""
    from rmqctl.rocketmq.query.ids import NotAMessageId, parse_message_id

    try:
        wanted = parse_message_id(message_id)
    except NotAMessageId as error:
        reason = f"{message_id!r} is none: {error}. For a key of another shape: query-key --unique."
        raise WrongUsage("MESSAGE_ID", reason) from None
    if scan and explain:
        raise WrongUsage("--explain", "reads the log by itself; leave out --scan.")
    show = show_of(rendering, release)
    answer = begin(store)
    answer.work, answer.total = "scan" if scan else "explain", sum(f.size for f in store.log_files)
    more = 0

    def look_up() -> tuple[Iterable[Row], Sequence[Step]]:
        nonlocal more
        records, steps = _of_id(store, wanted, topic, answer, scan=scan, explain=explain, strict=show.strict)
        shown = records if every else records[:1]
        more = len(records) - len(shown)
        return message_rows(shown, show), steps

    def last(count: int) -> None:
        if more:
            answer.remark(f"{more} more messages have this unique key; --all shows them")
        answer.is_no = not count
        if not count and not explain:
            answer.remarks += [f"read as {line}" for line in wanted.describe()]
            answer.remark(_nothing(store, topic, "--scan looks for the unique key in the log"))

    return answer_messages(answer, look_up, last)


def _of_id(
    store: RocketMQStore,
    wanted: MessageId,
    topic: str | None,
    said: Answer,
    *,
    scan: bool,
    explain: bool,
    strict: bool,
) -> tuple[list[Record], list[Step]]:
    from rmqctl.rocketmq.query.ids import by_id
    from rmqctl.rocketmq.query.steps import Trace

    if scan:
        return _scanned_id(store, wanted, topic, said, strict=strict), []
    trace = Trace(on=explain)
    answer = by_id(store, wanted, (topic,) if topic is not None else (), trace, strict=strict)
    said.remarks += _unusual(answer)
    if not explain:
        return answer.messages, []
    from rmqctl.rocketmq.query.explain import conclude_id

    last = conclude_id(store, wanted, answer, trace, said.advance)  # adds steps of its own
    return answer.messages, [*trace, last]


def _unusual(answer: IdAnswer) -> Iterator[str]:
    """What is unusual about a message that was found."""
    if answer.foreign_host:
        yield f"the id names broker {answer.foreign_host}, which did not write this record"
    if answer.late is not None:
        yield "the producer's clock was ahead of the broker's: clients that ask from the key's time on get CODE 208"


def _scanned_id(
    store: RocketMQStore, wanted: MessageId, topic: str | None, said: Answer, *, strict: bool
) -> list[Record]:
    from rmqctl.rocketmq.log.filters import Filter
    from rmqctl.rocketmq.query.ids import rank
    from rmqctl.rocketmq.query.log_search import Search, search_log
    from rmqctl.rocketmq.query.records import UNIQUE_KEY

    topics = (topic,) if topic is not None else ()
    search = Search(Filter(topics, key=wanted.text, strict=strict), (UNIQUE_KEY,))
    return sorted((r for part in search_log(store, search, progress=said.advance) for r in part.records), key=rank)
