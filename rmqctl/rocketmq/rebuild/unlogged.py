"""What a rebuilt store needs that no log holds: counters of queues whose messages have all expired, filters, times, the
checkpoint.

A queue's next offset is stored nowhere but in its files. Without them a broker begins at 0 again, and consumers that
stand further on get nothing. Where the files are gone, the offsets that consumers have committed still show them (spec
2.16, 14.2, 14.5). Bloom filters of extension units are taken over from the units that are there. Modification times
of queue files and names of index files are times that brokers read (spec 4.4, 8.2). The checkpoint is one that the
store bears out (spec 5, 14.2).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from formats.layout import plan_of
from formats.rocketmq.checkpoint import FILE_SIZE, Checkpoint
from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE, MAX_EXT_ADDRESS, ConsumeQueueUnit
from formats.rocketmq.consumequeue_ext import HEAD_SIZE, ConsumeQueueExtUnit
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.dispatched import Key
from rmqctl.rocketmq.dispatch.series import MAX_HOLE
from rmqctl.rocketmq.dispatch.units import UNIT_SIZE, Appended, QueueState
from rmqctl.rocketmq.index import IndexHead
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue
from rmqctl.rocketmq.queues.ranges import LogRange, queue_range
from rmqctl.rocketmq.queues.rocksdb import sound_units
from rmqctl.rocketmq.rebuild.build import Built, QueueFilesWriter, queue_path
from rmqctl.rocketmq.state.config import consumer_offsets, delay_offsets, read_checkpoint
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, QUEUES_EXT, QueueFiles, StoreFile, StoreFiles, sequence
from rmqctl.rocketmq.store.geometry import IndexGeometry

_HEAD = plan_of(ConsumeQueueExtUnit).runs[0]


class Bitmaps:
    """Filters that the queues of a store have."""

    def __init__(self, store: StoreFiles) -> None:
        self._store = store
        self._queues: dict[Key, tuple[Queue, list[StoreFile]]] = {}

    def find(self, key: Key, queue_offset: int, tags_code: int, store_timestamp: int) -> bytes:
        """Return the filter of a message; b"" unless its extension unit is there, with the same tags code and store
        time.
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


# --- queue counters that the log can no longer prove ------------------------------------------------


_EXPIRED_SIZE = 1


