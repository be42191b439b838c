"""Bloom filters of extension units, which the log does not hold: taken over from the units that are there."""

from __future__ import annotations

from formats.layout import plan_of
from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE, MAX_EXT_ADDRESS
from formats.rocketmq.consumequeue_ext import HEAD_SIZE, ConsumeQueueExtUnit
from rmqctl.rocketmq.dispatch.dispatched import Key
from rmqctl.rocketmq.queue_files import Queue
from rmqctl.rocketmq.store import QUEUES, QUEUES_EXT, QueueFiles, RocketMQStore, StoreFile, sequence

_HEAD = plan_of(ConsumeQueueExtUnit).runs[0]


class Bitmaps:
    """Filters that the queues of a store have."""

    def __init__(self, store: RocketMQStore) -> None:
        self._store = store
        self._queues: dict[Key, tuple[Queue, list[StoreFile]]] = {}

    def find(self, key: Key, queue_offset: int, tags_code: int, store_timestamp: int) -> bytes:
        """The filter of a message; b"" unless its extension unit is there, with the same tags code and store time.

        Raises:
            OSError: a file cannot be read.
        """
        queue, files = self._opened(key)
        unit = queue.unit_at(queue_offset * queue.dtype.itemsize) if queue_offset >= 0 else None
        address = 0 if unit is None else int(unit["tags_code"][0])
        if address > MAX_EXT_ADDRESS:
            return b""
        offset = address - EXT_ADDRESS_BASE
        for file in files:
            if file.base <= offset < file.base + file.size:
                return _bitmap(file, offset - file.base, tags_code, store_timestamp)
        return b""

    def _opened(self, key: Key) -> tuple[Queue, list[StoreFile]]:
        if key not in self._queues:
            topic, tree = key[0].decode("utf-8", "surrogateescape"), self._store.tree
            path = f"{QUEUES}/{topic}/{key[1]}"
            queue = Queue.open(QueueFiles(QUEUES, topic, key[1], path, tree))
            extension = f"{QUEUES_EXT}/{topic}/{key[1]}"
            self._queues[key] = queue, sequence(tree, extension, extension)[0]
        return self._queues[key]


def _bitmap(file: StoreFile, position: int, tags_code: int, store_timestamp: int) -> bytes:
    source = file.open()
    try:
        raw = source.read_at(position, HEAD_SIZE)
        if len(raw) < HEAD_SIZE:
            return b""
        unit = dict(zip(_HEAD.names, _HEAD.packer.unpack(raw), strict=True))
        if (unit["tags_code"], unit["store_timestamp"]) != (tags_code, store_timestamp) or unit["size"] < HEAD_SIZE:
            return b""
        return source.read_at(position + HEAD_SIZE, unit["size"] - HEAD_SIZE)
    finally:
        source.close()
