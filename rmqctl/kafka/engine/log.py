"""The log of one partition, open for writing: appends, rolls, flushes, retention (UnifiedLog, LocalLog; spec 11).

State that recovery keeps too is kept by the same code: producers and their snapshots, leader epochs.
"""

from __future__ import annotations

import os
import random
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from formats.kafka.record_batch import CRC_FROM, EPOCH_AT, FRAME_HEAD, HEADER_SIZE, MAGIC_AT, Attributes, header_plan
from rmqctl.errors import Refused
from rmqctl.files.local import ByteSource, LocalFile
from rmqctl.files.tree import LocalTree
from rmqctl.files.writing import Disk
from rmqctl.kafka.directory.directory import Partition, read_partition
from rmqctl.kafka.directory.file_names import PartitionName
from rmqctl.kafka.engine.batch import placed, sequence_after, stamped
from rmqctl.kafka.engine.config import PER_BATCH_SINCE, Clock, LogConfig
from rmqctl.kafka.engine.segment import (
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    TXN_INDEX,
    ActiveSegment,
    Appended,
    ClosedSegment,
    name_of,
)
from rmqctl.kafka.loading.epochs import LeaderEpochs
from rmqctl.kafka.loading.files import PartitionFiles
from rmqctl.kafka.loading.producers import marker_of
from rmqctl.kafka.loading.segment import BrokerSegment
from rmqctl.kafka.loading.snapshots import ProducerStates
from rmqctl.kafka.log.block import INT_MAX, Bytes8, Ints
from rmqctl.kafka.log.indexes import read_time_index
from rmqctl.kafka.log.reference import sequence_of
from rmqctl.release import Release
from rmqctl.text import number_of

SNAPSHOT = ".snapshot"
_MOST_ENDED = 64
"""Rolled segments that wait for a flush at most."""
ENDINGS = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
_UNPACK = header_plan().runs[0].packer.unpack_from


class BatchRefused(Refused):
    """A broker would not append a batch; the message says why."""


