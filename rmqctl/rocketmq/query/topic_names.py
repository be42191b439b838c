"""Topics that a store knows of, and the names nearest to one it does not know."""

from __future__ import annotations

from rmqctl.errors import RmqctlError
from rmqctl.rocketmq.config_files import read_config
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, RocketMQStore

_NEAREST = 3


def topic_names(store: RocketMQStore) -> list[str]:
    """Names of queues and of topics.json, sorted; those of queues in RocksDB where its package is installed.

    Raises:
        OSError: a directory cannot be read.
    """
    kinds = (BATCH_QUEUES,) if store.is_rocksdb else (QUEUES, BATCH_QUEUES)
    names = {e.name for kind in kinds for e in store.tree.entries(kind, sizes=False) if e.is_directory}
    names |= _in_database(store) if store.is_rocksdb or store.has_light_database else set()
    document = read_config(store, "topics.json").document
    table = document.get("topicConfigTable") if isinstance(document, dict) else None
    return sorted(names | (set(map(str, table)) if isinstance(table, dict) else set()))


def _in_database(store: RocketMQStore) -> set[str]:
    from rmqctl.rocketmq.rocksdb_queues import open_queues

    try:
        with open_queues(store) as queues:
            return {topic for topic, _ in queues.queues()}
    except RmqctlError:
        return set()


def nearest(name: str, names: list[str]) -> list[str]:
    """Up to three names that a user may have meant, best first."""
    from difflib import get_close_matches

    same = [n for n in names if n.casefold() == name.casefold() or name.casefold() in n.casefold()]
    return (same + [n for n in get_close_matches(name, names, _NEAREST, 0.6) if n not in same])[:_NEAREST]


def did_you_mean(name: str, names: list[str]) -> str:
    """The end of a sentence that says the topic is unknown: the nearest names, or how to list all."""
    found = nearest(name, names)
    if found:
        return "; did you mean " + " or ".join(found) + "?"
    return "; type: rmqctl topics --by-topic"


__all__ = ["did_you_mean", "nearest", "topic_names"]
