"""Where store times come from: the machine's clock, or made-up times in order."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Gives times in epoch milliseconds."""

    def stamp(self) -> int:
        """The store time of the next record; asked once a record, or once a batch, under the append lock."""
        ...

    def now(self) -> int:
        """The time now, without moving it."""
        ...


class SystemClock:
    """The clock of this machine."""

    def stamp(self) -> int:
        return time.time_ns() // 1_000_000

    now = stamp


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

    def now(self) -> int:
        return self.time
