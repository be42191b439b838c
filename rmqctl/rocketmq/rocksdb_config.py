"""Configuration that a broker keeps in RocksDB, in both versions (spec 10.3, 10.4, A2, A3).

Version 1 has a database for each kind, or with useSingleRocksDBForAllConfigs one for all. Where a broker was switched
from one to the other both are there; the one whose data version counts further is the one that is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.rocksdb import CONSUMER_OFFSET_DATA, TOPIC_DATA, parse_consumer_offset_key
from formats.rocketmq.rocksdb_config import DATA_VERSION_KEY, GROUP_DATA
from rmqctl.rocketmq.config_files import ConsumerOffset, offsets_of, table
from rmqctl.rocketmq.databases import (
    CONFIG_V2,
    GROUPS_V1,
    METADATA,
    OFFSETS_V1,
    TOPICS_V1,
    Database,
    has_database,
    open_database,
)
from rmqctl.rocketmq.store import RocketMQStore

_PURPOSE = "reading the configuration in RocksDB"
Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of configuration.

    Attributes:
        separate: its own database of version 1; single: its column family in the one for all.
        prefix: what its keys in version 2 begin with.
    """

    separate: str
    single: str
    prefix: bytes


TOPICS = Kind(TOPICS_V1, "topic", TOPIC_DATA)
GROUPS = Kind(GROUPS_V1, "subscriptionGroup", GROUP_DATA)
OFFSETS = Kind(OFFSETS_V1, "consumerOffset", CONSUMER_OFFSET_DATA)


def stored_offsets(store: RocketMQStore) -> list[ConsumerOffset]:
    """Consumer offsets in the databases that are there; version 2 after version 1, so that its offsets win.

    Raises:
        MissingExtra: there is a database, and the package rocksdict is not installed.
        Refused: the store is remote.
        IOFailure: a database cannot be opened.
    """
    found: list[ConsumerOffset] = []
    with ExitStack() as opened:
        place = version_1(store, OFFSETS, opened)
        if place is not None:
            database, family = place
            for key, value in database.rows(family):
                found += offsets_of(database.path, _text(key), table(_document(value), "offsetTable"))
        for key, value in _version_2(store, OFFSETS, opened):
            found += _of_version_2(key, value)
    return found


def stored_topics(store: RocketMQStore) -> Table:
    """Topics in the databases by name, each with the object that topics.json would have.

    Raises:
        MissingExtra, Refused, IOFailure: as :func:`stored_offsets`.
    """
    return _named(store, TOPICS)


def stored_groups(store: RocketMQStore) -> Table:
    """Subscription groups in the databases by name, each with the object that subscriptionGroup.json would have.

    Raises:
        MissingExtra, Refused, IOFailure: as :func:`stored_offsets`.
    """
    return _named(store, GROUPS)


def has_stored_config(store: RocketMQStore) -> bool:
    """Whether any configuration lies in a database: then the JSON files do not count."""
    return any(has_database(store, path) for path in (METADATA, TOPICS_V1, GROUPS_V1, OFFSETS_V1, CONFIG_V2))


def version_1(store: RocketMQStore, kind: Kind, opened: ExitStack) -> tuple[Database, str] | None:
    """The database and the column family of version 1 that count for a kind; None where there is neither.

    Args:
        opened: keeps them open.

    Raises:
        MissingExtra, Refused, IOFailure: as :func:`stored_offsets`.
    """
    places: list[tuple[int, Database, str]] = []
    for path, family, version in (
        (kind.separate, "default", "kvDataVersion"),
        (METADATA, kind.single, f"{kind.single}Version"),
    ):
        if has_database(store, path):
            database = opened.enter_context(open_database(store, path, _PURPOSE))
            places.append((_counter(database, version), database, family))
    if not places:
        return None
    _, database, family = max(reversed(places), key=lambda place: place[0])  # of equal ones the single database
    return database, family


def _counter(database: Database, family: str) -> int:
    document = _document(database.get(family, DATA_VERSION_KEY) or b"")
    counter = document.get("counter") if isinstance(document, dict) else None
    return counter if isinstance(counter, int) else -1


def _version_2(store: RocketMQStore, kind: Kind, opened: ExitStack) -> Iterator[tuple[bytes, bytes]]:
    if has_database(store, CONFIG_V2):
        yield from opened.enter_context(open_database(store, CONFIG_V2, _PURPOSE)).rows("default", kind.prefix)


def _named(store: RocketMQStore, kind: Kind) -> Table:
    found: Table = {}
    with ExitStack() as opened:
        place = version_1(store, kind, opened)
        if place is not None:
            database, family = place
            found |= {_text(key): _document(value) for key, value in database.rows(family)}
        for key, value in _version_2(store, kind, opened):
            found[_text(key[len(kind.prefix) + 2 :])] = _document(value[1:])
    return found


def _of_version_2(key: bytes, value: bytes) -> list[ConsumerOffset]:
    parsed = parse_consumer_offset_key(key)
    if parsed is None or len(value) != 8:
        return []
    group, topic, queue = parsed
    return [ConsumerOffset(CONFIG_V2, _text(topic), _text(group), queue, int.from_bytes(value, "big", signed=True))]


def _document(value: bytes) -> Any:
    try:
        return parse_config(value)
    except DecodeError:
        return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
