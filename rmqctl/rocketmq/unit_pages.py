"""Queue units looked up by (queue, queue offset) for many queues at once.

Units are read in pages into one pool; a lookup over thousands of rows is then one gather. The pool
holds what one block needs plus what came before, and starts anew when it is full.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rmqctl.rocketmq.block import Ints
from rmqctl.rocketmq.queue_files import UNIT, Queue, Units

PAGE = 1024
_POOL_PAGES = 3072
OpenQueue = Callable[[int], Queue | None]


class UnitPages:
    """A pool of pages of units.

    Args:
        open_queue: the queue of a number; None where it has no files.
    """

    def __init__(self, open_queue: OpenQueue) -> None:
        self._open = open_queue
        self._slots: dict[tuple[int, int], int] = {}
        self._pool = np.zeros(64 * PAGE, UNIT)

    def lookup(self, queue: Ints, offset: Ints) -> Units:
        """The unit of each (queue number, queue offset >= 0), zeros where no file holds it; shape (n,).

        Rows must be sorted by queue number, else it is slow.
        """
        page = offset // PAGE
        new = np.flatnonzero((queue[1:] != queue[:-1]) | (page[1:] != page[:-1])) + 1
        first = np.concatenate([[0], new])
        if len(self._slots) + len(first) > _POOL_PAGES:
            self._slots.clear()
        slots = [self._slot(q, p) for q, p in zip(queue[first].tolist(), page[first].tolist(), strict=True)]
        lengths = np.diff(np.append(first, len(queue)))
        found: Units = self._pool[np.repeat(np.array(slots, np.int64) * PAGE, lengths) + offset % PAGE]
        return found

    def _slot(self, queue: int, page: int) -> int:
        slot = self._slots.get((queue, page))
        if slot is None:
            slot = self._slots[queue, page] = len(self._slots)
            if (slot + 1) * PAGE > len(self._pool):
                self._pool = np.concatenate([self._pool, np.zeros_like(self._pool)])
            self._load(queue, page, self._pool[slot * PAGE : (slot + 1) * PAGE])
        return slot

    def _load(self, number: int, page: int, room: Units) -> None:
        room[:] = 0
        queue = self._open(number)
        if queue is None:
            return
        begin, end = page * PAGE * UNIT.itemsize, (page + 1) * PAGE * UNIT.itemsize
        for file in queue.files:
            low, high = max(begin, file.base), min(end, file.base + file.size)
            if low < high:
                units = queue.read(file, (low - file.base) // UNIT.itemsize, -(-(high - low) // UNIT.itemsize))
                at = (low - begin) // UNIT.itemsize
                room[at : at + len(units)] = units[: PAGE - at]
