"""The storing part of an engine: topics made known, messages put into the log, and what their writers are answered.

Each is appended at once, whoever waits for it: the writer itself, or a future (`CommitLog.asyncPutMessage`).

Inner batches, and messages for several queues, hold queue offsets in their properties (spec 2.11, 3.7). These are known
only under the append lock, so such records are encoded there.
Sources: HookUtils.checkInnerBatch, QueueOffsetOperator, MultiDispatch.wrapMultiDispatch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from formats.rocketmq.message import TRANSACTION, SysFlag
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.errors import Refused
from rmqctl.files.writing import Disk
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.rules import UNQUEUED, DispatchRules
from rmqctl.rocketmq.engine.commit_log import CommitLog
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig, dispatch_rules
from rmqctl.rocketmq.engine.flush import Answer, GroupCommit
from rmqctl.rocketmq.engine.housekeeping import Housekeeping
from rmqctl.rocketmq.engine.message import (
    RETRY_PREFIX,
    Message,
    MessageRefused,
    PutResult,
    PutStatus,
    check_batch,
    check_topic,
    is_topic_text,
)
from rmqctl.rocketmq.engine.record import Prepared, prepare
from rmqctl.rocketmq.engine.reput import Dispatching
from rmqctl.rocketmq.engine.routing import may_move, route, system_queues, whole_number
from rmqctl.rocketmq.engine.topic_table import BATCH_ATTRIBUTES, TopicTable

T = TypeVar("T")


class KnownTopics:
    """Keeps topics.json and the rules that depend on it: topics are made by name or on their first message.

    Attributes:
        table: the topics a broker will know.
        rules: of dispatch, by the kinds of queues that topics have.
    """

    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        disk: Disk,
        table: TopicTable,
        rules: DispatchRules,
        dispatching: Dispatching,
    ) -> None:
        self.table, self.rules = table, rules
        self._root, self._config, self._disk, self._dispatching = root, config, disk, dispatching
        self._lock = threading.Lock()

    def know(self, topic: str, queue_id: int) -> None:
        """Make the topic known before its first message, as a broker that creates topics by itself."""
        if queue_id >= (self.table.queues(topic) or 0) or self.table.changed:
            with self._lock:
                usual = system_queues(topic, self._config) or self._config.default_queues
                self.table.ensure(topic, max(usual, queue_id + 1))
                self.save()

    def save(self) -> None:
        """Write topics.json if topics were added."""
        self.table.save(self._root, self._disk, self._config.clock.now())

    def make(self, topics: Iterable[str], queues: int, *, batch: bool = False) -> None:
        """Make topics known together, with so many queues at least.

        Args:
            batch: with batch queues (queue.type=BatchCQ); 5.0.0 and later.

        Raises:
            MessageRefused: no name for a topic.
            Refused: the release has no batch queues.
        """
        names, release = list(topics), self._config.release
        for topic in names:
            check_topic(topic, release)
        if batch and not self._config.is_5:
            raise Refused(f"brokers of {release} have no batch queues; use --as-release 5.0.0 or later")
        with self._lock:
            for topic in names:
                self.table.ensure(topic, queues, BATCH_ATTRIBUTES if batch else None)
            self.rules = dispatch_rules(self._config, self.table, self.rules)
            with self._dispatching.lock:
                self._dispatching.reput.use_rules(self.rules)
            self.save()


class Putting:
    """Stores messages.

    Args:
        check_open: refuses what comes after the end, and what comes after a failure.
    """

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        known: KnownTopics,
        dispatching: Dispatching,
        housekeeping: Housekeeping,
        group_commit: GroupCommit,
        check_open: Callable[[], None],
    ) -> None:
        self.config, self.log, self.known, self.topics = config, log, known, known.table
        self.dispatching, self.housekeeping, self.group_commit = dispatching, housekeeping, group_commit
        self.check_open = check_open

    def put(self, message: Message) -> PutResult:
        """Store a message; with sync flush, answer when its bytes are down (or after the timeout, by status).

        Raises:
            MessageRefused: the broker would not store it; nothing was written.
        """
        result = self._append(message)
        if self.config.flush is FlushMode.SYNC and message.waits and not self.group_commit.wait(result.end):
            return result.late()
        return result

    def put_async(self, message: Message) -> Future[PutResult]:
        """Append a message now; with sync flush, the future is answered when its bytes are down, or at the timeout.

        One thread can so keep many messages in flight that share a sync, as with `asyncPutMessage` of a broker. Futures
        of one thread are answered in the order of its calls. Their callbacks run in the thread that flushes: they
        may call this method again, but not :meth:`put`, which would wait for that same thread. A call may wait
        for the end of a sync, about as long as one usually takes. With async flush the future is done at once.

        Returns:
            A future that cannot be cancelled. It raises IOFailure where the flush failed, so that nobody knows whether
            the bytes are down, and Refused where the engine was abandoned before it.

        Raises:
            MessageRefused: the broker would not store it; nothing was written.
            IOFailure: the system refused to write it, or to flush what came before it.
        """
        result = self._append(message)
        return self._promised(result, result.end if message.waits else 0, PutResult.late)

    def _append(self, message: Message) -> PutResult:
        self.check_open()
        self.housekeeping.check()
        config, sent = self.config, message
        if may_move(message):
            message = route(message, config, config.clock.now())
        known = self.topics.known(message.topic)
        late = is_late(message, config, is_batch=known.is_batch)
        if late:
            check_late(message, config, self.topics)
        record = prepare(message, config)  # refuses before anything of it is known
        if sent is not message:
            check_topic(sent.topic, config.release)
            self.known.know(sent.topic, sent.queue_id)
        if message.queue_id >= (known.queues or 0) or self.topics.changed:
            self.known.know(message.topic, message.queue_id)
        if late:
            for name in further_topics(message, config):
                self.known.know(name, message.queue_id)
            result = append_late(self.log, message, config, self.topics)
        else:
            result = self.log.append(record, config.clock.stamp, queued=_is_queued(message))
        self.dispatching.keep_up()
        return result

    def put_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """Store messages of one topic and queue together: all in one log file, with one store time.

        Messages whose text depends on their offsets (batch queues, light queues), and those that have no place in a
        queue, are stored one by one.

        Raises:
            MessageRefused: the broker would not store one of them; nothing was written.
        """
        results, end = self._append_batch(messages)
        in_time = self.config.flush is not FlushMode.SYNC or self.group_commit.wait(end)
        return results if in_time else _late(results)

    def put_batch_async(self, messages: Sequence[Message]) -> Future[list[PutResult]]:
        """Append messages as :meth:`put_batch` does; one future for all of them, as that of :meth:`put_async`.

        Raises:
            MessageRefused: the broker would not store one of them; nothing was written.
            IOFailure: the system refused to write them, or to flush what came before them.
        """
        results, end = self._append_batch(messages)
        return self._promised(results, end, _late)

    def _append_batch(self, messages: Sequence[Message]) -> tuple[list[PutResult], int]:
        """Append messages together, or where that cannot be one by one; up to where their writer waits for a flush.

        The first message of those that are appended together says whether it waits, as for the batch of a client.
        """
        self.check_open()
        self.housekeeping.check()
        if len({(message.topic, message.queue_id) for message in messages}) > 1:
            raise MessageRefused(
                PutStatus.MESSAGE_ILLEGAL, "messages of several topics or queues; give those of one queue at a time"
            )
        is_batch = bool(messages) and self.topics.is_batch(messages[0].topic)
        if any(is_late(m, self.config, is_batch=is_batch) or not _is_queued(m) for m in messages):
            results = [self._append(message) for message in messages]
            return results, max(
                (r.end for r, message in zip(results, messages, strict=True) if message.waits), default=0
            )
        records = [prepare(message, self.config) for message in messages]
        if not records:
            return [], 0
        check_batch(sum(record.size for record in records), self.config)
        self.known.know(messages[0].topic, messages[0].queue_id)
        results = self.log.append_batch(records, self.config.clock.stamp)
        self.dispatching.keep_up()
        return results, results[-1].end if messages[0].waits else 0

    def _promised(self, result: T, end: int, late: Callable[[T], T]) -> Future[T]:
        """Return the future of what was appended, whose writer waits for a flush up to ``end``."""
        if self.config.flush is FlushMode.SYNC and end:
            return self.group_commit.submit(end, result, late)
        return Answer(self.log, 0, result, late)


def _late(results: list[PutResult]) -> list[PutResult]:
    return [result.late() for result in results]


def _is_queued(message: Message) -> bool:
    """Return whether a message gets a place in a queue; prepared and rollback records do not (spec 2.12)."""
    return not message.sys_flag or message.sys_flag & TRANSACTION not in UNQUEUED


# --- messages whose properties hold queue offsets --------------------------------------------------


INNER_NUM, INNER_BASE = "INNER_NUM", "INNER_BASE"
NAMES, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"
LMQ_PREFIX, SYSTEM_PREFIX = "%LMQ%", "rmq_sys_"
_INNER_BATCH = int(SysFlag.INNER_BATCH)
MULTI_DISPATCH, _LMQ_ONLY, _TOPIC_TESTED = Release(4, 9, 3), Release(5, 3, 2), Release(5, 0, 0)


def is_late(message: Message, config: StoreConfig, *, is_batch: bool) -> bool:
    """Whether a message's text depends on the offsets it gets.

    Args:
        is_batch: its topic has batch queues.
    """
    properties = message.properties
    if is_batch or message.sys_flag & _INNER_BATCH or INNER_NUM in properties:
        return True
    return config.multi_dispatch and NAMES in properties and _may_multiply(message.topic, config.release)


def append_late(log: CommitLog, message: Message, config: StoreConfig, topics: TopicTable) -> PutResult:
    """Append such a message.

    Raises:
        MessageRefused: with the offsets in it the record is too large.
    """
    is_batch = topics.is_batch(message.topic)
    is_inner = is_batch and bool(message.sys_flag & _INNER_BATCH)
    count = _count(message) if is_batch else 1
    extra = _extra(message, config) if not is_batch else []

    def make(queue_offset: int) -> Prepared:
        if not is_inner and not extra:
            return prepare(message, config)
        properties = dict(message.properties)
        if is_inner:  # a plain message gets none: BatchConsumeQueue.assignQueueOffset
            properties[INNER_BASE] = str(queue_offset)
        if extra:
            properties[OFFSETS] = ",".join(_offset(log, queue, config) for queue in extra)
        return prepare(replace(message, properties=properties, property_bytes=None), config)

    return log.append_late((message.topic, message.queue_id), make, config.clock.stamp, count, extra)


def check_late(message: Message, config: StoreConfig, topics: TopicTable) -> None:
    """Refuse an inner batch for a topic without batch queues, a count without a batch, and further queues of no name.

    Raises:
        MessageRefused: MESSAGE_ILLEGAL.
    """
    _check_names(message, config)
    is_batch = topics.is_batch(message.topic)
    is_inner = bool(message.sys_flag & _INNER_BATCH)
    if INNER_NUM in message.properties and not is_inner:
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"the message has the property {INNER_NUM} but is not an inner batch; leave it out",
            f"properties.{INNER_NUM}",
        )
    if is_inner and not is_batch:
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"the message is an inner batch but the queues of {message.topic} are not batch queues; "
            "make the topic with queue.type=BatchCQ",
            "sys_flag",
        )


def _check_names(message: Message, config: StoreConfig) -> None:
    """Refuse names that are no directory of their own: brokers would skip them, or leave the store."""
    if NAMES not in message.properties or config.release < MULTI_DISPATCH:
        return
    names = message.properties[NAMES].split(",")
    wrong = next((name for name in names if not is_topic_text(name) or names.count(name) > 1), None)
    if config.release >= _LMQ_ONLY and not message.is_stored:  # others get no offset, so nothing gets into any queue
        wrong = next((name for name in names if not name.startswith(LMQ_PREFIX)), wrong)
    if wrong is not None:
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"{NAMES} names the queue {wrong!r}, which is no name, no light queue, or comes twice; "
            "give names such as %LMQ%a,%LMQ%b",
            f"properties.{NAMES}",
        )


def further_topics(message: Message, config: StoreConfig) -> list[str]:
    """Names of further queues that are topics of their own, which light queues are not."""
    if config.release >= _LMQ_ONLY:
        return []
    return [name for name, _ in _extra(message, config) if not name.startswith(LMQ_PREFIX)]


def _count(message: Message) -> int:
    return whole_number(message.properties.get(INNER_NUM, "1"), 1)


def _may_multiply(topic: str, release: Release) -> bool:
    if release < MULTI_DISPATCH:
        return False
    system = topic.startswith((RETRY_PREFIX, SYSTEM_PREFIX)) or topic == SCHEDULE_TOPIC
    return release < _TOPIC_TESTED or not system


def _extra(message: Message, config: StoreConfig) -> list[tuple[str, int]]:
    """Return the further queues of a message, with their ids."""
    names = message.properties.get(NAMES, "")
    if not names or not config.multi_dispatch or not _may_multiply(message.topic, config.release):
        return []
    return [(name, 0 if name.startswith(LMQ_PREFIX) else message.queue_id) for name in names.split(",")]


def _offset(log: CommitLog, queue: tuple[str, int], config: StoreConfig) -> str:
    """Return the offset the message gets in a further queue; from 5.3.2 on only light queues get one."""
    if config.release >= _LMQ_ONLY and not queue[0].startswith(LMQ_PREFIX):
        return ""
    return str(log.queues.next(*queue))
