"""Annotations of files that are made of structures: tables of fixed-size units, units that follow each other by size,
index files.

Of each structure every field of its layout gets its meaning; what is left over is a gap. Queue extensions and the
timer log have units of their own sizes; an index file has a header, the slots in use, and the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from formats.rocketmq.batch_consumequeue import COMPACTION_END, BatchConsumeQueueUnit
from formats.rocketmq.checkpoint import Checkpoint
from formats.rocketmq.consumequeue import PRE_BLANK, ConsumeQueueUnit
from formats.rocketmq.consumequeue_ext import END_OF_FILE, HEAD_SIZE, ConsumeQueueExtUnit
from formats.rocketmq.dledger import DLedgerIndexUnit
from formats.rocketmq.index import IndexEntry, IndexHeader, IndexSlot
from formats.rocketmq.timer import BLANK_MAGIC, TimerCheck, TimerLogBlank, TimerLogUnit, TimerWheelSlot
from rmqctl.hexview.annotation import Annotation, FieldLayout, Group, Leaf, View, gap, layout_of
from rmqctl.rocketmq.hexview import meanings
from rmqctl.rocketmq.hexview.meanings import (
    EXT,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    TIMER_BLANK,
    TIMER_UNIT,
    Place,
    ShownValue,
    Table,
    say,
)
from rmqctl.rocketmq.store.geometry import IndexGeometry, geometry_of_file


def structure(
    view: View,
    layout: FieldLayout,
    table: Table,
    offset: int,
    data: bytes,
    *,
    path: tuple[str, ...],
    group: Group | None = None,
) -> Iterator[Annotation]:
    """Yield the fields of the structure ``data`` at ``offset``; bytes after the last one are a gap."""
    found = list(layout.leaves(data))
    place = place_of(view, offset, found)
    done = 0
    for leaf in found:
        yield field(view, table, leaf, place, path, data, group)
        done = leaf.at + leaf.size
    yield from rest(view, offset, data, done, path, group)


def place_of(view: View, offset: int, found: list[Leaf]) -> Place:
    """Return what meanings may look at."""
    return Place(view, offset, {leaf.name: leaf.value for leaf in found if not leaf.problem})


def field(
    view: View, table: Table, leaf: Leaf, place: Place, path: tuple[str, ...], data: bytes, group: Group | None
) -> Annotation:
    """Return the annotation of one field of a structure that begins at ``data[0]``."""
    raw = data[leaf.at : leaf.at + leaf.size]
    where, names = place.offset + leaf.at, (*path, leaf.name)
    if leaf.problem:
        return view.note(names, where, raw, leaf.value, leaf.problem, size=leaf.size, wrong=True, group=group)
    said = say(table, leaf.name, leaf.value, place)
    return view.note(names, where, raw, said.value, said.meaning, size=leaf.size, wrong=said.wrong, group=group)


def rest(
    view: View, offset: int, data: bytes, done: int, path: tuple[str, ...], group: Group | None
) -> Iterator[Annotation]:
    """Bytes of a structure after its last readable field."""
    if done < len(data):
        meaning = f"{len(data) - done:,} bytes of no field"
        yield view.note((*path, "gap"), offset + done, data[done:], None, meaning, wrong=True, group=group)


# --- annotations of files that are tables of fixed-size units ---------------------------------------


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

    layout: FieldLayout
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
    """A structure at the start of a file, and room after it."""

    name: str
    layout: FieldLayout
    table: Table

    def walk(self, view: View, begin: int, stop: int) -> Iterator[Annotation]:
        """Yield the structure's fields, all of them, as far as the file holds them."""
        size = min(self.layout.size, view.size)
        if begin < size:
            raw = view.source.read_at(0, size)
            group = Group(self.name, 0, len(raw))
            yield from structure(view, self.layout, self.table, 0, raw, path=(self.name,), group=group)


CHECKPOINT = Header("checkpoint", layout_of(Checkpoint), meanings.CHECKPOINT)
TIMER_CHECK = Header("timer_check", layout_of(TimerCheck), meanings.TIMER_CHECK)


# --- annotations of an index file -------------------------------------------------------------------


