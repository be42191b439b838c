"""Annotations of files that are tables of fixed-size units, and of those that begin with one structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from formats.rocketmq.batch_consumequeue import COMPACTION_END, BatchConsumeQueueUnit
from formats.rocketmq.checkpoint import Checkpoint
from formats.rocketmq.consumequeue import PRE_BLANK, ConsumeQueueUnit
from formats.rocketmq.dledger import DLedgerIndexUnit
from formats.rocketmq.timer import TimerCheck, TimerWheelSlot
from rmqctl.hexview import meanings
from rmqctl.hexview.annotation import Annotation, Group, View
from rmqctl.hexview.leaves import Layout, layout_of
from rmqctl.hexview.meanings import Table
from rmqctl.hexview.structure import structure

_WINDOW = 1 << 18
Title = Callable[[View, int, bytes], tuple[str, str]]
"""From the number of a unit and its bytes to its name and title."""


@dataclass(frozen=True, slots=True)
class Units:
    """A table of units.

    Attributes:
        begin, end: bytes in the file; units start at ``begin`` and the last may be cut by ``end``.
        shown: units of these numbers are shown even when all their bytes are zero.
    """

    layout: Layout
    table: Table
    title: Title
    begin: int = 0
    end: int | None = None
    shown: range = range(0)

    def walk(self, view: View, begin: int, stop: int) -> Iterator[Annotation]:
        """Units that hold anything; the first may start before ``begin``."""
        size, end = self.layout.size, view.size if self.end is None else min(self.end, view.size)
        start = self.begin + max(begin - self.begin, 0) // size * size
        for position, data in self._windows(view, start, min(stop, end), end):
            for at in self._used(data, (position - self.begin) // size):
                raw = data[at : at + size]
                yield from self._unit(view, position + at, raw)

    def _windows(self, view: View, start: int, stop: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Whole units that may hold something, window by window, and the cut unit at the end."""
        size = self.layout.size
        cursor = start
        for low, high in self._ranges(view, start, min(stop + size, end)):
            cursor = max(cursor, low - (low - self.begin) % size)
            while cursor < min(high, stop):
                data = view.source.read_at(cursor, min(_WINDOW // size * size, end - cursor))
                if not data:
                    return
                yield cursor, data
                cursor += -(-len(data) // size) * size

    def _ranges(self, view: View, start: int, end: int) -> Iterator[tuple[int, int]]:
        if self.shown:
            yield start, end
        else:
            yield from view.source.data_ranges(start, end)

    def _used(self, data: bytes, first: int) -> list[int]:
        """Where units begin in a window that are to be shown."""
        size = self.layout.size
        whole = len(data) // size
        table = np.frombuffer(data, np.uint8, whole * size).reshape(whole, size)
        used: npt.NDArray[np.bool_] = np.any(table, axis=1)
        low, high = max(self.shown.start - first, 0), max(self.shown.stop - first, 0)
        used[low:high] = True
        places = (np.flatnonzero(used) * size).tolist()
        return [*places, whole * size] if any(data[whole * size :]) else places

    def _unit(self, view: View, offset: int, raw: bytes) -> Iterator[Annotation]:
        name, title = self.title(view, (offset - self.begin) // self.layout.size, raw)
        cut = len(raw) < self.layout.size
        group = Group(name, offset, len(raw), f"{title}, cut by the end of the file" if cut else title, cut)
        notes = list(structure(view, self.layout, self.table, offset, raw, path=(name,), group=group))
        if cut and not notes[-1].wrong:
            notes[-1] = replace(notes[-1], meaning=f"the file ends after {len(raw)} bytes of the unit", wrong=True)
        yield from notes


def _queue_title(view: View, number: int, raw: bytes) -> tuple[str, str]:
    offset = view.base // _QUEUE.size + number
    return ("pre_blank" if raw == PRE_BLANK else "unit"), f"queue offset {offset}"


def _batch_title(_: View, number: int, raw: bytes) -> tuple[str, str]:
    return ("end" if raw == COMPACTION_END else "unit"), f"number {number}"


def _number_title(name: str) -> Title:
    return lambda view, number, _: (name, f"number {number + view.base // _DLEDGER.size}")


_QUEUE, _DLEDGER = layout_of(ConsumeQueueUnit), layout_of(DLedgerIndexUnit)

QUEUE = Units(_QUEUE, meanings.QUEUE, _queue_title)
BATCH_QUEUE = Units(layout_of(BatchConsumeQueueUnit), meanings.BATCH, _batch_title)
DLEDGER_INDEX = Units(_DLEDGER, meanings.DLEDGER_INDEX, _number_title("unit"))
TIMER_WHEEL = Units(layout_of(TimerWheelSlot), meanings.TIMER_SLOT, _number_title("slot"))


@dataclass(frozen=True, slots=True)
class Header:
    """A structure at the start of a file, and room behind it."""

    name: str
    layout: Layout
    table: Table

    def walk(self, view: View, begin: int, stop: int) -> Iterator[Annotation]:
        """The structure's fields, all of them, as far as the file holds them."""
        size = min(self.layout.size, view.size)
        if begin < size:
            raw = view.source.read_at(0, size)
            group = Group(self.name, 0, len(raw))
            yield from structure(view, self.layout, self.table, 0, raw, path=(self.name,), group=group)


CHECKPOINT = Header("checkpoint", layout_of(Checkpoint), meanings.CHECKPOINT)
TIMER_CHECK = Header("timer_check", layout_of(TimerCheck), meanings.TIMER_CHECK)
