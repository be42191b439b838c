"""What a broker's release and settings change about dispatch (spec 3.2 to 3.7, 4.1 to 4.3).

Delay levels that no configuration says are those that the queues of a store show (spec 2.13). One record as its
dispatchers see it (DispatchRequest; CommitLog.checkMessageAndReturnSize) is the path for few records at a time;
`rmqctl.rocketmq.dispatch.dispatched` does the same for blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from formats.rocketmq.index import index_key, key_hash, tag_index_key
from formats.rocketmq.message import PREPARED, ROLLBACK, SysFlag
from formats.rocketmq.properties import split_properties
from formats.rocketmq.tags_code import (
    DEFAULT_DELAY_LEVELS,
    SCHEDULE_TOPIC,
    delivery_time,
    parse_delay_levels,
    tags_code,
)
from rmqctl.errors import Refused
from rmqctl.release import Release
from rmqctl.rocketmq.log.commitlog import CommitLog, LogState, walk_file
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import Queue
from rmqctl.rocketmq.queues.ranges import last_unit
from rmqctl.rocketmq.queues.rocksdb import open_queues
from rmqctl.rocketmq.state.config import configured_topics, has_batch_queues
from rmqctl.rocketmq.state.releases import has_known_broker, release_range
from rmqctl.rocketmq.store.databases import DatabaseDamaged, can_read
from rmqctl.rocketmq.store.files import (
    BATCH_QUEUES,
    LIGHT,
    QUEUES,
    QUEUES_EXT,
    QueueFiles,
    StoreFiles,
    is_queue_id,
)
from rmqctl.rocketmq.store.geometry import flag


def shown_delays(store: StoreFiles) -> dict[int, int]:
    """Delay in ms of each level whose queue has a unit with its record: delivery time less store time."""
    found: dict[int, int] = {}
    if store.is_rocksdb:
        return _delays_in_database(store)
    directory = f"{QUEUES}/{SCHEDULE_TOPIC}"
    with LogReader(store.log_files) as log:
        for entry in store.tree.entries(directory, sizes=False):
            if entry.is_directory and entry.name.isdigit():
                where = QueueFiles(QUEUES, SCHEDULE_TOPIC, int(entry.name), entry.path, store.tree)
                delay = _delay(Queue.open(where), log)
                if delay is not None:
                    found[int(entry.name) + 1] = delay
    return found


def assumed_levels(store: StoreFiles, queue_ids: Iterable[int]) -> str:
    """Return a sentence on the delay levels of queues that neither broker.conf nor a unit shows; empty without any.

    Args:
        queue_ids: of the schedule topic; level 1 has queue 0.
    """
    if "messageDelayLevel" in store.settings:
        return ""
    shown = shown_delays(store)
    levels = sorted({queue_id + 1 for queue_id in queue_ids if queue_id >= 0} - shown.keys())
    if not levels:
        return ""
    named = f"delay level{'s' if len(levels) > 1 else ''} {', '.join(map(str, levels))}"
    advice = "give --broker-conf FILE if this broker is set differently"
    return f"nothing shows how long {named} last, so the broker's defaults are taken; {advice}"


def _delays_in_database(store: StoreFiles) -> dict[int, int]:
    """Return delays by level as the units of queues in RocksDB show them, whose units hold the store time; nothing
    where they cannot be read.
    """
    found: dict[int, int] = {}
    if not can_read():
        return found
    with suppress(DatabaseDamaged, Refused), open_queues(store) as database:
        for queue_id in range(_MOST_LEVELS):
            unit = next(database.units_of(SCHEDULE_TOPIC, queue_id), None)
            delay = unit.tags_code - unit.store_timestamp if unit is not None else 0
            if delay > 0 and delay % 1000 == 0:
                found[queue_id + 1] = delay
    return found


def _delay(queue: Queue, log: LogReader) -> int | None:
    unit = last_unit(queue) if queue.files else None
    if unit is None or not len(unit):
        return None
    time = log.store_timestamp(int(unit["physical_offset"][0]))
    delay = int(unit["tags_code"][0]) - time if time is not None else 0
    return delay if delay > 0 and delay % 1000 == 0 else None


# --- what a broker's release and settings change about dispatch -------------------------------------


_MOST_LEVELS = 64
"""More delay levels than any broker is set to."""
LMQ_PREFIX = b"%LMQ%"
FIRST_APACHE = Release(4, 0, 0)
_SLACK = 999
"""Less than the shortest delay that a level can have, ms."""
_RETRY_PREFIX, _SYSTEM_PREFIX = b"%RETRY%", b"rmq_sys_"
_SLOTS_COUNTED, _STRICT_PROPERTIES = Release(4, 7, 1), Release(4, 9, 0)
_MULTI_DISPATCH, _TOPIC_TESTED, _TAG_ENTRIES = Release(4, 9, 3), Release(5, 0, 0), Release(5, 4, 0)


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """How one broker dispatches; can be pickled.

    Attributes:
        release: of the broker.
        delays: delay of each level in ms (``messageDelayLevel``).
        multi_dispatch: ``enableMultiDispatch``; of a store that is there true, since only a broker with it on writes
            the property INNER_MULTI_QUEUE_OFFSET.
        lmq: ``enableLmq``: queues named ``%LMQ%...`` have queue id 0; those that are there show it.
        extension: ``enableConsumeQueueExt``: units of simple queues address an extension unit.
        batch_topics: topics whose queues are batch queues: every record of theirs has a unit there.
    """

    release: Release
    delays: Mapping[int, int] = field(default_factory=lambda: parse_delay_levels(DEFAULT_DELAY_LEVELS))
    multi_dispatch: bool = True
    lmq: bool = True
    extension: bool = False
    batch_topics: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, store: StoreFiles, as_release: Release | None = None, *, starting: bool = False) -> DispatchRules:
        """Return the rules of the broker that wrote a store.

        Args:
            as_release: dispatch as this release does; default: the latest that the store shows.
            starting: the rules of a broker that starts on the store: it does what its configuration says.
        """
        release, settings = as_release or release_range(store).highest, store.settings
        light = _light_queue_ids(store)
        return cls(
            release=release,
            delays=_delays(store),
            multi_dispatch=not starting or flag(settings, "enableMultiDispatch", default=not settings or bool(light)),
            lmq=light == {0} if light else flag(settings, "enableLmq", default="enableMultiDispatch" not in settings),
            extension=flag(settings, "enableConsumeQueueExt", default=_has_extension(store)),
            batch_topics=batch_topics(store, starting=starting) if release >= _TOPIC_TESTED else frozenset(),
        )

    @property
    def counts_slots(self) -> bool:
        """Whether the header's hashSlotCount counts slots in use (4.7.1 and later) or entries."""
        return self.release >= _SLOTS_COUNTED

    @property
    def is_3(self) -> bool:
        """Whether it is a broker of com.alibaba: it dispatches when a message is put, and indexes less."""
        return self.release < FIRST_APACHE

    @property
    def delay_slack(self) -> int:
        """By how many ms the delivery time in a unit may be another than the record says.

        ``CommitLog.putMessage`` of 3.x computes it from the time before it waits for the lock; what is restored when a
        broker starts is exact.
        """
        return _SLACK if self.is_3 else 0

    @property
    def tag_entries(self) -> bool:
        """Whether the index has an entry for the tags of a message (5.4.0 and later)."""
        return self.release >= _TAG_ENTRIES

    @property
    def strict_properties(self) -> bool:
        """Whether properties are read by the decoder of 4.9.0 and before (spec 2.6)."""
        return self.release <= _STRICT_PROPERTIES

    def dispatches_extra(self, topic: bytes) -> bool:
        """Whether records of a topic may be dispatched to more queues than their own (spec 3.7)."""
        if not self.multi_dispatch or self.release < _MULTI_DISPATCH:
            return False
        system = topic.startswith((_RETRY_PREFIX, _SYSTEM_PREFIX)) or topic == SCHEDULE_TOPIC.encode()
        return self.release < _TOPIC_TESTED or not system

    def extra_queue_id(self, name: bytes, queue_id: int) -> int | None:
        """Queue id under which a record of ``queue_id`` stands in the extra queue ``name``; None: it is skipped."""
        if b"/" in name and self.release >= _TOPIC_TESTED:
            return None
        return 0 if self.lmq and name.startswith(LMQ_PREFIX) else queue_id

    def is_batch_topic(self, topic: bytes) -> bool:
        """Whether the queues of a topic are batch queues."""
        return topic in self.batch_topics


