"""What goes into an engine, what comes back, and what a broker refuses to store, with its own status and words (spec
2.2, 2.8).

Sources: HookUtils.checkBeforePutMessage, DefaultMessageStore.checkMessage, TopicValidator, MessageExtEncoder.encode
and CommitLog's DefaultAppendMessageCallback.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from formats.rocketmq.message_id import offset_message_id
from rmqctl.errors import Refused
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import Host, StoreConfig

LOCALHOST = Host(b"\x7f\0\0\1", 0)


class PutStatus(StrEnum):
    """PutMessageStatus of the broker."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class MessageRefused(Refused):
    """The broker would not store this message.

    Attributes:
        status: the broker's own answer.
        field: the part of the message that is wrong; "" where it is none alone.
    """

    def __init__(self, status: PutStatus, reason: str, field: str = "", origin: str = "") -> None:
        """
        Args:
            origin: what wrote the message down, such as ``orders.jsonl, line 3``; the text then begins with it.
        """
        place = f"{origin}, field {field}: " if origin and field else f"{origin}: " if origin else ""
        super().__init__(f"{place}{status}: {reason}{'; nothing of this line was written' if origin else ''}")
        self.status, self.reason, self.field = status, reason, field

    def at(self, origin: str) -> MessageRefused:
        """Return the refusal with the place where the message was written down."""
        return MessageRefused(self.status, self.reason, self.field, origin)


@dataclass(slots=True)
class Message:
    """A message to store.

    Attributes:
        body: as it is to be stored; compressed if ``sys_flag`` says so.
        queue_id: the queue of the topic.
        properties: name -> value in the order in which they were put; KEYS, TAGS, UNIQ_KEY among them.
        flag: the producer's own.
        sys_flag: transaction and compression bits; host bits are set by the engine.
        born_timestamp: ms; None: the store time.
        store_timestamp: ms; None: the engine's clock.
        prepared_transaction_offset: physical offset of the half message.
        property_bytes: the properties text to store as it is, instead of ``properties``.
        is_stored: the message is a record already: delay and timer properties are history, not wishes.
        origin: what wrote it down, such as ``orders.jsonl, line 3``, for refusals.
    """

    topic: str
    body: bytes
    queue_id: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: Host = LOCALHOST
    store_timestamp: int | None = None
    store_host: Host | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    property_bytes: bytes | None = None
    is_stored: bool = False
    origin: str = ""

    @property
    def waits(self) -> bool:
        """With sync flush the producer wants to be answered only when the bytes are down (property WAIT)."""
        return self.properties.get("WAIT") != "false"


class PutResult(NamedTuple):
    """Where a message went.

    Attributes:
        queue_offset: position in its queue, messages.
        physical_offset, size: its record in the log, bytes.
        store_host: of its record.
        unique_key: its UNIQ_KEY, None without.
        store_timestamp: ms.
    """

    status: PutStatus
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_host: Host
    unique_key: str | None
    store_timestamp: int

    @property
    def message_id(self) -> str:
        """OffsetMsgId."""
        return offset_message_id(self.store_host.ip, self.store_host.port, self.physical_offset)

    @property
    def end(self) -> int:
        """Offset in the log after its record, bytes."""
        return self.physical_offset + self.size

    def late(self) -> PutResult:
        """Return the result of a put whose flush took too long."""
        return self._replace(status=PutStatus.FLUSH_DISK_TIMEOUT)

    def row(self) -> dict[str, Any]:
        """As the JSON object of the contract."""
        names = ("topic", "queue_id", "queue_offset", "physical_offset", "size", "message_id", "unique_key")
        return {**{name: getattr(self, name) for name in names}, "status": str(self.status)}


# --- what a broker refuses to store -----------------------------------------------------------------


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
