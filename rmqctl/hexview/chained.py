"""Annotations of files whose units follow each other by size: queue extensions and the timer log."""

from __future__ import annotations

from collections.abc import Iterator

from formats.rocketmq.consumequeue_ext import END_OF_FILE, HEAD_SIZE, ConsumeQueueExtUnit
from formats.rocketmq.timer import BLANK_MAGIC, TimerLogBlank, TimerLogUnit
from rmqctl.hexview.annotation import Annotation, Group, View
from rmqctl.hexview.gaps import gap
from rmqctl.hexview.leaves import Layout, layout_of
from rmqctl.hexview.meanings import EXT, TIMER_BLANK, TIMER_UNIT, Table
from rmqctl.hexview.structure import field, place_of, structure
from rmqctl.hexview.units import Units

_EXT, _UNIT, _BLANK = layout_of(ConsumeQueueExtUnit), layout_of(TimerLogUnit), layout_of(TimerLogBlank)
_WINDOW = 1 << 17


class _Reader:
    """Reads that follow each other, from windows."""

    def __init__(self, view: View) -> None:
        self.view, self.start, self.data = view, 0, b""

    def read(self, at: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``at``."""
        if not self.start <= at or at + size > self.start + len(self.data):
            self.start, self.data = at, self.view.source.read_at(at, max(size, _WINDOW))
        return self.data[at - self.start : at - self.start + size]


def walk_ext(view: View, begin: int, stop: int) -> Iterator[Annotation]:
    """Extension units from the start of the file, up to its end mark or the first that is none."""
    reader, at = _Reader(view), 0
    while at < min(stop, view.size):
        leaves = list(_EXT.leaves(reader.read(at, HEAD_SIZE), view.size - at))
        size = leaves[0].value
        if leaves[0].problem or size < 1:
            if size == END_OF_FILE:
                yield from _end_of_units(view, at, reader)
            return
        if size < HEAD_SIZE or at + size > view.size:
            group = Group(
                "gap", at, view.size - at, f"a size of {size} is no unit's; what follows cannot be found", wrong=True
            )
            yield from gap(view, at, view.size, group=group)
            return
        if at + size > begin:
            group = Group("unit", at, size, f"at {view.base + at}")
            yield from structure(view, _EXT, EXT, at, reader.read(at, size), path=("unit",), group=group)
        at += size


def _end_of_units(view: View, at: int, reader: _Reader) -> Iterator[Annotation]:
    """The mark that ends a file, and what lies behind it."""
    raw = reader.read(at, HEAD_SIZE)
    first = next(_EXT.leaves(raw))
    group = Group("end", at, view.size - at, "no unit fits behind it")
    yield field(view, EXT, first, place_of(view, at, [first]), ("end",), raw, group)
    yield from gap(view, at + first.size, view.size, outer=("end",), name="stale", group=group)


def walk_timer_log(view: View, begin: int, stop: int) -> Iterator[Annotation]:
    """Units of one size, and the blank that ends a full file."""
    blank = _blank_at(view)
    units = Units(_UNIT, TIMER_UNIT, _title, 0, blank)
    if begin < (view.size if blank is None else blank):
        yield from units.walk(view, begin, stop)
    if blank is not None and blank < stop:
        raw = view.source.read_at(blank, _BLANK.size)
        group = Group("blank", blank, view.size - blank, "to the end of the file")
        yield from _fields(view, _BLANK, TIMER_BLANK, blank, raw, group)
        yield from gap(view, blank + len(raw), view.size, outer=("blank",), name="stale", group=group)


def _fields(view: View, layout: Layout, table: Table, offset: int, raw: bytes, group: Group) -> Iterator[Annotation]:
    yield from structure(view, layout, table, offset, raw, path=(group.name,), group=group)


def _title(view: View, number: int, _: bytes) -> tuple[str, str]:
    return "unit", f"at {view.base + number * _UNIT.size}"


def _blank_at(view: View) -> int | None:
    """Where the blank of a full file lies: in the last whole place for one, behind the last unit (spec 11.2)."""
    at = (view.size - _BLANK.size) // _UNIT.size * _UNIT.size
    if at < 0:
        return None
    found = {leaf.name: leaf.value for leaf in _BLANK.leaves(view.source.read_at(at, _BLANK.size))}
    return at if found.get("magic") == BLANK_MAGIC else None
