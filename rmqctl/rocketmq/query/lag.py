"""The lag of consumer groups: offsets of the configuration against the queues (AdminBroker getConsumeStats).

The end of a queue is that of a started broker, as `topics` and the queries have it. A group is late by the time from
the message it wants next to the last message of the log. Which queues a question means, and what to say where the
store knows none of the name, is settled here; so are lite topics: light queues that belong to a parent topic, expire,
and have offsets of groups (spec A7).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqctl.explain import TraceStep
from rmqctl.filters import ALL, Names
from rmqctl.rocketmq.query import steps
from rmqctl.rocketmq.query.queue_view import QueueView, open_queue
from rmqctl.rocketmq.query.time import unit_at
from rmqctl.rocketmq.queues.ranges import log_end
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.state.config import (
    ConsumerOffset,
    consumer_offsets,
    did_you_mean,
    has_stored_config,
    known_topics,
    read_config,
    stored_offsets,
    stored_topics,
    table,
)
from rmqctl.rocketmq.store.files import BATCH_QUEUES, LIGHT, QUEUES, StoreFiles, is_queue_id


def queues_of_topic(started: RecoveredStore, topic: str) -> list[int]:
    """Ids of the topic's queues, ascending: those on disk, in the database, or that topics.json gives it.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    store = started.store
    found = {int(e.name) for kind in (QUEUES, BATCH_QUEUES) for e in _directories(store, f"{kind}/{topic}")}
    found |= _configured(store, topic)
    if store.in_database(topic):
        found |= {queue for name, queue in started.database.queues() if name == topic}
    return sorted(found)


def topics_of(started: RecoveredStore) -> list[str]:
    """Every topic that has a queue or is in topics.json, sorted.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    names = set(known_topics(started.store))
    if started.store.is_rocksdb or started.store.has_light_database:
        names |= {name for name, _ in started.database.queues()}
    return sorted(names)


def wanted_queues(started: RecoveredStore, topic: str, queue_id: int | None) -> list[int] | TraceStep:
    """Return the queues that ``TOPIC`` or ``TOPIC/QUEUE`` means; where it means none, the sentence that says so.

    Topics that only the log knows, because their queues are gone, count where a start of a broker makes them.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    ids = queues_of_topic(started, topic)
    if ids and (queue_id is None or queue_id in ids):
        return ids if queue_id is None else [queue_id]
    ids = sorted({*ids, *_configured_in_database(started.store, topic)})
    if (not ids or queue_id not in (None, *ids)) and started.replays:
        ids = sorted({*ids, *started.recovered_queues(topic)})
    if not ids:
        return steps.UNKNOWN_TOPIC.conclude(
            topic=topic, nearest=did_you_mean(topic, topics_of(started), started.store.root)
        )
    if queue_id is not None and queue_id not in ids:
        return steps.NO_QUEUE.conclude(topic=topic, queue_id=queue_id, queues=ranges(ids))
    return ids if queue_id is None else [queue_id]


def ranges(ids: list[int]) -> str:
    """Ascending numbers in words: ``0 to 3, 7``."""
    parts: list[list[int]] = []
    for number in ids:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]} to {p[-1]}" for p in parts)


def _directories(store: StoreFiles, path: str) -> list[Any]:
    return [e for e in store.tree.entries(path, sizes=False) if e.is_directory and is_queue_id(e.name)]


def _configured(store: StoreFiles, topic: str) -> set[int]:
    """Queues that topics.json gives a topic; brokers answer for them though nothing was ever written."""
    return _queues_in(table(read_config(store, "topics.json").document, "topicConfigTable").get(topic))


def _configured_in_database(store: StoreFiles, topic: str) -> set[int]:
    """Queues that the configuration in RocksDB gives a topic."""
    from rmqctl.rocketmq.state.config import stored_topics

    return _queues_in(stored_topics(store).get(topic))


def _queues_in(settings: Any) -> set[int]:
    counts = [settings.get(name) for name in ("readQueueNums", "writeQueueNums")] if isinstance(settings, dict) else []
    return set(range(min(max((n for n in counts if isinstance(n, int)), default=0), 1 << 16)))


# --- the lag of consumer groups ---------------------------------------------------------------------


