"""What is here, in one object: kind, state, release, geometry, sizes, first and last message (`rmqctl info`).

With RocksDB, where each part of the store lies, in files, the database or both, which is read, and the switches that
follow (spec A1).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from formats.rocketmq.rocksdb_messages import HALF_FAMILY, POP_FAMILY, TIMER_FAMILY
from rmqctl.errors import MissingExtra
from rmqctl.files.tree import LocalTree, Tree
from rmqctl.rocketmq.index import NAME_DIGITS, is_asked, may_have_rows
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.queues.ranges import log_end
from rmqctl.rocketmq.queues.rocksdb import open_queues
from rmqctl.rocketmq.state.config import has_version_2, read_checkpoint
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.databases import (
    CONFIG_V2,
    GROUPS_V1,
    MESSAGES,
    METADATA,
    OFFSETS_V1,
    POP,
    TOPICS_V1,
    DatabaseDamaged,
    can_read,
    databases_of,
    has_database,
    open_database,
)
from rmqctl.rocketmq.store.files import BATCH_QUEUES, LIGHT, QUEUES, SEPARATE_QUEUES, StoreFile, StoreFiles
from rmqctl.rocketmq.store.geometry import geometry_of

_GEOMETRY = ("commit_log_file_size", "queue_file_size", "index_slots", "index_entries", "source")


def store_info(store: StoreFiles) -> dict[str, Any]:
    """Return the object of the contract. Reads the head of the log, its last file with data, and directory lists.

    The numbers of topics and queues are None where they are in RocksDB, and its package is not installed
    or it cannot be opened.
    """
    geometry = geometry_of(store).row()
    queues = _queues(store)
    checkpoint = read_checkpoint(store)
    releases = release_range(store)
    document: dict[str, Any] = {
        "kind": "rocketmq-store",
        "path": store.root,
        "state": store.state,
        "releases": releases.row(),
        "release_evidence": [e.fact for e in releases.evidence],
        "geometry": {name: geometry[name] for name in _GEOMETRY},
        "commit_log": log_info(store),
        "topics": None if queues is None else len({topic for topic, _ in queues}),
        "queues": None if queues is None else len(queues),
        "queue_store": _queue_store(store),
        "index_files": sum(not e.is_directory and len(e.name) == NAME_DIGITS for e in store.index_files),
        "checkpoint": {"kind": "checkpoint", **checkpoint[0]} if checkpoint else None,
    }
    parts = _parts(store)
    return document | {"subsystems": parts} if parts else document


def _parts(store: StoreFiles) -> dict[str, dict[str, Any]]:
    """Where each part lies, of stores that have any in RocksDB; none where a database cannot be opened."""
    try:
        return {part.name: part.row() for part in subsystems(store)}
    except DatabaseDamaged:
        return {}


def _queues(store: StoreFiles) -> set[tuple[str, int]] | None:
    """All queues; None where they are in RocksDB, and its package is not installed or it cannot be opened."""
    found = {(q.topic, q.queue_id) for kind in (QUEUES, BATCH_QUEUES) for q in store.queues(kind)}
    if not (store.is_rocksdb or store.has_light_database):
        return found
    try:
        with open_queues(store) as database:
            return found | {key for key in database.queues() if store.in_database(key[0])}
    except (MissingExtra, DatabaseDamaged):
        return None


def _queue_store(store: StoreFiles) -> str:
    """Where the queues are; a database whose double the files are is named after them."""
    if store.is_rocksdb:
        return "rocksdb"
    return "files+rocksdb" if store.has_rocksdb else "files"


def log_info(store: StoreFiles) -> dict[str, Any]:
    """Files, offsets, times and sizes of the commit log."""
    files = store.log_files
    end = log_end(store)
    return {
        "files": len(files),
        "min_offset": files[0].base if files else 0,
        "max_offset": end.offset,
        "first_store_timestamp": _first_record(files),
        "last_store_timestamp": end.store_timestamp,
        "bytes": sum(max(f.size, 0) for f in files),
        "bytes_allocated": sum(_allocated(f.tree, f.path) for f in files),
        "paths": [name for name, _ in store.log_trees],
    }


def segment_rows(store: StoreFiles) -> Iterator[dict[str, Any]]:
    """Yield the files of the commit log: what each holds, and when its first record was stored (None: none is found
    in its first 64 KiB).
    """
    end = log_end(store).offset
    for file in store.log_files:
        yield {
            "kind": "segment",
            "file": file.name,
            "base_offset": file.base,
            "end_offset": max(min(file.base + file.size, end), file.base),
            "size": file.size,
            "allocated": _allocated(file.tree, file.path),
            "first_store_timestamp": _first_record([file], 1 << 16),
        }


def _first_record(files: list[StoreFile], stop: int = 1 << 20) -> int | None:
    for file in files[:2]:
        source = file.open()
        try:
            for block in scan(source, Extent(file.name, file.base, stop=stop, lead=file.lead)):
                if len(block):
                    return int(block["store_timestamp"][0])
        finally:
            source.close()
    return None


def _allocated(tree: Tree, path: str) -> int:
    """Bytes on disk of a sparse file, 0 if it is gone; its length where the file system cannot tell."""
    if isinstance(tree, LocalTree):
        try:
            status = os.stat(tree.full(path))
        except OSError:
            return 0
        return getattr(status, "st_blocks", -(-status.st_size // 512)) * 512
    entry = tree.stat(path)
    return entry.size if entry else 0


# --- where each part of a store lies -------------------------------------------------------------------


FILES, ROCKSDB, BOTH = "files", "rocksdb", "both"
_CONFIG = (
    ("topics", TOPICS_V1, ("topics.json",)),
    ("groups", GROUPS_V1, ("subscriptionGroup.json",)),
    ("offsets", OFFSETS_V1, ("consumerOffset.json", "lmqConsumerOffset.json")),
)


@dataclass(frozen=True, slots=True)
class Subsystem:
    """One part of a store.

    Attributes:
        places: files, directories and databases that hold it; empty where there is nothing of it.
        read: ``files`` or ``rocksdb``: what a broker with these places takes; None where that cannot be known.
        switches: settings of the broker that follow from the places, others than the defaults only.
    """

    name: str
    places: list[str]
    read: str | None
    switches: dict[str, str] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """As a part of the JSON object of `info`."""
        return {
            "lies_in": _lies_in(self.places),
            "read": self.read,
            "places": self.places,
            "switches": [f"{key}={value}" for key, value in self.switches.items()],
        }


def subsystems(store: StoreFiles) -> list[Subsystem]:
    """All parts; none for a store that has none in RocksDB.

    Raises:
        DatabaseDamaged: a database cannot be opened.
    """
    if not databases_of(store):
        return []
    found = [*_configuration(store), *_queue_parts(store), *_messages(store), _pop(store)]
    return found if any(_lies_in(part.places) in (ROCKSDB, BOTH) for part in found) else []


def _lies_in(places: list[str]) -> str | None:
    kinds = {ROCKSDB if place.endswith("(RocksDB)") else FILES for place in places}
    return BOTH if len(kinds) == 2 else next(iter(kinds), None)


def _database(path: str) -> str:
    return f"{path} (RocksDB)"


def _there(store: StoreFiles, *paths: str) -> list[str]:
    return [path for path in paths if store.tree.stat(path) is not None]


def _configuration(store: StoreFiles) -> list[Subsystem]:
    found = []
    for name, separate, files in _CONFIG:
        inside = [path for path in (CONFIG_V2, METADATA, separate) if has_database(store, path)]
        read = inside if has_version_2(store) else [path for path in inside if path != CONFIG_V2]
        switches = {}
        if CONFIG_V2 in read:
            switches["configManagerVersion"] = "v2"
        elif read:
            switches["storeType"] = "defaultRocksDB"
            if METADATA in read:
                switches["useSingleRocksDBForAllConfigs"] = "true"
        places = [*map(_database, inside), *_there(store, *(f"config/{file}" for file in files))]
        found.append(Subsystem(name, places, ROCKSDB if read else FILES, switches))
    return found


def _queue_parts(store: StoreFiles) -> list[Subsystem]:
    database = store.queue_database
    kept = any(e.is_directory for e in store.tree.entries(QUEUES, sizes=False))
    places = [*([QUEUES] if kept else []), *([_database(database)] if database else [])]
    switches = {"useSeparateStorePathForRocksdbCQ": "true"} if database == SEPARATE_QUEUES else {}
    if store.is_rocksdb:
        switches["storeType"] = "defaultRocksDB"
    elif database:
        switches["rocksdbCQDoubleWriteEnable"] = "true"
    read = ROCKSDB if store.is_rocksdb else FILES
    light_inside = store.in_database(LIGHT)
    light = {"combineCQUseRocksdbForLmq": "true"} if store.has_light_database else {}
    light_places = [_database(database)] if light_inside and database else places[:1]
    return [
        Subsystem("queues", places, read, switches),
        Subsystem("light_queues", light_places, ROCKSDB if light_inside else FILES, light),
    ]


def _messages(store: StoreFiles) -> list[Subsystem]:
    """Index, timers and transactions; what the database holds is not known without the package."""
    unknown = may_have_rows(store) and not can_read()
    used = _families(store) if may_have_rows(store) and not unknown else set()
    inside = {family: [_database(MESSAGES)] if unknown or family in used else [] for family in _SWITCHES}
    files = ["index"] if any(not e.is_directory for e in store.index_files) else []
    index = _switches("default", used)
    if index and not files:
        index |= {"indexFileWriteEnable": "false", "indexFileReadEnable": "false"}
    read = None if unknown and not files else ROCKSDB if not unknown and is_asked(store) else FILES
    timers, halves = inside[TIMER_FAMILY], inside[HALF_FAMILY]
    return [
        Subsystem("index", [*files, *inside["default"]], read, index),
        Subsystem("timers", [*_there(store, "timerwheel", "timerlog"), *timers], _reads(timers, unknown=unknown),
                  _switches(TIMER_FAMILY, used)),
        Subsystem("transactions", [*_there(store, f"{QUEUES}/RMQ_SYS_TRANS_HALF_TOPIC"), *halves],
                  _reads(halves, unknown=unknown), _switches(HALF_FAMILY, used)),
    ]  # fmt: skip


_SWITCHES = {
    "default": {"indexRocksDBEnable": "true"},
    TIMER_FAMILY: {"timerRocksDBEnable": "true"},
    HALF_FAMILY: {"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"},
}


def _switches(family: str, used: set[str]) -> dict[str, str]:
    return dict(_SWITCHES[family]) if family in used else {}


def _reads(inside: list[str], *, unknown: bool) -> str | None:
    return None if unknown else ROCKSDB if inside else FILES


def _families(store: StoreFiles) -> set[str]:
    """Column families of the database of messages that hold rows."""
    with open_database(store, MESSAGES, "looking for messages in RocksDB") as database:
        return {name for name in database.families if next(database.rows(name), None) is not None}


def _pop(store: StoreFiles) -> Subsystem:
    if not has_database(store, POP):
        return Subsystem("pop", [], FILES)
    switches = {"popConsumerKVServiceInit": "true"}
    if not can_read():
        return Subsystem("pop", [_database(POP)], None, switches)
    with open_database(store, POP, "looking for pop messages in RocksDB") as database:
        if next(database.rows(POP_FAMILY), None) is not None:
            switches["popConsumerKVServiceEnable"] = "true"
    return Subsystem("pop", [_database(POP)], ROCKSDB, switches)
