"""Configuration against the queues: files that cannot be read, offsets outside, unknown topics (spec 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from formats.errors import DecodeError
from formats.rocketmq.config_json import parse_config
from rmqctl.files.tree import read_all
from rmqctl.findings import Finding, FindingKind, Severity
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.config_files import (
    CONFIG,
    ConfigFile,
    ConsumerOffset,
    config_files,
    consumer_offsets,
    delay_offsets,
    topic_names,
)
from rmqctl.rocketmq.rocksdb_config import has_stored_config
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, RocketMQStore
from rmqctl.rocketmq.topics import queue_rows
from rmqctl.rocketmq.unreadable import is_unread, refusals_of
from rmqctl.rocketmq.verify.context import LogContext

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_OWN_PREFIXES = ("rmq_sys_", "%RETRY%", "%DLQ%", "%LMQ%", "RMQ_SYS_")
_OWN_TOPICS = {
    SCHEDULE_TOPIC,
    "TBW102",
    "BenchmarkTest",
    "CHECKPOINT_TOPIC",
    "OFFSET_MOVED_EVENT",
    "SELF_TEST_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
}
_IN_PLACE = (5, 1, 0)
Key = tuple[str, int]
Ranges = Mapping[Key, tuple[int, int]]


def check(store: RocketMQStore, context: LogContext) -> Iterator[Finding]:
    """Findings about config/.

    Raises:
        OSError: a file cannot be read.
    """
    yield from _unreadable(store, context)
    if store.is_rocksdb or has_stored_config(store):
        return  # the databases count, not the files (spec 10.3)
    consumers, delays = consumer_offsets(store), delay_offsets(store)
    ranges = _ranges(store, context, {(c.topic, c.queue_id) for c in consumers} | {_delay_queue(n) for n in delays})
    known = topic_names(store)
    read = _is_read(store)
    yield from _consumers([c for c in consumers if read((c.topic, c.queue_id))], ranges, known)
    yield from _delays({level: n for level, n in delays.items() if read(_delay_queue(level))}, ranges)
    if known is not None:
        yield from _orphans(store, known)


def _unreadable(store: RocketMQStore, context: LogContext) -> Iterator[Finding]:
    for file in config_files(store):
        if file.error is None:
            yield from _backup(store, file, context)
            continue
        kind = kinds.CONFIG_FALLBACK if file.fallback else kinds.CONFIG_UNREADABLE
        helped = "its .bak is good" if file.fallback else "its .bak does not help"
        yield Finding(kind, file.path, file.error.offset, 0, f"the file {file.error}; {helped}")


def _backup(store: RocketMQStore, file: ConfigFile, context: LogContext) -> Iterator[Finding]:
    """A ``.bak`` that no broker could load, beside a good file that 5.1.0 and later write in place."""
    path = f"{file.path}.bak"
    data = read_all(store.tree, path)
    if data is None:
        return
    why = ""
    try:
        document = parse_config(data)
        why = "" if document is None or isinstance(document, dict) else "it holds no object"
    except DecodeError as error:
        why = f"it {error}"
    if why:
        severity = None if context.highest_release >= _IN_PLACE else Severity.NOTE
        message = f"no broker can load this copy: {why}; the file itself is good"
        yield Finding(kinds.CONFIG_BACKUP, path, 0, 0, message, severity)


def _is_read(store: RocketMQStore) -> Callable[[Key], bool]:
    """Whether the files of a queue could be read, or are not there; else nobody knows where it ends."""
    refusals = refusals_of(store.tree)
    return lambda key: not any(is_unread(refusals, f"{kind}/{key[0]}/{key[1]}") for kind in (QUEUES, BATCH_QUEUES))


def _ranges(store: RocketMQStore, context: LogContext, wanted: set[Key]) -> Ranges:
    """Smallest and next offset of the queues that are there."""
    wanted = {key for key in wanted if key[0] and "/" not in key[0] and key[0] not in (".", "..")}
    if not wanted:
        return {}
    dispatched = context.dispatched if context.dispatched >= 0 else None
    return {(r.topic, r.queue_id): (r.min_offset, r.max_offset) for r in queue_rows(store, wanted, dispatched)}


def _consumers(consumers: list[ConsumerOffset], ranges: Ranges, known: set[str] | None) -> Iterator[Finding]:
    for own in consumers:
        key = own.topic, own.queue_id
        limit = ranges.get(key, (0, 0))[1]
        if known is not None and own.topic not in known and not _is_own(own.topic) and key not in ranges:
            message = (
                f"group {own.group} has an offset of queue {own.queue_id} of a topic that topics.json does not know"
            )
            yield _finding(kinds.CONFIG_UNKNOWN_TOPIC, own, message)
        elif own.offset < 0:
            message = f"group {own.group} stands at {own.offset}, and queue offsets begin at 0"
            yield _finding(kinds.CONFIG_CONSUMER_OFFSET, own, message)
        elif own.offset > limit:
            message = f"group {own.group} stands at {own.offset}, but the queue ends at {limit}"
            yield _finding(kinds.CONFIG_CONSUMER_OFFSET, own, message)


def _finding(kind: FindingKind, own: ConsumerOffset, message: str) -> Finding:
    return Finding(kind, own.file, 0, 0, message, topic=own.topic, queue_id=own.queue_id)


def _delay_queue(level: int) -> Key:
    return SCHEDULE_TOPIC, level - 1


def _delays(delays: Mapping[int, int], ranges: Ranges) -> Iterator[Finding]:
    for level, offset in delays.items():
        low, high = ranges.get(_delay_queue(level), (0, 0))
        if not low <= offset <= high:
            message = f"level {level} stands at {offset}, but its queue holds {low} to {high}"
            yield Finding(
                kinds.CONFIG_DELAY_OFFSET, f"{CONFIG}/delayOffset.json", 0, 0, message, topic=SCHEDULE_TOPIC,
                queue_id=level - 1,
            )  # fmt: skip


def _orphans(store: RocketMQStore, known: set[str]) -> Iterator[Finding]:
    own = {store.settings.get(name) for name in ("brokerName", "brokerClusterName")}
    for kind in (QUEUES, BATCH_QUEUES):
        for entry in store.tree.entries(kind, sizes=False):
            topic = entry.name
            if entry.is_directory and topic not in known and topic not in own and not _is_own(topic):
                message = f"topic {topic} has queues, but topics.json does not know it"
                yield Finding(kinds.QUEUE_ORPHAN, entry.path, 0, 0, message, topic=topic)


def _is_own(topic: str) -> bool:
    """Topics that brokers make or use without an entry in topics.json."""
    return topic in _OWN_TOPICS or topic.startswith(_OWN_PREFIXES)
