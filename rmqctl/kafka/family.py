"""The Kafka family: which log directories, partition or file lie at a path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import NotAStore
from rmqctl.files.remote import is_url, open_tree
from rmqctl.files.tree import Tree
from rmqctl.kafka.directory.directory import (
    LogDirectories,
    LogDirectory,
    looks_like_partition,
    proves_log_directory,
    read_directory,
    read_partition,
)
from rmqctl.kafka.directory.file_names import FileKind, meaning_of, partition_of
from rmqctl.kafka.directory.releases import KNOWN
from rmqctl.kafka.store import KafkaFile, KafkaStore
from rmqctl.store import LoneFile, Place, Store

if TYPE_CHECKING:
    from rmqctl.answer import Row
    from rmqctl.producing import Produced, ProduceRequest


_MOST_LOOKED_INTO = 64
_MOST_BATCH = 16 << 20
_NAMED = frozenset(kind for kind in FileKind if kind is not FileKind.OTHER)


def open_at(place: Place) -> Store | LoneFile | None:
    """Return the log directory at a path or around it, or the lone file; None where nothing is of Kafka.

    Raises:
        NotAStore: the user says it is of Kafka, and it is not.
    """
    if place.commit_log:
        return None
    found = _directory_at(place) if place.is_directory else _file_at(place)
    if found is None and place.is_forced:
        raise NotAStore(
            place.path,
            "no Kafka partition, checkpoint or meta.properties in it"
            if place.is_directory
            else "it is no file of Kafka's",
            "give a directory of log.dirs, a partition's directory, or one of its files",
            wanted="Kafka log directory",
        )
    if isinstance(found, KafkaStore):
        found.settings = _settings(place)
    return found


def open_together(places: Sequence[Place]) -> Store | None:
    """Return the log directories of one broker; None where one of the places is none."""
    found = [_directory_at(place) if place.is_directory else None for place in places]
    stores = [store for store in found if store is not None and not store.selection]
    if not stores or len(stores) < len(places):
        return None
    together = KafkaStore.together(stores)
    together.settings = _settings(places[0])
    return together


def _settings(place: Place) -> dict[str, str]:
    """Return settings of a server.properties by name; empty where none was given."""
    if place.broker_conf is None:
        return {}
    from rmqctl.files.settings import read_settings

    return read_settings(Path(place.broker_conf))


def _directory_at(place: Place) -> KafkaStore | None:
    entries = place.tree.entries("", sizes=False)
    names = [entry.name for entry in entries]
    directories = [entry.name for entry in entries if entry.is_directory]
    if looks_like_partition(name for name in names if name not in directories):
        return _around(place.path, "")
    if proves_log_directory(names) or any(_is_partition(place.tree, name) for name in directories[:_MOST_LOOKED_INTO]):
        return KafkaStore(LogDirectories([read_directory(place.tree)]))
    return None


def _file_at(place: Place) -> KafkaStore | KafkaFile | None:
    parent, name = _split(place.path)
    tree = open_tree(parent)
    meaning = meaning_of(name)
    siblings = [entry.name for entry in tree.entries("", sizes=False) if not entry.is_directory]
    if meaning.kind in _NAMED and proves_log_directory(siblings):
        return KafkaStore(LogDirectories([read_directory(tree)], name))
    if looks_like_partition(siblings) and (meaning.kind in _NAMED or place.is_forced):
        return _around(parent, name)
    if meaning.base is not None and meaning.kind in _NAMED:
        return KafkaFile(tree, name, meaning.kind)
    if place.is_forced or meaning.kind in _NAMED or _starts_with_batch(tree, name):
        return KafkaFile(tree, name, FileKind.LOG if meaning.kind is FileKind.OTHER else meaning.kind)
    return None


def _around(path: str, inside: str) -> KafkaStore:
    """Return the log directory around a partition's directory, or just that directory where it is none's."""
    parent, name = _split(path)
    parsed = partition_of(name)
    if parsed is None:
        tree = open_tree(path)
        return KafkaStore(LogDirectories([LogDirectory(tree, [read_partition(tree, "")])], inside))
    tree = open_tree(parent)
    selection = f"{name}/{inside}" if inside else name
    if proves_log_directory(entry.name for entry in tree.entries("", sizes=False)):
        return KafkaStore(LogDirectories([read_directory(tree)], selection))
    return KafkaStore(LogDirectories([LogDirectory(tree, [read_partition(tree, name, parsed)])], selection))


def _split(path: str) -> tuple[str, str]:
    """Return a path's directory and its last name; in the user's own words where they say both."""
    typed = path.rstrip("/")
    parent, slash, name = typed.rpartition("/")
    if is_url(path) or (slash and name not in {"", ".", ".."}):
        return parent or "/", name
    if name not in {"", ".", ".."}:
        return ".", name
    parent, _, name = os.path.abspath(path).rpartition("/")
    return parent or "/", name


def _is_partition(tree: Tree, name: str) -> bool:
    if partition_of(name) is None:
        return False
    try:
        return looks_like_partition(entry.name for entry in tree.entries(name, sizes=False))
    except OSError:
        return False


def _starts_with_batch(tree: Tree, name: str) -> bool:
    """Whether a file of any name begins with a batch whose CRC matches; cheap where it does not even look like one."""
    from formats.kafka import message_set
    from formats.kafka.record_batch import CRC_AT, CRC_FROM, FRAME_HEAD, HEADER_SIZE, MAGIC_AT, PEEK, BatchFrame
    from formats.layout import plan_of

    source = tree.open(name)
    try:
        head = source.read_at(0, HEADER_SIZE)
        if len(head) < PEEK or head[MAGIC_AT] > 2:
            return False
        size = FRAME_HEAD + plan_of(BatchFrame).unpack_from(head)[0]["batch_length"]
        if not FRAME_HEAD < size <= min(source.size(), _MOST_BATCH):
            return False
        batch = source.read_at(0, size)
    finally:
        source.close()
    if head[MAGIC_AT] == 2:
        from crc32c import crc32c

        return size >= HEADER_SIZE and crc32c(batch[CRC_FROM:]) == int.from_bytes(batch[CRC_AT:CRC_FROM], "big")
    from zlib import crc32

    stored = batch[message_set.CRC_AT : message_set.CRC_FROM]
    return crc32(batch[message_set.CRC_FROM :]) == int.from_bytes(stored, "big")


def produce(path: Path, request: ProduceRequest) -> Produced:
    """Write records into the log directory at a path, or make one there."""
    from rmqctl.kafka.verbs import producing

    return producing.produce(path, request)


def releases() -> Mapping[tuple[int, int], int]:
    """Return the newest patch of each series that is known."""
    return KNOWN


def first_patches() -> Mapping[tuple[int, int], int]:
    """Return the first patch of each series of which not all up to the newest are known: of none."""
    return {}


def damages() -> list[Row]:
    """List the kinds of damage that :func:`produce` makes on purpose."""
    from rmqctl.kafka.verbs import producing

    return producing.damages()
