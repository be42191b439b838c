"""Who waits for a flush: a thread that blocks in `put`, or the future of an asynchronous one (spec 7).

Sources: CommitLog.GroupCommitRequest, whose future the flush completes; FlushDiskWatcher, which gives up in the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from typing import Any, Generic, TypeVar

from rmqctl.errors import RmqctlError
from rmqctl.rocketmq.engine.message import PutStatus

T = TypeVar("T")
_PENDING, _FINISHED = "PENDING", "FINISHED"
_MAKING = threading.Lock()


class Answer(Future[T]):
    """A future that cannot be cancelled: the message is in the log already.

    Making a condition takes longer than all the rest of a future, and most are answered before anyone asks. So the
    condition is made when somebody asks too early.
    """

    def __init__(self) -> None:
        self._made: threading.Condition | None = None
        self._state = _PENDING
        self._result: Any = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Callable[[Future[T]], object]] = []

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # asked for, never set
        with _MAKING:
            if self._made is None:
                self._made = threading.Condition()
            return self._made

    def cancel(self) -> bool:
        """Always False."""
        return False

    def result(self, timeout: float | None = None) -> T:
        """As that of every future."""
        if self._state == _FINISHED and self._exception is None:
            found: T = self._result
            return found
        return super().result(timeout)

    def set_result(self, result: T) -> None:
        """As that of every future."""
        with _MAKING:
            if self._made is None:
                self._result, self._state = result, _FINISHED
                return
        super().set_result(result)


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
        self._answered.release()


class Promise(Generic[T]):
    """What the future of an asynchronous put will say when the log is flushed to ``end``, or at the deadline."""

    __slots__ = ("_result", "deadline", "end", "future")

    def __init__(self, end: int, deadline: float, result: Callable[[PutStatus], T]) -> None:
        """
        Args:
            result: makes what the future says.
        """
        self.end, self.deadline, self._result = end, deadline, result
        self.future: Answer[T] = Answer()

    def answer(self, failure: RmqctlError | None, *, in_time: bool = True) -> None:
        """Complete the future, which runs its callbacks."""
        if failure is not None:
            self.future.set_exception(failure)
        else:
            self.future.set_result(self._result(PutStatus.PUT_OK if in_time else PutStatus.FLUSH_DISK_TIMEOUT))
