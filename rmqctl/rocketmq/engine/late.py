"""Records whose properties hold queue offsets: inner batches, and messages for several queues (spec 2.11, 3.7).

The offsets are known only under the append lock, so these records are encoded there.
Sources: HookUtils.checkInnerBatch, QueueOffsetOperator, MultiDispatch.wrapMultiDispatch.
"""

from __future__ import annotations

from dataclasses import replace

from formats.rocketmq.message import SysFlag
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.release import Release
from rmqctl.rocketmq.engine.commit_log import CommitLog
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.message import RETRY_PREFIX, Message, MessageRefused, PutResult, PutStatus, is_topic_text
from rmqctl.rocketmq.engine.record import Prepared, prepare
from rmqctl.rocketmq.engine.routing import whole_number
from rmqctl.rocketmq.engine.topic_table import TopicTable

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
        IOFailure: a file cannot be made or written.
    """
    is_batch = topics.is_batch(message.topic)
    is_inner = is_batch and bool(message.sys_flag & _INNER_BATCH)
    count = _count(message) if is_batch else 1
    extra = _extra(message, config) if not is_batch else []

    def make(queue_offset: int) -> Prepared:
        if not is_inner and not extra:
            return prepare(message, config)
        properties = dict(message.properties)
        if is_inner:  # a plain message gets none, and so no unit either: BatchConsumeQueue.assignQueueOffset
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


def check_served(topic: str, sys_flag: int, topics: TopicTable) -> None:
    """Refuse a plain message for a topic with batch queues: a broker stores it, and gives it to no consumer (spec 3.6).

    Raises:
        MessageRefused: MESSAGE_ILLEGAL.
    """
    if topics.is_batch(topic) and not sys_flag & _INNER_BATCH:
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"{topic} has batch queues, and no consumer would get a message that is in no inner batch; "
            "give --inner-batch, or another topic",
            "topic",
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