HEADER, SLOT, ENTRY = layout_of(IndexHeader), layout_of(IndexSlot), layout_of(IndexEntry)


def walk_index(view: View, begin: int, stop: int) -> Iterator[Annotation]:
    """Header, used slots and entries; without a known geometry the header alone, and a gap."""
    raw = view.source.read_at(0, HEADER.size)
    fields = {leaf.name: leaf.value for leaf in HEADER.leaves(raw) if not leaf.problem}
    geometry = view.index or geometry_of_file(view.source, view.size)
    view = replace(view, index=geometry)
    if begin < HEADER.size:
        yield from structure(view, HEADER, INDEX_HEADER, 0, raw, path=("header",), group=Group("header", 0, len(raw)))
    if geometry is None:
        why = "the numbers of slots and entries are not known: give the broker's settings"
        group = Group("slots_and_entries", HEADER.size, view.size - HEADER.size, why)
        yield from gap(view, min(HEADER.size, view.size), min(stop, view.size), group=group)
        return
    for units in _tables(geometry, fields):
        if begin < (units.end or 0) and units.begin < stop:
            yield from units.walk(view, max(begin, units.begin), stop)


def _tables(geometry: IndexGeometry, fields: Mapping[str, int]) -> tuple[Units, Units]:
    """Return the slots and the entries; entries that count are shown even if all their bytes are zero."""
    used = range(1, max(min(fields.get("index_count", 0), geometry.entries), 1))
    slots = Units(SLOT, INDEX_SLOT, _slot_title, HEADER.size, geometry.entries_at)
    table, title = _entry_table(geometry, fields), _entry_title(used)
    entries = Units(ENTRY, table, title, geometry.entries_at, geometry.file_size, used)
    return slots, entries


def _slot_title(_: View, number: int, __: bytes) -> tuple[str, str]:
    return "slot", f"{number}"


def _entry_title(used: range) -> Title:
    return lambda view, number, raw: ("entry", f"{number}{'' if number in used else ', not counted by the header'}")


def _entry_table(geometry: IndexGeometry, fields: Mapping[str, int]) -> Table:
    """Meanings of entry fields; times count from the header's, and the first entry's is the header's (spec 4.4)."""
    begin = {"begin_timestamp": fields.get("begin_timestamp", 0)}
    first = geometry.entry_at(1)

    def time(value: int, place: Place) -> ShownValue:
        said = meanings.time_difference(0 if place.offset == first else value, Place(place.view, place.offset, begin))
        return ShownValue(value, said.meaning)

    return {**INDEX_ENTRY, "time_difference": time}


# --- annotations of files whose units follow each other by size -------------------------------------


_EXT, _UNIT, _BLANK = layout_of(ConsumeQueueExtUnit), layout_of(TimerLogUnit), layout_of(TimerLogBlank)
_CHAIN_WINDOW = 1 << 17


class _Reader:
    """Reads that follow each other, from windows."""

    def __init__(self, view: View) -> None:
        self.view, self.start, self.data = view, 0, b""

    def read(self, at: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``at``."""
        if not self.start <= at or at + size > self.start + len(self.data):
            self.start, self.data = at, self.view.source.read_at(at, max(size, _CHAIN_WINDOW))
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
    """Yield the mark that ends a file, and what lies after it."""
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


def _fields(
    view: View, layout: FieldLayout, table: Table, offset: int, raw: bytes, group: Group
) -> Iterator[Annotation]:
    yield from structure(view, layout, table, offset, raw, path=(group.name,), group=group)


def _title(view: View, number: int, _: bytes) -> tuple[str, str]:
    return "unit", f"at {view.base + number * _UNIT.size}"


def _blank_at(view: View) -> int | None:
    """Where the blank of a full file lies: in the last whole place for one, after the last unit (spec 11.2)."""
    at = (view.size - _BLANK.size) // _UNIT.size * _UNIT.size
    if at < 0:
        return None
    found = {leaf.name: leaf.value for leaf in _BLANK.leaves(view.source.read_at(at, _BLANK.size))}
    return at if found.get("magic") == BLANK_MAGIC else None
