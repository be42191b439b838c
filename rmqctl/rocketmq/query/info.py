"""What is here, in one object: kind, state, release, geometry, sizes, first and last message (`rmqctl info`)."""

from __future__ import annotations

import os
from typing import Any

from rmqctl.errors import MissingExtra
from rmqctl.files.tree import LocalTree, Tree
from rmqctl.rocketmq.index.files import NAME_DIGITS
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.query.subsystems import subsystems
from rmqctl.rocketmq.queues.log_end import log_end
from rmqctl.rocketmq.queues.rocksdb import open_queues
from rmqctl.rocketmq.state.config import read_checkpoint
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.databases import DatabaseDamaged
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, RocketMQStore, StoreFile
from rmqctl.rocketmq.store.geometry import geometry_of

_GEOMETRY = ("commit_log_file_size", "queue_file_size", "index_slots", "index_entries", "source")


def store_info(store: RocketMQStore) -> dict[str, Any]:
    """The object of the contract. Reads the head of the log, its last file with data, and directory lists.

    The numbers of topics and queues are None where they are in RocksDB, and its package is not installed
    or it cannot be opened.

    Raises:
        OSError: a file cannot be read.
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


def _parts(store: RocketMQStore) -> dict[str, dict[str, Any]]:
    """Where each part lies, of stores that have any in RocksDB; none where a database cannot be opened."""
    try:
        return {part.name: part.row() for part in subsystems(store)}
    except DatabaseDamaged:
        return {}


def _queues(store: RocketMQStore) -> set[tuple[str, int]] | None:
    """All queues; None where they are in RocksDB, and its package is not installed or it cannot be opened."""
    found = {(q.topic, q.queue_id) for kind in (QUEUES, BATCH_QUEUES) for q in store.queues(kind)}
    if not (store.is_rocksdb or store.has_light_database):
        return found
    try:
        with open_queues(store) as database:
            return found | {key for key in database.queues() if store.in_database(key[0])}
    except (MissingExtra, DatabaseDamaged):
        return None


def _queue_store(store: RocketMQStore) -> str:
    """Where the queues are; a database whose double the files are is named behind them."""
    if store.is_rocksdb:
        return "rocksdb"
    return "files+rocksdb" if store.has_rocksdb else "files"


def log_info(store: RocketMQStore) -> dict[str, Any]:
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


def _first_record(files: list[StoreFile]) -> int | None:
    for file in files[:2]:
        source = file.open()
        try:
            for block in scan(source, Extent(file.name, file.base, stop=1 << 20, lead=file.lead)):
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
