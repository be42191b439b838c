"""Annotations of one structure: every field of a layout with its meaning, then what is left over as a gap."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.hexview.annotation import Annotation, Group, View
from rmqctl.hexview.leaves import Layout, Leaf
from rmqctl.hexview.meanings import Place, Table, say


def structure(
    view: View,
    layout: Layout,
    table: Table,
    offset: int,
    data: bytes,
    *,
    path: tuple[str, ...],
    group: Group | None = None,
) -> Iterator[Annotation]:
    """The fields of the structure ``data`` at ``offset``; bytes behind the last one are a gap."""
    found = list(layout.leaves(data))
    place = place_of(view, offset, found)
    done = 0
    for leaf in found:
        yield field(view, table, leaf, place, path, data, group)
        done = leaf.at + leaf.size
    yield from rest(view, offset, data, done, path, group)


def place_of(view: View, offset: int, found: list[Leaf]) -> Place:
    """What meanings may look at."""
    return Place(view, offset, {leaf.name: leaf.value for leaf in found if not leaf.problem})


def field(
    view: View, table: Table, leaf: Leaf, place: Place, path: tuple[str, ...], data: bytes, group: Group | None
) -> Annotation:
    """The annotation of one field of a structure that begins at ``data[0]``."""
    raw = data[leaf.at : leaf.at + leaf.size]
    where, names = place.offset + leaf.at, (*path, leaf.name)
    if leaf.problem:
        return view.note(names, where, raw, leaf.value, leaf.problem, size=leaf.size, wrong=True, group=group)
    said = say(table, leaf.name, leaf.value, place)
    return view.note(names, where, raw, said.value, said.meaning, size=leaf.size, wrong=said.wrong, group=group)


def rest(
    view: View, offset: int, data: bytes, done: int, path: tuple[str, ...], group: Group | None
) -> Iterator[Annotation]:
    """Bytes of a structure behind its last readable field."""
    if done < len(data):
        meaning = f"{len(data) - done:,} bytes of no field"
        yield view.note((*path, "gap"), offset + done, data[done:], None, meaning, wrong=True, group=group)
