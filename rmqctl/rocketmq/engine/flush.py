"""Group commit: many writers wait, one sync answers all whose bytes it made safe (GroupCommitService; spec 7).

A writer that finds no sync running does it itself, so a single writer needs no other thread. Who comes meanwhile is
the next group, and a thread of its own goes on syncing as long as such groups form: it answers one group and starts
the next sync before the answered writers have run, so the disk does not wait for them. It wakes one of a group, and
each wakes the next: woken all at once they would only stop again, each until its turn with the interpreter comes.

Asynchronous writers (:meth:`GroupCommit.submit`) leave all syncs to that thread. A thread of Python that never blocks
would keep it from the interpreter for 5 ms at the end of each sync. So a writer that comes when a sync should have
ended by what earlier ones took waits for that end, and the disk does not wait for it.

Beside it the flush and commit services run: intervals for asynchronous flush, commit for the pool, dispatch beside
writers. Who waits for a flush is a thread that blocks in `put`, or the future of an asynchronous one. Sources:
CommitLog.GroupCommitRequest, whose future the flush completes; FlushDiskWatcher, which gives up in the end.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from math import inf
from time import monotonic, sleep
from typing import Any, TypeVar

from rmqctl.errors import IOFailure, Refused, RmqctlError
from rmqctl.rocketmq.engine.commit_log import CommitLog
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.reput import Reput

T = TypeVar("T")
_PENDING, _FINISHED = "PENDING", "FINISHED"
_MAKING = threading.Lock()


class Waiter:
    """A thread that waits until the log is flushed to ``end``.

    Attributes:
        error: why the flush failed.
        is_gone: it waits no longer.
    """

    __slots__ = ("_lock", "end", "error", "is_gone")

    def __init__(self, end: int) -> None:
        self.end = end
        self.error: RmqctlError | None = None
        self.is_gone = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        """Wait until it may go on, but not longer."""
        self._lock.acquire(timeout=seconds)

    def go(self) -> None:
        """Let the thread go on."""
        with suppress(RuntimeError):  # it does already
            self._lock.release()


class Answer(Future[T]):
    """The future of an asynchronous put; it cannot be cancelled, since the message is in the log already.

    It looks at the log itself, so who flushes has nothing to do for it unless somebody waits or wants to be called.
    Only then it has a condition, too, which takes longer to make than all the rest of a future.

    Attributes:
        deadline: when it took too long, in seconds of `time.monotonic`.
    """

    _waiters: list[Any]
    _done_callbacks: list[Callable[[Future[T]], object]]

    def __init__(self, log: CommitLog, end: int, result: T, late: Callable[[T], T], deadline: float = inf) -> None:
        """
        Args:
            result: what it says when the log is flushed to ``end``.
            late: makes of that what it says at the deadline.
        """
        self.end, self.deadline, self._log, self._late = end, deadline, log, late
        self._made: threading.Condition | None = None
        self._state = _PENDING
        self._result: Any = result
        self._exception: BaseException | None = None

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # asked for, never set
        """Who waits or looks asks for it first, who flushes looks for it after the flush: one sees the other."""
        with _MAKING:
            if self._made is None:
                self._waiters, self._done_callbacks = [], []  # nobody touches them without the condition
                self._made = threading.Condition()
                self._look()
            return self._made

    def _look(self) -> bool:
        """Take notice of the flush; without a condition nobody waits for the answer."""
        if self._state == _PENDING and self._log.flushed >= self.end:
            self._state = _FINISHED
        return self._state == _FINISHED

    def answer(self, failure: RmqctlError | None, *, in_time: bool = True) -> None:
        """Say that the log is flushed, that it never will be, or that it took too long; the first one counts."""
        if self._made is None and failure is None and in_time:
            return  # who makes it now sees the flush, which came first
        with suppress(InvalidStateError):  # it has seen the flush meanwhile
            if failure is not None:
                self.set_exception(failure)
            else:
                is_late = not in_time and self._log.flushed < self.end
                self.set_result(self._late(self._result) if is_late else self._result)

    def cancel(self) -> bool:
        """Return False: what was appended cannot be taken back."""
        return False

    def done(self) -> bool:
        """As that of every future."""
        return self._is_quick() or super().done()

    def result(self, timeout: float | None = None) -> T:
        """As that of every future."""
        return self._result if self._is_quick() else super().result(timeout)

    def _is_quick(self) -> bool:
        """Return whether it is flushed, and nobody can have said anything else, for which the condition is made.

        In this order: who makes it after the first look sees the flush, too.
        """
        return self._log.flushed >= self.end and self._made is None


# --- group commit -----------------------------------------------------------------------------------


_FIRST, _SHORTEST = 300e-6, 20e-6
"""How long the first sync is thought to take, and the shortest, seconds."""
_GROWTH, _DECAY = 1.05, 1.01
"""By how much the next one is thought to take longer, at most, or less long."""
_AT_ONCE = 60e-6
"""In what time a thread has the interpreter when another gives it up, seconds at most."""
_MOMENT = 0.001


class GroupCommit:
    """Answers writers when their bytes are on the disk."""

    def __init__(self, log: CommitLog, timeout_ms: int) -> None:
        """
        Args:
            timeout_ms: after how long writers are answered that it took too long (syncFlushTimeout).
        """
        self._log, self._timeout = log, max(timeout_ms, 1) / 1000
        self._lock = threading.Lock()
        self._waiters, self._futures, self._answered = list[Waiter](), list[Answer[Any]](), deque[Waiter]()
        self._syncing = self._leading = False
        self._refusal: Refused | None = None
        self._threads: list[threading.Thread] = []
        self._own: set[int | None] = set()
        self._work, self._closed = threading.Semaphore(0), threading.Event()
        self._turns: list[threading.Lock] = []
        self._ends_at, self._usual, self._stopped_at = 0.0, _FIRST, 0.0

    def wait(self, end: int) -> bool:
        """Wait until the log is flushed to ``end``; False when that took too long.

        Raises:
            IOFailure: the disk failed, so nobody knows whether the bytes are down.
            Refused: the engine was closed before it.
        """
        waiter, leads, failure = None, False, None
        try:
            with self._lock:
                if self._is_flushed(end):
                    return True
                if self._syncing:
                    waiter = Waiter(end)
                    self._waiters.append(waiter)
                else:
                    leads = self._syncing = self._leading = True
            if leads:  # one sync by a writer; those that come meanwhile are left to the thread
                self._sync()
            if waiter is not None:
                waiter.wait(self._timeout)
        except RmqctlError as error:
            failure = error
            raise
        finally:
            if leads:
                self._leading = False
                if self._answer(failure):
                    self._wake()
            if waiter is not None:
                waiter.is_gone = True
                self._wake_writer()
        if waiter is not None and waiter.error is not None:
            raise waiter.error
        return self._log.flushed >= end

    def submit(self, end: int, result: T, late: Callable[[T], T]) -> Answer[T]:
        """Return a future that says ``result`` when the log is flushed to ``end``.

        Args:
            late: makes of that what it says when the flush takes too long.

        Raises:
            IOFailure: the disk failed before.
            Refused: the engine was closed before.
        """
        now = monotonic()
        answer = Answer(self._log, end, result, late, now + self._timeout)
        turn = None
        with self._lock:
            if self._is_flushed(end):
                return answer
            self._futures.append(answer)
            syncing, self._syncing = self._syncing, True
            if syncing and now >= self._ends_at and threading.get_ident() not in self._own:
                turn = threading.Lock()
                turn.acquire()
                self._turns.append(turn)
                self._stopped_at = now
        if not syncing:
            self._wake()
        if turn is not None and not turn.acquire(timeout=2 * self._usual):
            self._ends_at = inf  # a slow one: nobody else waits for it
        return answer

    def _is_flushed(self, end: int) -> bool:
        if self._log.flushed >= end:
            return True
        if (refusal := self._log.failure or self._refusal) is not None:
            raise refusal.with_traceback(None)
        return False

    def _sync(self) -> None:
        begin = monotonic()
        self._ends_at = begin + self._usual
        self._let_go()
        self._log.commit(through=True)
        self._log.flush()
        end = monotonic()
        was_over = end - self._stopped_at < _AT_ONCE  # when the writer stopped, and waited for the interpreter
        took = self._usual / _DECAY if was_over else min(end - begin, self._usual * _GROWTH)
        self._usual = max(took, _SHORTEST)

    def _let_go(self) -> None:
        """Those who waited for this turn go on while the disk works."""
        with self._lock:
            turns, self._turns = self._turns, []
        for turn in turns:
            turn.release()

    def _answer(self, failure: RmqctlError | None) -> bool:
        """Answer the writers whose bytes are down, or all where the disk failed; whether others wait."""
        with self._lock:
            flushed = inf if failure is not None else self._log.flushed
            for waiter in self._waiters:
                if waiter.end <= flushed:
                    waiter.error = failure if waiter.end > self._log.flushed else None
                    self._answered.append(waiter)
            self._waiters = [waiter for waiter in self._waiters if waiter.end > flushed]
            futures = [future for future in reversed(self._futures) if future.end <= flushed]
            self._futures = [future for future in self._futures if future.end > flushed]
            left = self._syncing = bool(self._waiters or self._futures)
        try:
            self._wake_writer()
            while futures:
                futures[-1].answer(failure if futures[-1].end > self._log.flushed else None)
                futures.pop()
        except BaseException:  # an interrupt, or the end that a callback wanted for its thread
            self._put_back(futures[::-1])
            raise
        if not left:
            self._let_go()
        return left

    def _wake_writer(self) -> None:
        """Let one of the answered writers go on; it lets the next one go before it does anything else."""
        while self._answered:
            with suppress(IndexError, ValueError):  # another one took it
                waiter = self._answered[0]
                waiter.go()
                self._answered.remove(waiter)  # only now: an interrupt loses nobody
                if not waiter.is_gone:
                    return

    def _put_back(self, futures: list[Answer[Any]]) -> None:
        """Those that are not answered yet, or perhaps not, wait for the thread."""
        with self._lock:
            self._futures += [future for future in futures if future not in self._futures]
            self._syncing = True
        self._wake()

    def _wake(self) -> None:
        """Have the thread go on; it is started, with the one that watches deadlines, when it is first needed."""
        if not self._threads:
            with self._lock:  # who closes joins threads that run
                if not self._threads and self._refusal is None:
                    for name, work in (("group-commit", self._run), ("flush-watcher", self._watch)):
                        self._threads.append(threading.Thread(target=work, name=f"rmqctl-{name}", daemon=True))
                        self._threads[-1].start()
                    self._own = {thread.ident for thread in self._threads}
        self._work.release()

    def _run(self) -> None:
        while self._work.acquire() and not self._closed.is_set():
            left = True
            while left:
                failure: RmqctlError | None = None
                try:
                    self._sync()
                except RmqctlError as error:
                    failure = error
                except Exception as error:  # noqa: BLE001 - whatever it was, its writers get it
                    failure = IOFailure("cannot flush", f"{type(error).__name__} {error}")
                with suppress(BaseException):  # of a callback: no other one waits for ever because of it
                    left = self._answer(failure)

    def _watch(self) -> None:
        """Answer futures at their deadlines; who comes while it sleeps has a later one than its next look."""
        pause = self._timeout
        while not self._closed.wait(pause):
            now = monotonic()
            with self._lock:
                late = [future for future in self._futures if future.deadline <= now]
                self._futures = [future for future in self._futures if future.deadline > now]
                pause = max(min((future.deadline for future in self._futures), default=inf) - now, 0.001)
            for future in late:
                future.answer(None, in_time=False)
            pause = min(pause, self._timeout)

    def close(self) -> None:
        """End the threads, after the sync that runs; futures that it did not answer get the end as theirs.

        A callback that runs in one of these threads may call it.
        """
        refusal = Refused("the engine was closed before the message was flushed; open the store and look for it")
        with self._lock:
            self._refusal = refusal
        while self._leading:  # a writer is at the files
            sleep(_MOMENT)
        self._closed.set()
        self._work.release()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._answer(None)
        self._answer(refusal)


# --- flush and commit services -------------------------------------------------------------------------


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
        error: what made it end early; the owner raises it at close.
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
            note: called with the store time of the last record in front of a thorough flush, in ms.
        """
        self._log, self._config, self._note = log, config, note
        self._thorough_at = monotonic()

    def __call__(self) -> None:
        """One turn of the service."""
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
        """One turn of the service."""
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
        """One turn of the service."""
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
    """Return the threads that a configuration wants for its log."""
    found = []
    if config.flush is FlushMode.ASYNC:
        found.append(Service(FLUSH, config.flush_interval_ms, AsyncFlush(log, config, note)))
    if config.transient_pool:
        found.append(Service("commit", config.commit_interval_ms, Commit(log, config)))
    elif config.waits_in_memory:  # what nobody waits for: messages with WAIT=false
        found.append(Service("commit", GROUP_COMMIT_MS, log.commit))
    return found
