"""Which queues a question means, and what to say when the store knows no such topic or queue."""

from __future__ import annotations

from typing import Any

from rmqctl.rocketmq.config_files import read_config, table
from rmqctl.rocketmq.query import steps
from rmqctl.rocketmq.query.started import StartedStore
from rmqctl.rocketmq.query.steps import Step
from rmqctl.rocketmq.query.topic_names import did_you_mean, topic_names
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, RocketMQStore, is_queue_id


def queues_of_topic(started: StartedStore, topic: str) -> list[int]:
    """Ids of the topic's queues, ascending: those on disk, in the database, or that topics.json gives it.

    Raises:
        OSError: a file cannot be read.
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    store = started.store
    found = {int(e.name) for kind in (QUEUES, BATCH_QUEUES) for e in _directories(store, f"{kind}/{topic}")}
    found |= _configured(store, topic)
    if store.in_database(topic):
        found |= {queue for name, queue in started.database.queues() if name == topic}
    return sorted(found)


def topics_of(started: StartedStore) -> list[str]:
    """Every topic that has a queue or is in topics.json, sorted.

    Raises:
        OSError: a file cannot be read.
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    names = set(topic_names(started.store))
    if started.store.is_rocksdb or started.store.has_light_database:
        names |= {name for name, _ in started.database.queues()}
    return sorted(names)


def wanted_queues(started: StartedStore, topic: str, queue_id: int | None) -> list[int] | Step:
    """The queues that ``TOPIC`` or ``TOPIC/QUEUE`` means; where it means none, the sentence that says so.

    Topics that only the log knows, because their queues are gone, count where a start of a broker makes them.

    Raises:
        OSError: a file cannot be read.
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    ids = queues_of_topic(started, topic)
    if ids and (queue_id is None or queue_id in ids):
        return ids if queue_id is None else [queue_id]
    ids = sorted({*ids, *_configured_in_database(started.store, topic)})
    if (not ids or queue_id not in (None, *ids)) and started.replays:
        ids = sorted({*ids, *started.recovered_queues(topic)})
    if not ids:
        return steps.UNKNOWN_TOPIC.conclude(topic=topic, nearest=did_you_mean(topic, topics_of(started)))
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


def _directories(store: RocketMQStore, path: str) -> list[Any]:
    return [e for e in store.tree.entries(path, sizes=False) if e.is_directory and is_queue_id(e.name)]


def _configured(store: RocketMQStore, topic: str) -> set[int]:
    """Queues that topics.json gives a topic; brokers answer for them though nothing was ever written."""
    return _queues_in(table(read_config(store, "topics.json").document, "topicConfigTable").get(topic))


def _configured_in_database(store: RocketMQStore, topic: str) -> set[int]:
    """The same where the configuration is in RocksDB."""
    from rmqctl.rocketmq.rocksdb_config import stored_topics

    return _queues_in(stored_topics(store).get(topic))


def _queues_in(settings: Any) -> set[int]:
    counts = [settings.get(name) for name in ("readQueueNums", "writeQueueNums")] if isinstance(settings, dict) else []
    return set(range(min(max((n for n in counts if isinstance(n, int)), default=0), 1 << 16)))
