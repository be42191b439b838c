"""Queue units looked up by (queue, queue offset) for many queues at once.

Units are read in pages into one pool; a lookup over thousands of rows is then one gather. A log is
walked forwards, so the pages of the last lookup are those that the next one needs again: when the
pool is full only they are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from rmqctl.rocketmq.block import Ints
from rmqctl.rocketmq.queue_files import UNIT, Queue, Units

PAGE = 2048
"""Units of one page."""
_POOL_PAGES = 384
OpenQueue = Callable[[int], Queue | None]
_Key = tuple[int, int]


class UnitPages:
    """A pool of pages of units.

    Args:
        open_queue: the queue of a number; None where it has no files.
    """

    def __init__(self, open_queue: OpenQueue) -> None:
        self._open = open_queue
        self._slots: dict[_Key, int] = {}
        self._last: list[_Key] = []
        self._pool = np.empty(_POOL_PAGES * PAGE, UNIT)

    def lookup(self, queue: Ints, offset: Ints) -> Units:
        """The unit of each (queue number, queue offset >= 0), zeros where no file holds it; shape (n,), n > 0.

        Rows must be sorted by queue number, else it is slow.
        """
        page = offset // PAGE
        new_run = (queue[1:] != queue[:-1]) | (page[1:] != page[:-1])
        first = np.concatenate([[0], np.flatnonzero(new_run) + 1])
        keys = list(zip(queue[first].tolist(), page[first].tolist(), strict=True))
        wanted = dict.fromkeys(keys)
        if len(self._slots) + len(wanted.keys() - self._slots.keys()) > len(self._pool) // PAGE:
            self._make_room(len(wanted))
        for key in wanted:
            if key not in self._slots:
                self._load(key)
        self._last = list(wanted)
        lengths = np.diff(np.append(first, len(queue)))
        shift = np.array([(self._slots[key] - key[1]) * PAGE for key in keys], np.int64)
        found: Units = self._pool[np.repeat(shift, lengths) + offset]
        return found

    def close(self) -> None:
        """Give the memory back; a later lookup reads anew."""
        self._slots, self._last = {}, []
        self._pool = np.empty(0, UNIT)

    def _make_room(self, more: int) -> None:
        """Keep the pages of the last lookup; make a larger pool where one lookup needs that many."""
        kept = [key for key in self._last if key in self._slots]
        pages = self._pool.reshape(-1, PAGE)
        old = pages[[self._slots[key] for key in kept]]
        if len(kept) + more > len(pages):
            self._pool = np.empty(2 * (len(kept) + more) * PAGE, UNIT)
            pages = self._pool.reshape(-1, PAGE)
        pages[: len(kept)] = old
        self._slots = {key: slot for slot, key in enumerate(kept)}

    def _load(self, key: _Key) -> None:
        number, page = key
        slot = self._slots[key] = len(self._slots)
        room, queue = self._pool[slot * PAGE : (slot + 1) * PAGE], self._open(number)
        done, begin, end = 0, page * PAGE * UNIT.itemsize, (page + 1) * PAGE * UNIT.itemsize
        files = queue.files if queue is not None else []
        for file in files[max(bisect_right(files, begin, key=lambda f: f.base) - 1, 0) :]:
            if file.base >= end or queue is None:
                break
            low, high = max(begin, file.base), min(end, file.base + file.size)
            if low < high:
                units = queue.read(file, (low - file.base) // UNIT.itemsize, -(-(high - low) // UNIT.itemsize))
                at = (low - begin) // UNIT.itemsize
                room[done:at] = 0
                room[at : at + len(units)] = units[: PAGE - at]
                done = at + len(units)
        room[done:] = 0
