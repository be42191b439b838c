"""Store times that do not rise: a damaged field, a clock that was set back, or a batch that waited for the lock.

What is said of a record depends on its three neighbours alone, two in front and one after, so that
windows and splits of any size give the same findings. A split judges the records whose neighbours it
holds, and leaves its first and last ones to the join.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq.findings.log import LOG_FUTURE, LOG_STORE_TIME
from rmqctl.rocketmq.log.block import Block, head_offsets
from rmqctl.text import LATEST, instant

_IN_FRONT, EDGE = 2, 3
_LOCK_MS = 1000
"""A client batch gets its time before it waits for the lock (CommitLog.putMessages), so it may be a little early.
A broker takes nothing more once a message has waited for a second (``osPageCacheBusyTimeOutMills``)."""


@dataclass(frozen=True, slots=True)
class Spot:
    """The store time of one record in ms, where that field lies, and the record's physical offset and topic."""

    time: int
    file: str
    position: int
    physical: int
    topic: str


@dataclass(slots=True)
class TimesPartial:
    """What a split leaves for the join.

    Attributes:
        count: records of the split.
        head, tail: its first and last three, or all of fewer.
        newest: the latest time in front of one that is normally early; None without such.
        future: by file the first record that is stored later than any calendar goes, and how many are.
    """

    count: int = 0
    future: dict[str, tuple[Spot, int]] = field(default_factory=dict)
    head: list[Spot] = field(default_factory=list)
    tail: deque[Spot] = field(default_factory=lambda: deque(maxlen=EDGE))
    newest: int | None = None


@dataclass(frozen=True, slots=True)
class _Break:
    """What does not rise: at the record or the one in front; brokers may leave it so, or the field is damaged."""

    text: str
    is_front: bool = False
    is_normal: bool = False


class StoreTimes:
    """The store times of one split, block by block."""

    def __init__(self) -> None:
        self.partial = TimesPartial()

    def block(self, block: Block) -> Iterator[Finding]:
        """Yield findings of the records up to the last but one, that of earlier blocks first."""
        partial, held = self.partial, list(self.partial.tail)
        times = np.concatenate([np.array([s.time for s in held], np.int64), block["store_timestamp"]])
        first = partial.count - len(held)
        self._note(block)
        for at in _suspects(times):
            if first + at >= _IN_FRONT and max(len(held) - 1, 0) <= at < len(times) - 1:
                found = _judge(int(times[at - 2]), int(times[at - 1]), int(times[at]), int(times[at + 1]))
                if found is not None:
                    named, before = at - found.is_front, int(times[at - 1])
                    spot = held[named] if named < len(held) else _spot(block, named - len(held))
                    yield _finding(found, spot)
                    partial.newest = _later(partial.newest, before) if found.is_normal else partial.newest

    def _note(self, block: Block) -> None:
        partial = self.partial
        if len(late := np.flatnonzero(block["store_timestamp"] > LATEST)):
            _add_future(partial.future, block.file, _spot(block, int(late[0])), len(late))
        missing = max(EDGE - partial.count, 0)
        partial.head += [_spot(block, row) for row in range(min(missing, len(block)))]
        partial.tail.extend(_spot(block, row) for row in range(max(len(block) - EDGE, 0), len(block)))
        partial.count += len(block)


