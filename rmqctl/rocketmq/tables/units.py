"""The tables ``queue_units`` and ``index_entries``: units of consume queues, batch queues and RocksDB queues;
entries of the index files by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from rmqctl.arrow import TIME, times
from rmqctl.columns import Named
from rmqctl.files.local import ByteSource
from rmqctl.files.moment import alone
from rmqctl.files.tree import Entry, Tree
from rmqctl.rocketmq.dispatch.series import Entries
from rmqctl.rocketmq.dump.queues import chunks, used
from rmqctl.rocketmq.index import IndexFile
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Units, is_pre_blank
from rmqctl.rocketmq.queues.rocksdb import RocksUnit, rocksdb_units
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, QueueFiles, StoreFile, StoreFiles
from rmqctl.rocketmq.store.geometry import ENTRY, IndexGeometry, index_geometry
from rmqctl.rocketmq.tables.columns import TableOptions
from rmqctl.rocketmq.tables.splits import SPLIT_SIZE

UNIT_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("size", pa.int32()),
        ("tags_code", pa.int64()),
        ("store_timestamp", TIME),
        ("batch_size", pa.int16()),
    ]
)
"""Columns of units. ``kind``: queue_unit, pre_blank, batch_queue_unit, rocksdb_unit; the last two have a store time."""

_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class UnitFile:
    """One queue file to read, or all RocksDB queues of a store where there is no file."""

    topic: str = ""
    queue_id: int = 0
    file: StoreFile | None = None
    batch: bool = False
    rocksdb: StoreFiles | None = None


@dataclass(frozen=True, slots=True)
class UnitTable:
    """Units of a store."""

    options: TableOptions

    def schema(self) -> pa.Schema:
        """Return the columns, see :data:`UNIT_SCHEMA`."""
        return UNIT_SCHEMA

    def parts(self) -> list[list[UnitFile]]:
        """Queue files, as many in a part as make a split."""
        store = self.options.store()
        found: list[list[UnitFile]] = []
        room = 0
        for unit in self._files(store):
            assert unit.file is not None
            if room <= 0:
                found.append([])
                room = self.options.split_size or SPLIT_SIZE
            found[-1].append(unit)
            room -= unit.file.size
        return [*found, [UnitFile(rocksdb=store)]] if store.is_rocksdb else found

    def _files(self, store: StoreFiles) -> Iterator[UnitFile]:
        for kind in (QUEUES, BATCH_QUEUES):
            if not (store.is_rocksdb and kind == QUEUES):
                for queue in store.queues(kind):
                    if self._wants(queue.topic, queue.queue_id):
                        yield from _unit_files(queue)

    def _wants(self, topic: str, queue_id: int) -> bool:
        wanted = self.options.wanted
        return wanted.includes_topic(topic) and wanted.queue_id in {None, queue_id}

    def read(self, part: list[UnitFile]) -> Iterator[pa.RecordBatch]:
        """Yield the units of some files; zeros are room and left out."""
        for unit in part:
            if unit.file is not None:
                yield from _of_file(unit, unit.file)
            elif unit.rocksdb is not None:
                units = (u for u in rocksdb_units(unit.rocksdb) if self._wants(u.topic, u.queue_id))
                yield from _of_rocksdb(units)


def _unit_files(queue: QueueFiles) -> Iterator[UnitFile]:
    for file in queue.files()[0]:
        file = replace(file, tree=alone(file.tree, file.path))
        yield UnitFile(queue.topic, queue.queue_id, file, queue.kind == BATCH_QUEUES)


def _of_file(unit: UnitFile, file: StoreFile) -> Iterator[pa.RecordBatch]:
    dtype = BATCH_UNIT if unit.batch else UNIT
    source = file.open()
    try:
        for position, units in chunks(source, dtype, 0, source.size()):
            rows = np.flatnonzero(used(units))
            if len(rows):
                yield _batch(unit, file, position + rows * dtype.itemsize, units[rows])
    finally:
        source.close()


def _batch(unit: UnitFile, file: StoreFile, position: Any, units: Units) -> pa.RecordBatch:
    count = len(units)
    if unit.batch:
        kind: Any = pa.repeat(pa.scalar("batch_queue_unit"), count)
        offset, size = units["base_offset"].astype(np.int64), units["batch_size"].astype(np.int16)
        time: Any = times(units["store_timestamp"].astype(np.int64))
    else:
        kind = Named(is_pre_blank(units), ("queue_unit", "pre_blank")).arrow(pa.string())
        offset, size = (file.base + position) // units.dtype.itemsize, np.ones(count, np.int16)
        time = pa.nulls(count, TIME)
    columns = [
        kind, pa.repeat(pa.scalar(file.name), count), pa.array(position), pa.repeat(pa.scalar(unit.topic), count),
        pa.repeat(pa.scalar(unit.queue_id, pa.int32()), count), pa.array(offset),
        pa.array(units["physical_offset"].astype(np.int64)), pa.array(units["size"].astype(np.int32)),
        pa.array(units["tags_code"].astype(np.int64)), time, pa.array(size),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=UNIT_SCHEMA)


def _of_rocksdb(units: Iterator[RocksUnit]) -> Iterator[pa.RecordBatch]:
    while rows := list(islice(units, _ROWS)):
        made = [
            {
                "kind": "rocksdb_unit",
                "topic": u.topic,
                "queue_id": u.queue_id,
                "queue_offset": u.queue_offset,
                "physical_offset": u.physical_offset,
                "size": u.size,
                "tags_code": u.tags_code,
                "batch_size": 1,
            }
            for u in rows
        ]
        batch = pa.RecordBatch.from_pylist(made, schema=UNIT_SCHEMA)
        time = times(np.array([u.store_timestamp for u in rows], np.int64))
        yield batch.set_column(
            UNIT_SCHEMA.get_field_index("store_timestamp"), UNIT_SCHEMA.field("store_timestamp"), time
        )


# --- the table index_entries ------------------------------------------------------------------------


INDEX_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("number", pa.int32()),
        ("slot", pa.int32()),
        ("key_hash", pa.int32()),
        ("physical_offset", pa.int64()),
        ("time_difference", pa.int32()),
        ("store_timestamp", TIME),
        ("previous", pa.int32()),
    ]
)
"""Columns of entries, as ``dump`` has them; ``time_difference`` in seconds."""


@dataclass(frozen=True, slots=True)
class EntryRange:
    """Entries ``[first, end)`` of one index file."""

    tree: Tree
    entry: Entry
    geometry: IndexGeometry
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class IndexTable:
    """Index entries of a store."""

    options: TableOptions

    def schema(self) -> pa.Schema:
        """Return the columns, see :data:`INDEX_SCHEMA`."""
        return INDEX_SCHEMA

    def parts(self) -> list[EntryRange]:
        """Ranges of entries; of a file that the broker left ahead of its header all that were written."""
        store = self.options.store()
        geometry, step = index_geometry(store), max((self.options.split_size or SPLIT_SIZE) // ENTRY.packer.size, 1)
        found = []
        for entry in store.index_files:
            if not entry.is_directory:
                tree = alone(store.tree, entry.path)
                end = _end(tree, entry, geometry)
                found += [
                    EntryRange(tree, entry, geometry, first, min(first + step, end)) for first in range(1, end, step)
                ]
        return found

    def read(self, part: EntryRange) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a range."""
        file = IndexFile.open(part.tree, part.entry, part.geometry)
        try:
            for first in range(part.first, part.end, _ROWS):
                entries = file.entries(first, min(_ROWS, part.end - first))
                if not len(entries):
                    return
                yield _entry_batch(part, file.header["begin_timestamp"], first, entries)
        finally:
            file.close()


