"""The bytes of the commit log on their way to the disk: appended, committed, flushed (spec 7).

Bytes are written to the file before their writer goes on. With a transient pool, and with sync flush, where all wait
anyway, they lie in memory until a commit writes many together. Sources: MappedFileQueue.commit and flush.
"""

from __future__ import annotations

import threading

from rmqctl.errors import IOFailure, Refused, RmqctlError
from rmqctl.rocketmq.engine.disk import Buffer
from rmqctl.rocketmq.engine.mapped_files import MappedFiles

_STEP = 4096


class LogBytes:
    """What lies in the files of a log, and what is still on its way.

    Attributes:
        wrote, committed, flushed: offsets up to which records are appended, in the files, and on the disk;
            ``flushed <= committed <= wrote``.
        store_timestamp: of the last record, ms.
        failure: what made the log unusable; None while it can be written.
        torn: a write failed, and may have left something behind the end.
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
        """The append lock, for a writer that encodes many records at a time."""
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
        """What could not be written waits again, in front of what came meanwhile."""
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
            with self._flush_lock:  # the system tells a failure only to one of those who sync at the same time
                self._flush(self.committed)
        return self.flushed

    def _flush(self, target: int) -> None:
        if target <= self.flushed:
            return
        if self.failure is not None:  # it tells it only once, too, and says then that all is well
            raise self.failure.with_traceback(None)
        try:
            self.files.sync(self.flushed, target)
        except IOFailure as error:
            self.failure = self._refusal = error
            raise
        self.flushed = target

    def mend_tail(self) -> None:
        """Write zeros over what a failed write may have left behind the end, from the back.

        Where that fails too, whole records stay in front, which brokers take, and none behind a broken one.

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
        """Take no more records; who comes is told why."""
        with self._lock:
            self._refusal = self._refusal or reason

    def close(self) -> None:
        """Close the files, when nobody is at them; what waits in the pool is given up."""
        with self._commit_lock, self._flush_lock, self._lock:
            self._pool = {} if self._pool is not None else None
            self._refusal = self._refusal or Refused("the log is closed; open the store again")
            self.failure = self.failure or self._refusal
            self.files.close()