def batch_topics(store: StoreFiles, *, starting: bool = False, reads_log: bool = True) -> frozenset[bytes]:
    """Topics with the attribute ``queue.type=BatchCQ``, and those that have batch queue files; where no configuration
    is there that could say it, those that hold inner batches and have no simple queue.

    Args:
        starting: only what a broker knows that starts on the store.
        reads_log: the log may be read for it.
    """
    topics = configured_topics(store)
    found = {n.encode("utf-8", "surrogateescape") for n, t in (topics or {}).items() if has_batch_queues(t)}
    if starting and has_known_broker(store):
        return frozenset(found)
    found |= {e.name.encode("utf-8", "surrogateescape") for e in store.tree.entries(BATCH_QUEUES, sizes=False)}
    if topics is None and reads_log and not starting:
        simple = {e.name.encode("utf-8", "surrogateescape") for e in store.tree.entries(QUEUES, sizes=False)}
        found |= _topics_of_batches(store) - simple
    return frozenset(found)


def _topics_of_batches(store: StoreFiles) -> set[bytes]:
    """Topics of the inner batches of the log."""
    found, state = set[bytes](), LogState()
    for context in CommitLog(store.log_files).contexts():
        for part in walk_file(context, state):
            found |= {part.block.topic(row) for row in np.flatnonzero(part.block["sys_flag"] & INNER_BATCH).tolist()}
    return found