def _entry_batch(part: EntryRange, begin: int, first: int, entries: Entries) -> pa.RecordBatch:
    number = first + np.arange(len(entries))
    hashes, difference = entries["key_hash"].astype(np.int64), entries["time_difference"].astype(np.int64)
    # the first entry's difference is measured from another time (spec 4.4), its own time is the begin
    time = np.where(number == 1, begin, begin + difference * 1000)
    columns = [
        pa.repeat(pa.scalar(part.entry.path), len(entries)),
        pa.array(number.astype(np.int32)),
        pa.array((hashes % part.geometry.slots).astype(np.int32)),
        pa.array(hashes.astype(np.int32)),
        pa.array(entries["physical_offset"].astype(np.int64)),
        pa.array(difference.astype(np.int32)),
        times(time),
        pa.array(entries["previous"].astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=INDEX_SCHEMA)


def _end(tree: Tree, entry: Entry, geometry: IndexGeometry) -> int:
    """After the last entry: what the header says, or the last one that is not zero."""
    file = IndexFile.open(tree, entry, geometry)
    announced = min(max(file.header["index_count"], 1), geometry.entries)
    file.close()
    source = tree.open(entry.path)
    try:
        return max(announced, _last_used(source, geometry, announced) + 1)
    finally:
        source.close()


def _last_used(source: ByteSource, geometry: IndexGeometry, announced: int) -> int:
    begin, last = geometry.entry_at(0), 0
    end = min(source.size(), geometry.file_size)
    for position, units in chunks(source, ENTRY.dtype, geometry.entry_at(announced), end):
        rows = np.flatnonzero(used(units))
        if len(rows):
            last = (position - begin) // ENTRY.packer.size + int(rows[-1])
    return last
