"""What becomes of a broker's settings in another release, and the store as a broker with these settings sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rmqctl.foresight import Effect, Statement
from rmqctl.known_settings import KnownSettings
from rmqctl.release import Release
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.databases import CONFIG_V2, GROUPS_V1, METADATA, OFFSETS_V1, TOPICS_V1, has_database
from rmqctl.rocketmq.store.files import QUEUES, SEPARATE_QUEUES, StoreFiles
from rmqctl.rocketmq.store.geometry import (
    BATCH_QUEUE_FILE_SIZE,
    COMMIT_LOG_FILE_SIZE,
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    OLD_NAMES,
    QUEUE_FILE_SIZE,
    flag,
    with_new_names,
)

SETTINGS = KnownSettings(
    __package__, "settings.txt", "BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig, AuthConfig",
    ("rocketmq.", "listenPort"),
)  # fmt: skip
_SIZES: Mapping[str, int] = {
    "mappedFileSizeCommitLog": COMMIT_LOG_FILE_SIZE, "mappedFileSizeConsumeQueue": QUEUE_FILE_SIZE,
    "mapperFileSizeBatchConsumeQueue": BATCH_QUEUE_FILE_SIZE, "maxHashSlotNum": DEFAULT_SLOTS,
    "maxIndexNum": DEFAULT_ENTRIES,
}  # fmt: skip
"""Settings that say how long files are, with their defaults (``MessageStoreConfig``): others than the files stop it."""
_RENAMED_SINCE = Release(4, 5, 0)
_ROCKSDB = "storeType", "defaultRocksDB"


def as_configured(store: StoreFiles, release: Release, given: Mapping[str, str]) -> tuple[StoreFiles, list[Statement]]:
    """Return the store as a broker with some settings sees it, and what becomes of the settings.

    Args:
        given: as they stand in the broker's file, which is all there is: what it does not name has its default.
    """
    given = {name.strip(): value.strip() for name, value in given.items()}
    if release < _RENAMED_SINCE:
        given = with_new_names(given)
    found = list(SETTINGS.said_of(given, release_range(store).highest, release))
    read = {name: value for name, value in given.items() if name not in OLD_NAMES or release < _RENAMED_SINCE}
    unread = dict(_unread_databases(store, read))
    for path, (name, value) in unread.items():
        message = f"is not read: {name} is not {value}"
        found.append(Statement(f"setting.{name}", Effect.CHANGES, path, message, "MessageStoreConfig, BrokerConfig"))
    seen = replace(store.without(frozenset(unread)), settings={**{n: str(size) for n, size in _SIZES.items()}, **read})
    return seen, found


def _unread_databases(store: StoreFiles, read: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield databases that are there and that settings leave unread, with the setting that would have them read."""
    in_rocksdb = read.get(_ROCKSDB[0]) == _ROCKSDB[1]
    beside = flag(read, "rocksdbCQDoubleWriteEnable", default=False)
    version_2 = read.get("configManagerVersion") == "v2"
    for path in (QUEUES, SEPARATE_QUEUES):
        if has_database(store, path) and not in_rocksdb and not beside:
            yield path, _ROCKSDB
    for path in (TOPICS_V1, GROUPS_V1, OFFSETS_V1, METADATA):
        if has_database(store, path) and not in_rocksdb:
            yield path, _ROCKSDB
    if has_database(store, CONFIG_V2) and not version_2:
        yield CONFIG_V2, ("configManagerVersion", "v2")
