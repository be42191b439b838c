"""Configuration files with their fallback, and what is in them (spec 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.config_json import parse_config
from rmqctl.files.tree import read_all
from rmqctl.rocketmq.store import RocketMQStore

CONFIG = "config"
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


def config_files(store: RocketMQStore) -> list[ConfigFile]:
    """All JSON files of config/, by name; a ``.bak`` alone stands for its file. Other names are left out.

    Raises:
        OSError: a file cannot be read.
    """
    entries = store.tree.entries(CONFIG, sizes=False)
    names = {e.name.removesuffix(".bak") for e in entries if not e.is_directory}
    return [read_config(store, name) for name in sorted(names) if name.endswith(".json") or name in _METRICS]


def read_config(store: RocketMQStore, name: str) -> ConfigFile:
    """One file, by the broker's own rule: the ``.bak`` counts where the file is missing, empty or broken.

    Raises:
        OSError: a file cannot be read.
    """
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
    """A table of a configuration document; empty where it is not there or no table."""
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


def consumer_offsets(store: RocketMQStore) -> list[ConsumerOffset]:
    """The offsets of all groups, light message queues included; what cannot be read is left out.

    Where both files are there, the offsets of the later one come last.

    Raises:
        OSError: a file cannot be read.
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


def _modified(store: RocketMQStore, name: str) -> int:
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


def delay_offsets(store: RocketMQStore) -> dict[int, int]:
    """Next queue offset to deliver, by delay level (queue id + 1).

    Raises:
        OSError: the file cannot be read.
    """
    offsets = table(read_config(store, "delayOffset.json").document, "offsetTable")
    return {int(level): v for level, v in offsets.items() if _is_number(level) and isinstance(v, int)}


def topic_names(store: RocketMQStore) -> set[str] | None:
    """Topics that topics.json knows; None without a readable one.

    Raises:
        OSError: a file cannot be read.
    """
    document = read_config(store, "topics.json").document
    return set(table(document, "topicConfigTable")) if document is not None else None


def _is_number(text: str) -> bool:
    return len(text) < 12 and text.isascii() and text.removeprefix("-").isdigit()
