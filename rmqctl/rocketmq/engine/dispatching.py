"""The dispatching half of an engine: when records get into queues and index, and who does it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rmqctl.rocketmq.commitlog import LogBlock
from rmqctl.rocketmq.engine.commit_log import CommitLog
from rmqctl.rocketmq.engine.flush import Service
from rmqctl.rocketmq.engine.reput import Reput

UNDISPATCHED = 16 << 10
"""Bytes of log that dispatch has not come to when an engine crashes on purpose."""


class Dispatches(ABC):
    """Runs reput, one thread at a time; an engine has the attributes."""

    log: CommitLog
    reput: Reput
    reput_lock: threading.Lock
    most_undispatched: int
    _services: list[Service]

    def keep_up(self) -> None:
        """Dispatch all but the last records if too many bytes of log wait for it (`most_undispatched`).

        Where half as many wait in memory, their writers write them themselves: a disk that stands still would else
        fill the memory.

        Raises:
            IOFailure: the log, or a queue or index file, cannot be written.
        """
        most, log = self.most_undispatched, self.log
        if log.wrote - log.committed > most >> 1:
            log.commit()
        if log.committed - self.reput.position > most:
            with self.reput_lock:
                self.reput.run(log.committed - min(3 * UNDISPATCHED, most >> 1))

    @abstractmethod
    def check_not_closed(self) -> None:
        """Refuse what comes behind the end: the files may be somebody else's by then."""

    def dispatch(self) -> int:
        """Put everything that is committed into queues and index; returns the number of records.

        Raises:
            IOFailure: a queue or index file cannot be written; the log is not touched by that.
            Refused: the engine is closed.
        """
        self.check_not_closed()
        with self.reput_lock:
            return self.reput.run() if self.log.committed > self.reput.position else 0

    @contextmanager
    def feeding(self) -> Iterator[Callable[[LogBlock], None]]:
        """While a producer has what it appends in memory: gives what dispatches such records, in log order.

        It raises IOFailure where a queue or index file cannot be written.
        """

        def dispatch(found: LogBlock) -> None:
            if self._services:  # else dispatch waits until it is asked for
                with self.reput_lock:
                    self.reput.add(found)

        self.reput.is_fed = True
        try:
            yield dispatch
        finally:
            self.reput.is_fed = False

    def write_index(self) -> None:
        """Write what of the index is only in memory, so that it can be asked.

        Raises:
            IOFailure: the file cannot be written.
            Refused: the engine is closed.
        """
        self.check_not_closed()
        with self.reput_lock:
            self.reput.write_index()
