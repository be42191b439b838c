"""Annotations of an index file: header, the slots in use, the entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from formats.rocketmq.index import IndexEntry, IndexHeader, IndexSlot
from rmqctl.hexview import meanings
from rmqctl.hexview.annotation import Annotation, Group, View
from rmqctl.hexview.gaps import gap
from rmqctl.hexview.leaves import layout_of
from rmqctl.hexview.meanings import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, Place, Said, Table
from rmqctl.hexview.structure import structure
from rmqctl.hexview.units import Title, Units
from rmqctl.rocketmq.index_geometry import IndexGeometry, geometry_of_file

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
    """The slots and the entries; entries that count are shown even if all their bytes are zero."""
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

    def time(value: int, place: Place) -> Said:
        said = meanings.time_difference(0 if place.offset == first else value, Place(place.view, place.offset, begin))
        return Said(value, said.meaning)

    return {**INDEX_ENTRY, "time_difference": time}
