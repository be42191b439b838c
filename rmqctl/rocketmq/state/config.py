"""What a store says of itself: configuration in files with their fallback, and in RocksDB, and the checkpoint (spec 5,
9, 10.3, 10.4, A2, A3).

Configuration in RocksDB of version 1 has a database for each kind, or with useSingleRocksDBForAllConfigs one for all.
Where a broker was switched from one to the other both are there; the one whose data version counts further is the one
that is used. Topics that a store knows of, and the names nearest to one it does not know, come from all of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from formats.errors import DecodeError
from formats.layout import plan_of
from formats.rocketmq.checkpoint import Checkpoint
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.rocksdb import CONSUMER_OFFSET_DATA, TOPIC_DATA, parse_consumer_offset_key
from formats.rocketmq.rocksdb_config import DATA_VERSION_KEY
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.errors import MissingExtra, RmqctlError
from rmqctl.files.tree import read_all
from rmqctl.filters import did_you_mean as near_names
from rmqctl.rocketmq.store.databases import (
    CONFIG_V2,
    GROUPS_V1,
    METADATA,
    OFFSETS_V1,
    TOPICS_V1,
    Database,
    has_database,
    open_database,
)
from rmqctl.rocketmq.store.files import BATCH_QUEUES, LIGHT, QUEUES, StoreFiles
from rmqctl.rocketmq.store.geometry import flag
from rmqctl.text import typed

CONFIG = "config"
Table = dict[str, Any]
_METRICS = ("timermetrics", "transactionMetrics")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One configuration file.

    Attributes:
        document: its content, that of the ``.bak`` where the file cannot be read, None where neither can.
        error: why the file itself cannot be read; offset where it breaks, in bytes.
        fallback: the content came from the ``.bak``.
        missing: the file itself is not there.
    """

    path: str
    document: Any
    error: DecodeError | None = None
    fallback: bool = False
    missing: bool = False


def config_files(store: StoreFiles) -> list[ConfigFile]:
    """All JSON files of config/, by name; a ``.bak`` alone stands for its file. Other names are left out."""
    entries = store.tree.entries(CONFIG, sizes=False)
    names = {e.name.removesuffix(".bak") for e in entries if not e.is_directory}
    return [read_config(store, name) for name in sorted(names) if name.endswith(".json") or name in _METRICS]


def read_config(store: StoreFiles, name: str) -> ConfigFile:
    """One file, by the broker's own rule: the ``.bak`` counts where the file is missing, empty or broken."""
    path = f"{CONFIG}/{name}"
    data = read_all(store.tree, path)
    document, error = _parse(data)
    if error is None:
        return ConfigFile(path, document)
    backup, backup_error = _parse(read_all(store.tree, path + ".bak"))
    return ConfigFile(path, backup, error, backup_error is None, data is None)


def _parse(data: bytes | None) -> tuple[Any, DecodeError | None]:
    if data is None:
        return None, DecodeError("is missing", field="json")
    try:
        return parse_config(data), None
    except DecodeError as error:
        return None, error


def table(document: Any, name: str) -> dict[str, Any]:
    """Return a table of a configuration document; empty where it is not there or no table."""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class ConsumerOffset:
    """How far a consumer group is in a queue; ``offset`` is the next one it wants, ``file`` where that is stored."""

    file: str
    topic: str
    group: str
    queue_id: int
    offset: int


def consumer_offsets(store: StoreFiles) -> list[ConsumerOffset]:
    """Return the offsets of all groups, light message queues included; what cannot be read is left out.

    Where both files are there, the offsets of the later one come last.
    """
    found = []
    names = (
        "consumerOffset.json",
        "lmqConsumerOffset.json",
    )  # a broker with light message queues keeps only the latter
    for name in sorted(names, key=lambda n: _modified(store, n)):
        file = read_config(store, name)
        for key, queues in table(file.document, "offsetTable").items():
            found += offsets_of(file.path, key, queues)
        for key, offset in table(file.document, "lmqOffsetTable").items():
            found += offsets_of(file.path, key, {"0": offset})
    return found


