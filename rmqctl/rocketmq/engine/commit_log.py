"""Appending to the commit log: the one path by which records get their place (CommitLog.putMessage; spec 2.9).

Queue offset, physical offset and store time are fixed under one lock, so physical order is the order
in which writers held it. A record that does not fit its file is preceded by a blank record, and goes
to the next file. Bytes are written to the file before the writer goes on; with a transient pool they
wait in memory for the commit service instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from formats.rocketmq.message import BlankRecord, Magic
from rmqctl.errors import IOFailure, RmqctlError
from rmqctl.rocketmq.engine.encode import Prepared
from rmqctl.rocketmq.engine.limits import BLANK_ROOM
from rmqctl.rocketmq.engine.mapped_files import MappedFiles
from rmqctl.rocketmq.engine.message import PutResult, PutStatus
from rmqctl.rocketmq.engine.queue_offsets import QueueOffsets


class Appended(NamedTuple):
    """Where records went: the first one's queue offset, each one's physical offset, the end of the last."""

    queue_offset: int
    physical: tuple[int, ...]
    end: int
    store_timestamp: int


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

    def append(self, records: Sequence[Prepared], stamp: Callable[[], int], advance: int | None = None) -> Appended:
        """Append records of one queue together: all in one file, with one store time.

        Args:
            stamp: gives the store time, under the lock.
            advance: by how much the queue's counter grows; default: the number of records. 0: the
                records get queue offset 0 and the counter stays (prepared and rollback records).

        Raises:
            IOFailure: a file cannot be made or written; nothing was appended.
        """
        with self._lock:
            if self.failure is not None:
                raise self.failure
            message = records[0].message
            first = self.queues.next(message.topic, message.queue_id) if advance != 0 else 0
            found = self._place(records, first, stamp, step=advance != 0)
            if advance != 0:
                self.queues.advance(message.topic, message.queue_id, len(records) if advance is None else advance)
            return found

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _place(self, records: Sequence[Prepared], first: int, stamp: Callable[[], int], *, step: bool) -> Appended:
        at = self._room(records[0].size if len(records) == 1 else sum(record.size for record in records))
        found = self._write(records, at, first, stamp, step=step)
        self.wrote = found.end
        if self._pool is None:
            self.committed = found.end
        self.store_timestamp = found.store_timestamp
        return found

    def append_late(
        self, topic: str, queue_id: int, make: Callable[[int], Prepared], stamp: Callable[[], int], advance: int
    ) -> tuple[Prepared, Appended]:
        """Append a record whose text holds offsets that are only known under the lock.

        Args:
            make: encodes the record for the queue offset it gets.
            advance: by how much the queue's counter grows.

        Raises:
            MessageRefused: with these offsets the record is too large.
            IOFailure: a file cannot be made or written; nothing was appended.
        """
        with self._lock:
            self._check()
            first = self.queues.next(topic, queue_id)
            record = make(first)
            found = self._place([record], first, stamp, step=True)
            self.queues.advance(topic, queue_id, advance)
            return record, found

    def append_bytes(self, data: memoryview, end: int, store_timestamp: int) -> None:
        """Append encoded records that already carry their places and fit the file they go to.

        The caller holds :meth:`locked`, has asked :meth:`room`, and counts the queues itself.

        Raises:
            IOFailure: the file cannot be made or written; nothing was appended.
        """
        self._put(self.wrote, [data])
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
        self._check()
        return self._room(size)

    def _room(self, size: int) -> int:
        left = self.files.file_size - self.wrote % self.files.file_size
        if size + BLANK_ROOM > left:
            blank = BlankRecord.build({"size": left, "magic": int(Magic.BLANK)})
            self._put(self.wrote, [blank])
            self.wrote += left
            if self._pool is None:
                self.committed = self.wrote
        return self.wrote

    def _write(
        self, records: Sequence[Prepared], at: int, first: int, stamp: Callable[[], int], *, step: bool
    ) -> Appended:
        store_timestamp = records[0].message.store_timestamp
        if store_timestamp is None:
            store_timestamp = stamp()
        if len(records) == 1:
            self._put(at, records[0].pieces(first, at, store_timestamp))
            return Appended(first, (at,), at + records[0].size, store_timestamp)
        pieces: list[bytes] = []
        physical = []
        place = at
        for number, record in enumerate(records):
            pieces += record.pieces(first + number if step else 0, place, store_timestamp)
            physical.append(place)
            place += record.size
        self._put(at, pieces)
        return Appended(first, tuple(physical), place, store_timestamp)

    def _put(self, at: int, pieces: Sequence[bytes | memoryview]) -> None:
        if self._pool is not None:
            self.files.file_at(at)
            self._pool.append(b"".join(pieces))
            if len(pieces) == 1 and _is_blank(pieces):
                self._pool.append(bytes(self.files.file_size - at % self.files.file_size - len(pieces[0])))
            return
        try:
            self.files.write(at, pieces)
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
            self.files.write(at, [view[:room]])
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
                        self.files.write(at, [bytes(step)])
                    at, rest = at + step, rest - step
            self.torn = False


def _is_blank(pieces: Sequence[bytes | memoryview]) -> bool:
    return len(pieces) == 1 and len(pieces[0]) == BlankRecord.sizeof()


def result_of(record: Prepared, number: int, appended: Appended, status: PutStatus) -> PutResult:
    """The answer for one of the records that were appended together."""
    message, physical = record.message, appended.physical[number]
    return PutResult(
        status, message.topic, message.queue_id, appended.queue_offset + number, physical, record.size,
        record.message_id(physical), message.properties.get("UNIQ_KEY"), appended.store_timestamp,
    )  # fmt: skip
