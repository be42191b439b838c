"""Flush and commit services: intervals for async flush, commit for the pool, dispatch beside writers (spec 7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from rmqctl.errors import IOFailure, RmqctlError
from rmqctl.rocketmq.engine.commit_log import CommitLog
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.reput import Reput

PAGE, FLUSH = 4096, "flush"
MUCH, LONG_SECONDS = 32 << 20, 0.5
MOST_FILES = 4
"""Log files that may wait for dispatch: fewer than a start after a kill looks at."""
GROUP_COMMIT_MS = 10
"""How often the group commit service looks for work by itself."""


class Service:
    """A thread that calls ``work`` every ``interval_ms`` until it is stopped.

    Attributes:
        name: what it does.
        error: what made it end early; the owner tells it at close.
    """

    def __init__(self, name: str, interval_ms: int, work: Callable[[], object]) -> None:
        self.name = name
        self.error: RmqctlError | None = None
        self._interval, self._work = interval_ms / 1000, work
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"rmqctl-{name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Do the work now rather than at the end of the interval."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread after the work it is at."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._interval)
            self._wake.clear()
            try:
                if not self._stop.is_set():
                    self._work()
            except RmqctlError as error:
                self.error = error
                return
            except OSError as error:
                self.error = IOFailure.of(error)
                return


class AsyncFlush:
    """FlushRealTimeService: flushes when enough pages are dirty, or at the latest after the thorough interval."""

    def __init__(self, log: CommitLog, config: StoreConfig, note: Callable[[int], None]) -> None:
        """
        Args:
            note: is told the store time of the last record in front of a thorough flush, in ms.
        """
        self._log, self._config, self._note = log, config, note
        self._thorough_at = monotonic()

    def __call__(self) -> None:
        """One turn of the service.

        Raises:
            IOFailure: the disk fails.
        """
        store_timestamp = self._log.store_timestamp if self._log.committed == self._log.wrote else 0
        now = monotonic()
        thorough = now - self._thorough_at >= self._config.flush_thorough_interval_ms / 1000
        if thorough:
            self._thorough_at = now
        if has_pages(self._log.flushed, self._log.committed, 0 if thorough else self._config.flush_least_pages):
            self._log.flush()
            if thorough and store_timestamp:
                self._note(store_timestamp)


class Commit:
    """CommitRealTimeService: writes the pool to the files."""

    def __init__(self, log: CommitLog, config: StoreConfig) -> None:
        self._log, self._config = log, config
        self._thorough_at = monotonic()

    def __call__(self) -> None:
        """One turn of the service.

        Raises:
            IOFailure: a file cannot be written.
        """
        now = monotonic()
        thorough = now - self._thorough_at >= self._config.commit_thorough_interval_ms / 1000
        if has_pages(self._log.committed, self._log.wrote, 0 if thorough else self._config.commit_least_pages):
            self._thorough_at = now
            self._log.commit()


class Pauses:
    """Dispatches beside writers: when they pause, when much waits, or after half a second.

    A thread that dispatches all the time takes the interpreter from writers at each of their system calls.
    """

    def __init__(self, log: CommitLog, reput: Reput, dispatch: Callable[[], object]) -> None:
        self._log, self._reput, self._dispatch = log, reput, dispatch
        self._seen, self._ran_at = -1, monotonic()
        self._much = min(MUCH, 2 * log.files.file_size)

    def __call__(self) -> None:
        """One turn of the service.

        Raises:
            IOFailure: a queue or index file cannot be written.
        """
        end, now = self._log.committed, monotonic()
        idle, self._seen = end == self._seen, end
        waiting = end - self._reput.position
        if (
            waiting > 0
            and not self._reput.is_fed
            and (idle or waiting >= self._much or now - self._ran_at >= LONG_SECONDS)
        ):
            self._ran_at = now
            self._dispatch()


def most_undispatched(log: CommitLog) -> int:
    """Bytes of log that may wait for dispatch before writers have to do it themselves.

    A broker of 5.4.0 and later that starts after a kill looks at no more than the last 10 files (spec 6.4), and
    what was not dispatched in front of them would never get into its queues.
    """
    return min(2 * MUCH, MOST_FILES * log.files.file_size)


def has_pages(begin: int, end: int, least: int) -> bool:
    """Whether at least ``least`` pages of 4 KiB are dirty; with 0, whether anything is (MappedFile.isAbleToFlush)."""
    return end // PAGE - begin // PAGE >= least if least > 0 else end > begin


def services_of(log: CommitLog, config: StoreConfig, note: Callable[[int], None]) -> list[Service]:
    """The threads that a configuration wants for its log."""
    found = []
    if config.flush is FlushMode.ASYNC:
        found.append(Service(FLUSH, config.flush_interval_ms, AsyncFlush(log, config, note)))
    if config.transient_pool:
        found.append(Service("commit", config.commit_interval_ms, Commit(log, config)))
    elif config.waits_in_memory:  # what nobody waits for: messages with WAIT=false
        found.append(Service("commit", GROUP_COMMIT_MS, log.commit))
    return found
