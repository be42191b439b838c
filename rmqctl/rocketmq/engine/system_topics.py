"""What the broker does with its own topics while a store is open: transactions, delayed delivery, the timer wheel.

Transactions are half messages, their end, and the op messages that say so (spec 2.12). Sources:
TransactionalMessageBridge.parseHalfMessageInner, EndTransactionProcessor,
TransactionalMessageServiceImpl.deletePrepareMessage; from 5.1.0 on one op message names several half messages.

Delayed messages are delivered when they are due, and how far each level is kept (spec 2.13, 9.2;
ScheduleMessageService).

Timer messages go from the wheel to their real topic (spec 11; TimerMessageStore). What waits in the timer topic goes
into the wheel as if each message had come when it was stored. Slots in front of the present are then read in order of
time: delete marks first, then the messages they do not name. A message marked to roll goes back to the timer topic
and waits again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.rocketmq.message import COMMIT, TRANSACTION
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from formats.rocketmq.timer import TimerMagic
from rmqctl.files.writing import Disk
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import Host, StoreConfig
from rmqctl.rocketmq.engine.message import Message, MessageRefused, PutResult, PutStatus, check_queue, check_topic
from rmqctl.rocketmq.engine.record import client_text
from rmqctl.rocketmq.engine.routing import DELETE_KEY, REAL_QUEUE, REAL_TOPIC, TIMER_TOPIC, moved, whole_number
from rmqctl.rocketmq.engine.timer import TimerUnit, TimerWheel, Waiting
from rmqctl.rocketmq.engine.topic_table import save_config, versioned
from rmqctl.rocketmq.query.records import ENCODING, Record
from rmqctl.rocketmq.state.config import delay_offsets, read_config
from rmqctl.rocketmq.store.files import StoreFiles

if TYPE_CHECKING:
    from rmqctl.rocketmq.engine.engine import StoreEngine


HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
_OPS_TOGETHER, _TEXT_CLEANED = Release(5, 1, 0), Release(5, 4, 0)
_OP_BYTES = 4096
"""Largest body of an op message (transactionOpMsgMaxSize)."""


@dataclass(frozen=True, slots=True)
class Half:
    """A prepared message that waits for its end."""

    message: Message
    result: PutResult


@dataclass(slots=True)
class Transactions:
    """The half messages that ended and have no op message yet: queue offsets, in the order of their ends."""

    ended: list[int] = field(default_factory=list)

    def prepare(self, engine: StoreEngine, message: Message, group: str) -> Half:
        """Store the half message.

        Raises:
            MessageRefused, IOFailure: it cannot be stored.
        """
        config = engine.config
        check_topic(message.topic, config.release)
        check_queue(message.queue_id)
        properties = {**message.properties, "TRAN_MSG": "true", "PGROUP": group}
        key = {"__transactionId__": properties["UNIQ_KEY"]} if config.is_5 and "UNIQ_KEY" in properties else {}
        half = moved(replace(message, properties=properties), HALF_TOPIC, 0, config, key)
        half.sys_flag &= ~TRANSACTION
        return Half(replace(half, topic=message.topic, queue_id=message.queue_id), engine.put(half))

    def end(self, engine: StoreEngine, half: Half, *, commit: bool) -> PutResult | None:
        """Commit or roll back; gives the record of the committed message.

        Raises:
            IOFailure: it cannot be stored.
        """
        result = engine.put(_committed(half, engine.config)) if commit else None
        self.ended.append(half.result.queue_offset)
        if engine.config.release < _OPS_TOGETHER or sum(len(str(n)) + 1 for n in self.ended) > _OP_BYTES:
            self.note(engine)
        return result

    def note(self, engine: StoreEngine) -> None:
        """Store the op message for all that ended.

        Raises:
            IOFailure: it cannot be stored.
        """
        if self.ended:
            body = ",".join(map(str, self.ended)) + ("," if engine.config.release >= _OPS_TOGETHER else "")
            properties = {"TAGS": "d", "WAIT": "true"}
            text = client_text(properties, engine.config.release)
            host = engine.config.store_host
            engine.put(
                Message(OP_TOPIC, body.encode(), 0, properties, born_host=host, property_bytes=text, is_stored=True)
            )
            self.ended.clear()


def _committed(half: Half, config: StoreConfig) -> Message:
    properties = dict(half.message.properties)
    if config.release >= _TEXT_CLEANED:
        del properties[REAL_TOPIC], properties[REAL_QUEUE]
    return replace(
        half.message,
        properties=properties,
        sys_flag=half.message.sys_flag | COMMIT,
        born_timestamp=half.result.store_timestamp
        if half.message.born_timestamp is None
        else half.message.born_timestamp,
        prepared_transaction_offset=half.result.physical_offset,
    )


# --- delivering delayed messages that are due -------------------------------------------------------


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
    def of(cls, store: StoreFiles | None) -> Delivery:
        """From a store's delayOffset.json."""
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
        """Write delayOffset.json."""
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
    """Return the message that is stored when a delayed one is due: its text still says where it was."""
    properties = text_of(record)
    real = properties.get(REAL_QUEUE, "0")
    return copy_of(record, properties.get(REAL_TOPIC, SCHEDULE_TOPIC), whole_number(real))


