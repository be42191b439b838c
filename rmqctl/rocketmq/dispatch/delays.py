"""Delay levels as the queues of a store show them, where no configuration does (spec 2.13)."""

from __future__ import annotations

from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.rocketmq.log_end import last_unit
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.queue_files import Queue
from rmqctl.rocketmq.store import QUEUES, QueueFiles, RocketMQStore


def shown_delays(store: RocketMQStore) -> dict[int, int]:
    """Delay in ms of each level whose queue has a unit with its record: delivery time less store time.

    Raises:
        OSError: a file cannot be read.
    """
    found: dict[int, int] = {}
    if store.is_rocksdb:
        return found
    directory = f"{QUEUES}/{SCHEDULE_TOPIC}"
    with LogReader(store.log_files) as log:
        for entry in store.tree.entries(directory, sizes=False):
            if entry.is_directory and entry.name.isdigit():
                where = QueueFiles(QUEUES, SCHEDULE_TOPIC, int(entry.name), entry.path, store.tree)
                delay = _delay(Queue.open(where), log)
                if delay is not None:
                    found[int(entry.name) + 1] = delay
    return found


def _delay(queue: Queue, log: LogReader) -> int | None:
    unit = last_unit(queue) if queue.files else None
    if unit is None or not len(unit):
        return None
    time = log.store_timestamp(int(unit["physical_offset"][0]))
    delay = int(unit["tags_code"][0]) - time if time is not None else 0
    return delay if delay > 0 and delay % 1000 == 0 else None