def _light_queue_ids(store: StoreFiles) -> set[int]:
    """Queue ids of the light queues in files."""
    light = (e for e in store.tree.entries(QUEUES, sizes=False) if e.is_directory and e.name.startswith(LIGHT))
    return {int(e.name) for topic in light for e in store.tree.entries(topic.path, sizes=False) if is_queue_id(e.name)}


def _delays(store: StoreFiles) -> dict[int, int]:
    configured = store.settings.get("messageDelayLevel")
    if configured:
        return parse_delay_levels(configured)
    return {**parse_delay_levels(DEFAULT_DELAY_LEVELS), **shown_delays(store)}


def _has_extension(store: StoreFiles) -> bool:
    return any(e.is_directory for e in store.tree.entries(QUEUES_EXT, sizes=False))


# --- one record as its dispatchers see it --------------------------------------------------------------


INNER_BATCH = int(SysFlag.INNER_BATCH)
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
        base_offset, batch_size: of the messages in it, see `inner_batch`.
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
    def is_inner_batch(self) -> bool:
        """Whether one record holds several messages."""
        return bool(self.sys_flag & INNER_BATCH)


def request_of_fields(fields: Mapping[str, Any], rules: DispatchRules) -> DispatchRequest:
    """Return the request of a decoded record (`formats.rocketmq.message.decode_record`)."""
    topic, properties = fields["topic"], properties_of(fields["properties"], rules)
    base, count = inner_batch(properties, fields["queue_offset"])
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
    """Return what a queue unit carries: the hash of TAGS, or in the schedule topic the delivery time, ms (spec 3.2)."""
    level = properties.get(b"DELAY", b"")
    if topic == SCHEDULE_TOPIC.encode() and _NUMBER.fullmatch(level) and int(level) > 0:
        return delivery_time(store_timestamp, int(level), dict(rules.delays))
    return tags_code(_text(properties.get(b"TAGS", b"")))


def key_hashes(topic: bytes, properties: Properties, rules: DispatchRules) -> tuple[int, ...]:
    """Hashes of the index entries of a record in order: UNIQ_KEY, each part of KEYS, tags (spec 4.2, 4.3)."""
    name = _text(topic)
    parts = [p for p in properties.get(b"KEYS", b"").split(b" ") if p]
    if b"UNIQ_KEY" in properties and not rules.is_3:
        parts.insert(0, properties[b"UNIQ_KEY"])
    hashes = [key_hash(index_key(name, _text(part))) for part in parts]
    tags = properties.get(b"TAGS", b"")
    if tags and rules.tag_entries:
        hashes.append(key_hash(tag_index_key(name, _text(tags))))
    return tuple(hashes)


def inner_batch(properties: Properties, queue_offset: int) -> tuple[int, int]:
    """First queue offset and number of the messages of a record: INNER_BASE and INNER_NUM where it has both, else its
    own queue offset and 1; (-1, 1) where they are no numbers.
    """
    base, count = properties.get(b"INNER_BASE"), properties.get(b"INNER_NUM")
    if base is None or count is None:
        return queue_offset, 1
    if _NUMBER.fullmatch(base) and _NUMBER.fullmatch(count):
        return int(base), int(count)
    return -1, 1


def extra_queues(topic: bytes, queue_id: int, properties: Properties, rules: DispatchRules) -> tuple[ExtraQueue, ...]:
    """Return the queues of INNER_MULTI_DISPATCH; none unless each has an offset (spec 3.7)."""
    names, offsets = properties.get(b"INNER_MULTI_DISPATCH"), properties.get(b"INNER_MULTI_QUEUE_OFFSET")
    if not names or not offsets or not rules.dispatches_extra(topic):
        return ()
    return split_extra(names, offsets, queue_id, rules)


def split_extra(names: bytes, offsets: bytes, queue_id: int, rules: DispatchRules) -> tuple[ExtraQueue, ...]:
    """Return the pairs of two comma-separated texts; none where they differ in number or an offset is no number."""
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
