"""Store times that do not rise: a damaged field, or a clock that was set back.

What is said of a record depends on its three neighbours alone, two in front and one behind, so that
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
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.block import Block, head_offsets

_IN_FRONT, _EDGE = 2, 3


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
        newest: the latest time in front of a clock step; None without a step.
    """

    count: int = 0
    head: list[Spot] = field(default_factory=list)
    tail: deque[Spot] = field(default_factory=lambda: deque(maxlen=_EDGE))
    newest: int | None = None


@dataclass(frozen=True, slots=True)
class _Break:
    """What is wrong: with the record itself or the one in front, and whether the clock was set back there."""

    text: str
    is_front: bool = False
    is_step: bool = False


class StoreTimes:
    """The store times of one split, block by block."""

    def __init__(self) -> None:
        self.partial = TimesPartial()

    def block(self, block: Block) -> Iterator[Finding]:
        """Findings of the records up to the last but one, that of earlier blocks first."""
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
                    partial.newest = _later(partial.newest, before) if found.is_step else partial.newest

    def _note(self, block: Block) -> None:
        partial = self.partial
        missing = max(_EDGE - partial.count, 0)
        partial.head += [_spot(block, row) for row in range(min(missing, len(block)))]
        partial.tail.extend(_spot(block, row) for row in range(max(len(block) - _EDGE, 0), len(block)))
        partial.count += len(block)


class TimesJoin:
    """Judges what the splits left, in log order.

    Attributes:
        newest: the latest time in front of a clock step; None without a step.
        last: time of the last record; None without one.
    """

    def __init__(self) -> None:
        self.newest: int | None = None
        self._window: deque[tuple[Spot, bool]] = deque(maxlen=_EDGE + 1)

    @property
    def last(self) -> int | None:
        return self._window[-1][0].time if self._window else None

    def add(self, partial: TimesPartial) -> list[Finding]:
        """Findings of the records that the next split did not judge, but of its last one."""
        if partial.newest is not None:
            self.newest = _later(self.newest, partial.newest)
        found = []
        for number, spot in _edges(partial):
            found += self._next(spot, judged=_IN_FRONT <= number < partial.count - 1)
        return found

    def end(self) -> list[Finding]:
        """The finding of the last record, if anything is wrong with it."""
        return list(self._judged(None))

    def _next(self, spot: Spot, *, judged: bool) -> list[Finding]:
        found = list(self._judged(spot.time))
        self._window.append((spot, judged))
        return found

    def _judged(self, behind: int | None) -> Iterator[Finding]:
        spots = [spot for spot, _ in self._window]
        if not spots or self._window[-1][1]:
            return
        second, front = (spots[-n].time if len(spots) >= n else None for n in (3, 2))
        found = _judge(second, front, spots[-1].time, behind)
        if found is not None:
            yield _finding(found, spots[-2 if found.is_front else -1])
            if found.is_step and front is not None:
                self.newest = _later(self.newest, front)


def _suspects(times: npt.NDArray[np.int64]) -> list[int]:
    """Indexes, ascending, of times that are zero or before the one in front."""
    wrong = times == 0
    wrong[1:] |= times[1:] < times[:-1]
    found: list[int] = np.flatnonzero(wrong).tolist()
    return found


def _judge(second: int | None, front: int | None, time: int, behind: int | None) -> _Break | None:
    """What is wrong with a record, by the times of the two in front of it and the one behind; None where nothing is.

    One time that stands out above both its neighbours is named, and not the one behind it. Where the
    record behind is early, too, the clock was set back; one record alone is a damaged field.
    """
    front = time if front is None else front
    if time and time >= front:
        return None
    if time and second is not None and second <= time:
        return _Break(f"{front}, {front - time} ms after that of the record behind", is_front=True)
    is_step = behind is not None and 0 < time <= behind < front
    return _Break(f"{time}, {front - time} ms before that of the record in front", is_step=is_step)


def _finding(found: _Break, spot: Spot) -> Finding:
    message, severity = f"the store time is {found.text}", Severity.NOTE if found.is_step else None
    return Finding(
        kinds.LOG_STORE_TIME, spot.file, spot.position, 8, message, severity, physical_offset=spot.physical,
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


def _later(a: int | None, b: int) -> int:
    return b if a is None else max(a, b)