def text_of(record: Record) -> dict[str, str]:
    """Return the properties of a record as text."""
    return {name.decode(*ENCODING): value.decode(*ENCODING) for name, value in record.properties.items()}


def copy_of(record: Record, topic: str, queue_id: int) -> Message:
    """Return a record as a message for another queue, its properties text as stored."""
    fields = record.fields
    return Message(
        topic, fields["body"], queue_id, text_of(record), fields["flag"], fields["sys_flag"],
        fields["born_timestamp"], Host(fields["born_ip"], fields["born_port"]), None,
        Host(fields["store_ip"], fields["store_port"]), fields["reconsume_times"],
        fields["prepared_transaction_offset"], property_bytes=fields["properties"], is_stored=True,
    )  # fmt: skip


# --- delivering timer messages that are due ---------------------------------------------------------


ENQUEUE_MS, DEQUEUE_MS, ROLL_TIMES = "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"
NEVER_ENQUEUED = (1 << 63) - 1
"""TIMER_ENQUEUE_MS of a message that was due before it came to the wheel."""
_ROLL, _DELETE = int(TimerMagic.ROLL), int(TimerMagic.DELETE)


def turn(engine: StoreEngine, wheel: TimerWheel) -> Iterator[Record]:
    """Put what waits in the timer topic into the wheel; yields the messages whose slot has been read already.

    Ending early leaves the rest of the topic waiting.
    """
    for placed in engine.reading.placed(TIMER_TOPIC, 0, wheel.queue_offset):
        record = placed.record
        size = int(record.fields["total_size"])
        waiting = Waiting(record.physical_offset, size, placed.queue_offset, text_of(record))
        if wheel.is_late(waiting):
            yield record
            wheel.skip_to(placed.queue_offset + 1)
        else:
            wheel.enqueue(waiting, record.store_timestamp)


def deliver(engine: StoreEngine, wheel: TimerWheel, now_ms: int) -> Iterator[PutResult]:
    """Deliver everything whose time lies in front of the present slot.

    Raises:
        IOFailure: the system refuses; what was delivered since the last call may be delivered again.
    """
    until, moved = wheel.floor(now_ms), False
    while True:
        engine.dispatch()
        late = (_dequeued(record, NEVER_ENQUEUED, now_ms, roll=False) for record in turn(engine, wheel))
        yield from _put(engine, late)
        time = wheel.next_time(until)
        if time is None:
            break
        moved = True
        yield from _put(engine, list(_due(engine, wheel.units(time), now_ms)))
        wheel.move(time + engine.config.timer_precision_ms)
    wheel.move(until)
    if moved:
        wheel.save(now_ms)


def _due(engine: StoreEngine, units: list[TimerUnit], now_ms: int) -> Iterator[Message]:
    """Yield the messages of a slot that no delete mark of it names."""
    records = engine.reading.records([unit.physical_offset for unit in units])
    found = [(unit, record) for unit, record in zip(units, records, strict=True) if record is not None]
    deleted = {text_of(record).get(DELETE_KEY) for unit, record in found if unit.magic & (_ROLL | _DELETE) == _DELETE}
    for unit, record in found:
        is_mark = unit.magic & (_ROLL | _DELETE) == _DELETE
        if not is_mark and text_of(record).get("UNIQ_KEY", "") not in deleted:
            yield _dequeued(record, unit.write_time, now_ms, roll=bool(unit.magic & _ROLL))


