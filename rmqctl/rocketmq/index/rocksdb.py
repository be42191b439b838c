"""Whether a store has an index of keys in RocksDB, and which of the two indexes counts (spec A1, A5.1)."""

from __future__ import annotations

from rmqctl.rocketmq.store.databases import MESSAGES, DatabaseDamaged, can_read, has_database, open_database
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.store.geometry import flag

_FAMILY = "default"


def has_rows(store: RocketMQStore) -> bool:
    """Whether the index in RocksDB holds anything.

    Raises:
        MissingExtra, Refused, DatabaseDamaged: as :func:`open_index`; nothing of it where the database has no data.
    """
    if not may_have_rows(store):
        return False
    with open_database(store, MESSAGES, "reading the message index in RocksDB") as database:
        return next(database.rows(_FAMILY), None) is not None


def may_have_rows(store: RocketMQStore) -> bool:
    """Whether the database of messages holds any data: brokers from 5.4.0 on always make it, switches fill it."""
    if not has_database(store, MESSAGES):
        return False
    names = ((e.name, e.size) for e in store.tree.entries(MESSAGES))
    return any(name.endswith(".sst") or (name.endswith(".log") and size > 0) for name, size in names)


def is_asked(store: RocketMQStore) -> bool:
    """Whether a broker answers from the index in RocksDB: with indexFileReadEnable, the default, it never does.

    Where broker.conf does not say, index files are asked if there are any.

    Raises:
        MissingExtra, Refused, DatabaseDamaged: as :func:`has_rows`.
    """
    if "indexFileReadEnable" in store.settings:
        return not flag(store.settings, "indexFileReadEnable", default=True) and has_database(store, MESSAGES)
    return not any(not e.is_directory for e in store.index_files) and has_rows(store)


def is_written(store: RocketMQStore) -> bool | None:
    """Whether brokers of the store put keys into RocksDB; None where that cannot be known without the extra."""
    if "indexRocksDBEnable" in store.settings:
        return flag(store.settings, "indexRocksDBEnable", default=False)
    if not may_have_rows(store):
        return False
    if not can_read():
        return None
    try:
        return has_rows(store)
    except DatabaseDamaged:  # there are files of rows; `verify` says that they cannot be read
        return True


def files_are_written(store: RocketMQStore) -> bool:
    """Whether brokers of the store write index files.

    Where broker.conf does not say: not if there is no file, and there are rows.
    """
    if "indexFileWriteEnable" in store.settings:
        return flag(store.settings, "indexFileWriteEnable", default=True)
    return any(not e.is_directory for e in store.index_files) or not is_written(store)
