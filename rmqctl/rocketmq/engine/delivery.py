"""Delivering delayed messages that are due, and how far each level is (spec 2.13, 9.2; ScheduleMessageService)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.rocketmq.config_files import delay_offsets, read_config
from rmqctl.rocketmq.engine.config import Host
from rmqctl.rocketmq.engine.message import Message, PutResult
from rmqctl.rocketmq.engine.routing import REAL_QUEUE, REAL_TOPIC, whole_number
from rmqctl.rocketmq.engine.topic_table import save_config, versioned
from rmqctl.rocketmq.query.records import ENCODING, Record

if TYPE_CHECKING:
    from rmqctl.rocketmq.engine.engine import StoreEngine
    from rmqctl.rocketmq.store import RocketMQStore

DELAY_OFFSETS = "delayOffset.json"


@dataclass(slots=True)
class Delivery:
    """Moves due messages from the schedule topic to their own.

    Attributes:
        offsets: next queue offset to deliver, by level.
    """

    offsets: dict[int, int]
    document: dict[str, Any]

    @classmethod
    def of(cls, store: RocketMQStore | None) -> Delivery:
        """From a store's delayOffset.json.

        Raises:
            OSError: the file cannot be read.
        """
        if store is None:
            return cls({}, {})
        document = read_config(store, DELAY_OFFSETS).document
        return cls(delay_offsets(store), document if isinstance(document, dict) else {})

    def deliver(self, engine: StoreEngine, now_ms: int) -> Iterator[PutResult]:
        """Deliver everything that is due, level by level.

        Raises:
            IOFailure: the system refuses; what was delivered is noted.
        """
        engine.dispatch()
        moved = False
        for level in levels_in_use(engine):
            for due in engine.reading.due(level - 1, self.offsets.get(level, 0), now_ms):
                result = engine.put(delivered(due.record))
                self.offsets[level] = due.queue_offset + 1
                moved = True
                yield result
        if moved:
            self.save(engine)

    def save(self, engine: StoreEngine) -> None:
        """Write delayOffset.json.

        Raises:
            IOFailure: it cannot be written.
        """
        release = engine.config.release
        self.document["offsetTable"] = {str(level): offset for level, offset in sorted(self.offsets.items())}
        document = self.document
        if engine.config.is_5:
            document = versioned(document, release, engine.config.clock.now())
        save_config(Path(engine.root), DELAY_OFFSETS, document, engine.disk, release)


def levels_in_use(engine: StoreEngine) -> list[int]:
    """Delay levels that have messages, ascending."""
    topic = SCHEDULE_TOPIC.encode()
    return sorted(queue_id + 1 for name, queue_id in engine.reput.queues.simple if name == topic)


def delivered(record: Record) -> Message:
    """The message that is stored when a delayed one is due: its text still says where it was."""
    properties = text_of(record)
    real = properties.get(REAL_QUEUE, "0")
    return copy_of(record, properties.get(REAL_TOPIC, SCHEDULE_TOPIC), whole_number(real))


def text_of(record: Record) -> dict[str, str]:
    """The properties of a record as text."""
    return {name.decode(*ENCODING): value.decode(*ENCODING) for name, value in record.properties.items()}


def copy_of(record: Record, topic: str, queue_id: int) -> Message:
    """A record as a message for another queue, its properties text as stored."""
    fields = record.fields
    return Message(
        topic, fields["body"], queue_id, text_of(record), fields["flag"], fields["sys_flag"],
        fields["born_timestamp"], Host(fields["born_ip"], fields["born_port"]), None,
        Host(fields["store_ip"], fields["store_port"]), fields["reconsume_times"],
        fields["prepared_transaction_offset"], property_bytes=fields["properties"], is_stored=True,
    )  # fmt: skip


__all__ = ["DELAY_OFFSETS", "Delivery", "copy_of", "delivered", "text_of"]