RETRY, DEAD = "%RETRY%", "%DLQ%"
BEYOND_MAX, BEFORE_MIN = "beyond-max", "before-min"
UNKNOWN_TOPIC, UNKNOWN_QUEUE = "unknown-topic", "unknown-queue"
"""What is odd about a group in a queue: it wants an offset after the end of the queue, where the log was cut or the
queue made again; messages that have expired, so that a broker lets it go on at the smallest offset; or neither queues
nor configuration of the topic are there, or no queue of this id.
"""
Group = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LagRow:
    """One group in one queue.

    Attributes:
        consumer_offset: the next one it wants, as stored; 0 for a queue without one of a topic it consumes, as
            brokers count; None for a retry or dead-letter topic in which it stored nothing. Such a row has no lag.
        max_offset: next offset of the queue; None where there is no queue.
        lag: messages from one to the other; negative beyond the end.
        lag_bytes: of the records of these messages that are still there.
        lag_ms: from the store time of the next message to that of the last record of the log; 0 without lag, None
            where the message is gone.
        last_consumed_timestamp: store time of the message in front of the offset, ms.
        next_store_timestamp: of the message at the offset, ms.
        anomaly: one of the four above; None where nothing is odd.
        file: where the offset is stored.
    """

    group: str
    topic: str
    queue_id: int
    consumer_offset: int | None
    max_offset: int | None
    lag: int | None
    lag_bytes: int | None
    lag_ms: int | None
    anomaly: str | None
    min_offset: int | None = None
    last_consumed_timestamp: int | None = None
    next_store_timestamp: int | None = None
    file: str | None = None

    def row(self) -> dict[str, Any]:
        """As the JSON object of the contract."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Progress:
    """What is stored of the groups of a store.

    Attributes:
        offsets: by group and topic, then by queue id.
    """

    offsets: dict[Group, dict[int, ConsumerOffset]] = field(default_factory=dict)

    def add(self, offset: ConsumerOffset) -> None:
        """Note an offset; a later one of the same queue wins."""
        self.offsets.setdefault((offset.group, offset.topic), {})[offset.queue_id] = offset

    @property
    def groups(self) -> set[str]:
        """Names of the groups that stored something."""
        return {group for group, _ in self.offsets}


def progress_of(started: RecoveredStore) -> Progress:
    """All consumer offsets: JSON files with their fallback, light message queues, databases, which win.

    Raises:
        MissingExtra: offsets are in a database, and the package rocksdict is not installed.
    """
    found = Progress()
    for offset in (*consumer_offsets(started.store), *stored_offsets(started.store)):
        found.add(offset)
    return found


def group_names(store: StoreFiles) -> list[str]:
    """Return the groups that stored an offset or are configured, sorted."""
    configured = table(read_config(store, "subscriptionGroup.json").document, "subscriptionGroupTable")
    stored = (*consumer_offsets(store), *stored_offsets(store))
    return sorted({offset.group for offset in stored} | set(map(str, configured)))


def lag_rows(started: RecoveredStore, group: Names = ALL, topic: Names = ALL) -> Iterator[LagRow]:
    """One row a group and queue, by group, topic and queue id; retry and dead-letter topics of a group included.

    Args:
        group, topic: only these.

    Raises:
        MissingExtra: queues or offsets are in RocksDB, and its package is not installed.
    """
    yield from _Lag(started).rows(group, topic)


class _Lag:
    """One pass over the groups of a store."""

    def __init__(self, started: RecoveredStore) -> None:
        self.started = started
        self.progress = progress_of(started)
        self.now = log_end(started.store).store_timestamp
        self.configured = self._configured()

    def rows(self, group: Names, topic: Names) -> Iterator[LagRow]:
        wanted = set(self.progress.offsets)
        for name in self.progress.groups:
            wanted |= {(name, own) for own in (RETRY + name, DEAD + name) if queues_of_topic(self.started, own)}
        for pair in sorted(wanted):
            if group.include(pair[0]) and topic.include(pair[1]):
                yield from self._topic(*pair)

    def _topic(self, group: str, topic: str) -> Iterator[LagRow]:
        stored = self.progress.offsets.get((group, topic), {})
        there = set(queues_of_topic(self.started, topic)) | self.configured.get(topic, set())
        if self.started.replays:
            there |= set(self.started.recovered_queues(topic))
        for queue_id in sorted(there | set(stored)):
            offset = stored.get(queue_id)
            if queue_id not in there:
                anomaly = UNKNOWN_QUEUE if there else UNKNOWN_TOPIC
                yield LagRow(
                    group, topic, queue_id, offset.offset if offset else None, None, None, None, None, anomaly,
                    file=offset.file if offset else None,
                )  # fmt: skip
                continue
            with open_queue(self.started, topic, queue_id) as view:
                yield self._queue(group, view, offset)

    def _queue(self, group: str, view: QueueView, stored: ConsumerOffset | None) -> LagRow:
        low, high = max(view.min_offset, 0), view.max_offset
        if (group, view.topic) not in self.progress.offsets:
            before, first = (self._time(view, o) for o in (low - 1, low))
            return LagRow(group, view.topic, view.queue_id, None, high, None, None, None, None, low, before, first)
        offset = stored.offset if stored else 0
        lag = high - offset
        previous, wanted = (self._time(view, o) for o in (offset - 1, max(offset, low)))
        return LagRow(
            group,
            view.topic,
            view.queue_id,
            offset,
            high,
            lag,
            view.bytes_from(max(offset, low)),
            self._late(lag, wanted),
            self._anomaly(offset, low, high, stored),
            low,
            previous,
            wanted,
            stored.file if stored else None,
        )

    def _late(self, lag: int, wanted: int | None) -> int | None:
        if lag <= 0:
            return 0
        return max(self.now - wanted, 0) if wanted is not None and self.now is not None else None

    def _anomaly(self, offset: int, low: int, high: int, stored: ConsumerOffset | None) -> str | None:
        if offset > high:
            return BEYOND_MAX
        return BEFORE_MIN if stored is not None and offset < low else None

    def _time(self, view: QueueView, offset: int) -> int | None:
        """Store time of the message at an offset; None outside the queue, and where it cannot be read."""
        unit = unit_at(view, offset)
        time = -1 if unit is None else view.store_time(unit)
        return time if time >= 0 else None

    def _configured(self) -> dict[str, set[int]]:
        """Queues that the configuration gives each topic (readQueueNums, as getConsumeStats counts)."""
        store = self.started.store
        topics = {**table(read_config(store, "topics.json").document, "topicConfigTable"), **stored_topics(store)}
        counts = {name: t.get("readQueueNums") for name, t in topics.items() if isinstance(t, dict)}
        return {name: set(range(min(n, 1 << 16))) for name, n in counts.items() if isinstance(n, int)}


# --- lite topics --------------------------------------------------------------------------------------


Row = dict[str, Any]
_LITE = f"{LIGHT}$"
_LEAST_LITE_MS = 15 * 60_000
"""Broker's minLiteTTl: no lite topic expires earlier."""