def backed_up_offsets(store: StoreFiles, path: str) -> dict[tuple[str, str, int], int]:
    """Return the offsets in the ``.bak`` of a file by topic, group and queue; empty where it cannot be read."""
    document, _ = _parse(read_all(store.tree, f"{path}.bak"))
    rows = (offsets_of(path, key, queues) for key, queues in table(document, "offsetTable").items())
    return {(own.topic, own.group, own.queue_id): own.offset for found in rows for own in found}


def _modified(store: StoreFiles, name: str) -> int:
    entry = store.tree.stat(f"{CONFIG}/{name}") or store.tree.stat(f"{CONFIG}/{name}.bak")
    return entry.mtime_ms if entry else 0


def offsets_of(path: str, key: str, queues: Any) -> list[ConsumerOffset]:
    """Keys that do not split into topic and group count for nothing, as in a broker."""
    parts = key.split("@")
    if len(parts) != 2 or not isinstance(queues, dict):
        return []
    numbers = {int(q): v for q, v in queues.items() if _is_number(q) and isinstance(v, int)}
    topic, group = parts
    return [ConsumerOffset(path, topic, group, queue, offset) for queue, offset in numbers.items()]


def delay_offsets(store: StoreFiles) -> dict[int, int]:
    """Next queue offset to deliver, by delay level (queue id + 1)."""
    offsets = table(read_config(store, "delayOffset.json").document, "offsetTable")
    return {int(level): v for level, v in offsets.items() if _is_number(level) and isinstance(v, int)}


def topic_names(store: StoreFiles) -> set[str] | None:
    """Topics that topics.json knows; None without a readable one."""
    document = read_config(store, "topics.json").document
    return set(table(document, "topicConfigTable")) if document is not None else None


def configured_topics(store: StoreFiles) -> Table | None:
    """Return the settings of each topic as a broker reads them: from RocksDB where the configuration lies there, else
    from topics.json or its ``.bak``; None where that is not there or cannot be read.

    From 5.3.2 on a broker with a database of version 1 takes over what a topics.json has that counts further than the
    database does (``RocksDBTopicConfigManager.merge``).
    """
    document = read_config(store, "topics.json").document
    if has_stored_config(store):
        with suppress(RmqctlError):
            stored, counter = _topics_and_counter(store)
            is_taken = document is not None and counter is not None and counter_of(document) > counter
            return stored | (table(document, "topicConfigTable") if is_taken else {})
        return None
    return table(document, "topicConfigTable") if document is not None else None


def topics_counter(store: StoreFiles) -> int | None:
    """Return how far the topics in databases have counted: a topics.json that counts further is taken over. None where
    none is: databases are of version 2, or cannot be read.
    """
    if not has_version_2(store):
        with suppress(RmqctlError), ExitStack() as opened:
            return _counted(_places(store, TOPICS, opened))
    return None


def queue_type(settings: Any) -> str:
    """Return which kind of queues the settings of a topic ask for: ``SimpleCQ`` unless an attribute names another."""
    attributes = settings.get("attributes") if isinstance(settings, dict) else None
    return str(attributes.get("queue.type", "SimpleCQ")) if isinstance(attributes, dict) else "SimpleCQ"


def has_batch_queues(settings: Any) -> bool:
    """Whether the settings of a topic ask for batch queues."""
    return queue_type(settings) == "BatchCQ"


def _is_number(text: str) -> bool:
    return len(text) < 12 and text.isascii() and text.removeprefix("-").isdigit()


# --- configuration that a broker keeps in rocksdb ---------------------------------------------------


_PURPOSE = "reading the configuration in RocksDB"


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
OFFSETS = Kind(OFFSETS_V1, "consumerOffset", CONSUMER_OFFSET_DATA)


