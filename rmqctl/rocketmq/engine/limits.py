"""What a broker refuses to store, with its own status and words (spec 2.2, 2.8).

Sources: HookUtils.checkBeforePutMessage, DefaultMessageStore.checkMessage, TopicValidator,
MessageExtEncoder.encode and CommitLog's DefaultAppendMessageCallback.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import Host, StoreConfig
from rmqctl.rocketmq.engine.message import MessageRefused, PutStatus

TOPIC_MAX, RETRY_TOPIC_MAX, PROPERTIES_MAX = 127, 255, 32767
RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
BLANK_ROOM = 8
MAX_QUEUES = 1 << 16
"""Queues that a topic may have here; a broker knows no limit, but its clients list all."""
_RECORD_EXTRA = 64 << 10
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_BODY_RULE, _RECORD_RULE = Release(4, 9, 4), Release(4, 9, 3)
_V2, _V6 = Release(5, 1, 0), Release(4, 6, 0)


def check_topic(topic: str, release: Release) -> None:
    """Refuse a name that no broker of the release accepts.

    Raises:
        MessageRefused: blank, too long, or with other characters than letters, digits, ``%|_-``.
    """
    if _is_good(topic, release):
        return
    if not topic.strip():
        raise MessageRefused(PutStatus.MESSAGE_ILLEGAL, "The specified topic is blank; give a topic name", "topic")
    if not _TOPIC.fullmatch(topic):
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"The specified topic[{topic}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$; "
            "choose another name",
            "topic",
        )
    longest = topic_limit(topic, release)
    raise MessageRefused(
        PutStatus.MESSAGE_ILLEGAL,
        f"putMessage message topic length too long {len(topic)}, at most {longest}; choose a shorter name",
        "topic",
    )


def is_topic(topic: str) -> bool:
    """Whether some release accepts the name."""
    return _is_good(topic, _V2)


@lru_cache(maxsize=4096)
def _is_good(topic: str, release: Release) -> bool:
    return bool(_TOPIC.fullmatch(topic)) and len(topic) <= topic_limit(topic, release)


def is_topic_text(name: str) -> bool:
    """Whether a name has only characters that topics may have, and not too many of them."""
    return bool(_TOPIC.fullmatch(name)) and len(name) <= RETRY_TOPIC_MAX


def topic_limit(topic: str, release: Release) -> int:
    """Bytes a topic name may have: more than 127 only for retry topics from 5.1.0 on."""
    return RETRY_TOPIC_MAX if release >= _V2 and topic.startswith(RETRY_PREFIX) else TOPIC_MAX


def check_queue(queue_id: int) -> None:
    """Refuse what is no number of a queue.

    Raises:
        MessageRefused: MESSAGE_ILLEGAL.
    """
    if not 0 <= queue_id < MAX_QUEUES:
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL, f"queue {queue_id} is none; give one from 0 to {MAX_QUEUES - 1}", "queue_id"
        )


def check_host(host: Host, config: StoreConfig, field: str) -> None:
    """Refuse an address of IPv6 where the release would take its bytes for other fields (spec 2.3).

    Raises:
        MessageRefused: MESSAGE_ILLEGAL.
    """
    if host.is_v6 and config.release < _V6:
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"brokers before {_V6} know no hosts with IPv6 addresses; give an IPv4 address, or a later release",
            field,
        )


def check_body_size(size: int, config: StoreConfig) -> None:
    """Refuse a body that is too large (maxMessageSize).

    Raises:
        MessageRefused: MESSAGE_ILLEGAL.
    """
    if size > config.max_message_size and config.release >= _BODY_RULE:
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"message body size exceeded, msg body size: {size}, maxMessageSize: {config.max_message_size} (bytes); "
            "send a smaller body",
            "body",
        )


def check_properties(size: int) -> None:
    """Refuse a properties text of more than 32,767 bytes.

    Raises:
        MessageRefused: PROPERTIES_SIZE_EXCEEDED.
    """
    if size > PROPERTIES_MAX:
        raise MessageRefused(
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
            f"putMessage message properties length too long {size}, at most {PROPERTIES_MAX} bytes; "
            "send fewer properties",
            "properties",
        )


def check_record(size: int, body: int, config: StoreConfig) -> None:
    """Refuse a record that is too large, or that no log file could hold beside its blank record.

    Raises:
        MessageRefused: MESSAGE_ILLEGAL.
    """
    limit = record_limit(config) if size > config.max_message_size else None
    if limit is not None and size > limit:
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"message size exceeded, msg total size: {size}, msg body size: {body}, "
            f"maxMessageSize: {config.max_message_size} (bytes); send a smaller message",
            "body",
        )
    if size + BLANK_ROOM > config.commit_log_file_size:
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"msg total size: {size}, but a commit log file has {config.commit_log_file_size} bytes "
            f"and {BLANK_ROOM} of them stay free; send a smaller message or make larger files",
            "body",
        )


def check_batch(size: int, config: StoreConfig) -> None:
    """Refuse a batch that no log file could hold: all of it goes into one.

    Raises:
        MessageRefused: MESSAGE_ILLEGAL.
    """
    if size + BLANK_ROOM > config.commit_log_file_size:
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"the batch takes {size} bytes of log, but a commit log file has {config.commit_log_file_size}; "
            "send smaller batches or make larger files",
        )


def record_limit(config: StoreConfig) -> int | None:
    """Bytes a record may have, at least those of a body; None for 4.9.4, which looks at the body alone."""
    if config.release <= _RECORD_RULE:
        return config.max_message_size
    return None if config.release == _BODY_RULE else config.max_message_size + _RECORD_EXTRA
