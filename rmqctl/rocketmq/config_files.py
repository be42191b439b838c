"""Configuration files with their fallback, and what is in them (spec 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.config_json import parse_config
from rmqctl.files.tree import Entry, read_all
from rmqctl.rocketmq.store import RocketMQStore

CONFIG = "config"
_BINARY = ("timercheck",)
_SUFFIXES = (".bak", ".tmp")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One configuration file.

    Attributes:
        document: its content, that of the ``.bak`` where the file cannot be read, None where neither can.
        error: why the file itself cannot be read; offset where it breaks, in bytes.
        fallback: the content came from the ``.bak``.
    """

    path: str
    document: Any
    error: DecodeError | None = None
    fallback: bool = False


def config_files(store: RocketMQStore) -> list[ConfigFile]:
    """All JSON files of config/, by name; a ``.bak`` alone stands for its file.

    Raises:
        OSError: a file cannot be read.
    """
    entries = [e for e in store.tree.entries(CONFIG) if not e.is_directory]
    names = {_plain_name(e) for e in entries if not e.name.endswith(".tmp")}
    return [read_config(store, name) for name in sorted(names) if name not in _BINARY]


def read_config(store: RocketMQStore, name: str) -> ConfigFile:
    """One file, by the broker's own rule: the ``.bak`` counts where the file is missing, empty or broken.

    Raises:
        OSError: a file cannot be read.
    """
    path = f"{CONFIG}/{name}"
    document, error = _parse(read_all(store.tree, path))
    if error is None:
        return ConfigFile(path, document)
    backup, backup_error = _parse(read_all(store.tree, path + ".bak"))
    return ConfigFile(path, backup, error, backup_error is None)


def _parse(data: bytes | None) -> tuple[Any, DecodeError | None]:
    if data is None:
        return None, DecodeError("is missing", field="json")
    try:
        return parse_config(data), None
    except DecodeError as error:
        return None, error


def _plain_name(entry: Entry) -> str:
    return entry.name.removesuffix(".bak")


def table(document: Any, name: str) -> dict[str, Any]:
    """A table of a configuration document; empty where it is not there or no table."""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


def consumer_offsets(store: RocketMQStore) -> list[tuple[str, str, int, int]]:
    """Topic, group, queue id and next offset of every consumer group; what cannot be read is left out.

    Raises:
        OSError: a file cannot be read.
    """
    found = []
    offsets = table(read_config(store, "consumerOffset.json").document, "offsetTable")
    for key, queues in offsets.items():
        topic, mark, group = key.partition("@")
        if mark and "@" not in group and isinstance(queues, dict):
            found += [(topic, group, int(q), v) for q, v in queues.items() if _is_number(q) and isinstance(v, int)]
    return found


def topic_names(store: RocketMQStore) -> set[str] | None:
    """Topics that topics.json knows; None without a readable one.

    Raises:
        OSError: a file cannot be read.
    """
    document = read_config(store, "topics.json").document
    return set(table(document, "topicConfigTable")) if document is not None else None


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()
