"""Group commit: many writers wait, one sync answers all whose bytes it made safe (GroupCommitService; spec 7).

A writer that finds no sync running does it itself, so a single writer needs no other thread. Who comes meanwhile is the
next group, and a thread of its own goes on syncing as long as such groups form: it answers one group and starts the
next sync before the answered writers have run, so the disk does not wait for them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from rmqctl.errors import RmqctlError
from rmqctl.rocketmq.engine.commit_log import CommitLog


@dataclass(slots=True)
class _Waiter:
    """A writer that waits until the log is flushed to ``end``; ``answered`` is let go then."""

    end: int
    answered: threading.Lock = field(default_factory=threading.Lock)
    error: RmqctlError | None = None

    def __post_init__(self) -> None:
        self.answered.acquire()


class GroupCommit:
    """Answers writers when their bytes are on the disk."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._syncing = False
        self._thread: threading.Thread | None = None
        self._work, self._closed = threading.Semaphore(0), False

    def wait(self, end: int, timeout_ms: int) -> bool:
        """Wait until the log is flushed to ``end``; False when that took longer than the timeout.

        Raises:
            IOFailure: the disk failed, so nobody knows whether the bytes are down.
        """
        with self._lock:
            if self._log.flushed >= end:
                return True
            if self._log.failure is not None:
                raise self._log.failure
            waiter = _Waiter(end) if self._syncing else None
            if waiter is not None:
                self._waiters.append(waiter)
            self._syncing = True
        if waiter is None:
            self._lead()
        elif waiter.answered.acquire(timeout=timeout_ms / 1000) and waiter.error is not None:
            raise waiter.error
        return self._log.flushed >= end

    def _lead(self) -> None:
        """One sync by a writer; those that came meanwhile are left to the thread."""
        failure = None
        try:
            self._sync()
        except RmqctlError as error:
            failure = error
            raise
        finally:
            if self._answer(failure):
                self._wake()

    def _sync(self) -> None:
        self._log.commit()
        self._log.flush()

    def _answer(self, failure: RmqctlError | None) -> bool:
        """Answer the writers whose bytes are down, or all where the disk failed; whether others wait."""
        with self._lock:
            flushed, waiters = self._log.flushed, self._waiters
            self._waiters = [] if failure is not None else [w for w in waiters if w.end > flushed]
            left = self._syncing = bool(self._waiters)
        for waiter in waiters:
            if failure is not None or waiter.end <= flushed:
                waiter.error = failure
                waiter.answered.release()
        return left

    def _wake(self) -> None:
        """Have the thread go on; it is started when it is first needed."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rmqctl-group-commit", daemon=True)
            self._thread.start()
        self._work.release()

    def _run(self) -> None:
        while self._work.acquire() and not self._closed:
            left = True
            while left:
                failure = None
                try:
                    self._sync()
                except RmqctlError as error:
                    failure = error
                left = self._answer(failure)

    def close(self) -> None:
        """End the thread, after the sync it is at."""
        self._closed = True
        if self._thread is not None:
            self._work.release()
            self._thread.join()


__all__ = ["GroupCommit"]
