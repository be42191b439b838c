"""One queue as the start of a broker leaves it, out of the replay of that start (`rmqctl.rocketmq.recovery`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqctl.files.source import BytesSource
from rmqctl.rocketmq.query.queue_view import QueueView
from rmqctl.rocketmq.query.units import UNIT_SIZE, Unit, UnitFile
from rmqctl.rocketmq.recovery.queue_ends import image_of
from rmqctl.rocketmq.recovery.queue_image import FileImage, QueueImage
from rmqctl.rocketmq.recovery.rocksdb_image import RocksQueueImage
from rmqctl.rocketmq.store import BATCH_QUEUES, OFFSET_DIGITS


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
