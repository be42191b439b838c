"""Index files as rows: the header, each used slot with its chain, and every entry (spec 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.layout import plan_of
from formats.rocketmq.index import IndexSlot
from rmqctl.files.source import ByteSource
from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.index_geometry import ENTRY, HEADER, IndexGeometry
from rmqctl.rocketmq.rows.units import Row, chunks, used

_SLOT = plan_of(IndexSlot).runs[0].dtype
Numbers = npt.NDArray[np.int32]


def index_rows(source: ByteSource, file: str, geometry: IndexGeometry | None) -> Iterator[Row]:
    """Header, used slots by number, entries by number.

    Args:
        geometry: slots and entries; None when nothing tells them, then only the header is shown.

    Raises:
        OSError: the file cannot be read.
    """
    raw = source.read_at(0, HEADER.packer.size)
    if len(raw) < HEADER.packer.size:
        message = f"{len(raw)} bytes are too few for the header of {HEADER.packer.size}"
        yield Finding(kinds.INDEX_FILE_LENGTH, file, 0, len(raw), message).row()
        return
    header = dict(zip(HEADER.names, HEADER.packer.unpack(raw), strict=True))
    slots, entries = (geometry.slots, geometry.entries) if geometry else (None, None)
    yield {"kind": "index_header", "file": file, **header, "slots": slots, "entries": entries}
    if geometry is not None:
        index = _Index(source, file, geometry, header)
        yield from index.slots()
        yield from index.entries()


class _Index:
    """The slots and entries of one file."""

    def __init__(self, source: ByteSource, file: str, geometry: IndexGeometry, header: dict[str, Any]) -> None:
        self.source, self.file, self.geometry, self.header = source, file, geometry, header
        self.size = min(source.size(), geometry.file_size)
        self.count = min(max(header["index_count"], 1), geometry.entries)

    def slots(self) -> Iterator[Row]:
        """Used slots, each with the numbers of its entries from the newest on, as far as they lead."""
        hashes, previous = self._chain_columns()
        first = HEADER.packer.size
        for position, units in chunks(self.source, _SLOT, first, min(self.geometry.entries_at, self.size)):
            newest = units["newest"]
            for i in np.flatnonzero(newest).tolist():
                slot = (position - first) // _SLOT.itemsize + i
                chain, broken = self._chain(slot, int(newest[i]), hashes, previous)
                yield {"kind": "index_slot", "file": self.file, "slot": slot, "newest": int(newest[i]), "chain": chain}
                if broken:
                    at = position + i * _SLOT.itemsize
                    yield Finding(kinds.INDEX_CHAIN, self.file, at, 4, f"slot {slot}: {broken}").row()

    def _chain_columns(self) -> tuple[Numbers, Numbers]:
        """Hash and predecessor of every entry by number; memory is taken only for entries in use."""
        hashes, previous = np.zeros(self.geometry.entries, np.int32), np.zeros(self.geometry.entries, np.int32)
        for number, units in self._entry_chunks():
            hashes[number : number + len(units)] = units["key_hash"]
            previous[number : number + len(units)] = units["previous"]
            last = np.flatnonzero(used(units))
            if len(last):  # after a crash entries can be ahead of the header
                self.count = max(self.count, number + int(last[-1]) + 1)
        return hashes, previous

    def _entry_chunks(self) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        begin = self.geometry.entry_at(0)
        for position, units in chunks(self.source, ENTRY.dtype, begin, self.size):
            yield (position - begin) // ENTRY.packer.size, units

    def _chain(self, slot: int, newest: int, hashes: Numbers, previous: Numbers) -> tuple[list[int], str]:
        """Entries of a slot, newest first, and what broke the chain ("" when it ends at 0)."""
        chain: list[int] = []
        number, limit = newest, self.count
        while number:
            if not 0 < number < self.count:
                return chain, f"points at entry {number}, the file has {self.count - 1}"
            if number >= limit:
                return chain, f"entry {chain[-1] if chain else newest} points forward or in a circle, at {number}"
            if int(hashes[number]) % self.geometry.slots != slot:
                return [*chain, number], f"entry {number} has hash {int(hashes[number])}, which belongs to another slot"
            chain.append(number)
            number, limit = int(previous[number]), number
        return chain, ""

    def entries(self) -> Iterator[Row]:
        """Entries by number, as far as there are any behind the header's count."""
        for first, units in self._entry_chunks():
            numbers = first + np.arange(len(units))
            keep = np.flatnonzero((numbers > 0) & (numbers < self.count))
            yield from self._rows(numbers[keep], units[keep])

    def _rows(self, numbers: npt.NDArray[np.int64], units: npt.NDArray[np.void]) -> Iterator[Row]:
        begin = self.header["begin_timestamp"]
        hashes = units["key_hash"].astype(np.int64)
        # the first entry's difference is measured from another time (spec 4.4), its own time is the begin
        times = np.where(numbers == 1, begin, begin + units["time_difference"].astype(np.int64) * 1000)
        columns = {
            "number": numbers,
            "slot": hashes % self.geometry.slots,
            "key_hash": hashes,
            "physical_offset": units["physical_offset"],
            "time_difference": units["time_difference"],
            "store_timestamp": times,
            "previous": units["previous"],
        }
        for values in zip(*(column.tolist() for column in columns.values()), strict=True):
            yield {"kind": "index_entry", "file": self.file, **dict(zip(columns, values, strict=True))}
