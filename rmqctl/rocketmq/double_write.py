"""Queue files beside a RocksDB database: kept up to date with it, or left behind when the store was moved to it.

With ``rocksdbCQDoubleWriteEnable`` (5.3.1 and later) a broker writes both, and reads the files. A store that was moved
to RocksDB keeps the files as they were on that day (spec 1, 10.1).
"""

from __future__ import annotations

from rmqctl.rocketmq.log_end import last_unit, log_end
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.queue_files import is_pre_blank, queues_of
from rmqctl.rocketmq.store import QUEUES, RocketMQStore

_LAG_MS = 60_000
"""No broker dispatches later than this; queues that lack more than a minute of messages are no longer written."""


def file_queues_are_kept(store: RocketMQStore) -> bool:
    """Whether the queue files of a store with a RocksDB database reach to the end of the log.

    Raises:
        OSError: a file cannot be read.
    """
    reached = -1
    for queue in queues_of(store.queues(QUEUES)):
        unit = last_unit(queue)
        if unit is not None and len(unit) and not is_pre_blank(unit)[0]:
            reached = max(reached, int(unit["physical_offset"][0]) + int(unit["size"][0]))
    if reached < 0:
        return False
    end = log_end(store)
    if reached >= end.offset or end.store_timestamp is None:
        return True
    with LogReader(store.log_files) as log:
        behind, file = log.store_timestamp(reached), log.file_of(reached)
        if behind is None and file is not None:  # a blank record ends this file
            behind = log.store_timestamp(file.base + file.size)
    return behind is not None and end.store_timestamp - behind <= _LAG_MS
