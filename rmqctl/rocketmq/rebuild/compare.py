"""What is built against what is there, file by file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rmqctl.files.local import LocalFile
from rmqctl.files.source import ByteSource
from rmqctl.files.tree import Entry
from rmqctl.rocketmq.index_files import NAME_DIGITS
from rmqctl.rocketmq.queue_files import BATCH_UNIT, UNIT, is_pre_blank
from rmqctl.rocketmq.rebuild.build import Built
from rmqctl.rocketmq.rebuild.differences import (
    CHUNK_UNITS,
    Change,
    Differences,
    FileChange,
    different,
    first_difference,
    first_record,
    units_at,
    written,
)
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, RocketMQStore, StoreFile


@dataclass(slots=True)
class QueueComparison:
    """Compares the queue files of a store with those that were built.

    Args:
        log_begin, log_end: physical offsets of the first byte of the log and behind its last record.
        looks_for_first: find the first record without a unit in files that are missing, too.
    """

    store: RocketMQStore
    built: Built
    log_begin: int
    log_end: int
    looks_for_first: bool = False

    def changes(self, kinds: tuple[str, ...], topics: frozenset[bytes] | None) -> Iterator[FileChange]:
        """One change for each file that is there or was built, by name.

        Raises:
            OSError: a file or directory cannot be read.
        """
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

    def _queue(self, directory: str, there: list[StoreFile], built: set[str]) -> Iterator[FileChange]:
        if directory.startswith(f"{QUEUES}/") and self.store.in_database(directory.split("/")[1]):
            return
        if directory.startswith(f"{BATCH_QUEUES}/") and self._goes_on(there, built):
            why = "units of expired messages are kept as they are"
            yield from (FileChange(file.name, Change.EQUAL, why) for file in there)
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
        """Whether a batch queue holds what was built behind units of expired messages.

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

    def _created(self, name: str) -> FileChange:
        staged, dtype = self.built.root / name, self._dtype(name)
        first = -1 if dtype is None or not self.looks_for_first else first_record(LocalFile(staged), dtype)
        return FileChange(name, Change.CREATE, "the file is missing", staged, undispatched=first)

    def _not_built(self, file: StoreFile, begins: list[int]) -> FileChange:
        """A file of which the log says nothing: kept if it holds expired units only, for the queue's counter."""
        dtype = self._dtype(file.name)
        if dtype is None:
            return FileChange(file.name, Change.REMOVE, "no unit of the queue has an extension")
        units = units_at(file.open(), 0, file.size // dtype.itemsize, dtype)
        written = units[units["size"] > 0]
        if not len(written):
            return FileChange(file.name, Change.KEEP if not begins else Change.REMOVE, "the file holds no unit")
        last = int(written["physical_offset"].max())
        if last < self.log_begin and (not begins or file.base < begins[0]):
            return FileChange(file.name, Change.KEEP, "its messages have expired; it keeps the queue's counter")
        if last < self.log_end and not begins:
            why = "its records are destroyed, and it keeps the queue's counter; mend the log first: rmqctl repair"
            return FileChange(file.name, Change.KEEP, why)
        return FileChange(file.name, Change.REMOVE, "its units have no records in the log", units=len(written))

    def _compared(self, file: StoreFile) -> FileChange:
        staged = self.built.root / file.name
        dtype = self._dtype(file.name)
        if file.size != staged.stat().st_size:
            why = f"the file has {file.size} bytes and should have {staged.stat().st_size}"
            return FileChange(file.name, Change.REPLACE, why, staged)
        if dtype is None:
            first = first_difference(file.open(), LocalFile(staged))
            change = Change.EQUAL if first is None else Change.REPLACE
            return FileChange(file.name, change, "" if first is None else "extension units differ", staged, first)
        return self._byunits_at(file, staged, dtype)

    def _byunits_at(self, file: StoreFile, staged: Path, dtype: np.dtype[np.void]) -> FileChange:
        old, new, found = file.open(), LocalFile(staged), Differences()
        try:
            for at, many in written(old, new, CHUNK_UNITS, dtype.itemsize):
                a, b = (units_at(s, at, many, dtype) for s in (old, new))
                rows = different(a, b)
                past = self._is_expired(a[rows], b[rows])
                found.expired += int(np.count_nonzero(past))
                found.add(at, rows[~past], a, b)
        finally:
            old.close()
            new.close()
        if found.first is None:
            why = f"{found.expired} units of expired messages are kept as they are" if found.expired else ""
            return FileChange(file.name, Change.EQUAL, why, staged)
        place = found.first * dtype.itemsize
        return FileChange(file.name, Change.REPLACE, found.why(), staged, place, found.count, found.undispatched)

    def _is_expired(self, old: npt.NDArray[np.void], new: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Units whose record is before the log, where only filler could be built."""
        before = (old["physical_offset"] < self.log_begin) & (old["physical_offset"] >= 0) & (old["size"] > 0)
        found: npt.NDArray[np.bool_] = before & is_pre_blank(new)
        return found

    def _dtype(self, name: str) -> np.dtype[np.void] | None:
        kind = name.partition("/")[0]
        return UNIT if kind == QUEUES else BATCH_UNIT if kind == BATCH_QUEUES else None


def index_entries(store: RocketMQStore) -> list[Entry]:
    """Index files, ascending; files that are not named by 17 digits are left alone."""
    return [e for e in store.index_files if not e.is_directory and e.name.isdigit() and len(e.name) == NAME_DIGITS]


def index_changes(store: RocketMQStore, built: Built, names: list[str]) -> Iterator[FileChange]:
    """Index files in the order of the log: those that are there by name, those that were built under ``names``.

    Raises:
        OSError: a file cannot be read.
    """
    there = index_entries(store)
    for number, staged in enumerate(built.index_paths):
        if number >= len(there):
            yield FileChange(f"index/{names[number]}", Change.CREATE, "the file is missing", staged)
            continue
        path = there[number].path
        first = first_difference(store.tree.open(path), LocalFile(staged))
        if first is None:
            yield FileChange(path, Change.EQUAL, "", staged)
        else:
            yield FileChange(path, Change.REPLACE, "header, slots or entries differ", staged, first)
    for entry in there[len(built.index_paths) :]:
        yield FileChange(entry.path, Change.REMOVE, "the log has no keys for it")
