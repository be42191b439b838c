"""How many slots and entries an index file has, found from its bytes.

Neither number is stored. The header names the physical offsets of the first and the last entry, so
the place of such an entry in the file gives the size of the slot area; the candidate is accepted
when entries and slots then agree with each other (spec 4.1, 14.18).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from formats.layout import plan_of
from formats.rocketmq.index import IndexEntry, IndexHeader
from rmqctl.files.source import ByteSource
from rmqctl.files.tree import Entry, Tree

DEFAULT_SLOTS, DEFAULT_ENTRIES = 5_000_000, 20_000_000
SLOT_SIZE = 4
_PROBES = 64
_CHUNK = 1 << 20

HEADER = plan_of(IndexHeader).runs[0]
ENTRY = plan_of(IndexEntry).runs[0]


@dataclass(frozen=True, slots=True)
class IndexGeometry:
    """Slots and entries of an index file, entry 0 (never used) included."""

    slots: int
    entries: int

    @classmethod
    def default(cls) -> IndexGeometry:
        """The broker's defaults, maxHashSlotNum and maxIndexNum."""
        return cls(DEFAULT_SLOTS, DEFAULT_ENTRIES)

    @property
    def file_size(self) -> int:
        """Bytes in a file."""
        return self.entries_at + self.entries * ENTRY.packer.size

    @property
    def entries_at(self) -> int:
        """Where entry 0 would lie, in bytes."""
        return HEADER.packer.size + SLOT_SIZE * self.slots

    def entry_at(self, number: int) -> int:
        """Where an entry lies, in bytes."""
        return self.entries_at + number * ENTRY.packer.size


def detect_index_geometry(tree: Tree, files: Iterable[Entry]) -> IndexGeometry | None:
    """The geometry that the entries of the first usable file prove; None when no file does."""
    for entry in files:
        if entry.is_directory or entry.size <= HEADER.packer.size:
            continue
        try:
            source = tree.open(entry.path)
        except PermissionError:  # another file may tell
            continue
        try:
            found = geometry_of_file(source, entry.size)
        except FileNotFoundError:
            continue
        finally:
            source.close()
        if found is not None:
            return found
    return None


def geometry_of_file(source: ByteSource, size: int) -> IndexGeometry | None:
    """The geometry that the entries of one file of ``size`` bytes prove; None when they do not."""
    header = read_header(source)
    count = header["index_count"] - 1
    if count < 1:
        return IndexGeometry.default() if size == IndexGeometry.default().file_size else None
    for slots in _candidates(source, size, count, header):
        entries, rest = divmod(size - HEADER.packer.size - SLOT_SIZE * slots, ENTRY.packer.size)
        geometry = IndexGeometry(slots, entries)
        if rest == 0 and slots > 0 and count < entries and _agrees(source, geometry, count, header):
            return geometry
    return None


def read_header(source: ByteSource) -> dict[str, int]:
    """The header of an index file by field name; zeros where the file is too short for one."""
    raw = source.read_at(0, HEADER.packer.size).ljust(HEADER.packer.size, b"\0")
    return dict(zip(HEADER.names, HEADER.packer.unpack(raw), strict=True))


def _candidates(source: ByteSource, size: int, count: int, header: dict[str, int]) -> Iterator[int]:
    """Numbers of slots worth testing: the default, one in proportion, then those that put a known entry where it is."""
    yield DEFAULT_SLOTS
    ratio = DEFAULT_ENTRIES // DEFAULT_SLOTS  # most who change one setting change the other with it
    slots, rest = divmod(size - HEADER.packer.size, SLOT_SIZE + ENTRY.packer.size * ratio)
    if rest == 0:
        yield slots
    for number, offset in ((count, header["end_phy_offset"]), (1, header["begin_phy_offset"])):
        before = HEADER.packer.size + ENTRY.packer.size * number + 4
        for at in _find(source, size, offset.to_bytes(8, "big", signed=True), before):
            slots, rest = divmod(at - before, SLOT_SIZE)
            if rest == 0:
                yield slots
    if header["end_phy_offset"] == 0:  # keys of the log's first record alone: its offset is no pattern to look for
        for at in _words(source, size):
            yield (at - HEADER.packer.size - ENTRY.packer.size) // SLOT_SIZE


def _words(source: ByteSource, size: int) -> Iterator[int]:
    """Places behind the header of the first 32-bit words that are not zero."""
    found = 0
    for begin, end in source.data_ranges(HEADER.packer.size, size):
        for position in range(begin, end, _CHUNK):
            chunk = source.read_at(position, min(_CHUNK, end - position))
            for at in range(-position % SLOT_SIZE, len(chunk) if any(chunk) else 0, SLOT_SIZE):
                if any(chunk[at : at + SLOT_SIZE]):
                    yield position + at
                    found += 1
                    if found == _PROBES:
                        return


def _find(source: ByteSource, size: int, pattern: bytes, start: int) -> Iterator[int]:
    """Places of a pattern in the file from ``start`` on, read in chunks; zeros alone are no pattern."""
    if not any(pattern):
        return
    for begin, end in source.data_ranges(start, size):
        position = begin
        while position < end:
            chunk = source.read_at(position, _CHUNK + len(pattern) - 1)
            at = chunk.find(pattern)
            while 0 <= at < _CHUNK:
                yield position + at
                at = chunk.find(pattern, at + 1)
            position += _CHUNK


def _agrees(source: ByteSource, geometry: IndexGeometry, count: int, header: dict[str, int]) -> bool:
    """Whether a sample of entries lies in the header's range and is reachable from its slots."""
    numbers = sorted({1, count, *(1 + (count - 1) * probe // (_PROBES - 1) for probe in range(_PROBES))})
    low, high = header["begin_phy_offset"], header["end_phy_offset"]
    for number in numbers:
        raw = source.read_at(geometry.entry_at(number), ENTRY.packer.size)
        if len(raw) < ENTRY.packer.size or not any(raw):  # zeros: a place that holds no entry yet
            return False
        entry = dict(zip(ENTRY.names, ENTRY.packer.unpack(raw), strict=True))
        if not (entry["key_hash"] >= 0 and low <= entry["physical_offset"] <= high):
            return False
        if not 0 <= entry["previous"] < number:
            return False
        slot = HEADER.packer.size + SLOT_SIZE * (entry["key_hash"] % geometry.slots)
        if not number <= int.from_bytes(source.read_at(slot, SLOT_SIZE), "big", signed=True) <= count:
            return False
    return True