class FilesOnDisk(PartitionFiles):
    """The files of a partition's directory, each change made at once."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory, self.disk = directory, disk
        name = PartitionName(directory.name.rpartition("-")[0], None)
        super().__init__(Partition(directory.name, name))

    def names(self) -> list[str]:
        return sorted(os.listdir(self.directory))

    def __contains__(self, name: str) -> bool:
        return (self.directory / name).exists()

    def open(self, name: str) -> ByteSource:
        return LocalFile(self.directory / name, name)

    def read(self, name: str, most: int | None = None) -> bytes:
        return (self.directory / name).read_bytes()[:most]

    def put(self, name: str, data: bytes, size: int | None = None) -> None:
        """Write a file that is there as a whole or as it was."""
        temporary = self.directory / f"{name}.tmp"
        self.disk.write_file(temporary, data)
        self.disk.replace(temporary, self.directory / name)

    def delete(self, name: str) -> None:
        self.disk.remove(self.directory / name)


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a log lies, and what its writer needs to know of the broker.

    Attributes:
        leader_epoch: in which batches are appended.
    """

    topic: str
    number: int
    directory: Path
    config: LogConfig
    release: Release
    clock: Clock
    disk: Disk
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a batch went.

    Attributes:
        size: bytes of the log.
        timestamp: the append time, ms; -1 where records keep their own.
        is_duplicate: it was in the log already, at these offsets; nothing was written.
    """

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    size: int
    timestamp: int = -1
    is_duplicate: bool = False

    def row(self) -> dict[str, Any]:
        """Return the result as a row of `produce`."""
        return {
            "topic": self.topic, "partition": self.partition, "base_offset": self.base_offset,
            "last_offset": self.last_offset, "size": self.size, "status": "PUT_OK",
        }  # fmt: skip


class WritableLog:
    """One partition, open for writing by any number of threads.

    Attributes:
        start, end: log start offset, and the offset of the next record.
        flushed: offset below which everything is on the disk: the recovery point.
        closed: segments before the active one, ascending.
    """

    def __init__(self, place: LogPlace, start: int = 0, flushed: int = 0) -> None:
        """Open what lies in the directory, which a recovery has left right; an empty log where nothing does."""
        self.place, self.config, self._disk = place, place.config, place.disk
        self._lock, self._flushing = threading.RLock(), threading.Lock()
        self._disk.make_directory(place.directory)
        files = FilesOnDisk(place.directory, self._disk)
        self.epochs = LeaderEpochs(files)
        self.states = ProducerStates(files, -(1 << 63))
        found = read_partition(LocalTree(str(place.directory.parent)), place.directory.name)
        self.closed = [self._measured(found, number) for number in range(len(found.logs) - 1)]
        if found.logs:
            self.active = self._segment(found.logs[-1].base, is_new=False)
            self.end = _end_of(found)
        else:
            self.active = self._segment(start, is_new=True)
            self.end = start
        self.start = max(start, self.closed[0].base if self.closed else self.active.base)
        self.flushed = min(flushed, self.end)
        self.states.remove_strays({*(segment.base for segment in self.closed), self.active.base})
        self.states.reload(self.start, self.end)
        self.states.end = self.end
        self._jitter = self._drawn()
        self._unflushed_since: int | None = None
        self._ended: list[tuple[ActiveSegment, int]] = []

    @property
    def name(self) -> str:
        """``topic-0``."""
        return f"{self.place.topic}-{self.place.number}"

    @property
    def stable_offset(self) -> int:
        """The first offset that is not decided, for transactions are open."""
        return self.states.replay.stable_offset(self.end)

    @property
    def size(self) -> int:
        """Bytes of its segments."""
        return sum(segment.size for segment in self.closed) + self.active.size

    def _segment(self, base: int, *, is_new: bool) -> ActiveSegment:
        make = ActiveSegment.create if is_new else ActiveSegment.reopen
        config, place = self.config, self.place
        made = make(place.directory, base, config.index_bytes, config.index_interval, self._disk, place.clock())
        if is_new and config.preallocate:
            made.preallocate(config.segment_bytes)
        return made

    def _measured(self, found: Partition, number: int) -> ClosedSegment:
        log = found.logs[number]
        segment = next(s for s in found.segments if s.base == log.base)
        sizes = tuple(f.size if f is not None else 0 for f in (segment.offset_index, segment.time_index))
        largest = -1
        if segment.time_index is not None and segment.time_index.size:
            source = segment.time_index.open()
            try:
                index = read_time_index(source)
                largest = int(index["timestamp"][-1]) if len(index) else -1
            finally:
                source.close()
        return ClosedSegment(log.base, log.size, largest if largest >= 0 else log.mtime_ms, (sizes[0], sizes[1]))

    def _drawn(self) -> int:
        most = min(self.config.jitter_ms, self.config.segment_ms)
        return random.randrange(most) if most > 0 else 0  # noqa: S311 - not a secret

    # --- appending ------------------------------------------------------------------------------------

    def append(self, batch: bytes) -> AppendResult:
        """Append a batch as the partition's leader: it gets the next offsets and the leader's epoch.

        A batch of an idempotent producer that is in the log already is not written again.

        Raises:
            BatchRefused: a broker would not take it: too large, damaged, a sequence or an epoch that does not follow.
            IOFailure: the system refuses; the log is as it was.
        """
        with self._lock:
            head = self._checked(batch)
            known = self._known(head)
            if known is not None:
                return known
            now = self.place.clock()
            if self.config.append_time and not head[5] & Attributes.CONTROL:
                batch = stamped(batch, now)
            batch = placed(batch, self.end, self.place.leader_epoch)
            base = self.end
            self._append(batch, [_UNPACK(batch)], now)
            stamp = now if self.config.append_time else -1
            return AppendResult(self.place.topic, self.place.number, base, self.end - 1, len(batch), stamp)

    def append_alike(self, rows: Bytes8, each: int, timestamps: Ints) -> None:
        """Append batches of one size as the leader, without producers: together, as far as a segment has room.

        Args:
            rows: the batches, shape (n, bytes of one); base offsets and epochs in it are set here.
            each: records of a batch, whose offsets follow each other.
            timestamps: largest of each batch, ms, ascending, shape (n,).

        Raises:
            BatchRefused: a batch is too large.
            IOFailure: the system refuses; what is not counted in :attr:`end` is not in the log.
        """
        with self._lock:
            self._checked(rows[0].tobytes())
            epoch, size, now = self.place.leader_epoch, rows.shape[1], self.place.clock()
            done, times = 0, timestamps.tolist()
            rows[:, EPOCH_AT:MAGIC_AT] = np.frombuffer(struct.pack(">i", epoch), np.uint8)
            while done < len(rows):
                self._roll_if_due(self.end, self.end + each - 1, size, times[done], now)
                part = rows[done : done + self._fitting(size, each, times[done:])]
                bases = self.end + np.arange(len(part), dtype=np.int64) * each
                part[:, :8] = bases.astype(">i8").view(np.uint8).reshape(len(part), 8)
                if epoch >= 0:
                    self.epochs.begin(epoch, self.end)
                ends = zip((bases + each - 1).tolist(), times[done : done + len(part)], strict=True)
                self.active.append(part.reshape(-1).data, [Appended(last, time, size) for last, time in ends])
                self.end = self.states.end = self.end + len(part) * each
                done += len(part)
            self._unflushed_since = now if self._unflushed_since is None else self._unflushed_since
            if self.config.flush_messages is not None and self.end - self.flushed >= self.config.flush_messages:
                self._due = self.end

    def _fitting(self, size: int, each: int, times: list[int]) -> int:
        """How many batches of one size fit into the active segment, which has room for one."""
        active = self.active
        most = min(
            (self.config.segment_bytes - active.size) // size,
            active.slots_left,
            (INT_MAX - self.end + active.base) // each,
        )
        first = times[0] if active.first_timestamp is None else active.first_timestamp
        if times[min(most, len(times)) - 1] - first > self.config.roll_ms - self._jitter:
            return 1
        return max(int(most), 1)

    def append_stored(self, data: bytes) -> None:
        """Append batches as a follower does, or a copy: offsets and epochs stay, and gaps before them.

        Raises:
            BatchRefused: an offset is in the log already, or a batch is damaged.
            IOFailure: the system refuses; the log is as it was.
        """
        with self._lock:
            heads = list(_heads(data))
            if heads and heads[0][0] < self.end:
                raise BatchRefused(f"{self.name} ends at offset {self.end}, so offset {heads[0][0]} cannot follow")
            self._append(data, heads, self.place.clock())

    def _checked(self, batch: bytes) -> tuple[int, ...]:
        head: tuple[int, ...] = _UNPACK(batch) if len(batch) >= HEADER_SIZE else ()
        if not head or head[3] != 2 or head[1] + FRAME_HEAD != len(batch):
            raise BatchRefused("the bytes are not one whole record batch")
        if len(batch) > self.config.max_message_bytes:
            raise BatchRefused(
                f"a batch of {len(batch):,} bytes, at most {self.config.max_message_bytes:,} (max.message.bytes); "
                "make smaller batches"
            )
        if len(batch) > self.config.segment_bytes:
            raise BatchRefused(
                f"a batch of {len(batch):,} bytes, a segment has at most {self.config.segment_bytes:,}; "
                "make smaller batches"
            )
        if crc32c(memoryview(batch)[CRC_FROM:]) != head[4]:
            raise BatchRefused("the CRC of the batch does not match")
        return head

    def _known(self, head: tuple[int, ...]) -> AppendResult | None:
        """Hold a batch of an idempotent producer to what it sent before; where it lies when it is there already."""
        producer_id, epoch, first = head[9:12]
        if producer_id < 0 or head[5] & Attributes.CONTROL:
            return None
        known = self.states.replay.producers.get(producer_id)
        if known is None or epoch > known.producer_epoch:
            if known is not None and first != 0:
                raise BatchRefused(f"producer {producer_id} begins epoch {epoch} with sequence {first}, not 0")
            return None
        if epoch < known.producer_epoch:
            raise BatchRefused(f"producer {producer_id} has epoch {known.producer_epoch} now, {epoch} is fenced")
        last = sequence_of(first, head[6])
        if (last, head[6]) == (known.last_sequence, known.offset_delta):
            base = known.last_offset - known.offset_delta
            return AppendResult(self.place.topic, self.place.number, base, known.last_offset, 0, is_duplicate=True)
        wanted = sequence_after(known.last_sequence, 1) if known.last_sequence >= 0 else 0
        if first != wanted and first >= 0 and known.last_sequence >= 0:
            raise BatchRefused(f"producer {producer_id} goes on with sequence {first}, not {wanted}")
        return None

    def _append(self, data: bytes, heads: list[tuple[int, ...]], now: int) -> None:
        last = heads[-1][0] + heads[-1][6]
        largest = max(head[8] for head in heads)
        self._roll_if_due(heads[0][0], last, len(data), largest, now)
        batches = [Appended(h[0] + h[6], h[8], h[1] + FRAME_HEAD) for h in heads]
        if self.place.release < PER_BATCH_SINCE and len(batches) > 1:
            batches = [Appended(last, largest, len(data))]
        for head in heads:
            if head[2] >= 0:
                self.epochs.begin(head[2], head[0])
        self.active.append(data, batches)
        self.end = self.states.end = last + 1
        at = 0
        for head in heads:
            if head[9] >= 0:
                self._note_producer(head, data[at : at + head[1] + FRAME_HEAD])
            at += head[1] + FRAME_HEAD
        if self._unflushed_since is None:
            self._unflushed_since = now
        if self.config.flush_messages is not None and self.end - self.flushed >= self.config.flush_messages:
            self._due = self.end

    def _note_producer(self, head: tuple[int, ...], batch: bytes) -> None:
        replay = self.states.replay
        if head[5] & Attributes.CONTROL:
            replay.end(head[9], head[10], head[0], marker_of(batch))
        else:
            transactional = bool(head[5] & Attributes.TRANSACTIONAL)
            sequence = sequence_of(head[11], head[6])
            replay.data(head[9], head[10], sequence, head[0], head[0] + head[6], head[8], transactional=transactional)
        for ended in replay.ended:
            if not ended.committed:
                self.active.add_aborted(ended)
        replay.ended.clear()

    # --- rolling --------------------------------------------------------------------------------------

    def _roll_if_due(self, first: int, last: int, size: int, timestamp: int, now: int) -> None:
        active, config = self.active, self.config
        waited = now - active.created
        if active.first_timestamp is not None and timestamp - active.first_timestamp >= 0:
            waited = timestamp - active.first_timestamp
        if (
            active.size > config.segment_bytes - size
            or (active.size > 0 and waited > config.roll_ms - self._jitter)
            or active.is_full
            or not active.fits(last)
        ):
            base = max(self.end, first)
            self.roll(base if last - base <= INT_MAX else last - INT_MAX)

    def roll(self, base: int | None = None) -> None:
        """End the active segment and begin one at an offset, by default that of the next record."""
        with self._lock:
            base = self.end if base is None else base
            if base == self.active.base and self.active.size == 0:
                return
            self.closed.append(self.active.end())
            self._ended.append((self.active, self.end))
            if len(self._ended) > _MOST_ENDED:
                self._sync_ended()
            self.active = self._segment(base, is_new=True)
            self._jitter = self._drawn()
            self.states.end = base
            self.states.take_snapshot()

    # --- flushing -------------------------------------------------------------------------------------

    _due = -1

    def flush_if_due(self) -> None:
        """Flush where flush.messages or flush.ms ask for it; callers do so after an append, outside of its lock.

        Raises:
            IOFailure: the system refuses; nobody knows then what is on the disk.
        """
        waited = self.config.flush_ms
        if self._due > self.flushed:
            self.flush(self._due)
        elif (
            waited is not None and (since := self._unflushed_since) is not None and self.place.clock() - since >= waited
        ):
            self.flush()

    def flush(self, end: int | None = None) -> None:
        """Bring everything below an offset to the disk; by default all there is.

        Of several threads that wait here the first one flushes for all whose records are in the log by then.

        Raises:
            IOFailure: the system refuses; nobody knows then what is on the disk.
        """
        wanted = self.end if end is None else end
        with self._flushing:
            if self.flushed >= wanted:
                return
            with self._lock:
                segment, reached = self.active, self.end
                self._unflushed_since = None
                self._sync_ended()
            segment.sync()
            self.flushed = max(self.flushed, reached)

    def _sync_ended(self) -> None:
        """Bring the segments to the disk that were rolled since the last flush."""
        for segment, end in self._ended:
            segment.sync()
            segment.close()
            self.flushed = max(self.flushed, end)
        self._ended.clear()

    # --- what goes from the start of the log ----------------------------------------------------------

    def delete_records(self, before: int) -> None:
        """Move the log start to an offset, and delete the segments that end before it.

        Raises:
            Refused: the offset is above the end of the log.
        """
        with self._lock:
            if before > self.end:
                raise Refused(f"{self.name} ends at offset {self.end}; {before} is above that")
            if before > self.start:
                self._start_at(before)
            while self.closed and self._next_base(0) <= self.start:
                self._drop_first()

    def retain(self) -> list[int]:
        """Delete the segments that retention no longer keeps; their base offsets."""
        with self._lock:
            if "delete" not in self.config.policies:
                return []
            return list(self._expired())

    def _expired(self) -> Iterator[int]:
        now, config = self.place.clock(), self.config
        active = self.active
        if config.retention_ms >= 0:
            expires = now - config.retention_ms
            if active.size and 0 <= active.largest[0] < expires and all(s.largest < expires for s in self.closed):
                self.roll()
            while self.closed and self.closed[0].largest < expires:
                yield self._drop_first()
        if config.retention_bytes >= 0:
            while self.closed and self.size - config.retention_bytes >= self.closed[0].size:
                yield self._drop_first()

    def _next_base(self, number: int) -> int:
        return self.closed[number + 1].base if number + 1 < len(self.closed) else self.active.base

    def _drop_first(self) -> int:
        base, after = self.closed[0].base, self._next_base(0)
        for ending in ENDINGS:
            self._disk.remove(self.place.directory / name_of(base, ending))
        self.states.remove(base)
        del self.closed[0]
        self._start_at(max(self.start, after))
        return base

    def _start_at(self, offset: int) -> None:
        self.start = offset
        self.epochs.cut_start(offset)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep others from the log while a block runs."""
        with self._flushing, self._lock:
            self._sync_ended()
            yield

    def replace_segments(self, old: list[ClosedSegment], new: ClosedSegment) -> None:
        """Take notice of a segment whose files stand for those of others now."""
        at = self.closed.index(old[0])
        self.closed[at : at + len(old)] = [new]
        for segment in old[1:]:
            self.states.remove(segment.base)

    # --- ending ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """End it as a broker does that stops in order."""
        self.flush()
        with self._lock:
            self.states.end = self.end
            self.states.take_snapshot()
            self.active.end()
            self.active.sync()
            self.active.close()

    def abandon(self) -> None:
        """Leave the files as a killed broker does."""
        with self._lock:
            self.active.close()
            for segment, _ in self._ended:
                segment.close()
            self._ended.clear()


def _heads(data: bytes) -> Iterator[tuple[int, ...]]:
    at = 0
    while at < len(data):
        if at + HEADER_SIZE > len(data):
            raise BatchRefused(f"{number_of(len(data) - at, 'byte', 'are')} left after the last whole batch")
        head = _UNPACK(data, at)
        end = at + head[1] + FRAME_HEAD
        if head[3] != 2 or head[1] < HEADER_SIZE - FRAME_HEAD or end > len(data):
            raise BatchRefused(f"at byte {at} there is no whole record batch")
        if crc32c(memoryview(data)[at + CRC_FROM : end]) != head[4]:
            raise BatchRefused(f"the CRC of the batch at byte {at} does not match")
        yield head
        at = end


def _end_of(found: Partition) -> int:
    """Return the offset after the last record of a log, as a broker finds it."""
    view = PartitionFiles(found)
    return BrokerSegment(view, found.logs[-1].base, int).next_offset()
