"""Stores gone through again and again, part after part, each part at a moment of its own.

What is found counts when a second reading finds it, too: what retention, roll-over, compaction or a restart of the
broker change between the look at a name and the look at its bytes is not there any more by then. A file that is gone
is no finding.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol
from zlib import crc32

from rmqctl.answer import Row
from rmqctl.errors import RmqctlError
from rmqctl.files.pace import Pace, paced
from rmqctl.inventory import Member
from rmqctl.verification import LogPart
from rmqctl.watch.figures import figures_of
from rmqctl.watch.memory import Found, Key, Memory, StoreMemory, key_of

_MOST = 10_000
"""Findings of a store that are remembered."""
_NAP = 0.5
"""Seconds of sleep, at most, between two looks at whether it is to end."""
_UNTIDY = 32 << 20
"""Bytes that are read before memory is freed."""
_RESTART = 600
"""Seconds that a store whose broker has ended counts as one in use still."""
_SHARE = 20
"""Figures may take one part in so many of the time."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How stores are watched.

    Attributes:
        subset: ``(3, 10)``: only the third of ten parts of each store, divided by the names of their parts.
        every: seconds from the begin of a cycle to that of the next, at least.
        cycles: after so many of each store it ends; None: never.
        lasting: seconds after which no further part is begun; None: without end.
        patience: seconds before the second reading of a store that somebody writes.
        figures: seconds between two looks at lag and transactions, at least; None: none.
    """

    subset: tuple[int, int] = (1, 1)
    every: float = 3600
    cycles: int | None = None
    lasting: float | None = None
    patience: float = 5
    figures: float | None = 60


class Listener(Protocol):
    """Who learns at once what a watch does, beside its events."""

    def progress(self, root: str, memory: StoreMemory, read: int, parts: int) -> None:
        """Take what is remembered of a store after a part: bytes read since the last call, parts of the cycle."""
        ...

    def figures(self, root: str, figures: Row) -> None:
        """Take lag, transactions and the cost of a start."""
        ...

    def readable(self, root: str, *, is_readable: bool) -> None:
        """Take whether a store can be opened."""
        ...


@dataclass(slots=True)
class _Watched:
    """A store while it is watched.

    Attributes:
        due: when its next cycle may begin; cycles: how many were ended here; seconds of the clock.
        looked: when its figures may be asked for again.
        error: why it could not be opened the last time, "" where it could.
        runs: a broker ran on it at the last look; ran: when one did for the last time, None: never.
    """

    member: Member
    memory: StoreMemory
    due: float = 0
    cycles: int = 0
    looked: float = 0
    error: str = ""
    runs: bool = False
    ran: float | None = None


class Watch:
    """A watch of some stores. Iterate :meth:`run`; between two of its events it may be left for good.

    Args:
        members: the stores.
        memory: what earlier runs have left.
        pace: at which files are read.
        listener: learns what is done, beside the events.
        clock: seconds of the epoch; sleep: waits so many.

    Attributes:
        is_over: set it to end the run where it is: after the part that is looked at.
    """

    def __init__(
        self,
        members: Sequence[Member],
        settings: Settings,
        memory: Memory | None = None,
        pace: Pace | None = None,
        listener: Listener | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.settings, self.memory, self.pace = settings, memory or Memory(), pace or Pace()
        self._listener, self._clock, self._sleep = listener, clock, sleep
        self._stores = [_Watched(member, self.memory.of(member.path)) for member in members]
        self._ends = None if settings.lasting is None else clock() + settings.lasting
        self._tidied = 0
        self.is_over = False

    @property
    def found(self) -> int:
        """Findings of all stores that are not gone."""
        return sum(len(store.memory.found) for store in self._stores)

    def run(self) -> Iterator[list[Row]]:
        """Go through the stores and yield what is new, events that belong together in one list.

        Each event has ``event``, ``time`` (epoch ms) and ``store``: ``found`` and ``gone`` with the row of a finding as
        `verify` gives it, ``cycle`` with its sums, ``figures``, ``unreadable`` with an ``error``, ``readable``.
        """
        with paced(self.pace):
            while self._goes_on():
                busy = False
                for store in self._stores:
                    if self._is_due(store):
                        busy = True
                        yield from self._cycle(store)
                    yield from self._figures(store)
                if not busy and self._goes_on():
                    self._sleep(_NAP)

    def _goes_on(self) -> bool:
        if self.is_over or (self._ends is not None and self._clock() >= self._ends):
            return False
        most = self.settings.cycles
        return most is None or any(store.cycles < most for store in self._stores)

    def _is_due(self, store: _Watched) -> bool:
        most = self.settings.cycles
        return self._clock() >= store.due and (most is None or store.cycles < most)

    # --- a cycle of one store -------------------------------------------------------------------------

    def _cycle(self, store: _Watched) -> Iterator[list[Row]]:
        """Go on with the cycle of a store to its end, or until the time is over."""
        parts, said = self._parts(store)
        yield from said
        if parts is None:
            store.due = self._clock() + min(self.settings.every, 60)
            store.cycles += 1
            return
        memory = store.memory
        memory.began = memory.began or self._now()
        began = self._clock()
        ours = [part for part in parts if self._is_ours(part)]
        for part in ours:
            if part.name in memory.done:
                continue
            if not self._goes_on():
                return
            before = self.pace.read
            events = self._look(store, part)
            read = self.pace.read - before
            memory.read += read
            self._tidy()
            memory.done.append(part.name)
            self.memory.save()
            if self._listener is not None:
                self._listener.progress(store.member.name, memory, read, len(ours))
            yield events
            yield from self._figures(store)
        yield self._end(store, parts)
        store.due, store.cycles = began + self.settings.every, store.cycles + 1

    def _parts(self, store: _Watched) -> tuple[list[LogPart] | None, list[list[Row]]]:
        """Return the parts of a store, None where it cannot be opened, and what is new about that."""
        try:
            parts: list[LogPart] | None = list(store.member.open().parts())
            error = ""
        except (RmqctlError, OSError) as why:
            parts, error = None, str(why)
        event: Row = {"event": "unreadable", "error": error} if error else {"event": "readable"}
        is_new = bool(error) != bool(store.error)
        store.error = error
        if self._listener is not None:
            self._listener.readable(store.member.name, is_readable=not error)
        return parts, [[self._event(store, event)]] if is_new else []

    def _is_ours(self, part: LogPart) -> bool:
        number, count = self.settings.subset
        return crc32(part.name.encode()) % count == number - 1

    def _end(self, store: _Watched, parts: list[LogPart]) -> list[Row]:
        """End a cycle: what it has not seen again is gone where its part was looked at, or is not there any more."""
        memory, there = store.memory, {part.name for part in parts}
        gone = [
            key
            for key, found in memory.found.items()
            if found.cycle < memory.cycle and (found.part in memory.done or found.part not in there)
        ]
        events = [self._event(store, {"event": "gone", **memory.found.pop(key).row}) for key in gone]
        is_whole = all(part.name in memory.done for part in parts)
        counts: dict[str, int] = {}
        for found in memory.found.values():
            counts[found.row["severity"]] = counts.get(found.row["severity"], 0) + 1
        now = self._now()
        events.append(
            self._event(
                store,
                {
                    "event": "cycle",
                    "cycle": memory.cycle,
                    "began": memory.began,
                    "parts": len(memory.done),
                    "bytes": memory.read,
                    "whole": is_whole,
                    "findings": {"error": counts.get("error", 0), "warning": counts.get("warning", 0)},
                },
            )
        )
        memory.last = now if is_whole else memory.last
        memory.cycle, memory.began, memory.done, memory.read = memory.cycle + 1, 0, [], 0
        self.memory.save()
        if self._listener is not None:
            self._listener.progress(store.member.name, memory, 0, len(parts))
        return events

    # --- a part ---------------------------------------------------------------------------------------

    def _look(self, store: _Watched, part: LogPart) -> list[Row]:
        """Check a part; return what is new in it."""
        memory, (rows, running) = store.memory, self._checked(store, part)
        if rows.keys() - memory.found.keys():
            if running:
                self._wait(self.settings.patience)
            again, _ = self._checked(store, part)
            waits = self._has_just_ended(store)
            rows = {
                key: row
                for key, row in rows.items()
                if key in memory.found or (key in again and not (waits and row["severity"] == "warning"))
            }
        new = []
        for key, row in rows.items():
            if key in memory.found:
                memory.found[key].cycle, memory.found[key].row = memory.cycle, row
            elif len(memory.found) < _MOST:
                memory.found[key] = Found(row, part.name, self._now(), memory.cycle)
                new.append(self._event(store, {"event": "found", **row}))
        return new

    def _checked(self, store: _Watched, part: LogPart) -> tuple[dict[Key, Row], bool]:
        """Return errors and warnings of a part as it is now, none of a gone one, and whether somebody may write."""
        try:
            opened = store.member.open()
            now = next((one for one in opened.parts() if one.name == part.name), None)
            if now is None:
                return {}, True
            running = opened.state != "clean"
            store.runs = opened.is_running
            store.ran = self._clock() if store.runs else store.ran
            rows = {key_of(row): row for row in opened.verify(processes=1, notes=False, part=now)}
        except (RmqctlError, OSError):  # what keeps it from being opened is said when its parts are asked for
            return {}, True
        return rows, running

    def _has_just_ended(self, store: _Watched) -> bool:
        """Whether the broker of a store was ended a moment ago: what is no error may be work that it goes on with when
        it runs again. The units of a file of the log that expired just before are deleted then.
        """
        return not store.runs and store.ran is not None and self._clock() - store.ran < _RESTART

    def _wait(self, seconds: float) -> None:
        until = self._clock() + seconds
        while not self.is_over and self._clock() < until:
            self._sleep(min(_NAP, seconds))

    def _tidy(self) -> None:
        """Free what was read: opened stores refer to themselves, and so few objects hold large arrays that Python would
        leave them lying, for it counts objects.
        """
        if self.pace.read - self._tidied >= _UNTIDY:
            gc.collect()
            self._tidied = self.pace.read

    # --- beside the files -----------------------------------------------------------------------------

    def _figures(self, store: _Watched) -> Iterator[list[Row]]:
        """Yield lag, transactions and the cost of a start, where they are due."""
        began = self._clock()
        if self.settings.figures is None or store.error or began < store.looked:
            return
        try:
            found = figures_of(store.member.open(), self._now())
        except (RmqctlError, OSError):
            found = {}
        self._tidy()
        now = self._clock()
        store.looked = now + max(self.settings.figures, _SHARE * (now - began))
        if found:
            if self._listener is not None:
                self._listener.figures(store.member.name, found)
            yield [self._event(store, {"event": "figures", **found})]

    def _event(self, store: _Watched, event: Row) -> Row:
        return {"event": event["event"], "time": self._now(), **store.member.head, **event}

    def _now(self) -> int:
        return int(self._clock() * 1000)
