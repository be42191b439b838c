"""One queue of a RocksDB store, and its search by time (spec 10.1; RocksDBConsumeQueueStore and -Table of 5.2.0 on).

One queue as the start of a broker leaves it, out of the replay of that start (`rmqctl.rocketmq.recovery`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqctl.files.local import BytesSource
from rmqctl.release import Release
from rmqctl.rocketmq.query.queue_view import QueueView
from rmqctl.rocketmq.query.steps import Trace
from rmqctl.rocketmq.query.time import Boundary
from rmqctl.rocketmq.query.units import UNIT_SIZE, Unit, UnitFile
from rmqctl.rocketmq.queues.rocksdb import QueueDatabase
from rmqctl.rocketmq.recovery.images import FileImage, QueueImage, RocksQueueImage
from rmqctl.rocketmq.recovery.queue_ends import image_of
from rmqctl.rocketmq.store.files import BATCH_QUEUES, OFFSET_DIGITS

BOUNDARIES_SINCE = Release(5, 3, 0)
"""First release whose RocksDB queues know boundary types; 5.2.0 answers with the nearer neighbour."""
_NO_UNIT = -1


@dataclass(slots=True)
class DatabaseUnits(UnitFile):
    """The units of a queue in the database, as one file without an end."""

    database: QueueDatabase | None = None
    topic: str = ""
    queue_id: int = 0

    def unit(self, number: int) -> Unit:
        """Unit ``number`` from the queue's first on; one that is not there has size 0."""
        assert self.database is not None
        offset = self.base // UNIT_SIZE + number
        found = self.database.unit(self.topic, self.queue_id, offset)
        if found is None:
            return Unit(offset, _NO_UNIT, 0, 0)
        return Unit(offset, found.physical_offset, found.size, found.tags_code, found.store_timestamp)

    def bytes_from(self, number: int) -> int:
        """Bytes of the records that the units from a number on stand for."""
        return sum(self.unit(n).size for n in range(number, len(self)))

    def close(self) -> None:
        """The database stays open; it belongs to the store."""


