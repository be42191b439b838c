"""Index files: header, slots and entries read in ranges, their names, and the header of one that is written (spec 4).

A name is local time in 17 digits (spec 4.4). The order of names is that of the files, so a new one comes last.
Whether a store has an index in RocksDB, and which of the two counts, is said here too (spec A1, A5.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.files.local import ByteSource
from rmqctl.files.tree import Entry, Tree
from rmqctl.rocketmq.store.databases import MESSAGES, DatabaseDamaged, can_read, has_database, open_database
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.geometry import ENTRY, HEADER, SLOT_SIZE, IndexGeometry, flag, read_header

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Entries = npt.NDArray[np.void]


NAME_DIGITS = 17


class IndexEntry(NamedTuple):
    """One entry, fields as in the schema: ``physical_offset`` in bytes, ``time_difference`` in s."""

    key_hash: int
    physical_offset: int
    time_difference: int
    previous: int


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
        """Read the header; a file too short for one has a header of zeros."""
        source = tree.open(entry.path)
        return cls(tree, entry.path, entry.size, geometry, read_header(source), source)

    @property
    def count(self) -> int:
        return max(min(self.header["index_count"] - 1, self.geometry.entries - 1), 0)

    @property
    def is_whole(self) -> bool:
        """The file has the length its geometry demands."""
        return self.size == self.geometry.file_size

    def entries(self, first: int, count: int) -> Entries:
        """Entries number ``first`` on; fewer where the file ends."""
        import numpy as np

        raw = self._read(self.geometry.entry_at(first), max(count, 0) * ENTRY.packer.size)
        return np.frombuffer(raw, ENTRY.dtype, len(raw) // ENTRY.packer.size)

    def slots(self, first: int, count: int) -> npt.NDArray[np.int32]:
        """Slot values, number ``first`` on; zeros after the end of the file."""
        import numpy as np

        raw = self._read(HEADER.packer.size + SLOT_SIZE * first, SLOT_SIZE * count).ljust(SLOT_SIZE * count, b"\0")
        return np.frombuffer(raw, ">i4").astype(np.int32)

    def is_hole(self, first: int, count: int) -> bool:
        """Whether slots, number ``first`` on, were never written; False where the file system cannot tell."""
        begin = HEADER.packer.size + SLOT_SIZE * first
        return not any(self._opened().data_ranges(begin, begin + SLOT_SIZE * count))

    def slot(self, number: int) -> int:
        """Return the value of one slot; zero after the end of the file."""
        raw = self._read(HEADER.packer.size + SLOT_SIZE * number, SLOT_SIZE).ljust(SLOT_SIZE, b"\0")
        return int.from_bytes(raw, "big", signed=True)

    def entry(self, number: int) -> IndexEntry | None:
        """One entry; None where the file would end before it even at the length its geometry demands.

        A broker maps a file at that length, so what a shorter one lacks reads as zeros.
        """
        if not 0 <= number < self.geometry.entries:
            return None
        raw = self._read(self.geometry.entry_at(number), ENTRY.packer.size).ljust(ENTRY.packer.size, b"\0")
        return IndexEntry(*ENTRY.packer.unpack(raw))

    def physical_at(self, number: int) -> int:
        """Physical offset of one entry; 0 after the end of the file."""
        found = self.entries(number, 1)
        return int(found["physical_offset"][0]) if len(found) else 0

    def first_at_or_after(self, physical: int) -> int:
        """Return the number of the first entry at or after a physical offset, by halving; entries lie in log order."""
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

    def _opened(self) -> ByteSource:
        if self._source is None:
            self._source = self.tree.open(self.path)
        return self._source

    def _read(self, offset: int, size: int) -> bytes:
        return self._opened().read_at(offset, size)


def index_entries(store: StoreFiles) -> list[Entry]:
    """Index files as they are listed, oldest first; names that are no time of 17 digits are left out."""
    return [e for e in store.index_files if not e.is_directory and e.name.isdigit() and len(e.name) == NAME_DIGITS]


def index_files(store: StoreFiles, geometry: IndexGeometry) -> list[IndexFile]:
    """Open the index files of :func:`index_entries`, oldest first."""
    return [IndexFile.open(store.tree, e, geometry) for e in index_entries(store)]


# --- names of index files ---------------------------------------------------------------------------


_HOUR_MS = 3_600_000
LAST_TIME = 253_370_764_800_000
"""The first millisecond of the year 9999, UTC: later years, which only damage gives, have no name of 17 digits."""


def next_name(last: str, milliseconds: int) -> str:
    """Local time as a file name, moved on until it comes after the last one.

    A broker takes its clock; here it is the store time of the first record, so that the same messages
    make the same files. A time that no clock shows counts as the nearest that one does.
    """
    milliseconds = min(max(milliseconds, 0), LAST_TIME)
    while (name := _time_name(milliseconds)) <= last:
        if _time_name(milliseconds + _HOUR_MS) <= last:  # the clock was set back: go on after the last name
            return f"{int(last) + 1:0{NAME_DIGITS}d}"
        milliseconds += 1
    return name


def _time_name(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds // 1000).astimezone()
    return f"{moment:%Y%m%d%H%M%S}{milliseconds % 1000:03d}"


# --- the index in RocksDB ------------------------------------------------------------------------------


_FAMILY = "default"


def has_rows(store: StoreFiles) -> bool:
    """Whether the index in RocksDB holds anything.

    Raises:
        MissingExtra, Refused, DatabaseDamaged: as :func:`open_index`; nothing of it where the database has no data.
    """
    if not may_have_rows(store):
        return False
    with open_database(store, MESSAGES, "reading the message index in RocksDB") as database:
        return next(database.rows(_FAMILY), None) is not None


def may_have_rows(store: StoreFiles) -> bool:
    """Whether the database of messages holds any data: brokers from 5.4.0 on always make it, switches fill it."""
    if not has_database(store, MESSAGES):
        return False
    names = ((e.name, e.size) for e in store.tree.entries(MESSAGES))
    return any(name.endswith(".sst") or (name.endswith(".log") and size > 0) for name, size in names)


def is_asked(store: StoreFiles) -> bool:
    """Whether a broker answers from the index in RocksDB: with indexFileReadEnable, the default, it never does.

    Where broker.conf does not say, index files are asked if there are any.

    Raises:
        MissingExtra, Refused, DatabaseDamaged: as :func:`has_rows`.
    """
    if "indexFileReadEnable" in store.settings:
        return not flag(store.settings, "indexFileReadEnable", default=True) and has_database(store, MESSAGES)
    return not any(not e.is_directory for e in store.index_files) and has_rows(store)


def is_written(store: StoreFiles) -> bool | None:
    """Whether brokers of the store put keys into RocksDB; None where that cannot be known without the extra."""
    if "indexRocksDBEnable" in store.settings:
        return flag(store.settings, "indexRocksDBEnable", default=False)
    if not may_have_rows(store):
        return False
    if not can_read():
        return None
    try:
        return has_rows(store)
    except DatabaseDamaged:  # there are files of rows; `verify` says that they cannot be read
        return True


def files_are_written(store: StoreFiles) -> bool:
    """Whether brokers of the store write index files.

    Where broker.conf does not say: not if there is no file, and there are rows.
    """
    if "indexFileWriteEnable" in store.settings:
        return flag(store.settings, "indexFileWriteEnable", default=True)
    return any(not e.is_directory for e in store.index_files) or not is_written(store)


# --- the header of a file that is written -----------------------------------------------------------


_HEADER = HEADER.packer
HEADER_SIZE = _HEADER.size
_MAX_SECONDS = (1 << 31) - 1


@dataclass(slots=True)
class IndexHead:
    """The header of an index file as the broker holds it in memory.

    Attributes:
        index_count: number of the next free entry, at least 1.
        on_disk: whether slot count and index count have been written: they stay 0 until the first put.
    """

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1
    on_disk: bool = False

    @classmethod
    def parse(cls, data: bytes) -> IndexHead:
        """From the first 40 bytes of a file; an index count below 1 is read as 1."""
        begin, end, first, last, slots, count = _HEADER.unpack(data[: _HEADER.size].ljust(_HEADER.size, b"\0"))
        return cls(begin, end, first, last, slots, max(count, 1), count > 0)

    def pack(self) -> bytes:
        """Return the 40 bytes on disk."""
        count = self.index_count if self.on_disk else 0
        times = self.begin_timestamp, self.end_timestamp, self.begin_phy_offset, self.end_phy_offset
        return _HEADER.pack(*times, self.hash_slot_count, count)

    def is_full(self, geometry: IndexGeometry) -> bool:
        """No further entry fits, and the next key goes to a new file."""
        return self.index_count >= geometry.entries

    def successor(self) -> IndexHead:
        """Return the header that a file begins with which follows this full one."""
        offset, time = max(self.end_phy_offset, 0), max(self.end_timestamp, 0)
        return IndexHead(time, time, offset, offset)

    def difference(self, store_timestamp: int) -> int:
        """Seconds from the begin of the file to a store time, as an entry keeps them."""
        if self.begin_timestamp <= 0:
            return 0
        return min(max(store_timestamp - self.begin_timestamp, 0) // 1000, _MAX_SECONDS)

    def put(self, physical: int, store_timestamp: int, *, new_slot: bool) -> int:
        """Note one more entry; returns its number.

        Args:
            new_slot: hashSlotCount grows: the slot was empty, or the release counts every entry.
        """
        number = self.index_count
        if number <= 1:
            self.begin_phy_offset, self.begin_timestamp = physical, store_timestamp
        self.hash_slot_count += new_slot
        self.index_count, self.on_disk = number + 1, True
        self.end_phy_offset, self.end_timestamp = physical, store_timestamp
        return number

    def copy(self) -> IndexHead:
        """Return an independent copy."""
        return replace(self)