def stored_offsets(store: StoreFiles) -> list[ConsumerOffset]:
    """Consumer offsets in the databases that are there; version 2 after version 1, so that its offsets win.

    Raises:
        MissingExtra: there is a database, and the package rocksdict is not installed.
        Refused: the store is remote.
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


def stored_topics(store: StoreFiles) -> Table:
    """Topics in the databases by name, each with the object that topics.json would have.

    Raises:
        MissingExtra, Refused, IOFailure: as :func:`stored_offsets`.
    """
    return _topics_and_counter(store)[0]


def _topics_and_counter(store: StoreFiles) -> tuple[Table, int | None]:
    """The topics in the databases, and what :func:`topics_counter` says, by opening them once."""
    found: Table = {}
    with ExitStack() as opened:
        places = _places(store, TOPICS, opened)
        if places:
            database, family = _chosen(places)
            found |= {_text(key): _document(value) for key, value in database.rows(family)}
        for key, value in _version_2(store, TOPICS, opened):
            found[_text(key[len(TOPICS.prefix) + 2 :])] = _document(value[1:])
        return found, None if has_version_2(store) else _counted(places)


def has_stored_config(store: StoreFiles) -> bool:
    """Whether any configuration lies in a database: then the JSON files do not count."""
    return has_version_2(store) or any(
        has_database(store, path) for path in (METADATA, TOPICS_V1, GROUPS_V1, OFFSETS_V1)
    )


def has_version_2(store: StoreFiles) -> bool:
    """Whether configuration lies in a database of version 2, and not only one that the broker's settings leave unread:
    another store's.
    """
    default = "v1" if "storeType" in store.settings else "v2"
    return has_database(store, CONFIG_V2) and store.settings.get("configManagerVersion", default) == "v2"


def version_1(store: StoreFiles, kind: Kind, opened: ExitStack) -> tuple[Database, str] | None:
    """Return the database and the column family of version 1 that count for a kind; None where there is neither.

    Args:
        opened: keeps them open.

    Raises:
        MissingExtra, Refused, IOFailure: as :func:`stored_offsets`.
    """
    places = _places(store, kind, opened)
    return _chosen(places) if places else None


_Places = list[tuple[int, Database, str]]
"""Counters of data versions with the databases and column families that they are of."""


def _chosen(places: _Places) -> tuple[Database, str]:
    _, database, family = max(reversed(places), key=lambda place: place[0])  # of equal ones the single database
    return database, family


def _counted(places: _Places) -> int:
    return max((0, *(counter for counter, _, _ in places)))


def _places(store: StoreFiles, kind: Kind, opened: ExitStack) -> _Places:
    places: _Places = []
    for path, family, version in (
        (kind.separate, "default", "kvDataVersion"),
        (METADATA, kind.single, f"{kind.single}Version"),
    ):
        if has_database(store, path):
            database = opened.enter_context(open_database(store, path, _PURPOSE))
            counter = counter_of({"dataVersion": _document(database.get(version, DATA_VERSION_KEY) or b"")})
            places.append((counter, database, family))
    return places


def counter_of(document: Any) -> int:
    """Return how far the data version of a configuration document has counted; -1 where it has none."""
    counter = table(document, "dataVersion").get("counter")
    return counter if isinstance(counter, int) else -1


def _version_2(store: StoreFiles, kind: Kind, opened: ExitStack) -> Iterator[tuple[bytes, bytes]]:
    if has_version_2(store):
        yield from opened.enter_context(open_database(store, CONFIG_V2, _PURPOSE)).rows("default", kind.prefix)


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


# --- the checkpoint file ----------------------------------------------------------------------------


PATH = "checkpoint"
_RUN = plan_of(Checkpoint).runs[0]


def read_checkpoint(store: StoreFiles) -> tuple[dict[str, int], int] | None:
    """Fields by name, and the file's length in bytes; missing bytes count as zero. None without a file."""
    data = read_all(store.tree, PATH)
    if data is None:
        return None
    values = _RUN.packer.unpack(data[: _RUN.packer.size].ljust(_RUN.packer.size, b"\0"))
    return dict(zip(_RUN.names, values, strict=True)), len(data)


