"""Bringing dispatched units into queues: their files' bytes in order, and the state each queue ends in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rmqctl.rocketmq.dispatch.dispatched import NO_EXTENSION, Dispatched, Key, Piece
from rmqctl.rocketmq.dispatch.units import UNIT_SIZE, Appended, BatchQueueState, ExtState, QueueState
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, QUEUES_EXT, can_have_queues


class QueueSink(Protocol):
    """Takes the bytes of queues."""

    def write(self, kind: str, key: Key, found: Appended) -> None:
        """Bytes of the file sequence of one queue below ``kind``; positions never go back."""
        ...


class NoSink:
    """Takes nothing: only the states are wanted."""

    def write(self, kind: str, key: Key, found: Appended) -> None:
        """Forget the bytes."""


@dataclass(frozen=True, slots=True)
class QueueSizes:
    """Bytes of a file of each kind of queue."""

    queue: int
    extension: int


Bitmap = Callable[[Key, int, int, int], bytes]
"""The Bloom filter of an extension unit by queue, queue offset, tags code and store time (ms), b"" without."""
MAX_HOLE = 1 << 20
"""Missing queue offsets that are taken for lost messages; more are taken for damage of a QUEUEOFFSET field."""


class QueueSeries:
    """All queues that dispatch appends to.

    Attributes:
        simple, batch, extension: the state of each queue seen so far.
        filled: units put in the place of missing ones, by queue.

    Args:
        open_simple, open_batch: the state of a queue before its first unit; default: no file yet.
        bitmap: filters to keep in extension units.
        fills_holes: where records of a queue are missing in the log, put the unit of the next record in the place of
            theirs, so that every message keeps its queue offset. Brokers do not, and all later messages move.
    """

    def __init__(
        self,
        sizes: QueueSizes,
        sink: QueueSink | None = None,
        *,
        open_simple: Callable[[Key], QueueState] | None = None,
        open_batch: Callable[[Key], BatchQueueState] | None = None,
        bitmap: Bitmap | None = None,
        fills_holes: bool = False,
    ) -> None:
        self.sizes, self._sink = sizes, sink or NoSink()
        self._open_simple = open_simple or (lambda _: QueueState(sizes.queue))
        self._open_batch = open_batch or (lambda _: BatchQueueState())
        self._bitmap = bitmap or (lambda _key, _offset, _code, _time: b"")
        self._fills_holes = fills_holes
        self.filled: dict[Key, int] = {}
        self.simple: dict[Key, QueueState] = {}
        self.batch: dict[Key, BatchQueueState] = {}
        self.extension: dict[Key, ExtState] = {}

    def apply(self, found: Dispatched) -> None:
        """Append what a stretch of log dispatches; stretches come in log order.

        Topics that cannot name a directory have no queues.
        """
        for piece in found.pieces:
            if can_have_queues(piece.key[0]):
                self._append(piece)
        for request in (r for r in found.batches if can_have_queues(r.topic)):
            key = request.topic, request.queue_id
            if key not in self.batch:
                self.batch[key] = self._open_batch(key)
            appended = self.batch[key].put(request)
            if appended is not None:
                self._sink.write(BATCH_QUEUES, key, appended)

    def _append(self, piece: Piece) -> None:
        if piece.key not in self.simple:
            self.simple[piece.key] = self._open_simple(piece.key)
        state = self.simple[piece.key]
        if piece.times is not None:
            piece = self._extended(piece, piece.times)
        if self._fills_holes and (piece.offsets is not None or piece.first * UNIT_SIZE > state.end > 0):
            piece = self._filled(state, piece)
        units = piece.units
        if piece.offsets is None:
            appended = state.put_run(units, piece.first)
            if appended is not None:
                self._sink.write(QUEUES, piece.key, appended)
                return
        offsets = _offsets(piece)
        physical, size, codes = (units[n].astype(np.int64) for n in ("physical_offset", "size", "tags_code"))
        for appended in state.put_many(physical, size, codes, offsets):
            self._sink.write(QUEUES, piece.key, appended)

    def _filled(self, state: QueueState, piece: Piece) -> Piece:
        """The piece without holes in its queue offsets; as it is where they do not ascend, or the hole is no hole."""
        offsets = _offsets(piece)
        if state.begin < 0 and len(offsets) > 1 and not 0 <= offsets[0] < offsets[1]:
            offsets = np.concatenate([[offsets[1] - 1], offsets[1:]])  # the first record's field is damaged
        first = int(offsets[0]) if state.begin < 0 else state.next_offset
        steps = np.diff(offsets, prepend=first - 1)
        missing = int(steps.sum()) - len(steps)
        if (steps < 1).any() or not 0 <= missing <= MAX_HOLE:
            return piece
        if missing:
            self.filled[piece.key] = self.filled.get(piece.key, 0) + missing
        return Piece(piece.key, np.repeat(piece.units, steps), first)

    def _extended(self, piece: Piece, times: Ints) -> Piece:
        """The piece with addresses of extension units for tags codes; writes these units."""
        state = self.extension.setdefault(piece.key, ExtState(self.sizes.extension))
        units, offsets = piece.units.copy(), _offsets(piece).tolist()
        for row, (code, time) in enumerate(zip(units["tags_code"].tolist(), times.tolist(), strict=True)):
            if time != NO_EXTENSION:
                address, found = state.put(code, time, self._bitmap(piece.key, offsets[row], code, time))
                units["tags_code"][row] = address
                for appended in found:
                    self._sink.write(QUEUES_EXT, piece.key, appended)
        return Piece(piece.key, units, piece.first, piece.offsets)


def _offsets(piece: Piece) -> Ints:
    return piece.first + np.arange(len(piece.units)) if piece.offsets is None else piece.offsets
