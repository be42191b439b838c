"""Appending to the commit log: the one path by which records get their place (CommitLog.putMessage; spec 2.9).

Queue offset, physical offset and store time are fixed under one lock, so physical order is the order
in which writers held it. A record that does not fit its file is preceded by a blank record, and goes
to the next file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from formats.rocketmq.message import BlankRecord, Magic
from rmqctl.rocketmq.engine.encode import Prepared
from rmqctl.rocketmq.engine.limits import BLANK_ROOM
from rmqctl.rocketmq.engine.log_bytes import LogBytes
from rmqctl.rocketmq.engine.mapped_files import MappedFiles
from rmqctl.rocketmq.engine.message import PutResult
from rmqctl.rocketmq.engine.queue_offsets import QueueOffsets


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
