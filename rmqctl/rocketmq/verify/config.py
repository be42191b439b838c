"""Configuration against the queues: files that cannot be read, offsets outside, unknown topics (spec 9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rmqctl.findings import Finding, FindingKind
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.config_files import CONFIG, config_files, consumer_offsets, read_config, table, topic_names
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, RocketMQStore
from rmqctl.rocketmq.topics import queue_rows

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_OWN_PREFIXES = ("rmq_sys_", "%RETRY%", "%DLQ%", "%LMQ%", "RMQ_SYS_")
_OWN_TOPICS = {
    SCHEDULE_TOPIC,
    "TBW102",
    "BenchmarkTest",
    "OFFSET_MOVED_EVENT",
    "SELF_TEST_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
}


def check(store: RocketMQStore) -> Iterator[Finding]:
    """Findings about config/.

    Raises:
        OSError: a file cannot be read.
    """
    for file in config_files(store):
        if file.error is None or (file.fallback and str(file.error) == "is missing"):
            continue
        kind = kinds.CONFIG_FALLBACK if file.fallback else kinds.CONFIG_UNREADABLE
        helped = "its .bak is good" if file.fallback else "its .bak does not help"
        yield Finding(kind, file.path, file.error.offset, 0, f"the file {file.error}; {helped}")
    if store.is_rocksdb:
        return
    delays = table(read_config(store, "delayOffset.json").document, "offsetTable")
    if delays or consumer_offsets(store):
        ends = {(r.topic, r.queue_id): (r.min_offset, r.max_offset) for r in queue_rows(store)}
        yield from _consumers(store, ends)
        yield from _delays(delays, ends)
    yield from _orphans(store)


def _consumers(store: RocketMQStore, ends: dict[tuple[str, int], tuple[int, int]]) -> Iterator[Finding]:
    known = topic_names(store)
    for topic, group, queue, offset in consumer_offsets(store):
        limit = ends.get((topic, queue), (0, 0))[1]
        if known is not None and topic not in known and not _is_own(topic) and (topic, queue) not in ends:
            message = f"group {group} has offset {offset} of queue {queue} of a topic that topics.json does not know"
            yield _finding(kinds.CONFIG_UNKNOWN_TOPIC, topic, queue, message)
        elif offset > limit:
            message = f"group {group} stands at {offset}, but the queue ends at {limit}"
            yield _finding(kinds.CONFIG_CONSUMER_OFFSET, topic, queue, message)


def _finding(kind: FindingKind, topic: str, queue: int, message: str) -> Finding:
    return Finding(kind, f"{CONFIG}/consumerOffset.json", 0, 0, message, topic=topic, queue_id=queue)


def _delays(offsets: dict[str, Any], ends: dict[tuple[str, int], tuple[int, int]]) -> Iterator[Finding]:
    for level, offset in offsets.items():
        if not (level.isdigit() and isinstance(offset, int)):
            continue
        low, high = ends.get((SCHEDULE_TOPIC, int(level) - 1), (0, 0))
        if not low <= offset <= high:
            message = f"level {level} stands at {offset}, but its queue holds {low} to {high}"
            yield Finding(
                kinds.CONFIG_DELAY_OFFSET, f"{CONFIG}/delayOffset.json", 0, 0, message, topic=SCHEDULE_TOPIC,
                queue_id=int(level) - 1,
            )  # fmt: skip


def _orphans(store: RocketMQStore) -> Iterator[Finding]:
    known = topic_names(store)
    if known is None:
        return
    topics = {
        e.name for kind in (QUEUES, BATCH_QUEUES) for e in store.tree.entries(kind, sizes=False) if e.is_directory
    }
    for topic in sorted(topics - known):
        if not _is_own(topic):
            message = f"topic {topic} has queues, but topics.json does not know it"
            yield Finding(kinds.QUEUE_ORPHAN, f"{QUEUES}/{topic}", 0, 0, message, topic=topic)


def _is_own(topic: str) -> bool:
    """Topics that brokers make or use without an entry in topics.json."""
    return topic in _OWN_TOPICS or topic.startswith(_OWN_PREFIXES)
