"""The commit log of an engine: the one path by which records get their place, and their way to the disk (spec 2.9, 7).

Queue offset, physical offset and store time are fixed under one lock, so physical order is the order in which writers
held it. A record that does not fit its file is preceded by a blank record, and goes to the next file.

Bytes are written to the file before their writer goes on. With a transient pool, and with sync flush, where all wait
anyway, they lie in memory until a commit writes many together.

Sources: CommitLog.putMessage, MappedFileQueue.commit and flush, QueueOffsetOperator (spec 2.16).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from formats.rocketmq.message import BlankRecord, Magic
from rmqctl.errors import IOFailure, Refused, RmqctlError
from rmqctl.files.writing import Buffer
from rmqctl.rocketmq.engine.mapped_files import MappedFiles
from rmqctl.rocketmq.engine.message import BLANK_ROOM, PutResult
from rmqctl.rocketmq.engine.record import Prepared

_STEP = 4096


class LogBytes:
    """What lies in the files of a log, and what is still on its way.

    Attributes:
        wrote, committed, flushed: offsets up to which records are appended, in the files, and on the disk;
            ``flushed <= committed <= wrote``.
        store_timestamp: of the last record, ms.
        failure: what made the log unusable; None while it can be written.
        torn: a write failed, and may have left something after the end.
    """

    def __init__(self, files: MappedFiles, end: int, *, pooled: bool) -> None:
        """
        Args:
            end: where the next record goes.
            pooled: keep records in memory until :meth:`commit`.
        """
        self.files = files
        self.wrote = self.committed = self.flushed = end
        self.store_timestamp = 0
        self.failure: RmqctlError | None = None
        self.torn = False
        self._refusal: RmqctlError | None = None
        self._commit_lock, self._flush_lock, self._lock = threading.Lock(), threading.Lock(), threading.Lock()
        self._pool: dict[int, bytes] | None = {} if pooled else None

    def locked(self) -> threading.Lock:
        """Return the append lock, for a writer that encodes many records at a time."""
        return self._lock

    def _reach(self, end: int, store_timestamp: int) -> None:
        self.wrote = end
        if self._pool is None:
            self.committed = end
        self.store_timestamp = store_timestamp

    def _put(self, at: int, data: Buffer) -> None:
        if self._pool is not None:
            self.files.file_at(at)
            self._pool[at] = bytes(data)  # takes the place of one whose writer was interrupted before it counted
            return
        try:
            self.files.write(at, data)
        except BaseException:
            self.torn = True
            raise

    def commit(self, *, through: bool = False) -> int:
        """Write what waits in the pool to the files; returns the bytes written.

        Args:
            through: write them onto the disk, where that can be done with one system call. The next flush has
                nothing to do then.

        Raises:
            IOFailure: a file cannot be written; the records stay in the pool.
        """
        with self._commit_lock:
            begin, waiting, end = self.committed, dict[int, bytes](), self.committed
            try:
                with self._lock:
                    waiting, end = self._pool or waiting, self.wrote
                    if waiting:
                        self._pool = {}
                data = memoryview(b"".join(waiting.values()))[: end - begin]
                through = through and self.flushed == begin
                while self.committed < begin + len(data):
                    through = self._commit_some(data[self.committed - begin :], through=through)
            except BaseException:  # an interrupted one loses nothing either
                self._put_back(b"".join(waiting.values())[self.committed - begin : end - begin])
                raise
            return len(data)

    def _put_back(self, data: bytes) -> None:
        """Let what could not be written wait again, in front of what came meanwhile."""
        self.torn = True
        with self._lock:
            if data and self._pool is not None:
                self._pool = {self.committed: data, **self._pool}

    def _commit_some(self, data: memoryview, *, through: bool) -> bool:
        """Write what goes into one file, which ends with a record; whether it is on the disk."""
        at = self.committed
        piece = data[: self.files.file_size - at % self.files.file_size]
        through = through and self.files.write_through(at, piece)
        if not through:
            self.files.write(at, piece)
        self.committed = at + len(piece)
        if through:
            with self._flush_lock:
                self.flushed = max(self.flushed, self.committed)
        return through

    def flush(self) -> int:
        """Make everything committed survive a power failure; returns the new flushed offset.

        Raises:
            IOFailure: the disk fails or has failed; the log takes no more records, since what is safe is unknown.
        """
        if self.committed > self.flushed:
            with self._flush_lock:  # the system reports a failure only to one of those who sync at the same time
                self._flush(self.committed)
        return self.flushed

    def _flush(self, target: int) -> None:
        if target <= self.flushed:
            return
        if self.failure is not None:  # it reports it only once, too, and says then that all is well
            raise self.failure.with_traceback(None)
        try:
            self.files.sync(self.flushed, target)
        except IOFailure as error:
            self.failure = self._refusal = error
            raise
        self.flushed = target

    def mend_tail(self) -> None:
        """Write zeros over what a failed write may have left after the end, from the back.

        Where that fails too, whole records stay in front, which brokers take, and none after a broken one.

        Raises:
            IOFailure: that cannot be read or written either.
        """
        with self._commit_lock, self._lock:
            if self.torn and self.files.find(self.committed) is not None:
                end = self.committed - self.committed % self.files.file_size + self.files.file_size
                for at in reversed(range(self.committed, end, _STEP)):
                    zeros = bytes(min(_STEP, end - at))
                    if self.files.read(at, len(zeros)) != zeros:
                        self.files.write(at, zeros)
            self.torn = False

    def seal(self, reason: RmqctlError) -> None:
        """Take no more records; who comes gets the reason."""
        with self._lock:
            self._refusal = self._refusal or reason

    def close(self) -> None:
        """Close the files, when nobody is at them; what waits in the pool is given up."""
        with self._commit_lock, self._flush_lock, self._lock:
            self._pool = {} if self._pool is not None else None
            self._refusal = self._refusal or Refused("the log is closed; open the store again")
            self.failure = self.failure or self._refusal
            self.files.close()


# --- the next queue offset of every queue -----------------------------------------------------------


Key = tuple[str, int]


class QueueOffsets:
    """Counters by topic and queue id; a queue not seen before starts at 0. Callers hold the append lock.

    Attributes:
        counters: the offset that the next message of each queue gets.
    """

    def __init__(self, known: Mapping[Key, int] | None = None) -> None:
        self.counters: dict[Key, int] = dict(known or {})

    def next(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message of a queue gets."""
        return self.counters.get((topic, queue_id), 0)

    def advance(self, topic: str, queue_id: int, count: int) -> None:
        """Count messages as appended."""
        key = topic, queue_id
        self.counters[key] = self.counters.get(key, 0) + count

    def snapshot(self) -> dict[Key, int]:
        """All counters as they are now."""
        return dict(self.counters)