class TimesJoin:
    """Judges what the splits left, in log order."""

    def __init__(self) -> None:
        self._newest: int | None = None
        self._future: dict[str, tuple[Spot, int]] = {}
        self._window: deque[tuple[Spot, bool]] = deque(maxlen=EDGE)

    @property
    def last(self) -> int | None:
        """Store time of the last record, in ms; None without one."""
        return self._window[-1][0].time if self._window else None

    @property
    def newest(self) -> int | None:
        """The latest time in front of one that is normally early; None without such."""
        return self._judged(None)[1]

    def add(self, partial: TimesPartial) -> list[Finding]:
        """Return findings of the records that the next split did not judge, but of its last one."""
        if partial.newest is not None:
            self._newest = _later(self._newest, partial.newest)
        for file, (first, count) in partial.future.items():
            _add_future(self._future, file, first, count)
        found = []
        for number, spot in _edges(partial):
            some, self._newest = self._judged(spot.time)
            self._window.append((spot, _IN_FRONT <= number < partial.count - 1))
            found += some
        return found

    def end(self) -> list[Finding]:
        """Return the finding of the last record, if anything is wrong with it."""
        return self._judged(None)[0]

    def forget_future(self) -> None:
        """Leave out what :meth:`future` would say of the splits so far."""
        self._future = {}

    def future(self) -> Iterator[Finding]:
        """Yield the files with several records that are stored later than any calendar goes; one alone is damage."""
        for file, (first, count) in self._future.items():
            if count > 1:
                message = f"{count:,} records are stored after the year 9999, the first at {instant(first.time)}"
                yield Finding(LOG_FUTURE, file, first.position, 8, message, physical_offset=first.physical)

    def _judged(self, after: int | None) -> tuple[list[Finding], int | None]:
        """Return the finding of the last record so far, if it was not judged before, and the newest time then."""
        spots = [spot for spot, _ in self._window]
        if not spots or self._window[-1][1]:
            return [], self._newest
        second, front = (spots[-n].time if len(spots) >= n else None for n in (3, 2))
        found = _judge(second, front, spots[-1].time, after)
        if found is None:
            return [], self._newest
        newest = _later(self._newest, front) if found.is_normal and front is not None else self._newest
        return [_finding(found, spots[-2 if found.is_front else -1])], newest


def _suspects(times: npt.NDArray[np.int64]) -> list[int]:
    """Indexes, ascending, of times that are zero or before the one in front."""
    wrong = times == 0
    wrong[1:] |= times[1:] < times[:-1]
    found: list[int] = np.flatnonzero(wrong).tolist()
    return found


def _judge(second: int | None, front: int | None, time: int, after: int | None) -> _Break | None:
    """Return what is wrong with a record, by the times of the two in front of it and the one after; None where nothing
    is.

    One time that stands out above both its neighbours is named, and not the one after it. Where the
    record after is early, too, the clock was set back; one record alone is a damaged field, but for a
    batch that waited for the lock.
    """
    front = time if front is None else front
    if time and time >= front:
        return None
    if time and second is not None and second <= time:
        what = f"{instant(front)}, {front - time:,} ms after that of the record behind"
        return _Break(what, is_front=True, is_normal=front - time <= _LOCK_MS)
    is_step = after is not None and 0 < time <= after < front
    is_normal = is_step or (time > 0 and front - time <= _LOCK_MS)
    return _Break(f"{instant(time)}, {front - time:,} ms before that of the record in front", is_normal=is_normal)


def _finding(found: _Break, spot: Spot) -> Finding:
    message, severity = f"the store time is {found.text}", Severity.NOTE if found.is_normal else None
    return Finding(
        LOG_STORE_TIME, spot.file, spot.position, 8, message, severity, physical_offset=spot.physical,
        topic=spot.topic,
    )  # fmt: skip


def _spot(block: Block, row: int) -> Spot:
    at = int(block.position[row] + head_offsets("store_timestamp")[block.variant[row]])
    topic = block.topic(row).decode("utf-8", "replace")
    return Spot(int(block["store_timestamp"][row]), block.file, at, int(block.physical[row]), topic)


def _edges(partial: TimesPartial) -> Iterator[tuple[int, Spot]]:
    """First and last records of a split, each once, with their number in it."""
    yield from enumerate(partial.head)
    rest = min(len(partial.tail), partial.count - len(partial.head))
    tail = list(partial.tail)
    for at in range(len(tail) - rest, len(tail)):
        yield partial.count - len(tail) + at, tail[at]


def _add_future(known: dict[str, tuple[Spot, int]], file: str, first: Spot, count: int) -> None:
    spot, before = known.get(file, (first, 0))
    known[file] = spot, before + count


def _later(a: int | None, b: int) -> int:
    return b if a is None else max(a, b)
