"""Where store times come from: the machine's clock, or made-up times in order."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Clock(Protocol):
    """Gives times in epoch milliseconds."""

    def stamp(self) -> int:
        """The store time of the next record; asked once a record, or once a batch, under the append lock."""
        ...

    def stamps(self, count: int) -> npt.NDArray[np.int64]:
        """Store times of the next records together, shape (count,)."""
        ...

    def now(self) -> int:
        """The time now, without moving it."""
        ...


class SystemClock:
    """The clock of this machine."""

    def stamp(self) -> int:
        return time.time_ns() // 1_000_000

    now = stamp

    def stamps(self, count: int) -> npt.NDArray[np.int64]:
        return np.full(count, self.now())


@dataclass(slots=True)
class ForwardClock(SystemClock):
    """The clock of this machine, but never before a time.

    Attributes:
        earliest: that time, ms; behind the last record of a store whose clock was ahead.
    """

    earliest: int = 0

    def now(self) -> int:
        return max(time.time_ns() // 1_000_000, self.earliest)

    stamp = now

    def not_before(self, last: int) -> bool:
        """Give times behind this one, ms, if it is later than now; whether it is."""
        is_later = last > self.now()
        if is_later:
            self.earliest = last + 1
        return is_later


@dataclass(slots=True)
class MadeUpClock:
    """A clock that stands still but for a fixed step with each record.

    Attributes:
        time: store time of the next record, ms.
        interval: ms between one record and the next.
    """

    time: int
    interval: int = 0

    def stamp(self) -> int:
        found, self.time = self.time, self.time + self.interval
        return found

    def stamps(self, count: int) -> npt.NDArray[np.int64]:
        first, self.time = self.time, self.time + count * self.interval
        return first + np.arange(count) * self.interval

    def now(self) -> int:
        return self.time

    def not_before(self, last: int) -> bool:
        """Go on behind this time, ms, if it is later than the next; whether it is."""
        is_later = last > self.time
        if is_later:
            self.time = last + max(self.interval, 1)
        return is_later
