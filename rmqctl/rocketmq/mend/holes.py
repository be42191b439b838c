"""Queue offsets that no record of the log carries although later ones of the queue do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmqctl.rocketmq.columns import TextIds
from rmqctl.rocketmq.commitlog import LogBlock
from rmqctl.rocketmq.verify.continuity import TRANSACTION, inner_counts, signed

_UNQUEUED = (0x4, 0xC)
_INNER_BATCH = 0x80


@dataclass(frozen=True, slots=True)
class Hole:
    """Messages of one queue that are missing between two of its records.

    Attributes:
        first, count: queue offsets ``first`` to ``first + count - 1``.
        after, before: physical offsets of the record in front and of the one behind.
    """

    topic: str
    queue_id: int
    first: int
    count: int
    after: int
    before: int


class HoleFinder:
    """Follows the queue offsets of the whole log, block by block.

    Attributes:
        holes: found so far, by where they end in the log.
    """

    def __init__(self, ids: TextIds) -> None:
        self.holes: list[Hole] = []
        self._ids = ids
        self._next: dict[tuple[int, int], tuple[int, int]] = {}

    def block(self, found: LogBlock) -> None:
        """Look at the records of one block."""
        block = found.block
        if not len(block):
            return
        rows = np.flatnonzero(~np.isin(block["sys_flag"] & TRANSACTION, _UNQUEUED))
        topics = found.topics(self._ids)[rows]
        queues = block["queue_id"][rows].astype(np.int64)
        order = np.lexsort((queues, topics))
        rows, topics, queues = rows[order], topics[order], queues[order]
        offset, step = block["queue_offset"][rows], np.ones(len(rows), np.int64)
        for row, count in inner_counts(block, np.flatnonzero(block["sys_flag"] & _INNER_BATCH)):
            step[rows == row] = count
        if not len(rows):
            return
        first = np.flatnonzero(np.r_[True, (topics[1:] != topics[:-1]) | (queues[1:] != queues[:-1])])
        expected, physical = np.r_[0, (offset + step)[:-1]], block.physical[rows]
        before = np.r_[0, physical[:-1]]
        for start, stop in zip(first.tolist(), [*first[1:].tolist(), len(rows)], strict=True):
            key = int(topics[start]), int(queues[start])
            expected[start], before[start] = self._next.get(key, (offset[start], -1))
            self._next[key] = int(offset[stop - 1] + step[stop - 1]), int(physical[stop - 1])
        for i in np.flatnonzero(offset > expected).tolist():
            name = self._ids.texts[int(topics[i])].decode("utf-8", "surrogateescape")
            hole = (int(expected[i]), int(offset[i]) - int(expected[i]), int(before[i]), int(physical[i]))
            self.holes.append(Hole(name, signed(int(queues[i]) & 0xFFFFFFFF), *hole))
