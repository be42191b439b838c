"""The table ``queue_units``: the units of consume queues, batch queues and RocksDB queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from rmqctl.pipeline.log_parts import SPLIT_SIZE
from rmqctl.pipeline.options import TableOptions
from rmqctl.pipeline.texts import TIME, by_value, times
from rmqctl.rocketmq.queue_files import BATCH_UNIT, UNIT, Units, is_pre_blank
from rmqctl.rocketmq.rocksdb_queues import RocksUnit, rocksdb_units
from rmqctl.rocketmq.rows.units import chunks, used
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, QueueFiles, RocketMQStore, StoreFile

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
    rocksdb: RocketMQStore | None = None


@dataclass(frozen=True, slots=True)
class UnitTable:
    """Units of a store."""

    options: TableOptions

    def schema(self) -> pa.Schema:
        """The columns, see :data:`UNIT_SCHEMA`."""
        return UNIT_SCHEMA

    def parts(self) -> list[list[UnitFile]]:
        """Queue files, as many in a part as make a split.

        Raises:
            OSError: a directory cannot be read.
        """
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

    def _files(self, store: RocketMQStore) -> Iterator[UnitFile]:
        for kind in (QUEUES, BATCH_QUEUES):
            if not (store.is_rocksdb and kind == QUEUES):
                for queue in store.queues(kind):
                    if self._wants(queue.topic, queue.queue_id):
                        yield from _unit_files(queue)

    def _wants(self, topic: str, queue_id: int) -> bool:
        wanted = self.options.wanted
        return (not wanted.topics or topic in wanted.topics) and wanted.queue_id in {None, queue_id}

    def read(self, part: list[UnitFile]) -> Iterator[pa.RecordBatch]:
        """The units of some files; zeros are room and left out.

        Raises:
            OSError: a file cannot be read.
        """
        for unit in part:
            if unit.file is not None:
                yield from _of_file(unit, unit.file)
            elif unit.rocksdb is not None:
                units = (u for u in rocksdb_units(unit.rocksdb) if self._wants(u.topic, u.queue_id))
                yield from _of_rocksdb(units)


def _unit_files(queue: QueueFiles) -> Iterator[UnitFile]:
    for file in queue.files()[0]:
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
        kind = by_value(is_pre_blank(units).astype(np.int8), ("queue_unit", "pre_blank").__getitem__)
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
