"""One queue as a broker of a release has it once it has started on the store: where every query by queue begins.

The start of the broker is replayed (spec 6): it cuts units and makes others. Of a store whose broker runs, and of one
that no broker would start on, the disk is shown, and so it is where a user asks for the files as they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from formats.rocketmq.rocksdb import LARGEST_OFFSET
from rmqctl.files.local import BytesSource
from rmqctl.release import Release
from rmqctl.rocketmq.log.record import HOST_SHIFT, VARIANTS, LogReader, flags_of, head_offset, head_size
from rmqctl.rocketmq.query.units import BATCH_UNIT_SIZE, UNIT_SIZE, Unit, UnitFile
from rmqctl.rocketmq.queues.files import RECOVERED_FILES
from rmqctl.rocketmq.queues.ranges import minimum_4, minimum_5
from rmqctl.rocketmq.queues.rocksdb import QueueDatabase
from rmqctl.rocketmq.recovery.databases import RocksQueueImage
from rmqctl.rocketmq.recovery.images import FileImage, QueueImage
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.store.files import BATCH_QUEUES, OFFSET_DIGITS, QUEUES, QueueFiles, StoreFiles

RELEASE_5 = Release(5, 0, 0)
_LARGEST_HEAD = max(map(head_size, range(VARIANTS)))


@dataclass(slots=True)
class QueueView:
    """A queue with its log. Use as a context manager.

    Attributes:
        files: ascending; every unit in them counts.
        min_offset, max_offset: as the broker answers them.
        log_end: where the broker would write the next record, or the end of the last file where nobody looked.
        is_sound: nothing had to be worked out; the files on disk are the queue.
    """

    started: RecoveredStore
    topic: str
    queue_id: int
    files: list[UnitFile] = field(default_factory=list)
    is_batch: bool = False
    min_offset: int = 0
    max_offset: int = 0
    log_end: int = 0
    is_sound: bool = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files of the queue; the log stays open for the next one."""
        for file in self.files:
            file.close()

    @property
    def store(self) -> StoreFiles:
        """The store it is a queue of."""
        return self.started.store

    @property
    def release(self) -> Release:
        """Whose rules hold."""
        return self.started.release

    @property
    def log(self) -> LogReader:
        """The log of the store."""
        return self.started.log

    @property
    def name(self) -> str:
        """``TOPIC/QUEUE``."""
        return f"{self.topic}/{self.queue_id}"

    @property
    def is_5(self) -> bool:
        """Whether the rules of 5.x hold."""
        return self.release >= RELEASE_5

    @property
    def log_begin(self) -> int:
        """Physical offset of the log's first byte."""
        return self.log.min_offset

    @property
    def unit_size(self) -> int:
        """Bytes of a unit in the file sequence."""
        return BATCH_UNIT_SIZE if self.is_batch else UNIT_SIZE

    def at(self, queue_offset: int) -> tuple[UnitFile, int] | None:
        """Return the file with the unit of a queue offset and the unit's number there; None where none lies."""
        return self._batch_at(queue_offset) if self.is_batch else self._simple_at(queue_offset)

    def _simple_at(self, queue_offset: int) -> tuple[UnitFile, int] | None:
        position = queue_offset * UNIT_SIZE
        for file in self.files:
            if file.base <= position < file.base + len(file) * UNIT_SIZE:
                return file, (position - file.base) // UNIT_SIZE
        return None

    def _batch_at(self, queue_offset: int) -> tuple[UnitFile, int] | None:
        """Return the last unit whose base is not after the offset (BatchConsumeQueue.getBatchMsgIndexBuffer)."""
        if queue_offset >= self.max_offset:
            return None
        for file in reversed(self.files):
            if len(file) and file.unit(0).queue_offset <= queue_offset:
                low, high = 0, len(file) - 1
                while low < high:
                    middle = (low + high + 1) // 2
                    if file.unit(middle).queue_offset <= queue_offset:
                        low = middle
                    else:
                        high = middle - 1
                return file, low
        return None

    def store_time(self, unit: Unit) -> int:
        """Store time of the unit's record in ms, -1 where it cannot be read (CommitLog.pickupStoreTimestamp).

        The record is not verified, as a broker does not do it either.
        """
        if unit.physical_offset < self.log_begin or not self.is_readable(unit):
            return -1
        data = self.log.read(unit.physical_offset, _LARGEST_HEAD)
        at = head_offset("store_timestamp", flags_of(data) >> HOST_SHIFT & 3)
        return int.from_bytes(data[at : at + 8], "big", signed=True) if len(data) >= at + 8 else -1

    def is_readable(self, unit: Unit) -> bool:
        """Whether a broker can read the unit's bytes: inside one file of the log, in front of its end."""
        file = self.log.file_of(unit.physical_offset)
        end = unit.physical_offset + unit.size
        return file is not None and unit.size > 0 and end <= min(file.base + file.size, self.log_end)

    def bytes_from(self, queue_offset: int) -> int:
        """Bytes of the records from a queue offset on."""
        place = self.at(queue_offset)
        if place is None:
            return 0
        rest = self.files[self.files.index(place[0]) + 1 :]
        return place[0].bytes_from(place[1]) + sum(file.bytes_from(0) for file in rest)

    def last_unit(self) -> Unit | None:
        """Return the last unit of all; None in a queue without one."""
        file = next((f for f in reversed(self.files) if len(f)), None)
        return file.unit(len(file) - 1) if file else None