def _dequeued(record: Record, enqueued_ms: int, now_ms: int, *, roll: bool) -> Message:
    """Return the message that is stored: its text still says where it was (TimerMessageStore.convertMessage)."""
    properties = text_of(record)
    properties[ENQUEUE_MS] = str(enqueued_ms)
    if roll:
        times = properties.get(ROLL_TIMES, "0")
        properties[ROLL_TIMES] = str(whole_number(times) + 1)
    properties[DEQUEUE_MS] = str(now_ms)
    queue = properties.get(REAL_QUEUE, "0")
    topic = TIMER_TOPIC if roll else properties.get(REAL_TOPIC, "")
    message = copy_of(record, topic, 0 if roll else whole_number(queue))
    message.properties, message.property_bytes, message.prepared_transaction_offset = properties, None, 0
    return message


def _put(engine: StoreEngine, messages: Iterator[Message] | list[Message]) -> Iterator[PutResult]:
    """Store messages; those that the broker gives up are left out (TimerMessageStore.doPut)."""
    for message in messages:
        if message.topic == TIMER_TOPIC or DELETE_KEY not in message.properties:
            try:
                yield engine.put(message)
            except MessageRefused as error:
                if error.status is PutStatus.SERVICE_NOT_AVAILABLE:
                    raise


# --- what the broker does with its own topics while a store is open ---------------------------------


class SystemTopics:
    """State of the system topics of one open store.

    Attributes:
        transactions: half messages that ended.
        delivery: how far each delay level is.
        wheel: None where timer messages are not served.
    """

    def __init__(self, root: Path, config: StoreConfig, disk: Disk, store: StoreFiles | None) -> None:
        """Open the system topics of a store."""
        self.transactions, self.delivery = Transactions(), Delivery.of(store)
        self.wheel = TimerWheel(root, config, disk) if config.timer and config.is_5 else None
        self._caught_up = False
        self._lock = threading.Lock()

    def deliver(self, engine: StoreEngine) -> list[PutResult]:
        """Deliver delayed and timer messages whose time has come, by the engine's clock; one caller at a time."""
        now = engine.config.clock.now()
        with self._lock:
            found = list(self.delivery.deliver(engine, now))
            wheel = self._wheel_of(engine)
            if wheel is not None:
                found += deliver(engine, wheel, now)
            return found

    def finish(self, engine: StoreEngine) -> None:
        """Bring the wheel up to date and write it down; everything is dispatched.

        Messages whose slot has been read already keep waiting in their topic, where the next start finds them.
        """
        wheel = self._wheel_of(engine)
        if wheel is not None:
            next(turn(engine, wheel), None)
            present = wheel.floor(engine.config.clock.now())
            waiting = wheel.next_time(present)
            wheel.move(present if waiting is None else waiting)
            wheel.save(engine.config.clock.now())

    def expire(self, min_offset: int) -> list[Path]:
        """Delete files of the timer log that hold only messages in front of the log."""
        with self._lock:
            return self.wheel.expire(min_offset) if self.wheel is not None else []

    def _wheel_of(self, engine: StoreEngine) -> TimerWheel | None:
        """Return the wheel; made where timer messages came without it, caught up with its log the first time."""
        if (TIMER_TOPIC.encode(), 0) not in engine.reput.queues.simple:
            return self.wheel
        if self.wheel is None and engine.config.is_5:
            self.wheel = TimerWheel(engine.root, engine.config, engine.disk)
        if self.wheel is not None and not self._caught_up:
            self._caught_up = True
            unit = self.wheel.last_unit()
            (record,) = engine.reading.records([unit.physical_offset]) if unit is not None else (None,)
            if record is not None and record.topic == TIMER_TOPIC:
                self.wheel.skip_to(record.fields["queue_offset"] + 1)
        return self.wheel

    def close(self) -> None:
        """Close the timer files."""
        if self.wheel is not None:
            self.wheel.close()
