"""Index files read in ranges: header, slots, entries (spec 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from formats.layout import plan_of
from formats.rocketmq.index import IndexHeader
from rmqctl.files.source import ByteSource
from rmqctl.files.tree import Entry, Tree
from rmqctl.rocketmq.index_geometry import ENTRY, HEADER, SLOT_SIZE, IndexGeometry
from rmqctl.rocketmq.store import RocketMQStore

Entries = npt.NDArray[np.void]
NAME_DIGITS = 17
_HEADER_NAMES = plan_of(IndexHeader).runs[0].names


@dataclass(slots=True)
class IndexFile:
    """One index file.

    Attributes:
        header: fields by name.
        count: entries that the header announces, 0 when it says nothing usable.
    """

    tree: Tree
    path: str
    size: int
    geometry: IndexGeometry
    header: dict[str, int]
    _source: ByteSource | None = None

    @classmethod
    def open(cls, tree: Tree, entry: Entry, geometry: IndexGeometry) -> IndexFile:
        """Read the header; a file too short for one has a header of zeros.

        Raises:
            OSError: the file cannot be read.
        """
        source = tree.open(entry.path)
        raw = source.read_at(0, HEADER.packer.size).ljust(HEADER.packer.size, b"\0")
        header = dict(zip(_HEADER_NAMES, HEADER.packer.unpack(raw), strict=True))
        return cls(tree, entry.path, entry.size, geometry, header, source)

    @property
    def count(self) -> int:
        return max(min(self.header["index_count"] - 1, self.geometry.entries - 1), 0)

    @property
    def is_whole(self) -> bool:
        """The file has the length its geometry demands."""
        return self.size == self.geometry.file_size

    def entries(self, first: int, count: int) -> Entries:
        """Entries number ``first`` on; fewer where the file ends."""
        raw = self._read(self.geometry.entry_at(first), max(count, 0) * ENTRY.packer.size)
        return np.frombuffer(raw, ENTRY.dtype, len(raw) // ENTRY.packer.size)

    def slots(self, first: int, count: int) -> npt.NDArray[np.int32]:
        """Slot values, number ``first`` on; zeros behind the end of the file."""
        raw = self._read(HEADER.packer.size + SLOT_SIZE * first, SLOT_SIZE * count).ljust(SLOT_SIZE * count, b"\0")
        return np.frombuffer(raw, ">i4").astype(np.int32)

    def physical_at(self, number: int) -> int:
        """Physical offset of one entry; 0 behind the end of the file."""
        found = self.entries(number, 1)
        return int(found["physical_offset"][0]) if len(found) else 0

    def first_at_or_after(self, physical: int) -> int:
        """Number of the first entry at or behind a physical offset, by halving; entries lie in log order."""
        low, high = 1, self.count + 1
        while low < high:
            middle = (low + high) // 2
            if self.physical_at(middle) < physical:
                low = middle + 1
            else:
                high = middle
        return low

    def close(self) -> None:
        """Close the file."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _read(self, offset: int, size: int) -> bytes:
        if self._source is None:
            self._source = self.tree.open(self.path)
        return self._source.read_at(offset, size)


def index_files(store: RocketMQStore, geometry: IndexGeometry) -> list[IndexFile]:
    """Index files by name, oldest first; names that are no time of 17 digits are left out.

    Raises:
        OSError: a file cannot be read.
    """
    wanted = [e for e in store.index_files if not e.is_directory and e.name.isdigit() and len(e.name) == NAME_DIGITS]
    return [IndexFile.open(store.tree, e, geometry) for e in wanted]
