"""One record as its dispatchers see it (DispatchRequest; CommitLog.checkMessageAndReturnSize).

This is the path for a few records at a time. `rmqctl.rocketmq.dispatch.columns` does the same for blocks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from formats.rocketmq.index import index_key, key_hash, tag_index_key
from formats.rocketmq.message import decode_record
from formats.rocketmq.properties import split_properties
from formats.rocketmq.tags_code import SCHEDULE_TOPIC, delivery_time, tags_code
from rmqctl.rocketmq.dispatch.rules import DispatchRules

TRANSACTION, PREPARED, ROLLBACK, INNER_BATCH = 0xC, 0x4, 0xC, 0x80
UNQUEUED = PREPARED, ROLLBACK
"""Of the transaction bits: records that get no queue unit."""
_NUMBER = re.compile(rb"[+-]?[0-9]+")
Properties = Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class ExtraQueue:
    """Another queue that a record is dispatched to, and its queue offset there (spec 3.7)."""

    topic: bytes
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class DispatchRequest:
    """What dispatch needs of one record.

    Attributes:
        physical_offset: PHYSICALOFFSET of the record, bytes; size: TOTALSIZE, bytes.
        tags_code: hash of TAGS, or the delivery time of a delayed message, ms.
        store_timestamp: ms.
        base_offset: INNER_BASE, -1 without; batch_size: INNER_NUM, 1 without.
        key_hashes: hashes of its index entries in the order of the entries (UNIQ_KEY, KEYS, tags).
        extra: further queues.
    """

    topic: bytes
    queue_id: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    queue_offset: int
    sys_flag: int
    base_offset: int = -1
    batch_size: int = 1
    key_hashes: tuple[int, ...] = ()
    extra: tuple[ExtraQueue, ...] = ()

    @property
    def is_queued(self) -> bool:
        """Whether queues get a unit: transaction type none or commit."""
        return self.sys_flag & TRANSACTION not in UNQUEUED

    @property
    def is_indexed(self) -> bool:
        """Whether the index gets its keys: any transaction type but rollback."""
        return self.sys_flag & TRANSACTION != ROLLBACK

    @property
    def is_inner_batch(self) -> bool:
        """Whether one record holds several messages."""
        return bool(self.sys_flag & INNER_BATCH)


def request_of(record: bytes, rules: DispatchRules, offset: int = 0) -> DispatchRequest:
    """The request of the record whose bytes start at ``offset``.

    Raises:
        DecodeError: the bytes are no record.
    """
    fields, _ = decode_record(record, offset)
    return request_of_fields(fields, rules)


def request_of_fields(fields: Mapping[str, Any], rules: DispatchRules) -> DispatchRequest:
    """The request of a decoded record (`formats.rocketmq.message.decode_record`)."""
    topic, properties = fields["topic"], properties_of(fields["properties"], rules)
    base, count = inner_batch(properties)
    return DispatchRequest(
        topic=topic,
        queue_id=fields["queue_id"],
        physical_offset=fields["physical_offset"],
        size=fields["total_size"],
        tags_code=unit_tags_code(topic, properties, fields["store_timestamp"], rules),
        store_timestamp=fields["store_timestamp"],
        queue_offset=fields["queue_offset"],
        sys_flag=fields["sys_flag"],
        base_offset=base,
        batch_size=count,
        key_hashes=key_hashes(topic, properties, rules),
        extra=extra_queues(topic, fields["queue_id"], properties, rules),
    )


def properties_of(text: bytes, rules: DispatchRules) -> dict[bytes, bytes]:
    """Properties by name as the broker's map has them: of repeated names the last counts."""
    return dict(split_properties(text, strict=rules.strict_properties))


def unit_tags_code(topic: bytes, properties: Properties, store_timestamp: int, rules: DispatchRules) -> int:
    """What a queue unit carries: the hash of TAGS, or for the schedule topic the delivery time, ms (spec 3.2)."""
    level = properties.get(b"DELAY", b"")
    if topic == SCHEDULE_TOPIC.encode() and _NUMBER.fullmatch(level) and int(level) > 0:
        return delivery_time(store_timestamp, int(level), dict(rules.delays))
    return tags_code(_text(properties.get(b"TAGS", b"")))


def key_hashes(topic: bytes, properties: Properties, rules: DispatchRules) -> tuple[int, ...]:
    """Hashes of the index entries of a record in order: UNIQ_KEY, each part of KEYS, tags (spec 4.2, 4.3)."""
    name = _text(topic)
    parts = [p for p in properties.get(b"KEYS", b"").split(b" ") if p]
    if b"UNIQ_KEY" in properties:
        parts.insert(0, properties[b"UNIQ_KEY"])
    hashes = [key_hash(index_key(name, _text(part))) for part in parts]
    tags = properties.get(b"TAGS", b"")
    if tags and rules.tag_entries:
        hashes.append(key_hash(tag_index_key(name, _text(tags))))
    return tuple(hashes)


def inner_batch(properties: Properties) -> tuple[int, int]:
    """INNER_BASE and INNER_NUM; (-1, 1) unless both are whole numbers."""
    base, count = properties.get(b"INNER_BASE", b""), properties.get(b"INNER_NUM", b"")
    if _NUMBER.fullmatch(base) and _NUMBER.fullmatch(count):
        return int(base), int(count)
    return -1, 1


def extra_queues(topic: bytes, queue_id: int, properties: Properties, rules: DispatchRules) -> tuple[ExtraQueue, ...]:
    """The queues of INNER_MULTI_DISPATCH; none unless each has an offset (spec 3.7)."""
    names, offsets = properties.get(b"INNER_MULTI_DISPATCH"), properties.get(b"INNER_MULTI_QUEUE_OFFSET")
    if not names or not offsets or not rules.dispatches_extra(topic):
        return ()
    return split_extra(names, offsets, queue_id, rules)


def split_extra(names: bytes, offsets: bytes, queue_id: int, rules: DispatchRules) -> tuple[ExtraQueue, ...]:
    """The pairs of two comma-separated texts; none where they differ in number or an offset is no number."""
    topics, numbers = _java_split(names), _java_split(offsets)
    if len(topics) != len(numbers) or not all(map(_NUMBER.fullmatch, numbers)):
        return ()
    placed = ((name, rules.extra_queue_id(name, queue_id), int(n)) for name, n in zip(topics, numbers, strict=True))
    return tuple(ExtraQueue(name, own, number) for name, own, number in placed if own is not None)


def _java_split(text: bytes) -> list[bytes]:
    """As ``String.split(",")``: empty parts at the end are left out."""
    parts = text.split(b",")
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
