"""Queues in RocksDB against the queue files that were built (spec 10.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.dispatch.dispatched import Key
from rmqctl.rocketmq.dispatch.queue_units import UNIT_SIZE
from rmqctl.rocketmq.queue_files import UNIT, Units, is_pre_blank
from rmqctl.rocketmq.rebuild.build import Built
from rmqctl.rocketmq.rebuild.differences import Change, FileChange
from rmqctl.rocketmq.rebuild.staging import queue_path
from rmqctl.rocketmq.rocksdb_queues import RocksUnit, sound_units
from rmqctl.rocketmq.store import QUEUES, RocketMQStore

_CHUNK = 1 << 14


def rocksdb_changes(
    store: RocketMQStore, built: Built, log_begin: int, topics: frozenset[bytes] | None
) -> Iterator[FileChange]:
    """One change for each queue, named by its directory: equal, or to be replaced with what differs.

    Raises:
        OSError: a built file cannot be read.
        MissingExtra: RocksDB's package is not installed.
    """
    right: dict[Key, int] = {}
    for key, units in groupby(sound_units(store), key=lambda u: (_name(u.topic), u.queue_id)):
        if topics is not None and key[0] not in topics:
            continue
        queue = _StagedQueue(built.root / queue_path(QUEUES, key), built.queues.sizes.queue)
        found, wrong = _count((u for u in units if u.physical_offset >= log_begin), queue)
        right[key] = found
        missing = queue.count() - found
        if missing or wrong:
            why = f"{missing} records have no unit in RocksDB, {wrong} units there have no record"
            yield FileChange(queue_path(QUEUES, key), Change.REPLACE, why, units=missing + wrong)
        else:
            yield FileChange(queue_path(QUEUES, key), Change.EQUAL)
    for key in sorted(built.queues.simple.keys() - right.keys()):
        count = _StagedQueue(built.root / queue_path(QUEUES, key), built.queues.sizes.queue).count()
        why = f"none of its {count} records has a unit in RocksDB"
        yield FileChange(queue_path(QUEUES, key), Change.CREATE, why, units=count)


def _count(units: Iterable[RocksUnit], queue: _StagedQueue) -> tuple[int, int]:
    """How many units equal the built ones, and how many do not."""
    right = wrong = 0
    for unit in units:
        if queue.unit(unit.queue_offset) == (unit.physical_offset, unit.size, unit.tags_code):
            right += 1
        else:
            wrong += 1
    return right, wrong


class _StagedQueue:
    """A queue as it was built, read a piece at a time."""

    def __init__(self, directory: Path, file_size: int) -> None:
        self._directory, self._file_size = directory, file_size
        self._first, self._units = -1, np.zeros(0, UNIT)

    def unit(self, offset: int) -> tuple[int, ...] | None:
        """The unit of a queue offset; None where no file was built."""
        if not self._first <= offset < self._first + len(self._units):
            self._load(offset)
        at = offset - self._first
        return tuple(self._units[at].tolist()) if 0 <= at < len(self._units) else None

    def count(self) -> int:
        """Units that stand for a record."""
        files = self._directory.iterdir() if self._directory.is_dir() else ()
        return sum(int(np.count_nonzero(_real(np.fromfile(f, UNIT)))) for f in files)

    def _load(self, offset: int) -> None:
        position = offset * UNIT_SIZE
        base = position - position % self._file_size
        path = self._directory / f"{base:020d}"
        count = min(_CHUNK, (base + self._file_size - position) // UNIT_SIZE)
        self._first = offset
        self._units = np.fromfile(path, UNIT, count, offset=position - base) if path.exists() else np.zeros(0, UNIT)


def _real(units: Units) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (units["size"] > 0) & ~is_pre_blank(units)
    return found


def _name(topic: str) -> bytes:
    return topic.encode("utf-8", "surrogateescape")
