"""Delivering timer messages that are due: from the wheel to their real topic (spec 11; TimerMessageStore).

What waits in the timer topic goes into the wheel as if each message had come when it was stored. Slots
in front of the present are then read in order of time: delete marks first, then the messages they do not
name. A message marked to roll goes back to the timer topic and waits again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from formats.rocketmq.timer import TimerMagic
from rmqctl.rocketmq.engine.delivery import copy_of, text_of
from rmqctl.rocketmq.engine.message import Message, MessageRefused, PutResult, PutStatus
from rmqctl.rocketmq.engine.routing import DELETE_KEY, REAL_QUEUE, REAL_TOPIC, TIMER_TOPIC, whole_number
from rmqctl.rocketmq.engine.timer import TimerUnit, TimerWheel, Waiting
from rmqctl.rocketmq.query.records import Record

if TYPE_CHECKING:
    from rmqctl.rocketmq.engine.engine import StoreEngine

ENQUEUE_MS, DEQUEUE_MS, ROLL_TIMES = "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"
NEVER_ENQUEUED = (1 << 63) - 1
"""TIMER_ENQUEUE_MS of a message that was due before it came to the wheel."""
_ROLL, _DELETE = int(TimerMagic.ROLL), int(TimerMagic.DELETE)


def turn(engine: StoreEngine, wheel: TimerWheel) -> Iterator[Record]:
    """Put what waits in the timer topic into the wheel; yields the messages whose slot has been read already.

    Ending early leaves the rest of the topic waiting.

    Raises:
        IOFailure: a timer file cannot be written.
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
    """The messages of a slot that no delete mark of it names."""
    records = engine.reading.records([unit.physical_offset for unit in units])
    found = [(unit, record) for unit, record in zip(units, records, strict=True) if record is not None]
    deleted = {text_of(record).get(DELETE_KEY) for unit, record in found if unit.magic & (_ROLL | _DELETE) == _DELETE}
    for unit, record in found:
        is_mark = unit.magic & (_ROLL | _DELETE) == _DELETE
        if not is_mark and text_of(record).get("UNIQ_KEY", "") not in deleted:
            yield _dequeued(record, unit.write_time, now_ms, roll=bool(unit.magic & _ROLL))


def _dequeued(record: Record, enqueued_ms: int, now_ms: int, *, roll: bool) -> Message:
    """The message that is stored: its text still says where it was (TimerMessageStore.convert, convertMessage)."""
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


__all__ = ["deliver", "turn"]
