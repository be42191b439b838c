"""One queue of a RocksDB store in the memory of a recovering broker (spec 10.1; RocksDBConsumeQueueStore)."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.rocketmq.block import Ints
from rmqctl.rocketmq.recovery.load import Key
from rmqctl.rocketmq.recovery.queue_image import CutFile, QueueImage
from rmqctl.rocketmq.rocksdb_queues import rocksdb_units
from rmqctl.rocketmq.store import QUEUES, RocketMQStore


class RocksQueueImage(QueueImage):
    """Units by queue offset; putting one replaces what stood there."""

    def __init__(self, key: Key) -> None:
        super().__init__(key, [], 0)
        self.units: dict[int, tuple[int, int]] = {}
        self._minimum = 0

    @property
    def max_offset(self) -> int:
        return max(self.units, default=-1) + 1

    @property
    def min_offset(self) -> int:
        return self._minimum

    def destroy(self) -> None:
        self.lost += self.units.values()
        self.units.clear()
        self.max_physical = -1

    def cuts(self) -> Iterator[CutFile]:
        return iter(())

    def load(self, queue_offset: int, physical: int, size: int) -> None:
        """A unit of the database."""
        self.units[queue_offset] = physical, size
        self.max_physical = max(self.max_physical, physical + size)

    def put_many(self, physical: Ints, size: Ints, tags_code: Ints, queue_offset: Ints) -> None:
        for place, length, offset in zip(physical.tolist(), size.tolist(), queue_offset.tolist(), strict=True):
            self.appended += offset not in self.units
            self.load(offset, place, length)

    def truncate(self, physical: int) -> None:
        gone = {offset: unit for offset, unit in self.units.items() if unit[0] >= physical}
        self.lost += gone.values()
        self.units = {offset: unit for offset, unit in self.units.items() if offset not in gone}

    def correct_minimum(self, log_begin: int, *, minimum_5: bool) -> None:
        """The first unit whose record is in the log; behind all of them where none is."""
        live = [offset for offset, unit in self.units.items() if unit[0] >= log_begin]
        self._minimum = min(live, default=self.max_offset)


def rocksdb_images(store: RocketMQStore) -> dict[Key, RocksQueueImage]:
    """Every queue that is read from the database.

    Raises:
        MissingExtra, Refused, IOFailure: as `rmqctl.rocketmq.rocksdb_queues.rocksdb_units`.
    """
    images: dict[Key, RocksQueueImage] = {}
    for unit in rocksdb_units(store):
        if not store.in_database(unit.topic):
            continue
        key = QUEUES, unit.topic, unit.queue_id
        image = images.setdefault(key, RocksQueueImage(key))
        image.load(unit.queue_offset, unit.physical_offset, unit.size)
    return images