def open_queue(started: RecoveredStore, topic: str, queue_id: int) -> QueueView:
    """Return the queue; without files and units where there is none.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    view = queue_on_disk(started, topic, queue_id)
    if not started.replays:
        return view
    from rmqctl.rocketmq.query.queue_view import queue_after_start

    recovered = queue_after_start(view)
    if recovered is None:
        return view
    view.close()
    return recovered


def queue_on_disk(started: RecoveredStore, topic: str, queue_id: int) -> QueueView:
    """Return the queue as it lies on disk, or in the database.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    view = QueueView(started, topic, queue_id, log_end=started.log.max_offset)
    if started.store.in_database(topic):
        from rmqctl.rocketmq.query.queue_view import fill_from_database

        fill_from_database(view)
    else:
        _fill_from_files(view)
    return view


def _fill_from_files(view: QueueView) -> None:
    view.files = _files(view, QUEUES)
    if not view.files:
        view.files = _files(view, BATCH_QUEUES)
        view.is_batch = bool(view.files)
    _cut_unwritten(view)
    set_range(view)


def _files(view: QueueView, kind: str) -> list[UnitFile]:
    path = f"{kind}/{view.topic}/{view.queue_id}"
    files, _ = QueueFiles(kind, view.topic, view.queue_id, path, view.store.tree).files()
    return [UnitFile.of(file, is_batch=kind == BATCH_QUEUES) for file in files]


def _cut_unwritten(view: QueueView) -> None:
    """Find the end as a broker does when it loads the queue: in the last three files (ConsumeQueue.recover)."""
    for number in range(max(len(view.files) - RECOVERED_FILES, 0), len(view.files)):
        if not view.files[number].cut():
            del view.files[number + 1 :]
            return


