"""Whether and where a record stands in the index, whatever headers, slots and chains say of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rmqctl.rocketmq.index_files import IndexEntry, IndexFile

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the wanted hash that leads to the wanted offset."""

    file: IndexFile
    number: int
    entry: IndexEntry


def places_of(files: Iterable[IndexFile], physical: int, key_hash: int) -> list[Place]:
    """Entries that name an offset and a hash, newest file first.

    Raises:
        OSError: a file cannot be read.
    """
    return [place for file in reversed(list(files)) for place in _in_file(file, physical, key_hash)]


def covers(file: IndexFile, physical: int) -> bool:
    """Whether an offset lies in what the header says the file holds."""
    return file.header["begin_phy_offset"] <= physical <= file.header["end_phy_offset"]


def _in_file(file: IndexFile, physical: int, key_hash: int) -> Iterator[Place]:
    """By halving where the header can be believed; else, or where that finds nothing, entry by entry."""
    if _is_sound(file):
        if not covers(file, physical):
            return
        found = list(_matches(file, file.first_at_or_after(physical), _CHUNK, physical, key_hash))
        if found:
            yield from found
            return
    for first in range(1, file.geometry.entries, _CHUNK):
        yield from _matches(file, first, _CHUNK, physical, key_hash)
        if file.geometry.entry_at(first + _CHUNK) >= file.size:
            return


def _is_sound(file: IndexFile) -> bool:
    header = file.header
    return 1 < header["index_count"] <= file.geometry.entries and (
        0 <= header["begin_phy_offset"] <= header["end_phy_offset"]
    )


def _matches(file: IndexFile, first: int, count: int, physical: int, key_hash: int) -> Iterator[Place]:
    entries = file.entries(first, count)
    for row in np.flatnonzero((entries["physical_offset"] == physical) & (entries["key_hash"] == key_hash)).tolist():
        fields = (int(entries[name][row]) for name in IndexEntry._fields)
        yield Place(file, first + row, IndexEntry(*fields))


__all__ = ["Place", "covers", "places_of"]
