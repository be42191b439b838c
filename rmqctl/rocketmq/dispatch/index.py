"""Keys put into the index, one record at a time: into a file, or as rows of the database (spec 4.3, 4.4, A5.1).

Sources: IndexService.buildIndex, IndexFile.putKey, IndexRocksDBStore.buildIndex.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from formats.layout import plan_of
from formats.rocketmq.index import IndexEntry, IndexHeader
from formats.rocketmq.rocksdb_messages import HOUR_MS, MARK, message_index_prefix
from rmqctl.rocketmq.dispatch.rules import TRANSACTION
from rmqctl.rocketmq.store.geometry import SLOT_SIZE, IndexGeometry

HEADER_SIZE = plan_of(IndexHeader).runs[0].packer.size
_HEADER, _ENTRY = plan_of(IndexHeader).runs[0].packer, plan_of(IndexEntry).runs[0].packer
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


@dataclass(frozen=True, slots=True)
class IndexPut:
    """Where one put writes; the header, `IndexHead.pack`, is to be written at byte 0 afterwards.

    Attributes:
        entry_at, slot_at: bytes into the file.
        entry, slot: 20 and 4 bytes.
    """

    entry_at: int
    entry: bytes
    slot_at: int
    slot: bytes


def put_key(
    head: IndexHead,
    geometry: IndexGeometry,
    key_hash: int,
    physical: int,
    store_timestamp: int,
    read_slot: Callable[[int], bytes],
    *,
    counts_slots: bool,
) -> IndexPut:
    """Put one key into a file that is not full; changes ``head``.

    Args:
        read_slot: the four bytes at a byte offset of the file.
        counts_slots: `DispatchRules.counts_slots`.
    """
    slot_at = HEADER_SIZE + SLOT_SIZE * (key_hash % geometry.slots)
    newest = int.from_bytes(read_slot(slot_at), "big", signed=True)
    if newest <= 0 or newest > head.index_count:
        newest = 0
    difference = head.difference(store_timestamp)
    number = head.put(physical, store_timestamp, new_slot=not counts_slots or newest == 0)
    entry = _ENTRY.pack(key_hash, physical, difference, newest)
    return IndexPut(geometry.entry_at(number), entry, slot_at, number.to_bytes(SLOT_SIZE, "big"))


# --- rows that dispatch puts into the index in rocksdb for a record ---------------------------------


_KEYS, _TAGS, _UNIQUE_KEY = b"KEYS", b"TAGS", b"UNIQ_KEY"
_ROLLBACK = 0xC


def index_row_keys(
    topic: bytes, properties: Mapping[bytes, bytes], sys_flag: int, store_timestamp: int, physical: int
) -> list[bytes]:
    """Keys of the rows, each once: of KEYS, TAGS and UNIQ_KEY; none for records without a unique key."""
    unique = properties.get(_UNIQUE_KEY, b"")
    if not unique or sys_flag & TRANSACTION == _ROLLBACK or store_timestamp <= 0:
        return []
    hour = store_timestamp // HOUR_MS * HOUR_MS
    end = unique + MARK + physical.to_bytes(8, "big")
    texts = [(b"K", part) for part in dict.fromkeys(properties.get(_KEYS, b"").split(b" ")) if part]
    texts += [(b"T", properties[_TAGS])] if properties.get(_TAGS) else []
    rows = [message_index_prefix(hour, topic, kind, text) + end for kind, text in texts]
    return [*rows, message_index_prefix(hour, topic, b"U", unique) + physical.to_bytes(8, "big")]
