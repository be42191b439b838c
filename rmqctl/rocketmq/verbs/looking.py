"""`info`, `topics` and `lag` of a RocketMQ store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rmqctl import questions
from rmqctl.answer import EVERY_KIND, Answer, Row
from rmqctl.errors import MissingExtra
from rmqctl.rocketmq.store.files import QUEUES, RocketMQStore, forgiving
from rmqctl.rocketmq.verbs.common import begin, name_unreadable, no_start, pending_remark

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


def info(store: RocketMQStore, *, explain: bool) -> Answer:
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
        return facts

    def evidence() -> Iterator[Row]:
        yield from [e.row() for e in release_range(found).evidence]
        name_unreadable(found, answer)

    if explain:
        answer.rows = evidence()
    else:
        answer.document, answer.document_kinds = document, EVERY_KIND
    return answer


def segments(store: RocketMQStore) -> Answer:
    """List the files of the log."""
    from rmqctl.rocketmq.query.info import segment_rows

    found = forgiving(store)
    answer = begin(found, Answer())

    def rows() -> Iterator[Row]:
        yield from segment_rows(found)
        name_unreadable(found, answer)

    answer.rows = rows()
    return answer


def topics(store: RocketMQStore, asked: questions.Topics) -> Answer:
    """List queues, or topics with their queues added up."""
    from rmqctl.rocketmq.dispatch.queue_ends import by_topic
    from rmqctl.rocketmq.query.lag import with_lite_topics
    from rmqctl.rocketmq.recovery.queue_ends import queue_ends

    found = forgiving(store)
    answer = begin(found, Answer(columns=None if asked.by_topic else _QUEUE_COLUMNS))

    def rows() -> Iterator[Row]:
        ends = queue_ends(found, as_found=asked.as_found)
        if ends.error is not None:
            answer.remark(no_start(ends.release, ends.error))
            answer.is_no = True
        queues = [r for r in ends.rows if asked.topic is None or r.topic == asked.topic]
        yield from with_lite_topics(found, by_topic(queues) if asked.by_topic else (r.row() for r in queues))
        name_unreadable(found, answer)
        if not queues and not answer.is_no:
            answer.is_no = True
            answer.remark(_no_queue(found, asked.topic))

    answer.rows = rows()
    return answer


def _no_queue(store: RocketMQStore, topic: str | None) -> str:
    from rmqctl.rocketmq.state.config import known_topics as topic_names
    from rmqctl.rocketmq.state.config import nearest

    names = topic_names(store)
    if topic is None:
        return "no queue is there, and the log holds no message"
    if topic in names:
        return f"topic {topic} has no queue and no message"
    hint = nearest(topic, names)
    return f"the store knows no topic {topic}" + (f"; did you mean {' or '.join(hint)}?" if hint else "")


def lag(store: RocketMQStore, asked: questions.Lag) -> Answer:
    """List consumer groups with what they have not consumed."""
    from rmqctl.rocketmq.query.lag import lag_rows
    from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
    from rmqctl.rocketmq.state.releases import release_range

    answer = begin(store, Answer(columns=_LAG_COLUMNS))

    def rows() -> Iterator[Row]:
        release = asked.as_release or release_range(store).highest
        with RecoveredStore(store, release, as_found=asked.as_found) as started:
            found = list(lag_rows(started, asked.group, asked.topic))
            yield from (row.row() for row in found)
            if not found:
                answer.remarks += _no_offset(started, asked.group, asked.topic)
        answer.is_no = not found or any(row.anomaly for row in found)

    answer.rows = rows()
    return answer


def _no_offset(started: Any, group: str | None, topic: str | None) -> Iterator[str]:
    from rmqctl.rocketmq.query.lag import progress_of
    from rmqctl.rocketmq.state.config import nearest

    stored = progress_of(started)
    for word, name, names in (
        ("group", group, stored.groups),
        ("topic", topic, {t for _, t in stored.offsets}),
    ):
        if name is not None and name not in names:
            hint = nearest(name, sorted(names))
            end = f"; did you mean {' or '.join(hint)}?" if hint else f"; leave out --{word} to see all there are"
            yield f"no consumer offset is stored for {word} {name}{end}"
            return
    if not stored.offsets:
        yield "no consumer offset is stored: config/consumerOffset.json is missing, empty, or beyond reading"
    elif group is not None and topic is not None:
        yield f"group {group} has no offset in topic {topic}"
