"""RocksDB consume queues, read through the extra ``rocksdb`` (spec 10.1).

The database library writes files of its own beside the ones it opens, even when it only reads. So
it is given a temporary directory of links to the database's files: the store is not touched.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.layout import plan_of
from formats.rocketmq.rocksdb import OFFSET_FAMILY, UNIT_FAMILY, QueueUnitValue, parse_unit_key
from rmqctl.errors import IOFailure, MissingExtra, Refused
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.store import QUEUES, RocketMQStore

_VALUE = plan_of(QueueUnitValue).runs[0]


@dataclass(frozen=True, slots=True)
class RocksUnit:
    """One unit: its queue, its queue offset, and the record it stands for."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int


def rocksdb_units(store: RocketMQStore) -> Iterator[RocksUnit]:
    """All units, by topic length, topic, queue and queue offset.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        IOFailure: the database cannot be opened.
    """
    if not isinstance(store.tree, LocalTree):
        raise Refused(
            "RocksDB queues can only be read on this machine; copy the store here and run the command on the copy"
        )
    links = Path(tempfile.mkdtemp(prefix="rmqctl-rocksdb-"))
    try:
        for file in Path(store.tree.full(QUEUES)).iterdir():
            if file.is_file():
                (links / file.name).symlink_to(file.absolute())
        yield from _units(links, store.root)
    finally:
        shutil.rmtree(links, ignore_errors=True)


def _units(directory: Path, root: str) -> Iterator[RocksUnit]:
    database = _open(directory, root)
    try:
        for key, value in database.items():
            parsed = parse_unit_key(bytes(key))
            if parsed is not None and len(value) == _VALUE.packer.size:
                topic = parsed[0].decode("utf-8", "replace")
                yield RocksUnit(topic, parsed[1], parsed[2], *_VALUE.packer.unpack(bytes(value)))
    finally:
        database.close()


def _open(directory: Path, root: str) -> Any:
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError as error:
        raise MissingExtra("reading RocksDB queues", "rocksdb") from error
    options = Options(raw_mode=True)
    families = {UNIT_FAMILY: options, OFFSET_FAMILY: options}
    try:
        return Rdict(str(directory), options=options, column_families=families, access_type=AccessType.read_only())
    except Exception as error:
        raise IOFailure(
            f"cannot open the RocksDB queues of {root}", str(error), "check the files in consumequeue/"
        ) from error
