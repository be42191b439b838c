"""Modification times of queue files, and names of index files: both are times that brokers read (spec 4.4, 8.2)."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from rmqctl.rocketmq.dispatch.index_put import IndexHead
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.queue_files import BATCH_UNIT, UNIT
from rmqctl.rocketmq.rebuild.build import Built
from rmqctl.rocketmq.rebuild.staging import queue_path
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES

_FORM = "%Y%m%d%H%M%S"
_LAST_UNITS = 64
_MS = timedelta(milliseconds=1)
_KINDS = {QUEUES: UNIT, BATCH_QUEUES: BATCH_UNIT}


def set_queue_times(built: Built, log: LogReader) -> None:
    """Give each queue file the store time of its last unit's record, as if it had been written then.

    Brokers up to 5.1.0 find the file of a time by it (ConsumeQueue.getOffsetInQueueByTime).

    Raises:
        OSError: a file cannot be read or touched.
    """
    ends = _ends(built)
    for name in built.queue_files:
        directory, _, base = name.rpartition("/")
        if directory not in ends:
            continue
        _touch(f"{built.root}/{name}", ends[directory] - int(base), _KINDS[name.partition("/")[0]].itemsize, log)


def _touch(path: str, end: int, unit_size: int, log: LogReader) -> None:
    """Give one file the time of its last unit in front of its byte `end`."""
    file = os.open(path, os.O_RDONLY)
    try:
        used = min(end, os.fstat(file).st_size) // unit_size
        unit = os.pread(file, unit_size, (used - 1) * unit_size) if used > 0 else b""
    finally:
        os.close(file)
    time = log.store_timestamp(int.from_bytes(unit[:8], "big")) if len(unit) == unit_size else None
    if time is not None:
        os.utime(path, ns=(time * 1_000_000, time * 1_000_000))


def _ends(built: Built) -> dict[str, int]:
    """Where the units of each queue end, in bytes, by directory."""
    found = {queue_path(QUEUES, key): state.end for key, state in built.queues.simple.items()}
    found |= {queue_path(BATCH_QUEUES, key): state.end for key, state in built.queues.batch.items()}
    return found


def index_names(heads: list[IndexHead], there: list[str]) -> list[str]:
    """A name for each index file: the one it has, or its begin in local time, later than the name before.

    Args:
        there: names of the index files of the store, ascending.
    """
    names: list[str] = []
    for number, head in enumerate(heads):
        if number < len(there):
            names.append(there[number])
            continue
        time = datetime.fromtimestamp(max(head.begin_timestamp, 0) / 1000, UTC).astimezone()
        if names and index_name(time) <= names[-1]:
            time = _time_of(names[-1]) + _MS
        names.append(index_name(time))
    return names


def index_name(time: datetime) -> str:
    """17 digits: local time to the millisecond."""
    return f"{time:{_FORM}}{time.microsecond // 1000:03d}"


def _time_of(name: str) -> datetime:
    try:
        time = datetime.strptime(name[:14], _FORM).replace(tzinfo=UTC)  # any zone does: it is only counted up
    except ValueError:  # digits, but no time
        time = datetime.now(UTC)
    return time + timedelta(milliseconds=int(name[14:17]))


__all__ = ["index_name", "index_names", "set_queue_times"]
