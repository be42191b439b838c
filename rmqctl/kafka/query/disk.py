"""The room that the files of a Kafka log directory take, by partition and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmqctl.disk import Fate, Use, now_ms, used
from rmqctl.files.tree import local_path
from rmqctl.filters import Names
from rmqctl.kafka.directory.directory import LogFile, Partition
from rmqctl.kafka.directory.file_names import DirectoryState, FileKind
from rmqctl.kafka.query.life import Keeping
from rmqctl.kafka.query.time import largest_timestamp, time_index_of
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Replicas

_INDEXES = {FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX}
RULE = (
    "segments expire by their largest timestamp (retention.ms) or the size of the partition (retention.bytes), and go "
    "when a broker looks next (log.retention.check.interval.ms)"
)
"""What retention goes by (UnifiedLog.deleteOldSegments)."""


def uses(replicas: Replicas, keeping: Callable[[str], Keeping], topics: Names) -> Iterator[Use]:
    """Yield what the files of each partition take, by what they hold, then the files of the directories themselves.

    Args:
        keeping: how long the records of a topic are kept.
        topics: that are wanted; with some of them only files of their partitions are counted.
    """
    served = {log.partition.directory: log for log in replicas.served}
    for directory in replicas.directories:
        for partition in directory.partitions:
            if not topics or topics.include(partition.topic):
                yield from _of_partition(partition, served.get(partition.directory), keeping(partition.topic))
        if not topics:
            own = Use("state", Fate.KEPT)
            for file in directory.files:
                _add(own, file)
            yield own


def _of_partition(partition: Partition, log: PartitionLog | None, keeping: Keeping) -> Iterator[Use]:
    expiries = _expiries(partition, log, keeping) if log is not None and log.partition is partition else {}
    found: dict[str, Use] = {}
    now = now_ms()
    for file in partition.files:
        holds, fate = _meaning(partition, file)
        use = found.setdefault(holds, Use(holds, fate, partition.topic, partition.partition))
        _add(use, file, expiries.get(file.base) if holds != "state" else None, now)
    yield from found.values()


def _add(use: Use, file: LogFile, expires: int | None = None, now: int = 0) -> None:
    size = max(file.size, 0)
    use.add(size, used(local_path(file.tree, file.name), size), file.mtime_ms, expires, now)


def _meaning(partition: Partition, file: LogFile) -> tuple[str, Fate]:
    if partition.state is DirectoryState.DELETE or file.meaning.leftover == ".deleted":
        return "deleted", Fate.SAFE
    if partition.state is DirectoryState.STRAY:
        return "stray", Fate.KEPT
    if file.is_leftover:
        return "unfinished", Fate.KEPT
    if file.kind is FileKind.LOG:
        return "log", Fate.KEPT if partition.is_metadata_log else Fate.RETENTION
    return ("indexes", Fate.REBUILT) if file.kind in _INDEXES else ("state", Fate.KEPT)


def _expiries(partition: Partition, log: PartitionLog, keeping: Keeping) -> dict[int, int]:
    """When each segment may go, by its base offset: from the first on, each as soon as those before it are gone
    (UnifiedLog.deleteRetentionMsBreachedSegments, deleteRetentionSizeBreachedSegments).
    """
    found = dict[int, int]()
    latest, over = 0, sum(file.size for file in partition.logs) - keeping.retention_bytes
    for segment in partition.segments:
        if segment.log is None:
            continue
        if keeping.retention_ms >= 0:
            latest = max(latest, largest_timestamp(log, segment, time_index_of(segment))[0] + keeping.retention_ms)
            found[segment.base] = latest
        over -= segment.log.size
        if keeping.is_bounded and over >= 0 and segment.log is not partition.logs[-1]:
            found[segment.base] = 0
    return found
