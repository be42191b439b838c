"""What is built against what is there, file by file: what becomes of each, and where the two differ.

Queues in RocksDB are compared with the queue files that were built (spec 10.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.files.local import ByteSource, LocalFile
from rmqctl.rocketmq.dispatch.dispatched import Key
from rmqctl.rocketmq.dispatch.units import UNIT_SIZE
from rmqctl.rocketmq.index import index_entries
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Units, is_pre_blank
from rmqctl.rocketmq.queues.rocksdb import RocksUnit, sound_units
from rmqctl.rocketmq.rebuild.build import Built, queue_path
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, StoreFile, StoreFiles

CHUNK_UNITS = 1 << 15
_CHUNK = 1 << 20


class Change(StrEnum):
    """What becomes of a file: ``equal`` and ``keep`` leave it alone."""

    EQUAL = "equal"
    KEEP = "keep"
    CREATE = "create"
    REPLACE = "replace"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class FileDifference:
    """One file of the store.

    Attributes:
        file: relative to the root of the store.
        staged: the built file; None where nothing was built for it.
        why: one sentence.
        first: byte of the first difference; None without one.
        units: units or entries that differ; None where they are not counted.
        undispatched: physical offset of the first record whose unit is not there; -1 without one.
    """

    file: str
    change: Change
    why: str = ""
    staged: Path | None = None
    first: int | None = None
    units: int | None = None
    undispatched: int = -1

    def row(self) -> dict[str, object]:
        """As a JSON object."""
        return {
            "file": self.file,
            "change": str(self.change),
            "differing_units": self.units,
            "first_difference": self.first,
            "why": self.why,
        }


@dataclass(slots=True)
class Differences:
    """What differs in one queue file, in units.

    Attributes:
        missing, wrong, surplus: units that are not there, are others, or stand for no record.
        expired: units that stay as they are.
        first: number of the first unit that differs; None without one.
        undispatched: physical offset of the first record without a right unit; -1 without one.
    """

    missing: int = 0
    wrong: int = 0
    surplus: int = 0
    expired: int = 0
    first: int | None = None
    undispatched: int = -1

    @property
    def count(self) -> int:
        """Units that differ."""
        return self.missing + self.wrong + self.surplus

    def add(self, at: int, rows: npt.NDArray[np.int64], old: npt.NDArray[np.void], new: npt.NDArray[np.void]) -> None:
        """Note the rows that differ in pieces of both files that begin with unit ``at``."""
        if not len(rows):
            return
        is_old, is_new = old["size"][rows] != 0, new["size"][rows] != 0
        self.missing += int(np.count_nonzero(~is_old))
        self.surplus += int(np.count_nonzero(~is_new))
        self.wrong += int(np.count_nonzero(is_old & is_new))
        self.first = at + int(rows[0]) if self.first is None else self.first
        if self.undispatched < 0 and is_new.any():
            self.undispatched = int(new["physical_offset"][rows[is_new]][0])

    def why(self) -> str:
        """One sentence."""
        counts = ((self.missing, "missing"), (self.wrong, "wrong"), (self.surplus, "without a record"))
        parts = [f"{count:,} {what}" for count, what in counts if count]
        return f"units: {', '.join(parts)}"


def first_difference(old: ByteSource, new: ByteSource) -> int | None:
    """Return the first byte where two files differ, or where the shorter ends; None if they are equal."""
    try:
        if old.size() != new.size():
            return min(old.size(), new.size())
        for at, many in written(old, new, _CHUNK):
            a, b = old.read_at(at, many), new.read_at(at, many)
            if a != b:
                pairs = np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)
                return at + int(np.argmax(pairs))
        return None
    finally:
        old.close()
        new.close()


def first_record(source: ByteSource, dtype: np.dtype[np.void]) -> int:
    """Physical offset of the first record that a queue file points to; -1 without one."""
    try:
        for at, many in written(source, source, CHUNK_UNITS, dtype.itemsize):
            units = units_at(source, at, many, dtype)
            real = units["physical_offset"][(units["size"] > 0) & ~is_pre_blank(units)]
            if len(real):
                return int(real[0])
        return -1
    finally:
        source.close()


def written(old: ByteSource, new: ByteSource, most: int, unit: int = 1) -> Iterator[tuple[int, int]]:
    """Where either of two files of one size holds data, as (first unit, units), at most ``most`` at a time.

    Holes of both are left out: they are zero in both.

    Args:
        unit: bytes of a unit; what remains of the file after the last whole one is left out.
    """
    end, done = new.size() // unit, 0
    ranges = sorted(r for source in (old, new) for r in source.data_ranges(0, new.size()))
    for start, stop in ranges:
        done, stop = max(done, start // unit), min(-(-stop // unit), end)
        while done < stop:
            many = min(most, stop - done)
            yield done, many
            done += many


def units_at(source: ByteSource, first: int, count: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Units of a file from number ``first`` on, fewer where it ends."""
    data = source.read_at(first * dtype.itemsize, count * dtype.itemsize)
    return np.frombuffer(data, dtype, len(data) // dtype.itemsize)


def different(old: npt.NDArray[np.void], new: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Rows whose bytes differ."""
    size = old.dtype.itemsize
    a, b = (units.view(np.uint8).reshape(-1, size) for units in (old, new))
    found: npt.NDArray[np.int64] = np.flatnonzero((a != b).any(axis=1)) if (a != b).any() else np.zeros(0, np.int64)
    return found


# --- what is built against what is there ------------------------------------------------------------


@dataclass(slots=True)
class QueueComparison:
    """Compares the queue files of a store with those that were built.

    Args:
        log_begin, log_end: physical offsets of the first byte of the log and after its last record.
        looks_for_first: find the first record without a unit in files that are missing, too.
        delay_slack: see `rmqctl.rocketmq.dispatch.rules.DispatchRules`.
    """

    store: StoreFiles
    built: Built
    log_begin: int
    log_end: int
    looks_for_first: bool = False
    delay_slack: int = 0

    def changes(self, kinds: tuple[str, ...], topics: frozenset[bytes] | None) -> Iterator[FileDifference]:
        """One change for each file that is there or was built, by name."""
        built: dict[str, set[str]] = {}
        for name in self.built.queue_files:
            built.setdefault(name.rpartition("/")[0], set()).add(name)
        for directory, there in sorted(self._directories(kinds, topics, built)):
            yield from self._queue(directory, there, built.get(directory, set()))

    def _directories(
        self, kinds: tuple[str, ...], topics: frozenset[bytes] | None, built: dict[str, set[str]]
    ) -> Iterator[tuple[str, list[StoreFile]]]:
        seen = set()
        for kind in kinds:
            if kind == QUEUES and self.store.is_rocksdb:
                continue
            for queue in self.store.queues(kind):
                if topics is None or queue.topic.encode("utf-8", "surrogateescape") in topics:
                    seen.add(queue.path)
                    yield queue.path, queue.files()[0]
        yield from ((directory, []) for directory in built if directory not in seen)

    def _queue(self, directory: str, there: list[StoreFile], built: set[str]) -> Iterator[FileDifference]:
        if directory.startswith(f"{QUEUES}/") and self.store.in_database(directory.split("/")[1]):
            return
        if directory.startswith(f"{BATCH_QUEUES}/") and self._goes_on(there, built):
            why = "units of expired messages are kept as they are"
            yield from (FileDifference(file.name, Change.EQUAL, why) for file in there)
            return
        old = {f.name: f for f in there}
        begins = sorted(int(name.rpartition("/")[2]) for name in built)
        for name in sorted(built | set(old)):
            if name not in built:
                yield self._not_built(old[name], begins)
            elif name not in old:
                yield self._created(name)
            else:
                yield self._compared(old[name])

    def _goes_on(self, there: list[StoreFile], built: set[str]) -> bool:
        """Whether a batch queue holds what was built after units of expired messages.

        Its units may then lie elsewhere in the files: a batch unit says itself which queue offsets it has.
        """
        if not there or self.log_begin == 0:
            return False
        old = self._live([file.open() for file in there])
        new = self._live([LocalFile(self.built.root / name) for name in sorted(built)])
        return len(old) > 0 and np.array_equal(old, new)

    def _live(self, sources: list[ByteSource]) -> npt.NDArray[np.void]:
        """Units of a batch queue whose records are not expired."""
        found = [np.zeros(0, BATCH_UNIT)]
        for source in sources:
            try:
                for at, many in written(source, source, CHUNK_UNITS, BATCH_UNIT.itemsize):
                    units = units_at(source, at, many, BATCH_UNIT)
                    found.append(units[(units["size"] > 0) & (units["physical_offset"] >= self.log_begin)])
            finally:
                source.close()
        return np.concatenate(found, dtype=BATCH_UNIT)

    def _created(self, name: str) -> FileDifference:
        staged, dtype = self.built.root / name, self._dtype(name)
        first = -1 if dtype is None or not self.looks_for_first else first_record(LocalFile(staged), dtype)
        return FileDifference(name, Change.CREATE, "the file is missing", staged, undispatched=first)

    def _not_built(self, file: StoreFile, begins: list[int]) -> FileDifference:
        """Return a file of which the log says nothing: kept if it holds expired units only, for the queue's counter."""
        dtype = self._dtype(file.name)
        if dtype is None:
            return FileDifference(file.name, Change.REMOVE, "no unit of the queue has an extension")
        units = units_at(file.open(), 0, file.size // dtype.itemsize, dtype)
        written = units[units["size"] > 0]
        if not len(written):
            return FileDifference(file.name, Change.KEEP if not begins else Change.REMOVE, "the file holds no unit")
        last = int(written["physical_offset"].max())
        if last < self.log_begin and (not begins or file.base < begins[0]):
            return FileDifference(file.name, Change.KEEP, "its messages have expired; it keeps the queue's counter")
        if last < self.log_end and not begins:
            why = "its records are destroyed, and it keeps the queue's counter; mend the log first: rmqctl repair"
            return FileDifference(file.name, Change.KEEP, why)
        return FileDifference(file.name, Change.REMOVE, "its units have no records in the log", units=len(written))

    def _compared(self, file: StoreFile) -> FileDifference:
        staged = self.built.root / file.name
        dtype = self._dtype(file.name)
        if file.size != staged.stat().st_size:
            why = f"the file has {file.size} bytes and should have {staged.stat().st_size}"
            return FileDifference(file.name, Change.REPLACE, why, staged)
        if dtype is None:
            first = first_difference(file.open(), LocalFile(staged))
            change = Change.EQUAL if first is None else Change.REPLACE
            return FileDifference(file.name, change, "" if first is None else "extension units differ", staged, first)
        return self._byunits_at(file, staged, dtype)

    def _byunits_at(self, file: StoreFile, staged: Path, dtype: np.dtype[np.void]) -> FileDifference:
        old, new, found = file.open(), LocalFile(staged), Differences()
        try:
            for at, many in written(old, new, CHUNK_UNITS, dtype.itemsize):
                a, b = (units_at(s, at, many, dtype) for s in (old, new))
                rows = different(a, b)
                if self.delay_slack and file.name.startswith(f"{QUEUES}/{SCHEDULE_TOPIC}/"):
                    rows = rows[~self._is_as_due(a[rows], b[rows])]
                past = self._is_expired(a[rows], b[rows])
                found.expired += int(np.count_nonzero(past))
                found.add(at, rows[~past], a, b)
        finally:
            old.close()
            new.close()
        if found.first is None:
            why = f"{found.expired} units of expired messages are kept as they are" if found.expired else ""
            return FileDifference(file.name, Change.EQUAL, why, staged)
        place = found.first * dtype.itemsize
        return FileDifference(file.name, Change.REPLACE, found.why(), staged, place, found.count, found.undispatched)

    def _is_as_due(self, old: npt.NDArray[np.void], new: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Units of the same record whose delivery times are as near as a broker of the release may leave them."""
        same = (old["physical_offset"] == new["physical_offset"]) & (old["size"] == new["size"])
        apart = np.abs(old["tags_code"].astype(np.int64) - new["tags_code"].astype(np.int64))
        found: npt.NDArray[np.bool_] = same & (apart <= self.delay_slack)
        return found

    def _is_expired(self, old: npt.NDArray[np.void], new: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Units whose record is before the log, where only filler could be built."""
        before = (old["physical_offset"] < self.log_begin) & (old["physical_offset"] >= 0) & (old["size"] > 0)
        found: npt.NDArray[np.bool_] = before & is_pre_blank(new)
        return found

    def _dtype(self, name: str) -> np.dtype[np.void] | None:
        kind = name.partition("/")[0]
        return UNIT if kind == QUEUES else BATCH_UNIT if kind == BATCH_QUEUES else None


def index_changes(store: StoreFiles, built: Built, names: list[str], kept: int) -> Iterator[FileDifference]:
    """Index files in the order of the log: those that are there by name, those that were built under ``names``.

    Args:
        kept: so many of the first ones stay: their messages have expired.
    """
    there = index_entries(store)
    for entry in there[:kept]:
        yield FileDifference(entry.path, Change.KEEP, "its messages have expired; the next file goes on after it")
    there = there[kept:]
    for number, staged in enumerate(built.index_paths):
        if number >= len(there):
            yield FileDifference(f"index/{names[number]}", Change.CREATE, "the file is missing", staged)
            continue
        path = there[number].path
        if there[number].is_dangling:
            yield FileDifference(path, Change.REPLACE, "it is a link that leads nowhere", staged, 0)
            continue
        first = first_difference(store.tree.open(path), LocalFile(staged))
        if first is None:
            yield FileDifference(path, Change.EQUAL, "", staged)
        else:
            yield FileDifference(path, Change.REPLACE, "header, slots or entries differ", staged, first)
    for entry in there[len(built.index_paths) :]:
        yield FileDifference(entry.path, Change.REMOVE, "the log has no keys for it")


# --- queues in rocksdb against the queue files that were built --------------------------------------


_ROCKSDB_CHUNK = 1 << 14


def rocksdb_changes(
    store: StoreFiles, built: Built, log_begin: int, topics: frozenset[bytes] | None
) -> Iterator[FileDifference]:
    """One change for each queue, named by its directory: equal, or to be replaced with what differs.

    Raises:
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
            yield FileDifference(queue_path(QUEUES, key), Change.REPLACE, why, units=missing + wrong)
        else:
            yield FileDifference(queue_path(QUEUES, key), Change.EQUAL)
    for key in sorted(built.queues.simple.keys() - right.keys()):
        count = _StagedQueue(built.root / queue_path(QUEUES, key), built.queues.sizes.queue).count()
        why = f"none of its {count} records has a unit in RocksDB"
        yield FileDifference(queue_path(QUEUES, key), Change.CREATE, why, units=count)


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
        """Return the unit of a queue offset; None where no file was built."""
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
        count = min(_ROCKSDB_CHUNK, (base + self._file_size - position) // UNIT_SIZE)
        self._first = offset
        self._units = np.fromfile(path, UNIT, count, offset=position - base) if path.exists() else np.zeros(0, UNIT)


def _real(units: Units) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (units["size"] > 0) & ~is_pre_blank(units)
    return found


def _name(topic: str) -> bytes:
    return topic.encode("utf-8", "surrogateescape")
