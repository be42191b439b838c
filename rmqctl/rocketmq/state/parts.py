"""What of a store each release reads: the parts that came later, what an earlier broker does without them, and what a
later one finds when it comes back (spec 1, 9, 10, 11, 15, A1).

A part is known from its first release on; a class of that release is its source, and tests hold both to the jars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from formats.rocketmq.rocksdb_messages import HALF_FAMILY, POP_FAMILY
from rmqctl.errors import RmqctlError
from rmqctl.foresight import Effect, Statement
from rmqctl.release import Release
from rmqctl.rocketmq.queues.rocksdb import open_queues
from rmqctl.rocketmq.state.config import configured_topics, read_config, table
from rmqctl.rocketmq.store.databases import (
    CONFIG_V2,
    GROUPS_V1,
    MESSAGES,
    METADATA,
    OFFSETS_V1,
    POP,
    TOPICS_V1,
    can_read,
    has_database,
    open_database,
)
from rmqctl.rocketmq.store.files import BATCH_QUEUES, LIGHT, QUEUES, SEPARATE_QUEUES, StoreFiles

Present = Callable[[StoreFiles], str]
"""Returns what of a part a store has, a few words, "" where it has nothing of it."""


@dataclass(frozen=True, slots=True)
class StorePart:
    """A part of a store that not every release reads.

    Attributes:
        name: its id.
        since: the first release that reads it; until: the last one, where a later one dropped it.
        holds: what it is, as people call it.
        present: whether a store has it.
        effect: what it means that a broker does not read it; message: the same in words.
        source: the class that reads it, and since when it is there.
        before, back: as of :class:`~rmqctl.foresight.Statement`.
        databases: directories of RocksDB that count as not there for earlier releases.
        feature: somebody has to switch it on, or to use it, before a store has it.
    """

    name: str
    since: Release
    holds: str
    present: Present
    effect: Effect
    message: str
    source: str
    before: str = ""
    back: str = ""
    databases: tuple[str, ...] = ()
    feature: bool = True

    def statement(self, about: str) -> Statement:
        """Return what a release that does not read the part does to it."""
        source = f"{self.source}, since {self.since}"
        return Statement(self.name, self.effect, about, self.message, source, self.before, self.back)


def _there(*paths: str) -> Present:
    return lambda store: ", ".join(path for path in paths if store.tree.stat(path) is not None)


def _databases(*paths: str) -> Present:
    return lambda store: ", ".join(path for path in paths if has_database(store, path))


def _queues_under(kind: str, prefix: str) -> Present:
    def look(store: StoreFiles) -> str:
        names = [e.name for e in store.tree.entries(kind, sizes=False) if e.is_directory and e.name.startswith(prefix)]
        return f"{kind}/{prefix}*" if prefix and names else kind if names else ""

    return look


def _timers(store: StoreFiles) -> str:
    counts = table(read_config(store, "timermetrics").document, "timingCount")
    waiting = sum(
        one["count"] for one in counts.values() if isinstance(one, dict) and isinstance(one.get("count"), int)
    )
    return f"{waiting:,} timers" if waiting > 0 else ""


def _rows(path: str, family: str) -> Present:
    def look(store: StoreFiles) -> str:
        if not has_database(store, path) or not can_read():
            return ""
        with suppress(RmqctlError), open_database(store, path, "looking for rows in RocksDB") as database:
            if any(not key.startswith(b"last") for key, _ in database.rows(family)):
                return path
        return ""

    return look


def _compacted(store: StoreFiles) -> str:
    topics = configured_topics(store) or {}
    policies = {name: one.get("attributes") for name, one in topics.items() if isinstance(one, dict)}
    found = [
        name for name, own in policies.items() if isinstance(own, dict) and own.get("cleanup.policy") == "COMPACTION"
    ]
    return "compaction" if found else ""


def _static_topics(store: StoreFiles) -> str:
    document = read_config(store, "topicQueueMapping.json").document
    return "config/topicQueueMapping.json" if table(document, "topicQueueMappingInfoMap") else ""


def _several_directories(store: StoreFiles) -> str:
    return ", ".join(name for name, _ in store.log_trees) if len(store.log_trees) > 1 else ""


def _rocksdb_queues(store: StoreFiles) -> str:
    return QUEUES if store.queue_database == QUEUES and store.is_rocksdb else ""


def _light_queues(store: StoreFiles) -> str:
    if not store.has_light_database or not can_read():
        return ""
    with suppress(RmqctlError), open_queues(store) as database:
        if any(topic.startswith(LIGHT) for topic, _ in database.queues()):
            return "light queues in RocksDB"
    return ""


_CONFIG_LOST = (
    "topics, groups and consumer offsets in it are not read: consumers get TOPIC_NOT_EXIST, and groups begin where a "
    "new group begins"
)
_WRITE_JSON = (
    "write topics.json, subscriptionGroup.json and consumerOffset.json into config/ from it (mqadmin "
    "rocksDBConfigToJson of the release that wrote it)"
)
_OLD_STATE = "finds the state in which it left it, and not what happened meanwhile"
PARTS: tuple[StorePart, ...] = (
    StorePart(
        "log.directories", Release(4, 9, 2), "several directories of the log", _several_directories, Effect.LOSES,
        "takes the list of directories for the name of one, and starts empty", "MultiPathMappedFileQueue",
        "move all files of the log into one directory",
    ),
    StorePart(
        "queues.light", Release(4, 9, 3), "light queues (%LMQ%)", _queues_under(QUEUES, LIGHT), Effect.IGNORES,
        "takes them for queues of topics of their own, and writes no more of them", "LmqConsumerOffsetManager",
    ),
    StorePart(
        "timers.wheel", Release(5, 0, 0), "timer messages", _timers, Effect.HIDES,
        "delivers none of them as long as it runs; they stay in the log as messages of rmq_sys_wheel_timer",
        "TimerMessageStore", "let timers fall due, and stop who sends them",
        "delivers late those that fell due meanwhile",
    ),
    StorePart(
        "queues.batch", Release(5, 0, 0), "batch queues", _queues_under(BATCH_QUEUES, ""), Effect.HIDES,
        "reads no batch queue; a batch is one message to it, which its clients cannot take apart", "BatchConsumeQueue",
        "let consumers finish with these topics",
    ),
    StorePart(
        "config.static-topics", Release(5, 0, 0), "static topics", _static_topics, Effect.CHANGES,
        "knows no logical queues: clients see the physical queues with their own offsets", "TopicQueueMappingManager",
    ),
    StorePart(
        "controller.epochs", Release(5, 0, 0), "epochs of controller mode", _there("epochFileCheckpoint"),
        Effect.IGNORES, "knows no controller: who is master is set by brokerRole and brokerId", "AutoSwitchHAService",
        back=_OLD_STATE,
    ),
    StorePart(
        "config.order", Release(5, 0, 0), "order and mode of pop consumers",
        _there("config/consumerOrderInfo.json", "config/messageRequestMode.json"), Effect.IGNORES,
        "knows no pop consumers: messages that were popped and not acknowledged wait until it is replaced",
        "ConsumerOrderInfoManager", back=_OLD_STATE, feature=False,
    ),
    StorePart(
        "topics.compacted", Release(5, 1, 0), "compacted topics", _compacted, Effect.IGNORES,
        "serves them from the log, every message", "CompactionStore", back=_OLD_STATE,
    ),
    StorePart(
        "log.tiered", Release(5, 1, 0), "messages in tiered storage", _there("config/tieredStoreMetadata.json"),
        Effect.HIDES, "serves nothing that is in tiered storage alone", "TieredMessageStore",
    ),
    StorePart(
        "config.rocksdb", Release(5, 1, 4), "configuration in RocksDB", _databases(TOPICS_V1, GROUPS_V1, OFFSETS_V1),
        Effect.LOSES, _CONFIG_LOST, "RocksDBConsumerOffsetManager", _WRITE_JSON, _OLD_STATE,
        (TOPICS_V1, GROUPS_V1, OFFSETS_V1),
    ),
    StorePart(
        "queues.rocksdb", Release(5, 2, 0), "queues in RocksDB", _rocksdb_queues,
        Effect.MIGRATES, "makes queue files from what of the log its start dispatches, and leaves the database",
        "RocksDBConsumeQueueStore", back="dispatches what is missing in the database, if the log still holds it",
        databases=(QUEUES,),
    ),
    StorePart(
        "access.rocksdb", Release(5, 3, 0), "users and access rules in RocksDB",
        _databases("config/users", "config/acls"),
        Effect.CHANGES, "checks access by plain_acl.yml alone, if at all", "LocalAuthenticationMetadataProvider",
        "put the rules into plain_acl.yml",
    ),
    StorePart(
        "config.rocksdb-2", Release(5, 3, 2), "configuration in RocksDB, version 2", _databases(CONFIG_V2),
        Effect.LOSES, _CONFIG_LOST, "ConfigStorage", _WRITE_JSON, _OLD_STATE, (CONFIG_V2,),
    ),
    StorePart(
        "pop.rocksdb", Release(5, 3, 2), "pop state in RocksDB", _rows(POP, POP_FAMILY), Effect.HIDES,
        "does not deliver again what was popped and not acknowledged", "PopConsumerRocksdbStore",
        "let pop consumers acknowledge what they have", _OLD_STATE, (POP,),
    ),
    StorePart(
        "config.rocksdb-single", Release(5, 4, 0), "configuration in one database of RocksDB", _databases(METADATA),
        Effect.LOSES, _CONFIG_LOST, "BrokerConfig.useSingleRocksDBForAllConfigs", _WRITE_JSON, _OLD_STATE, (METADATA,),
    ),
    StorePart(
        "transactions.rocksdb", Release(5, 4, 0), "half messages in RocksDB", _rows(MESSAGES, HALF_FAMILY),
        Effect.HIDES, "asks for the outcome of none of them", "TransactionalMessageRocksDBService",
        "let transactions end", _OLD_STATE,
    ),
    StorePart(
        "index.rocksdb", Release(5, 4, 0), "index and timers in RocksDB", _there(MESSAGES), Effect.IGNORES,
        "finds by key what index files hold, and no more", "MessageRocksDBStorage", back=_OLD_STATE,
        databases=(MESSAGES,), feature=False,
    ),
    StorePart(
        "queues.rocksdb-beside", Release(5, 5, 0), "queues in a database of their own directory",
        _databases(SEPARATE_QUEUES), Effect.IGNORES,
        "does not look there, and makes the queues again that are there alone",
        "MessageStoreConfig.useSeparateStorePathForRocksdbCQ",
        back="dispatches what is missing in the database, if the log still holds it", databases=(SEPARATE_QUEUES,),
    ),
    StorePart(
        "queues.light-rocksdb", Release(5, 5, 0), "light queues in RocksDB alone", _light_queues, Effect.HIDES,
        "finds no unit of them, and numbers them from 0", "MessageStoreConfig.combineCQUseRocksdbForLmq",
        "let consumers finish with light topics",
    ),
)  # fmt: skip
"""In the order in which they came."""


def unread_parts(store: StoreFiles, release: Release) -> Iterator[Statement]:
    """Yield what of a store a release does not read."""
    for part in PARTS:
        if release < part.since and (about := part.present(store)):
            yield part.statement(about)


def later_parts(shown: Release, release: Release) -> Iterator[Statement]:
    """Yield the parts that a release may make, and that the one shown does not read."""
    for part in PARTS:
        if part.feature and shown < part.since <= release:
            yield part.statement(part.holds)


def as_read_by(store: StoreFiles, release: Release) -> StoreFiles:
    """Return the store as one in which databases that a release does not know are not there."""
    unread = frozenset(path for part in PARTS if release < part.since for path in part.databases)
    return store.without(unread) if unread else store