def with_lite_topics(store: StoreFiles, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of `topics`; those of lite topics name their parent, when they expire, and how far their groups are.

    A lite topic expires some minutes after its last message, as its parent's attribute says, unless a group lags.

    Raises:
        MissingExtra: configuration is in a database, and the package rocksdict is not installed.
    """
    known: tuple[Mapping[str, Any], dict[str, dict[str, int]]] | None = None
    for row in rows:
        parent, mark, name = row["topic"].removeprefix(_LITE).partition("$")
        if not row["topic"].startswith(_LITE) or not mark or "$" in name:
            yield row
            continue
        known = known or _lite_settings(store)
        topic = known[0].get(parent)
        attributes = topic.get("attributes") if isinstance(topic, dict) else None
        minutes = str((attributes if isinstance(attributes, dict) else {}).get("lite.topic.expiration", "-1"))
        last = row["last_store_timestamp"]
        expires = None
        if last is not None and minutes.isdigit() and int(minutes) > 0:
            expires = last + max(int(minutes) * 60_000, _LEAST_LITE_MS)
        groups = known[1].get(row["topic"], {})
        yield row | {"parent": parent, "lite_topic": name, "expires_timestamp": expires, "groups": groups}


def _lite_settings(store: StoreFiles) -> tuple[Mapping[str, Any], dict[str, dict[str, int]]]:
    """Settings of all topics, and the offsets of groups by light queue."""
    found: dict[str, dict[str, int]] = {}
    for offset in (*consumer_offsets(store), *stored_offsets(store)):
        if offset.topic.startswith(_LITE):
            found.setdefault(offset.topic, {})[offset.group] = offset.offset
    if has_stored_config(store):
        return stored_topics(store), found
    return table(read_config(store, "topics.json").document, "topicConfigTable"), found