def hole_before(disk: QueueView, queue_offset: int) -> int | None:
    """Return the offset of an empty unit at which the queue ends for a broker, though units follow it on disk up to
    this one.
    """
    if disk.is_batch or disk.store.in_database(disk.topic):
        return None
    position = queue_offset * UNIT_SIZE
    with_unit = next((f for f in _files(disk, QUEUES) if f.base <= position < f.base + f.capacity * UNIT_SIZE), None)
    if with_unit is None or not disk.files:
        return None
    later = (with_unit.unit(n) for n in range((position - with_unit.base) // UNIT_SIZE, len(with_unit)))
    is_hole = queue_offset >= disk.max_offset and any(u.size > 0 and u.physical_offset >= 0 for u in later)
    with_unit.close()
    return disk.max_offset if is_hole else None


def set_range(view: QueueView) -> None:
    """Smallest and next offset from the units (spec 3.9, 6.6)."""
    filled = [file for file in view.files if len(file)]
    last = view.last_unit()
    if last is None:
        view.max_offset = view.files[-1].base // UNIT_SIZE if view.files and not view.is_batch else 0
        view.min_offset = -1 if view.is_batch else 0
        return
    if view.is_batch:
        view.max_offset = last.queue_offset + last.count
        view.min_offset = _batch_minimum(filled[0], view.log_begin)
        return
    view.max_offset = filled[-1].base // UNIT_SIZE + len(filled[-1])
    first = view.files[0]
    head = (lambda number: first.unit(number).physical_offset), len(first), first.base // UNIT_SIZE
    view.min_offset = (
        minimum_5(*head, last.physical_offset, view.max_offset, view.log_begin)
        if view.is_5
        else minimum_4(*head, view.log_begin)
    )


def _batch_minimum(first: UnitFile, log_begin: int) -> int:
    """Return the first base offset, after the units of the first file whose record is before the log."""
    minimum = first.unit(0).queue_offset
    for unit in first:
        if unit.physical_offset >= log_begin:
            break
        minimum = unit.queue_offset + unit.count
    return minimum


# --- a queue in RocksDB ----------------------------------------------------------------------------------


_NO_UNIT = -1


@dataclass(slots=True)
class DatabaseUnits(UnitFile):
    """The units of a queue in the database, as one file without an end."""

    database: QueueDatabase | None = None
    topic: str = ""
    queue_id: int = 0

    def unit(self, number: int) -> Unit:
        """Return unit ``number`` from the queue's first on; one that is not there has size 0."""
        assert self.database is not None
        offset = self.base // UNIT_SIZE + number
        found = self.database.unit(self.topic, self.queue_id, offset)
        if found is None:
            return Unit(offset, _NO_UNIT, 0, 0)
        return Unit(offset, found.physical_offset, found.size, found.tags_code, found.store_timestamp)

    def bytes_from(self, number: int) -> int:
        """Bytes of the records that the units from a number on stand for."""
        assert self.database is not None
        units = self.database.units_of(self.topic, self.queue_id, self.base // UNIT_SIZE + number)
        return sum(unit.size for unit in units)

    def close(self) -> None:
        """Leave the database open; it belongs to the store."""


def fill_from_database(view: QueueView) -> None:
    """Fill in the queue as it lies in the database.

    Raises:
        MissingExtra: the package rocksdict is not installed.
    """
    database = view.started.database
    first = next(database.units_of(view.topic, view.queue_id), None)
    last = database.last_unit(view.topic, view.queue_id)
    if first is None or last is None:
        return
    count = last.queue_offset - first.queue_offset + 1
    file = DatabaseUnits(
        f"{view.store.queue_database} (RocksDB)", first.queue_offset * UNIT_SIZE, count, count, 0,
        database=database, topic=view.topic, queue_id=view.queue_id,
    )  # fmt: skip
    view.files, view.max_offset = [file], last.queue_offset + 1
    live = _first_live(file, view.log_begin)
    view.min_offset = view.max_offset if live is None else first.queue_offset + live


def _first_live(file: DatabaseUnits, log_begin: int) -> int | None:
    """Return the number of the first unit that is not before the log (binarySearchInCQ)."""
    low, high, found = 0, len(file) - 1, None
    while high >= low:
        middle = (low + high) // 2
        if file.unit(middle).physical_offset >= log_begin:
            high, found = middle - 1, middle
        else:
            low = middle + 1
    return found


# --- a queue after a start -------------------------------------------------------------------------------


def queue_after_start(disk: QueueView) -> QueueView | None:
    """Return the queue after a start; None where the broker does not start.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    found = disk.started.recovery
    if not found.starts or found.end is None:
        return None
    image = disk.started.images.get((disk.topic, disk.queue_id))
    view = QueueView(disk.started, disk.topic, disk.queue_id, log_end=found.end, is_sound=False)
    if image is not None:
        view.is_sound = not (image.removed or image.appended or image.lost or image.refused or image.blank)
        view.is_batch = image.key[0] == BATCH_QUEUES
        view.files = _database_units(view, image) if isinstance(image, RocksQueueImage) else _image_files(image)
        view.min_offset, view.max_offset = image.min_offset, image.max_offset
    return view


def _image_files(image: QueueImage) -> list[UnitFile]:
    return [_file(image, file) for file in image.files]


def _file(image: QueueImage, file: FileImage) -> UnitFile:
    """Return a file as it is on disk, or with what the start writes into it; that makes its modification time new."""
    size, count = image.unit_size, file.wrote // image.unit_size
    is_batch = image.key[0] == BATCH_QUEUES
    if file.file is not None and not file.written:
        found = UnitFile.of(file.file, is_batch=is_batch)
        found.stored = count
        return found
    name = file.file.name if file.file is not None else f"{image.directory}/{file.base:0{OFFSET_DIGITS}d}"
    content = BytesSource(file.units(image.dtype).tobytes(), name)
    return UnitFile(name, file.base, file.size // size, count, None, is_batch, content)


@dataclass(slots=True)
class RecoveredUnits(UnitFile):
    """The units of a RocksDB queue after a start, as one file without an end."""

    view: QueueView | None = None
    image: RocksQueueImage | None = None

    def unit(self, number: int) -> Unit:
        """Return unit ``number`` from the queue's first on; one that is not there has size 0."""
        offset = self.base // UNIT_SIZE + number
        units = next(self._units(offset, offset), None)
        physical, size = _NO_UNIT, 0
        if units is not None:
            physical, size = int(units["physical_offset"][0]), int(units["size"][0])
        stored = self.view.log.store_timestamp(physical) if self.view is not None and size else None
        return Unit(offset, physical, size, None, stored)

    def bytes_from(self, number: int) -> int:
        """Bytes of the records that the units from a number on stand for."""
        return sum(int(units["size"].sum()) for units in self._units(self.base // UNIT_SIZE + number))

    def _units(self, first: int, last: int = LARGEST_OFFSET) -> Iterator[npt.NDArray[np.void]]:
        assert self.view is not None
        assert self.image is not None
        return self.image.units(self.view.started.database, first, last)


def _database_units(view: QueueView, image: RocksQueueImage) -> list[UnitFile]:
    units = next(image.units(view.started.database), None)
    if units is None:
        return []
    first = int(units["queue_offset"][0])
    count = image.max_offset - first
    name = f"{view.store.queue_database} (RocksDB, after the start of a broker)"
    return [RecoveredUnits(name, first * UNIT_SIZE, count, count, None, view=view, image=image)]
