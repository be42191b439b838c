"""Appending to the commit log: the one path by which records get their place (CommitLog.putMessage; spec 2.9).

Queue offset, physical offset and store time are fixed under one lock, so physical order is the order
in which writers held it. A record that does not fit its file is preceded by a blank record, and goes
to the next file. Bytes are written to the file before the writer goes on; with a transient pool they
wait in memory for the commit service instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate

from formats.rocketmq.message import BlankRecord, Magic
from rmqctl.errors import IOFailure, RmqctlError
from rmqctl.rocketmq.engine.disk import Buffer
from rmqctl.rocketmq.engine.encode import Prepared
from rmqctl.rocketmq.engine.limits import BLANK_ROOM
from rmqctl.rocketmq.engine.mapped_files import MappedFiles
from rmqctl.rocketmq.engine.message import PutResult
from rmqctl.rocketmq.engine.queue_offsets import QueueOffsets


class CommitLog:
    """The log that is written to.

    Attributes:
        wrote, committed, flushed: offsets up to which records are appended, in the files, and on the disk;
            ``flushed <= committed <= wrote``.
        store_timestamp: of the last record, ms.
        failure: what made the log unusable; None while it can be written.
    """

    def __init__(self, files: MappedFiles, queues: QueueOffsets, end: int, *, pooled: bool = False) -> None:
        """
        Args:
            end: where the next record goes.
            pooled: keep records in memory until :meth:`commit`.
        """
        self.files, self.queues = files, queues
        self.wrote = self.committed = self.flushed = end
        self.store_timestamp = 0
        self.failure: RmqctlError | None = None
        self.torn = False
        self._lock = threading.Lock()
        self._commit_lock = threading.Lock()
        self._pool: list[bytes] | None = [] if pooled else None

    def append(self, record: Prepared, stamp: Callable[[], int], *, queued: bool = True) -> PutResult:
        """Append a record.

        Args:
            stamp: gives the store time, under the lock.
            queued: it has a place in its queue; a record without one (prepared, rollback) gets queue offset 0.

        Raises:
            IOFailure: a file cannot be made or written; nothing was appended.
        """
        message = record.message
        queue = message.topic, message.queue_id
        with self._lock:
            counters = self.queues.counters
            result = self._append(record, counters.get(queue, 0) if queued else 0, stamp)
            if queued:
                counters[queue] = result.queue_offset + 1
            return result

    def _append(self, record: Prepared, queue_offset: int, stamp: Callable[[], int]) -> PutResult:
        at, store_timestamp = self.room(record.size), record.message.store_timestamp
        if store_timestamp is None:
            store_timestamp = stamp()
        self._put(at, record.encode(queue_offset, at, store_timestamp))
        self._reach(at + record.size, store_timestamp)
        return record.result(queue_offset, at, store_timestamp)

    def append_batch(self, records: Sequence[Prepared], stamp: Callable[[], int]) -> list[PutResult]:
        """Append records of one queue together: all in one file, with one store time.

        Raises:
            IOFailure: a file cannot be made or written; nothing was appended.
        """
        message = records[0].message
        with self._lock:
            first = self.queues.next(message.topic, message.queue_id)
            at = self.room(sum(record.size for record in records))
            store_timestamp = stamp() if message.store_timestamp is None else message.store_timestamp
            *places, end = accumulate((record.size for record in records), initial=at)
            rows = list(zip(records, range(first, first + len(records)), places, strict=True))
            self._put(at, b"".join([record.encode(n, place, store_timestamp) for record, n, place in rows]))
            self._reach(end, store_timestamp)
            self.queues.advance(message.topic, message.queue_id, len(records))
            return [record.result(n, place, store_timestamp) for record, n, place in rows]

    def append_late(
        self, topic: str, queue_id: int, make: Callable[[int], Prepared], stamp: Callable[[], int], advance: int
    ) -> PutResult:
        """Append a record whose text holds offsets that are only known under the lock.

        Args:
            make: encodes the record for the queue offset it gets.
            advance: by how much the queue's counter grows.

        Raises:
            MessageRefused: with these offsets the record is too large.
            IOFailure: a file cannot be made or written; nothing was appended.
        """
        with self._lock:
            first = self.queues.next(topic, queue_id)
            result = self._append(make(first), first, stamp)
            self.queues.advance(topic, queue_id, advance)
            return result

    def append_bytes(self, data: memoryview, end: int, store_timestamp: int) -> None:
        """Append encoded records that already carry their places and fit the file they go to.

        The caller holds :meth:`locked`, has asked :meth:`room`, and counts the queues itself.

        Raises:
            IOFailure: the file cannot be made or written; nothing was appended.
        """
        self._put(self.wrote, data)
        self._reach(end, store_timestamp)

    def _reach(self, end: int, store_timestamp: int) -> None:
        self.wrote = end
        if self._pool is None:
            self.committed = end
        self.store_timestamp = store_timestamp

    def locked(self) -> threading.Lock:
        """The append lock, for a writer that encodes many records at a time."""
        return self._lock

    def room(self, size: int) -> int:
        """Where a run of ``size`` bytes goes; ends the file with a blank record if it does not fit. Lock held.

        Raises:
            IOFailure: the log is unusable, or the blank record cannot be written.
        """
        if self.failure is not None:
            raise self.failure
        left = self.files.file_size - self.wrote % self.files.file_size
        if size + BLANK_ROOM > left:
            self._end_file(left)
        return self.wrote

    def _end_file(self, left: int) -> None:
        """Fill the last bytes of a file with a blank record."""
        self._put(self.wrote, BlankRecord.build({"size": left, "magic": int(Magic.BLANK)}))
        if self._pool is not None:
            self._pool.append(bytes(left - BlankRecord.sizeof()))
        self._reach(self.wrote + left, self.store_timestamp)

    def _put(self, at: int, data: Buffer) -> None:
        if self._pool is not None:
            self.files.file_at(at)
            self._pool.append(bytes(data))
            return
        try:
            self.files.write(at, data)
        except IOFailure:
            self.torn = True
            raise

    def commit(self) -> int:
        """Write what waits in the pool to the files; returns the bytes written.

        Raises:
            IOFailure: a file cannot be written; the records stay in the pool.
        """
        with self._commit_lock:
            with self._lock:
                waiting, target = self._pool or [], self.wrote
                if self._pool:
                    self._pool = []
            if not waiting:
                return 0
            try:
                self._write_out(b"".join(waiting))
            except IOFailure:
                with self._lock:
                    self._pool = waiting + (self._pool or [])
                self.torn = True
                raise
            written = target - self.committed
            self.committed = target
            return written

    def _write_out(self, data: bytes) -> None:
        at, view = self.committed, memoryview(data)
        while view:
            room = self.files.file_size - at % self.files.file_size
            self.files.write(at, view[:room])
            at, view = at + len(view[:room]), view[room:]

    def flush(self) -> int:
        """Make everything committed survive a power failure; returns the new flushed offset.

        Raises:
            IOFailure: the disk fails; the log takes no more records, since what is safe is unknown.
        """
        target = self.committed
        if target > self.flushed:
            try:
                self.files.sync(self.flushed, target)
            except IOFailure as error:
                self.failure = error
                raise
            self.flushed = max(self.flushed, target)
        return self.flushed

    def mend_tail(self) -> None:
        """Write zeros over what a failed write may have left behind the end.

        Raises:
            IOFailure: that cannot be written either.
        """
        if self.torn:
            at = self.committed
            rest = self.files.file_size - at % self.files.file_size
            if self.files.find(at) is not None:
                while rest:
                    step = min(rest, 1 << 20)
                    if any(self.files.read(at, step)):
                        self.files.write(at, bytes(step))
                    at, rest = at + step, rest - step
            self.torn = False
