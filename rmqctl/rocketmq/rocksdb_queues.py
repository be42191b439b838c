"""RocksDB consume queues, read through the extra ``rocksdb`` (spec 10.1).

The database library writes files of its own beside the ones it opens, even when it only reads. So
it is given a temporary directory of links to the database's files: the store is not touched.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.layout import plan_of
from formats.rocketmq.rocksdb import (
    CHECKPOINT_TOPIC,
    OFFSET_FAMILY,
    QueueEndKey,
    QueueUnitValue,
    parse_unit_key,
    queue_prefix,
)
from rmqctl.errors import IOFailure, MissingExtra, Refused
from rmqctl.files.tree import local_path
from rmqctl.rocketmq.store import QUEUES, RocketMQStore

_ADVICE = (
    "the log has all that was in it: `rmqctl rebuild STORE --into DIR` makes queue files from the log, "
    "and a broker that finds no database fills a new one"
)
_VALUE = plan_of(QueueUnitValue).runs[0]
Key = tuple[str, int]


class DatabaseDamaged(IOFailure):
    """The library that reads databases cannot open one: files of it are damaged or missing."""

    def __init__(self, shown: str, reason: str) -> None:
        """
        Args:
            shown: the directory, as the user knows it.
            reason: the library's words.
        """
        super().__init__(f"cannot open the RocksDB database {shown}", reason, _ADVICE)
        self.reason = reason


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


class QueueDatabase:
    """The open database of a store's queues; :func:`open_queues` makes one."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def units(self) -> Iterator[RocksUnit]:
        """All units, by topic length, topic, queue and queue offset."""
        yield from self._from(b"")

    def units_of(self, topic: str, queue_id: int, first: int = 0) -> Iterator[RocksUnit]:
        """The units of one queue from an offset on, ascending."""
        prefix = queue_prefix(topic.encode(), queue_id)
        for unit in self._from(prefix + max(first, 0).to_bytes(8, "big")):
            if (unit.topic, unit.queue_id) != (topic, queue_id):
                return
            yield unit

    def queues(self) -> Iterator[Key]:
        """Topic and id of every queue that has a unit; jumps from queue to queue."""
        cursor = self._database.iter()
        cursor.seek_to_first()
        while cursor.valid():
            unit = parse_unit_key(bytes(cursor.key()))
            if unit is None:
                cursor.next()
                continue
            yield unit[0].decode("utf-8", "replace"), unit[1]
            cursor.seek(queue_prefix(unit[0], unit[1])[:-1] + b"\x02")

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> RocksUnit | None:
        """One unit; None where there is none."""
        value = self._database.get(queue_prefix(topic.encode(), queue_id) + queue_offset.to_bytes(8, "big"))
        if value is None or len(value) != _VALUE.packer.size:
            return None
        return RocksUnit(topic, queue_id, queue_offset, *_VALUE.packer.unpack(bytes(value)))

    def last_unit(self, topic: str, queue_id: int) -> RocksUnit | None:
        """The last unit of a queue; None in one without units."""
        prefix = queue_prefix(topic.encode(), queue_id)
        cursor = self._database.iter()
        cursor.seek_for_prev(prefix + b"\x7f" + b"\xff" * 7)
        found = parse_unit_key(bytes(cursor.key())) if cursor.valid() else None
        if found is None or found[:2] != (topic.encode(), queue_id):
            return None
        return self.unit(topic, queue_id, found[2])

    def dispatched_end(self) -> int:
        """Physical offset behind the last record that has a unit, as the checkpoint of the database has it; 0 without."""
        family = self._family(OFFSET_FAMILY)
        value = None if family is None else family.get(QueueEndKey.build({"topic": CHECKPOINT_TOPIC, "end": b"max", "queue_id": 0}))
        return int.from_bytes(value[:8], "big", signed=True) if value is not None and len(value) >= 8 else 0

    def _family(self, name: str) -> Any:
        try:
            return self._database.get_column_family(name)
        except Exception:  # the package's error for a family that is not there
            return None

    def _from(self, key: bytes) -> Iterator[RocksUnit]:
        for found, value in self._database.items(from_key=key) if key else self._database.items():
            parsed = parse_unit_key(bytes(found))
            if parsed is not None and len(value) == _VALUE.packer.size:
                topic = parsed[0].decode("utf-8", "replace")
                yield RocksUnit(topic, parsed[1], parsed[2], *_VALUE.packer.unpack(bytes(value)))


@contextmanager
def open_queues(store: RocketMQStore) -> Iterator[QueueDatabase]:
    """The database of a store's queues, for reading.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        DatabaseDamaged: the database cannot be opened.
    """
    with open_database(store, store.queue_database or QUEUES, "reading RocksDB queues") as database:
        yield QueueDatabase(database)


@contextmanager
def open_database(store: RocketMQStore, path: str, purpose: str) -> Iterator[Any]:
    """A RocksDB database of a store by its path in it, for reading, all column families; keys and values are bytes.

    Args:
        purpose: what is done, for the error without the package.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        DatabaseDamaged: the database cannot be opened.
    """
    place = local_path(store.tree, path)
    if place is None:
        raise Refused(
            "RocksDB databases can only be read on this machine; copy the store here and run the command on the copy"
        )
    links = Path(tempfile.mkdtemp(prefix="rmqctl-rocksdb-"))
    try:
        for file in Path(place).iterdir():
            if file.is_file():
                (links / file.name).symlink_to(file.absolute())
        database = _open(links, purpose, f"{store.root}/{path}")
        try:
            yield database
        finally:
            database.close()
    finally:
        shutil.rmtree(links, ignore_errors=True)


def rocksdb_units(store: RocketMQStore) -> Iterator[RocksUnit]:
    """All units, by topic length, topic, queue and queue offset.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        DatabaseDamaged: the database cannot be opened.
    """
    with open_queues(store) as database:
        yield from database.units()


def sound_units(store: RocketMQStore) -> Iterator[RocksUnit]:
    """The same, and none where the database cannot be opened: for work to which the log is enough.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
    """
    with suppress(DatabaseDamaged):
        yield from rocksdb_units(store)


def _open(directory: Path, purpose: str, shown: str) -> Any:
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError as error:
        raise MissingExtra(purpose, "rocksdb") from error
    options = Options(raw_mode=True)
    try:
        families = dict.fromkeys(Rdict.list_cf(str(directory), options), options)
        return Rdict(str(directory), options=options, column_families=families, access_type=AccessType.read_only())
    except Exception as error:
        raise DatabaseDamaged(shown, str(error).replace(f"{directory}/", "").rstrip(": ")) from error
