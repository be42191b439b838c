"""The storing half of an engine: messages into the log, and what their writers are told.

Each is appended at once, whoever waits for it: the writer itself, or a future (`CommitLog.asyncPutMessage`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from rmqctl.rocketmq.dispatch.request import PREPARED, ROLLBACK, TRANSACTION
from rmqctl.rocketmq.engine.answers import Answer
from rmqctl.rocketmq.engine.commit_log import Appended, CommitLog, result_of
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.encode import Prepared, prepare
from rmqctl.rocketmq.engine.group_commit import GroupCommit
from rmqctl.rocketmq.engine.housekeeping import Housekeeping
from rmqctl.rocketmq.engine.late import append_late, check_late, further_topics, is_late
from rmqctl.rocketmq.engine.limits import check_batch, check_topic
from rmqctl.rocketmq.engine.message import Message, PutResult, PutStatus
from rmqctl.rocketmq.engine.routing import may_move, route
from rmqctl.rocketmq.engine.topic_table import TopicTable

T = TypeVar("T")
Part = tuple[list[Prepared], Appended]
"""Records that were appended together, and where."""


class Puts(ABC):
    """Stores messages; an engine has the attributes."""

    config: StoreConfig
    log: CommitLog
    topics: TopicTable
    housekeeping: Housekeeping
    group_commit: GroupCommit
    most_undispatched: int

    @abstractmethod
    def know(self, topic: str, queue_id: int) -> None:
        """Make the topic known."""

    @abstractmethod
    def keep_up(self, most: int) -> None:
        """Dispatch if more bytes than ``most`` wait for it."""

    @abstractmethod
    def check_open(self) -> None:
        """Refuse what comes behind the end."""

    def put(self, message: Message) -> PutResult:
        """Store a message; with sync flush, answer when its bytes are down (or after the timeout, by status).

        Raises:
            MessageRefused: the broker would not store it; nothing was written.
            IOFailure: the system refused to write or flush it.
        """
        part = records, appended = self._append(message)
        return result_of(records[0], 0, appended, self._flushed_status([part]))

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
        part = records, appended = self._append(message)
        return self._promised([part], result_of(records[0], 0, appended, PutStatus.PUT_OK), _late)

    def _append(self, message: Message) -> Part:
        self.check_open()
        self.housekeeping.check()
        config, sent = self.config, message
        if may_move(message):
            message = route(message, config, config.clock.now())
        late = is_late(message, config, self.topics)
        if late:
            check_late(message, config, self.topics)
        record = prepare(message, config)  # refuses before anything of it is known
        if sent is not message:
            check_topic(sent.topic, config)
            self.know(sent.topic, sent.queue_id)
        self.know(message.topic, message.queue_id)
        if late:
            for name in further_topics(message, config):
                self.know(name, message.queue_id)
            record, appended = append_late(self.log, message, config, self.topics)
        else:
            appended = self.log.append([record], config.clock.stamp, _advance(message))
        self.keep_up(self.most_undispatched)
        return [record], appended

    def put_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """Store messages of one topic and queue together: all in one log file, with one store time.

        Messages whose text depends on their offsets (batch queues, light queues) are stored one by one.

        Raises:
            MessageRefused: the broker would not store one of them; nothing was written.
            IOFailure: the system refused to write or flush them.
        """
        parts = self._append_batch(messages)
        return _results(parts, self._flushed_status(parts))

    def put_batch_async(self, messages: Sequence[Message]) -> Future[list[PutResult]]:
        """Append messages as :meth:`put_batch` does; one future for all of them, as that of :meth:`put_async`.

        Raises:
            MessageRefused: the broker would not store one of them; nothing was written.
            IOFailure: the system refused to write them, or to flush what came before them.
        """
        parts = self._append_batch(messages)
        return self._promised(parts, _results(parts, PutStatus.PUT_OK), lambda found: [_late(one) for one in found])

    def _append_batch(self, messages: Sequence[Message]) -> list[Part]:
        """Append messages together, or where that cannot be one by one; the last part is the last in the log."""
        self.check_open()
        self.housekeeping.check()
        if any(is_late(message, self.config, self.topics) for message in messages):
            return [self._append(message) for message in messages]
        records = [prepare(message, self.config) for message in messages]
        if not records:
            return []
        check_batch(sum(record.size for record in records), self.config)
        self.know(messages[0].topic, messages[0].queue_id)
        appended = self.log.append(records, self.config.clock.stamp)
        self.keep_up(self.most_undispatched)
        return [(records, appended)]

    def _waits(self, parts: Sequence[Part]) -> bool:
        return self.config.flush is FlushMode.SYNC and any(records[0].message.waits for records, _ in parts)

    def _flushed_status(self, parts: Sequence[Part]) -> PutStatus:
        in_time = not self._waits(parts) or self.group_commit.wait(parts[-1][1].end)
        return PutStatus.PUT_OK if in_time else PutStatus.FLUSH_DISK_TIMEOUT

    def _promised(self, parts: Sequence[Part], result: T, late: Callable[[T], T]) -> Future[T]:
        """The future of what was appended."""
        if self._waits(parts):
            return self.group_commit.submit(parts[-1][1].end, result, late)
        return Answer(self.log, 0, result, late)


def _late(result: PutResult) -> PutResult:
    return result._replace(status=PutStatus.FLUSH_DISK_TIMEOUT)


def _results(parts: Sequence[Part], status: PutStatus) -> list[PutResult]:
    return [result_of(r, n, appended, status) for records, appended in parts for n, r in enumerate(records)]


def _advance(message: Message) -> int | None:
    """By how much the queue's counter grows; prepared and rollback records have no place in a queue (spec 2.12)."""
    return 0 if message.sys_flag and message.sys_flag & TRANSACTION in (PREPARED, ROLLBACK) else None