def lost_counters(store: StoreFiles, known: set[Key]) -> dict[Key, int]:
    """Next offsets of queues that have neither records in the log nor files, as far as anything shows them.

    Args:
        known: queues that were built.

    Returns:
        The largest offset known, by queue. Nothing where the log begins at offset 0: it then proves all.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    if not store.log_files or store.log_files[0].base == 0:
        return {}
    found: dict[Key, int] = {}
    for key, offset in _known_offsets(store):
        if offset > 0 and key not in known and key[1] >= 0:
            found[key] = max(found.get(key, 0), offset)
    there = {
        (q.topic.encode("utf-8", "surrogateescape"), q.queue_id)
        for kind in (QUEUES, BATCH_QUEUES)
        if not (kind == QUEUES and store.is_rocksdb)
        for q in store.queues(kind)
        if q.files(sizes=False)[0]
    }
    return {key: offset for key, offset in found.items() if key not in there}


def _known_offsets(store: StoreFiles) -> list[tuple[Key, int]]:
    """Every offset that says how far a queue was."""
    known = [((_name(o.topic), o.queue_id), o.offset) for o in consumer_offsets(store)]
    known += [((_name(SCHEDULE_TOPIC), level - 1), offset) for level, offset in delay_offsets(store).items()]
    if store.is_rocksdb:
        known += [((_name(u.topic), u.queue_id), u.queue_offset + 1) for u in sound_units(store)]
    return known


def _name(topic: str) -> bytes:
    return topic.encode("utf-8", "surrogateescape")


def keep_destroyed_tails(store: StoreFiles, built: Built, files: QueueFilesWriter) -> None:
    """Let queues go on where their old files end, if their last records are destroyed in the middle of the log.

    Else a broker gives out the queue offsets of the destroyed messages again. The units in between repeat the last
    message that is left.
    """
    if not built.damage or store.is_rocksdb or not store.log_files:
        return
    extent = LogRange(store.log_files[0].base, built.end, is_5=True)
    for key, state in built.queues.simple.items():
        path = queue_path(QUEUES, key)
        queue = Queue.open(QueueFiles(QUEUES, os.fsdecode(key[0]), key[1], path, store.tree))
        missing = queue_range(queue, extent).max_offset - state.next_offset if queue.files else 0
        if 0 < missing <= MAX_HOLE and state.end >= UNIT_SIZE:
            last = files.read(QUEUES, key, state.end - UNIT_SIZE, UNIT_SIZE)
            files.write(QUEUES, key, Appended(state.end, last * missing))
            state.end += missing * UNIT_SIZE
            built.queues.filled[key] = built.queues.filled.get(key, 0) + missing
    files.flush()


def counter_units(next_offset: int, file_size: int) -> Appended:
    """Units of one file that keep a queue's counter: filler, and one unit of an expired record as the last.

    Filler alone will not do: as the last unit it makes a broker believe that 2 GiB of log are dispatched (spec 3.4).
    """
    state = QueueState(file_size)
    appended = state.put(0, _EXPIRED_SIZE, 0, next_offset - 1)
    assert appended is not None
    return appended


# --- modification times of queue files --------------------------------------------------------------


_FORM = "%Y%m%d%H%M%S"
_MS = timedelta(milliseconds=1)
_KINDS = {QUEUES: UNIT, BATCH_QUEUES: BATCH_UNIT}


def set_queue_times(built: Built, log: LogReader) -> None:
    """Give each queue file the store time of its last unit's record, as if it had been written then.

    Brokers up to 5.1.0 find the file of a time by it (ConsumeQueue.getOffsetInQueueByTime).
    """
    ends = _ends(built)
    for name in built.queue_files:
        directory, _, base = name.rpartition("/")
        if directory not in ends:
            continue
        _touch(f"{built.root}/{name}", ends[directory] - int(base), _KINDS[name.partition("/")[0]].itemsize, log)


_PHYSICAL = plan_of(ConsumeQueueUnit).runs[0].only("physical_offset")
"""First in units of both kinds."""


def _touch(path: str, end: int, unit_size: int, log: LogReader) -> None:
    """Give one file the time of its last unit in front of its byte `end`."""
    file = os.open(path, os.O_RDONLY)
    try:
        used = min(end, os.fstat(file).st_size) // unit_size
        unit = os.pread(file, unit_size, (used - 1) * unit_size) if used > 0 else b""
    finally:
        os.close(file)
    time = log.store_timestamp(_PHYSICAL.unpack_from(unit)[0]) if len(unit) == unit_size else None
    if time is not None:
        os.utime(path, ns=(time * 1_000_000, time * 1_000_000))


def _ends(built: Built) -> dict[str, int]:
    """Where the units of each queue end, in bytes, by directory."""
    found = {queue_path(QUEUES, key): state.end for key, state in built.queues.simple.items()}
    found |= {queue_path(BATCH_QUEUES, key): state.end for key, state in built.queues.batch.items()}
    return found


def index_names(heads: list[IndexHead], there: list[str]) -> list[str]:
    """Return a name for each index file: the one it has, or its begin in local time, later than the name before.

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


# --- the checkpoint that a rebuilt store bears out --------------------------------------------------


_RUN = plan_of(Checkpoint).runs[0]
_OFFSET_KEPT = Release(5, 5, 0)


def checkpoint_bytes(
    store: StoreFiles,
    release: Release,
    *,
    last: tuple[int, int],
    dispatched: tuple[int, int],
    indexed: int,
    end: int,
) -> bytes:
    """Return a checkpoint file: times of this log, offsets no further than it reaches, other fields as they were.

    Args:
        last: physical offset and store time (ms) of the last record of the log; end: physical offset after it.
        dispatched: the same of the record up to which all queues are complete.
        indexed: store time (ms) up to which index files are safe, see :func:`indexed_until`.
    """
    old = read_checkpoint(store)
    fields = dict(old[0]) if old else dict.fromkeys(_RUN.names, 0)
    fields["physic_msg_timestamp"], fields["logics_msg_timestamp"] = last[1], dispatched[1]
    fields["index_msg_timestamp"] = indexed
    fields["master_flushed_offset"] = max(fields["master_flushed_offset"], 0)  # of another log, which may be longer
    for name in ("confirm_phy_offset", "logics_physical_offset"):
        fields[name] = min(max(fields[name], 0), end)
    if release >= _OFFSET_KEPT:
        fields["logics_physical_offset"] = dispatched[0]
    return _RUN.packer.pack(*(fields[name] for name in _RUN.names)).ljust(FILE_SIZE, b"\0")


def indexed_until(heads: list[IndexHead], geometry: IndexGeometry, *, all_flushed: bool) -> int:
    """Store time of the last entry of the last full index file, ms; 0 without one.

    Args:
        all_flushed: the last file counts though it is not full. A broker that starts after a crash deletes every
            file that is newer than its checkpoint says (IndexService.load), the rebuilt ones, too.
    """
    times = [head.end_timestamp for head in heads if all_flushed or head.is_full(geometry)]
    return times[-1] if times else 0
