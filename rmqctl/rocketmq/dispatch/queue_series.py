"""Bringing dispatched units into queues: their files' bytes in order, and the state each queue ends in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rmqctl.rocketmq.block import Ints
from rmqctl.rocketmq.dispatch.batch_units import BatchQueueState
from rmqctl.rocketmq.dispatch.dispatched import NO_EXTENSION, Dispatched, Key, Piece
from rmqctl.rocketmq.dispatch.ext_units import ExtState
from rmqctl.rocketmq.dispatch.queue_units import Appended, QueueState
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, QUEUES_EXT


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


Bitmap = Callable[[Key, int], bytes]
"""The Bloom filter that an extension unit of a queue offset had, b"" without."""


class QueueSeries:
    """All queues that dispatch appends to.

    Attributes:
        simple, batch, extension: the state of each queue seen so far.

    Args:
        open_simple, open_batch: the state of a queue before its first unit; default: no file yet.
        bitmap: filters to keep in extension units.
    """

    def __init__(
        self,
        sizes: QueueSizes,
        sink: QueueSink | None = None,
        *,
        open_simple: Callable[[Key], QueueState] | None = None,
        open_batch: Callable[[Key], BatchQueueState] | None = None,
        bitmap: Bitmap | None = None,
    ) -> None:
        self.sizes, self._sink = sizes, sink or NoSink()
        self._open_simple = open_simple or (lambda _: QueueState(sizes.queue))
        self._open_batch = open_batch or (lambda _: BatchQueueState())
        self._bitmap = bitmap or (lambda _key, _offset: b"")
        self.simple: dict[Key, QueueState] = {}
        self.batch: dict[Key, BatchQueueState] = {}
        self.extension: dict[Key, ExtState] = {}

    def apply(self, found: Dispatched) -> None:
        """Append what a stretch of log dispatches; stretches come in log order."""
        for piece in found.pieces:
            self._append(piece)
        for request in found.batches:
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

    def _extended(self, piece: Piece, times: Ints) -> Piece:
        """The piece with addresses of extension units for tags codes; writes these units."""
        state = self.extension.setdefault(piece.key, ExtState(self.sizes.extension))
        units, offsets = piece.units.copy(), _offsets(piece).tolist()
        for row, (code, time) in enumerate(zip(units["tags_code"].tolist(), times.tolist(), strict=True)):
            if time != NO_EXTENSION:
                address, found = state.put(code, time, self._bitmap(piece.key, offsets[row]))
                units["tags_code"][row] = address
                for appended in found:
                    self._sink.write(QUEUES_EXT, piece.key, appended)
        return Piece(piece.key, units, piece.first, piece.offsets)


def _offsets(piece: Piece) -> Ints:
    return piece.first + np.arange(len(piece.units)) if piece.offsets is None else piece.offsets
