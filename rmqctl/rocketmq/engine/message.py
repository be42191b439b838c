"""What goes into an engine and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from formats.rocketmq.message_id import offset_message_id
from rmqctl.errors import Refused
from rmqctl.rocketmq.engine.config import Host

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
        """The same, saying where the message was written down."""
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
        """Offset in the log behind its record, bytes."""
        return self.physical_offset + self.size

    def late(self) -> PutResult:
        """The same, with a flush that took too long."""
        return self._replace(status=PutStatus.FLUSH_DISK_TIMEOUT)

    def row(self) -> dict[str, Any]:
        """As the JSON object of the contract."""
        names = ("topic", "queue_id", "queue_offset", "physical_offset", "size", "message_id", "unique_key")
        return {**{name: getattr(self, name) for name in names}, "status": str(self.status)}
