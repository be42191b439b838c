"""Where the log ends, found without reading it all: from the last unit of the queues on (spec 6.3).

Queue files beside a RocksDB database: kept up to date with it, or left behind when the store was moved to it.

With ``rocksdbCQDoubleWriteEnable`` (5.3.1 and later) a broker writes both, and reads the files. A store that was moved
to RocksDB keeps the files as they were on that day (spec 1, 10.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from formats.rocketmq.message import Magic
from rmqctl.rocketmq.log.commitlog import CommitLog, FileContext, LogState, walk_file
from rmqctl.rocketmq.log.reader import LogReader
from rmqctl.rocketmq.queues.files import Queue, Units, is_pre_blank, queues_of
from rmqctl.rocketmq.store.files import QUEUES, RocketMQStore, StoreFile

_SAMPLE = 64
_BLANK = int(Magic.BLANK).to_bytes(4, "big", signed=True)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log.

    Attributes:
        offset: where the next record would be written; the start of the log when it has no record.
        store_timestamp: of the last record, ms; None without a record.
    """

    offset: int
    store_timestamp: int | None = None


def log_end(store: RocketMQStore) -> LogEnd:
    """Return the end of the store's log. Reads the part of one file behind the last record that a queue knows.

    Raises:
        OSError: a file of the log cannot be read.
    """
    files = store.log_files
    for context in _from_the_end(files):
        state = _walked(context, late_start(store, context.file))
        if state.end is not None:
            return LogEnd(_behind_blank(files, context.file, state.end), state.store_timestamp)
    return LogEnd(files[0].base if files else 0)


def last_record(store: RocketMQStore) -> bytes | None:
    """Return the bytes of the log's last record, None where it has none. Reads as little as :func:`log_end`.

    Raises:
        OSError: a file of the log cannot be read.
    """
    for context in _from_the_end(store.log_files):
        last: bytes | None = None
        for part in walk_file(context, LogState(), start=late_start(store, context.file)):
            if len(part.block):
                last = part.block.raw(len(part.block) - 1)
        if last is not None:
            return last
    return None


def _from_the_end(files: list[StoreFile]) -> Iterator[FileContext]:
    """Files that may hold the last record, the last of them first."""
    contexts = CommitLog(files, crashed=True).contexts()
    return reversed([c for c in contexts if c.followed] + [c for c in contexts if not c.followed][:1])


def last_unit(queue: Queue) -> Units | None:
    """Return the last written unit of a queue, one row; None when it has none. Takes units to be written without holes.

    Raises:
        OSError: a file cannot be read.
    """
    for file in reversed(queue.files[-2:]):
        count = _written(queue, file)
        if count:
            return queue.read(file, count - 1, 1)
    return None


def _written(queue: Queue, file: StoreFile) -> int:
    """Units in front of the zero tail of a file, by bisection."""
    size = queue.dtype.itemsize
    low, high = 0, file.size // size
    source = file.open()
    try:
        while low < high:
            middle = (low + high) // 2
            if any(source.read_at(middle * size + 8, 4)):
                low = middle + 1
            else:
                high = middle
    finally:
        source.close()
    return low


def _walked(context: FileContext, start: int) -> LogState:
    state = LogState()
    for _ in walk_file(context, state, start=start):
        pass
    return state


def late_start(store: RocketMQStore, file: StoreFile, sample: int = _SAMPLE) -> int:
    """Return a place in a file where a record is known to begin: the last one that a sample of queues points to."""
    latest = 0
    if store.has_rocksdb:
        return latest
    with LogReader([file]) as log:
        for queue in islice(queues_of(store.queues(QUEUES)), sample):
            unit = last_unit(queue)
            place = int(unit["physical_offset"][0]) if unit is not None and len(unit) else -1
            if latest < place - file.base - file.lead and log.record(place) is not None:
                latest = place - file.base - file.lead
    return latest


def _behind_blank(files: list[StoreFile], file: StoreFile, end: int) -> int:
    """Return the start of the next file where a blank record ends this one (the broker goes on there, spec 6.3)."""
    if file is files[-1]:
        return end
    source = file.open()
    try:
        is_blank = source.read_at(end - file.base + 4, 4) == _BLANK
    finally:
        source.close()
    return file.base + file.size if is_blank else end


# --- queue files beside a rocksdb database ----------------------------------------------------------


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