# --- topics that a store knows of -------------------------------------------------------------------


_MADE_WHEN_NEEDED = ("%RETRY%", "%DLQ%", "TRANS_CHECK_MAX_TIME_TOPIC")
"""Made with their first message, and written to the configuration then; that of version 2 never names them."""
_OWN_PREFIXES = ("rmq_sys_", LIGHT, "RMQ_SYS_")
_OWN_TOPICS = {
    SCHEDULE_TOPIC,
    "TBW102",
    "BenchmarkTest",
    "CHECKPOINT_TOPIC",
    "OFFSET_MOVED_EVENT",
    "SELF_TEST_TOPIC",
}


_REPLIES = "_REPLY_TOPIC"
_TRACES = "RMQ_SYS_TRACE_TOPIC"


def is_made_at_start(topic: str, settings: Mapping[str, str]) -> bool:
    """Whether a broker makes the topic itself when it starts (``TopicConfigManager.init``), or never writes it to
    topics.json (light queues).

    Args:
        settings: of the broker; where there are none those topics count, too, that depend on them.
    """
    cluster = settings.get("brokerClusterName")
    if topic.endswith(_REPLIES):
        return cluster is None or topic == cluster + _REPLIES
    if topic == settings.get("msgTraceTopicName", _TRACES):
        return not settings or flag(settings, "traceTopicEnable", default=False)
    return topic in _OWN_TOPICS or topic in (settings.get("brokerName"), cluster) or topic.startswith(_OWN_PREFIXES)


def needs_no_entry(store: StoreFiles) -> Callable[[str], bool]:
    """Return whether a broker that starts on a store serves a topic that its configuration does not name."""
    if has_version_2(store):
        return is_own_topic
    return lambda topic: is_made_at_start(topic, store.settings)


def is_own_topic(topic: str) -> bool:
    """Topics that brokers make or use without an entry in topics.json; some only when they have a message for them."""
    return is_made_at_start(topic, {}) or topic.startswith(_MADE_WHEN_NEEDED)


def known_topics(store: StoreFiles) -> list[str]:
    """Names of queues and of topics.json, sorted; none of a database of queues that cannot be read.

    Raises:
        MissingExtra: queues are in RocksDB, and its package is not installed.
    """
    document = read_config(store, "topics.json").document
    return sorted({*topics_with_queues(store), *table(document, "topicConfigTable")})


def topics_with_queues(store: StoreFiles) -> dict[str, str]:
    """Return the names of topics that have queues, each with the directory or database that has them; none of a
    database that cannot be read.

    Raises:
        MissingExtra: queues are in RocksDB, and its package is not installed.
    """
    kinds = (BATCH_QUEUES,) if store.is_rocksdb else (QUEUES, BATCH_QUEUES)
    found = {e.name: e.path for kind in kinds for e in store.tree.entries(kind, sizes=False) if e.is_directory}
    if store.is_rocksdb or store.has_light_database:
        found = dict.fromkeys(_in_database(store), store.queue_database or QUEUES) | found
    return found


def _in_database(store: StoreFiles) -> set[str]:
    from rmqctl.rocketmq.queues.rocksdb import open_queues

    try:
        with open_queues(store) as queues:
            return {topic for topic, _ in queues.queues()}
    except MissingExtra:
        raise
    except RmqctlError:
        return set()


def did_you_mean(name: str, names: list[str], root: str) -> str:
    """Return the end of a sentence that says the topic is unknown: the nearest names, or how to list all of
    the store at ``root``.
    """
    return near_names(name, names) or f"; type: {typed('topics', root, '--by-topic')}"
