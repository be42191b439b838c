"""Who waits for a flush: a thread that blocks in `put`, or the future of an asynchronous one (spec 7).

Sources: CommitLog.GroupCommitRequest, whose future the flush completes; FlushDiskWatcher, which gives up in the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from math import inf
from typing import Any, TypeVar

from rmqctl.errors import RmqctlError
from rmqctl.rocketmq.engine.commit_log import CommitLog

T = TypeVar("T")
_PENDING, _FINISHED = "PENDING", "FINISHED"
_MAKING = threading.Lock()


class Waiter:
    """A thread that waits until the log is flushed to ``end``.

    Attributes:
        deadline: when somebody else has to say that it took too long, in seconds of `time.monotonic`; never here.
        error: why the flush failed.
    """

    __slots__ = ("_answered", "end", "error")
    deadline = inf

    def __init__(self, end: int) -> None:
        self.end = end
        self.error: RmqctlError | None = None
        self._answered = threading.Lock()
        self._answered.acquire()

    def wait(self, seconds: float) -> bool:
        """Wait for the answer; False when that took longer."""
        return self._answered.acquire(timeout=seconds)

    def answer(self, failure: RmqctlError | None, *, in_time: bool = True) -> None:
        """Let the thread go on."""
        self.error = failure
        with suppress(RuntimeError):  # it was, by somebody who was interrupted
            self._answered.release()


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
        """Who waits or looks asks for it first, who flushes looks for it behind the flush: one sees the other."""
        with _MAKING:
            if self._made is None:
                self._waiters, self._done_callbacks = [], []  # nobody touches them without the condition
                self._made = threading.Condition()
                self._look()
            return self._made

    def _look(self) -> bool:
        """Take notice of the flush; without a condition nobody needs to be told."""
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
        """Always False."""
        return False

    def done(self) -> bool:
        """As that of every future."""
        return self._is_quick() or super().done()

    def result(self, timeout: float | None = None) -> T:
        """As that of every future."""
        return self._result if self._is_quick() else super().result(timeout)

    def _is_quick(self) -> bool:
        """It is flushed, and nobody can have said anything else, for which the condition is made.

        In this order: who makes it behind the first look sees the flush, too.
        """
        return self._log.flushed >= self.end and self._made is None


__all__ = ["Answer", "Waiter"]
