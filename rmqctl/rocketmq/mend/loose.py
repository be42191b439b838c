"""Messages that are known to be missing, but not where they lay: their queue says between which records."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from rmqctl.rocketmq.mend.claims import Claim


class Loose:
    """Each message waits for free room behind its predecessor in the queue and in front of its successor.

    A placeholder anywhere else would be dispatched out of order, and brokers then shift the queue.

    Args:
        messages: in the order of each queue.
        known: messages whose places in the log are known, at least those of the same queues.
    """

    def __init__(self, messages: Sequence[Claim], known: Iterable[Claim]) -> None:
        places = _places(messages, known)
        bounds = [(*_bounds(m, places[m.topic, m.queue_id]), m) for m in messages]
        self._waiting = deque(sorted(bounds, key=lambda bound: bound[0]))
        self._ready: deque[tuple[int, Claim]] = deque()
        self._late: list[Claim] = []

    def __len__(self) -> int:
        """How many may still be placed here or later."""
        return len(self._waiting) + len(self._ready)

    def first(self, begin: int, end: int) -> Claim | None:
        """The next message whose place may be the free range; None where no message fits there."""
        while self._waiting and self._waiting[0][0] < begin:
            _, behind, message = self._waiting.popleft()
            self._ready.append((behind, message))
        while self._ready and self._ready[0][0] < end:
            self._late.append(self._ready.popleft()[1])
        return self._ready[0][1] if self._ready else None

    @property
    def ready(self) -> int:
        """How many wait for room where :meth:`first` looked last."""
        return len(self._ready)

    def take(self) -> Claim:
        """The message that :meth:`first` gave: it has a place now."""
        return self._ready.popleft()[1]

    def unplaced(self) -> list[Claim]:
        """Those without a place."""
        return [*self._late, *(m for _, m in self._ready), *(m for _, _, m in self._waiting)]


Places = dict[tuple[str, int], list[tuple[int, int]]]


def _places(messages: Sequence[Claim], known: Iterable[Claim]) -> Places:
    """Queue offsets and physical offsets of what is known of the queues of the messages, ascending."""
    queues = {(m.topic, m.queue_id) for m in messages}
    found: Places = defaultdict(list)
    for claim in known:
        if (claim.topic, claim.queue_id) in queues:
            found[claim.topic, claim.queue_id].append((claim.queue_offset, claim.physical))
    for places in found.values():
        places.sort()
    return found


def _bounds(message: Claim, places: list[tuple[int, int]]) -> tuple[int, int]:
    """Where the known records in front of a message and behind it begin."""
    at = bisect_left(places, (message.queue_offset, -1))
    return places[at - 1][1] if at else -1, places[at][1] if at < len(places) else sys.maxsize
