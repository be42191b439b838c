"""`info`, `topics` and `lag` of a RocketMQ store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rmqctl import questions
from rmqctl.answer import EVERY_KIND, Answer, Row
from rmqctl.errors import MissingExtra
from rmqctl.filters import Names, did_you_mean
from rmqctl.rocketmq.store.files import QUEUES, StoreFiles, forgiving
from rmqctl.rocketmq.verbs.common import begin, name_unreadable, no_queue, no_start, pending_remark
from rmqctl.rocketmq.verbs.past import add_past, info_then, lag_then, topics_then

_HEADERS = {
    "topics": "topic queue_id min_offset max_offset messages bytes first_store_timestamp last_store_timestamp parent "
    "lite_topic expires_timestamp groups",
    "by topic": "topic queues messages bytes first_store_timestamp last_store_timestamp parent lite_topic "
    "expires_timestamp groups",
    "lag": "group topic queue_id consumer_offset max_offset lag lag_bytes lag_ms anomaly min_offset "
    "last_consumed_timestamp next_store_timestamp file",
}
"""Every key of the rows of an answer, in order; the last four of topics are those of lite topics."""
_QUEUE_COLUMNS = ("topic", "queue_id", "min_offset", "max_offset", "messages", "bytes", "last_store_timestamp")
_LAG_COLUMNS = (
    "group",
    "topic",
    "queue_id",
    "consumer_offset",
    "max_offset",
    "lag",
    "lag_bytes",
    "lag_ms",
    "last_consumed_timestamp",
    "anomaly",
)


def info(store: StoreFiles, asked: questions.Info) -> Answer:
    """Say what is here; with ``explain`` what each fact says about the release."""
    from rmqctl.rocketmq.query.info import store_info
    from rmqctl.rocketmq.state.releases import release_range
    from rmqctl.rocketmq.store.databases import DatabaseDamaged, can_read

    found, answer = forgiving(store), Answer()
    pending_remark(found, answer)
    begin(found, answer)

    def document() -> Row:
        facts = store_info(found)
        if not can_read() and facts["queues"] is None:
            answer.error = MissingExtra("counting topics and queues in RocksDB", "rocksdb")
        elif facts["queues"] is None:
            answer.error = DatabaseDamaged(f"{found.root}/{found.queue_database}", "blocks or files of it are damaged")
        elif not can_read() and any(part["read"] is None for part in facts.get("subsystems", {}).values()):
            answer.error = MissingExtra("looking for messages in RocksDB", "rocksdb")
        else:
            name_unreadable(found, answer)
        if facts["geometry"]["source"] == "default":
            from rmqctl.rocketmq.rebuild.rebuild import assumed_sizes

            answer.remarks += assumed_sizes(found, {QUEUES})
        return facts if asked.time is None else info_then(found, asked.time, facts, answer)

    def evidence() -> Iterator[Row]:
        yield from [e.row() for e in release_range(found).evidence]
        name_unreadable(found, answer)

    if asked.explain:
        answer.rows = evidence()
    else:
        answer.document, answer.document_kinds = document, EVERY_KIND
    return answer


def segments(store: StoreFiles) -> Answer:
    """List the files of the log."""
    from rmqctl.rocketmq.query.info import segment_rows

    found = forgiving(store)
    answer = begin(found, Answer())

    def rows() -> Iterator[Row]:
        yield from segment_rows(found)
        name_unreadable(found, answer)

    answer.rows = rows()
    return answer


def topics(store: StoreFiles, asked: questions.Topics) -> Answer:
    """List queues, or topics with their queues added up."""
    from rmqctl.rocketmq.dispatch.queue_ends import by_topic
    from rmqctl.rocketmq.query.lag import with_lite_topics
    from rmqctl.rocketmq.recovery.queue_ends import queue_ends

    found, wanted = forgiving(store), Names.of(asked.topic)
    answer = begin(
        found,
        Answer(
            columns=None if asked.by_topic else _QUEUE_COLUMNS,
            header=_HEADERS["by topic" if asked.by_topic else "topics"].split(),
        ),
    )

    if asked.time is not None:
        add_past(answer, not asked.by_topic)

    def rows() -> Iterator[Row]:
        if asked.time is not None:
            yield from topics_then(found, asked, answer)
            return
        ends = queue_ends(found, as_found=asked.as_found)
        if ends.error is not None:
            answer.remark(no_start(ends.release, ends.error))
            answer.is_no = True
        queues = [r for r in ends.rows if wanted.include(r.topic)]
        yield from with_lite_topics(found, by_topic(queues) if asked.by_topic else (r.row() for r in queues))
        name_unreadable(found, answer)
        unmet = wanted.unmet({r.topic for r in queues})
        if not answer.is_no and (unmet or not queues):
            answer.is_no = True
            answer.remarks += [no_queue(found, name) for name in unmet] or [no_queue(found, None)]

    answer.rows = rows()
    return answer


def disk(store: StoreFiles, asked: questions.Topics) -> Answer:
    """List the room that files take, by queue or topic and what they hold."""
    from rmqctl.disk import show_uses
    from rmqctl.rocketmq.query.disk import rule, uses

    found, wanted = forgiving(store), Names.of(asked.topic)
    answer, kept = begin(found, Answer()), list(uses(found, wanted))
    show_uses(answer, kept, store.root, number="queue_id", by_topic=asked.by_topic, rule=rule(store))
    answer.remarks += [no_queue(found, name) for name in wanted.unmet({use.topic for use in kept if use.topic})]
    name_unreadable(found, answer)
    return answer


def lag(store: StoreFiles, asked: questions.Lag) -> Answer:
    """List consumer groups with what they have not consumed."""
    from rmqctl.rocketmq.query.lag import lag_rows
    from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
    from rmqctl.rocketmq.state.releases import release_range

    answer = begin(store, Answer(columns=_LAG_COLUMNS, header=_HEADERS["lag"].split()))

    groups, topics = Names.of(asked.group), Names.of(asked.topic)
    if asked.time is not None:
        add_past(answer, is_of_queues=False)

    def rows() -> Iterator[Row]:
        release = asked.as_release or release_range(store).highest
        with RecoveredStore(store, release, as_found=asked.as_found) as started:
            found = list(lag_rows(started, groups, topics))
            each = (row.row() for row in found)
            yield from each if asked.time is None else lag_then(store, asked, each, answer)
            unmet = groups.unmet({row.group for row in found}) + topics.unmet({row.topic for row in found})
            if not found or unmet:
                answer.remarks += _no_offset(started, groups, topics)
        is_odd = asked.time is None and any(row.anomaly for row in found)
        answer.is_no = not found or bool(unmet) or is_odd

    answer.rows = rows()
    return answer


def _no_offset(started: Any, group: Names, topic: Names) -> list[str]:
    """Say which names no stored offset has, else why there is none."""
    from rmqctl.rocketmq.query.lag import progress_of

    stored = progress_of(started)
    if not stored.offsets:
        return ["no consumer offset is stored: config/consumerOffset.json is missing, empty, or beyond reading"]
    asked = (("group", group, stored.groups), ("topic", topic, {t for _, t in stored.offsets}))
    said = [
        f"no consumer offset is stored for {word} {name}"
        + (did_you_mean(name, sorted(names)) or f"; leave out --{word} to see all there are")
        for word, wanted, names in asked
        for name in wanted.unmet(names)
    ]
    return said or [f"{group.said('group')} has no offset in {topic.said('topic')}"]