def fill_from_database(view: QueueView) -> None:
    """The queue as it lies in the database.

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
    """Number of the first unit that is not before the log (binarySearchInCQ)."""
    low, high, found = 0, len(file) - 1, None
    while high >= low:
        middle = (low + high) // 2
        if file.unit(middle).physical_offset >= log_begin:
            high, found = middle - 1, middle
        else:
            low = middle + 1
    return found


def offset_by_time_in_database(view: QueueView, time: int, boundary: Boundary, trace: Trace) -> int:
    """What a broker with RocksDB queues answers (``binarySearchInCQByTime``); not limited to [min, max].

    Raises:
        MissingExtra: the package rocksdict is not installed.
    """
    if not view.files or not view.max_offset:
        return 0
    file = view.files[0]
    floor, ceiling = view.min_offset - file.base // UNIT_SIZE, len(file) - 1
    nearest = view.release < BOUNDARIES_SINCE
    edge = None if nearest else _beyond_edges(file, (floor, ceiling), time, boundary)
    if edge is not None:
        trace.add(file.name, f"offset {edge}", f"{time} lies outside the times of the queue")
        return edge
    return _search(view, file, (floor, ceiling), time, boundary, trace, nearest=nearest)


def _beyond_edges(file: UnitFile, edges: tuple[int, int], time: int, boundary: Boundary) -> int | None:
    floor, ceiling = edges
    last = file.unit(ceiling)
    if last.size and (last.store_timestamp or 0) < time:
        return last.queue_offset + (1 if boundary is Boundary.LOWER else 0)
    first = file.unit(floor) if floor <= ceiling else last
    if floor <= ceiling and first.size and (first.store_timestamp or 0) > time:
        return first.queue_offset if boundary is Boundary.LOWER else 0
    return None


def _search(
    view: QueueView,
    file: UnitFile,
    edges: tuple[int, int],
    time: int,
    boundary: Boundary,
    trace: Trace,
    *,
    nearest: bool,
) -> int:
    (low, high), left, right = edges, None, None
    while high >= low:
        unit = file.unit((low + high) // 2)
        middle, stored = (low + high) // 2, unit.store_timestamp
        trace.add(file.name, f"unit {unit.queue_offset}", f"stored at {stored}" if unit.size else "is not there")
        if not unit.size or unit.physical_offset < view.log_begin:
            low, left = middle + 1, unit if unit.size else left
        elif stored is None or stored < 0:
            return 0
        elif stored == time:
            return unit.queue_offset if nearest else _last_equal(file, middle, edges, time, boundary)
        elif stored > time:
            high, right = middle - 1, unit
        else:
            low, left = middle + 1, unit
    if nearest:
        return _nearer(left, right, time)
    chosen = right if boundary is Boundary.LOWER else left
    return -1 if chosen is None else chosen.queue_offset


def _nearer(left: Unit | None, right: Unit | None, time: int) -> int:
    if left is None or right is None:
        only = left or right
        return -1 if only is None else only.queue_offset
    nearer = right if time - (left.store_timestamp or 0) > (right.store_timestamp or 0) - time else left
    return nearer.queue_offset


def _last_equal(file: UnitFile, found: int, edges: tuple[int, int], time: int, boundary: Boundary) -> int:
    step = -1 if boundary is Boundary.LOWER else 1
    while edges[0] <= found + step <= edges[1] and file.unit(found + step).store_timestamp == time:
        found += step
    return file.unit(found).queue_offset


# --- one queue as the start of a broker leaves it ---------------------------------------------------


def queue_after_start(disk: QueueView) -> QueueView | None:
    """The queue after a start; None where the broker does not start.

    Raises:
        OSError: a file cannot be read.
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    found = disk.started.recovery
    if not found.starts or found.end is None:
        return None
    image = image_of(found.images, disk.topic, disk.queue_id)
    view = QueueView(disk.started, disk.topic, disk.queue_id, log_end=found.end, is_sound=False)
    if image is not None:
        view.is_sound = not (image.removed or image.appended or image.lost or image.refused)
        view.is_batch = image.key[0] == BATCH_QUEUES
        view.files = _database_units(view, image) if isinstance(image, RocksQueueImage) else _files(image)
        view.min_offset, view.max_offset = image.min_offset, image.max_offset
    return view


def _files(image: QueueImage) -> list[UnitFile]:
    return [_file(image, file) for file in image.files]


def _file(image: QueueImage, file: FileImage) -> UnitFile:
    """A file as it is on disk, or with what the start writes into it; that makes its modification time new."""
    size, count = image.unit_size, file.wrote // image.unit_size
    is_batch = image.key[0] == BATCH_QUEUES
    if file.file is not None and not file.overlay:
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
    units: dict[int, tuple[int, int]] = field(default_factory=dict)

    def unit(self, number: int) -> Unit:
        """Unit ``number`` from the queue's first on; one that is not there has size 0."""
        offset = self.base // UNIT_SIZE + number
        physical, size = self.units.get(offset, (-1, 0))
        stored = self.view.log.store_timestamp(physical) if self.view is not None and size else None
        return Unit(offset, physical, size, None, stored)

    def bytes_from(self, number: int) -> int:
        """Bytes of the records that the units from a number on stand for."""
        first = self.base // UNIT_SIZE + number
        return sum(size for offset, (_, size) in self.units.items() if offset >= first)


def _database_units(view: QueueView, image: RocksQueueImage) -> list[UnitFile]:
    if not image.units:
        return []
    first = min(image.units)
    count = image.max_offset - first
    name = f"{view.store.queue_database} (RocksDB, after the start of a broker)"
    return [RecoveredUnits(name, first * UNIT_SIZE, count, count, None, view=view, units=image.units)]
