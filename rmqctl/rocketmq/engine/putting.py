"""The storing part of an engine: topics made known, messages put into the log, and what their writers are answered.

Each is appended at once, whoever waits for it: the writer itself, or a future (`CommitLog.asyncPutMessage`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from rmqctl.errors import Refused
from rmqctl.files.writing import Disk
from rmqctl.rocketmq.dispatch.rules import TRANSACTION, UNQUEUED, DispatchRules
from rmqctl.rocketmq.engine.commit_log import CommitLog
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig, dispatch_rules
from rmqctl.rocketmq.engine.flush import Answer, GroupCommit
from rmqctl.rocketmq.engine.housekeeping import Housekeeping
from rmqctl.rocketmq.engine.late import append_late, check_late, further_topics, is_late
from rmqctl.rocketmq.engine.message import Message, MessageRefused, PutResult, PutStatus, check_batch, check_topic
from rmqctl.rocketmq.engine.record import prepare
from rmqctl.rocketmq.engine.reput import Dispatching
from rmqctl.rocketmq.engine.routing import may_move, route, system_queues
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
        """Write topics.json if topics were added.

        Raises:
            IOFailure: it cannot be written.
        """
        self.table.save(self._root, self._disk, self._config.clock.now())

    def make(self, topics: Iterable[str], queues: int, *, batch: bool = False) -> None:
        """Make topics known together, with so many queues at least.

        Args:
            batch: with batch queues (queue.type=BatchCQ); 5.0.0 and later.

        Raises:
            MessageRefused: no name for a topic.
            Refused: the release has no batch queues.
            IOFailure: topics.json cannot be written.
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
            IOFailure: the system refused to write or flush it.
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
            IOFailure: the system refused to write or flush them.
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
