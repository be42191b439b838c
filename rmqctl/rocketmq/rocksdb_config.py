"""Configuration that a broker keeps in RocksDB: consumer offsets and topics of both versions (spec 10.3, 10.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.rocksdb import CONSUMER_OFFSET_DATA, TOPIC_DATA, parse_consumer_offset_key
from rmqctl.rocketmq.config_files import CONFIG, ConsumerOffset, offsets_of, table
from rmqctl.rocketmq.rocksdb_queues import open_database
from rmqctl.rocketmq.store import RocketMQStore

OFFSETS_V1, TOPICS_V1, ALL_V2 = f"{CONFIG}/consumerOffsets", f"{CONFIG}/topics", f"{CONFIG}/rdb"
_PURPOSE = "reading the configuration in RocksDB"


def has_database(store: RocketMQStore, path: str) -> bool:
    """Whether a database lies at a path of the store."""
    return store.tree.stat(f"{path}/CURRENT") is not None


def stored_offsets(store: RocketMQStore) -> list[ConsumerOffset]:
    """Consumer offsets in the databases that are there; version 2 behind version 1, so that its offsets win.

    Raises:
        MissingExtra: there is a database, and the package rocksdict is not installed.
        Refused: the store is remote.
        IOFailure: a database cannot be opened.
    """
    found: list[ConsumerOffset] = []
    if has_database(store, OFFSETS_V1):
        with open_database(store, OFFSETS_V1, _PURPOSE) as database:
            for key, value in database.items():
                found += _of_version_1(bytes(key), bytes(value))
    if has_database(store, ALL_V2):
        with open_database(store, ALL_V2, _PURPOSE) as database:
            for key, value in _with_prefix(database, CONSUMER_OFFSET_DATA):
                found += _of_version_2(key, value)
    return found


def stored_topics(store: RocketMQStore) -> dict[str, Any]:
    """Topics in the databases by name, each with the object that topics.json would have.

    Raises:
        MissingExtra: there is a database, and the package rocksdict is not installed.
        Refused: the store is remote.
        IOFailure: a database cannot be opened.
    """
    found: dict[str, Any] = {}
    if has_database(store, TOPICS_V1):
        with open_database(store, TOPICS_V1, _PURPOSE) as database:
            found |= {_text(bytes(key)): _document(bytes(value)) for key, value in database.items()}
    if has_database(store, ALL_V2):
        with open_database(store, ALL_V2, _PURPOSE) as database:
            name_at = len(TOPIC_DATA) + 2
            for key, value in _with_prefix(database, TOPIC_DATA):
                found[_text(key[name_at:])] = _document(value[1:])
    return found


def _with_prefix(database: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    for key, value in database.items(from_key=prefix):
        if not bytes(key).startswith(prefix):
            return
        yield bytes(key), bytes(value)


def _of_version_1(key: bytes, value: bytes) -> list[ConsumerOffset]:
    return offsets_of(OFFSETS_V1, _text(key), table(_document(value), "offsetTable"))


def _of_version_2(key: bytes, value: bytes) -> list[ConsumerOffset]:
    parsed = parse_consumer_offset_key(key)
    if parsed is None or len(value) != 8:
        return []
    group, topic, queue = parsed
    return [ConsumerOffset(ALL_V2, _text(topic), _text(group), queue, int.from_bytes(value, "big", signed=True))]


def _document(value: bytes) -> Any:
    try:
        return parse_config(value)
    except DecodeError:
        return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