# --- appending to the commit log --------------------------------------------------------------------


class CommitLog(LogBytes):
    """The log that is written to.

    Attributes:
        queues: the counters of the queues.
    """

    def __init__(self, files: MappedFiles, queues: QueueOffsets, end: int, *, pooled: bool = False) -> None:
        """
        Args:
            end: where the next record goes.
            pooled: keep records in memory until :meth:`commit`.
        """
        super().__init__(files, end, pooled=pooled)
        self.queues = queues

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
        self,
        queue: tuple[str, int],
        make: Callable[[int], Prepared],
        stamp: Callable[[], int],
        advance: int,
        further: Sequence[tuple[str, int]] = (),
    ) -> PutResult:
        """Append a record whose text holds offsets that are only known under the lock.

        Args:
            make: encodes the record for the queue offset it gets.
            advance: by how much the queue's counter grows.
            further: other queues that get a place for it, too.

        Raises:
            MessageRefused: with these offsets the record is too large.
            IOFailure: a file cannot be made or written; nothing was appended.
        """
        with self._lock:
            first = self.queues.next(*queue)
            result = self._append(make(first), first, stamp)
            self.queues.advance(*queue, advance)
            for other in further:
                self.queues.advance(*other, 1)
            return result

    def append_bytes(self, data: memoryview, end: int, store_timestamp: int) -> None:
        """Append encoded records that already carry their places and fit the file they go to.

        The caller holds :meth:`locked`, has asked :meth:`room`, and counts the queues itself.

        Raises:
            IOFailure: the file cannot be made or written; nothing was appended.
        """
        self._put(self.wrote, data)
        self._reach(end, store_timestamp)

    def room(self, size: int) -> int:
        """Where a run of ``size`` bytes goes; ends the file with a blank record if it does not fit. Lock held.

        Raises:
            IOFailure: the log is unusable, or the blank record cannot be written.
            Refused: it was sealed.
        """
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)  # those of earlier calls would pile up on it
        left = self.files.file_size - self.wrote % self.files.file_size
        if size + BLANK_ROOM > left:
            self._end_file(left)
        return self.wrote

    def _end_file(self, left: int) -> None:
        """Fill the last bytes of a file with a blank record."""
        blank = BlankRecord.build({"size": left, "magic": int(Magic.BLANK)})
        self._put(self.wrote, blank if self._pool is None else blank.ljust(left, b"\0"))
        self._reach(self.wrote + left, self.store_timestamp)
