"""The copies of one message in the log: what each of them is, and which follows which (spec 2.12, 2.13, 3.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from formats.rocketmq.message import COMMIT, TRANSACTION
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.rocketmq.query import pending
from rmqctl.rocketmq.query.lag import DEAD, RETRY
from rmqctl.rocketmq.query.records import ENCODING, Record
from rmqctl.text import number_of

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
HALVES = frozenset({pending.HALF_TOPIC, pending.ROCKSDB_HALF_TOPIC})
WAITING = frozenset({SCHEDULE_TOPIC, pending.WHEEL_TOPIC})
INTERNAL = HALVES | WAITING | {GIVEN_UP}
"""Topics that no consumer reads."""
CHECKS = b"TRANSACTION_CHECK_TIMES"
RECALL = b"TIMER_DEL_UNIQKEY"
"""Names the timer that a record deletes; one with the unique key of that timer is among its copies."""
_DISPATCHED, _OFFSETS = b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET"
_RETRIED = b"RETRY_TOPIC"

Damage = list[tuple[int, str]]
"""Physical offsets of damaged places of the log, ascending, each with the place in words."""
QueuePlace = tuple[str, int, int]
"""Topic, queue id and queue offset: where a consumer finds a message."""


@dataclass(slots=True)
class Copies:
    """The copies of one message.

    Attributes:
        records: ascending by physical offset.
        damage: of the whole log.
    """

    records: list[Record]
    damage: Damage = field(default_factory=list)

    def of(self, wanted: Callable[[Record], bool]) -> list[Record]:
        """Return the copies for which something holds."""
        return [record for record in self.records if wanted(record)]

    def harmed(self, first: int, last: int | None = None) -> str:
        """Return in words the first damaged place from one physical offset to another; "" where nothing is harmed."""
        return next((said for at, said in self.damage if first <= at and (last is None or at < last)), "")


def role_of(record: Record, copies: Copies) -> tuple[str, str]:
    """Return what a copy is, and the words before its place."""
    topic, real, properties = record.topic, record.real_topic, record.properties
    checks, failed = number_in(properties.get(CHECKS)), record.fields["reconsume_times"]
    earlier = copies.of(lambda other: other.physical_offset < record.physical_offset)
    producers = f"stored as a half message of producer group {text_of(properties.get(b'PGROUP'))} for {real}:"
    committed = f"committed (its half message is at offset {record.fields['prepared_transaction_offset']}), stored as"
    roles = (
        (RECALL in properties, "recalled", "recalled: a delete mark is stored as"),
        (topic in HALVES and bool(checks), "checked", f"check {checks} of the transaction: stored again as"),
        (topic in HALVES, "half", producers),
        (topic == GIVEN_UP, "given-up", "its transaction is given up, stored as"),
        (topic in WAITING and real.startswith(RETRY), "retry",
         f"consuming failed {number_of(failed, 'time')}: delayed for {real} as"),
        (topic == pending.WHEEL_TOPIC, "timed", f"stored to be delivered later to {real}, as"),
        (topic == SCHEDULE_TOPIC, "delayed", f"stored to be delivered later to {real}, as"),
        (topic.startswith(DEAD), "dead-letter", "given up by its consumers, stored as"),
        (topic.startswith(RETRY), "retried", "stored for a retry as"),
        (any(follows(other, record) for other in earlier), "delivered", "delivered after its delay, stored as"),
        (record.fields["sys_flag"] & TRANSACTION == COMMIT, "committed", committed),
    )  # fmt: skip
    return next(((what, text) for holds, what, text in roles if holds), ("stored", "stored as"))


def topic_of(record: Record) -> str:
    """Return the topic that a producer wrote the message to, as far as this copy says it."""
    own = record.properties.get(_RETRIED)
    return record.real_topic if own is None else own.decode(*ENCODING)


def follows(before: Record, after: Record) -> bool:
    """Whether a copy is what the broker makes of one that waits: the same message under the topic it is meant for."""
    if before.topic not in WAITING or after.topic in HALVES or RECALL in after.properties:
        return False
    if after.topic == pending.WHEEL_TOPIC:  # rolled over: it is put into the timer again
        return before.topic == after.topic
    same = after.fields["reconsume_times"] == before.fields["reconsume_times"]
    return same and after.topic == before.real_topic


def queues_of(record: Record) -> list[QueuePlace]:
    """Return where consumers find a record: its queue, and the light queues it is dispatched to (spec 3.7)."""
    found = [(record.topic, record.fields["queue_id"], record.fields["queue_offset"])]
    names = record.properties.get(_DISPATCHED, b"").split(b",")
    offsets = record.properties.get(_OFFSETS, b"").split(b",")
    for name, offset in zip(names, offsets, strict=False):
        if name and offset.isdigit():
            found.append((name.decode(*ENCODING), 0, int(offset)))
    return found


def topics_of(record: Record) -> set[str]:
    """Return the topics by which a user may mean a copy: its own, and that of its producer."""
    return {record.topic, record.real_topic, topic_of(record)}


def place_of(record: Record) -> str:
    """Return ``TOPIC/QUEUE@OFFSET``."""
    return f"{record.topic}/{record.fields['queue_id']}@{record.fields['queue_offset']}"


def number_in(text: bytes | None) -> int | None:
    """Return the number that a property holds; None where it holds none."""
    return int(text) if text is not None and text.isdigit() and len(text) < 19 else None


def text_of(data: bytes | None) -> str | None:
    """Return a property for people."""
    return None if data is None else data.decode("utf-8", "replace")
