"""Rows of a RocksDB database whose files the library refuses, block by block: tables, write-ahead log, manifest.

Each block and each record of a log has a checksum of its own, so damage costs what lies in it and nothing else. Nothing
here raises on bytes: what cannot be read is counted.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from construct import ConstructError
from crc32c import crc32c

from formats.layout import plan_of
from formats.rocketmq.rocksdb_files import (
    CHECKSUM_DELTA,
    CRC32C,
    FAMILY_NAME,
    INDEX_DELTAS,
    LOG_BLOCK,
    PROPERTIES,
    RANGE_DELETIONS,
    BlockTrailer,
    LogPiece,
    ManifestField,
    ManifestTag,
    TableFooter,
    WriteBatchHeader,
    WriteKind,
)
from rmqctl.files.local import ByteSource
from rmqctl.rocketmq.store.databases import Database, NewDatabase, Row, new_database
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.text import number_of

_TRAILER, _PIECE = plan_of(BlockTrailer).runs[0].packer, plan_of(LogPiece).runs[0].packer
_FOOTER = TableFooter.sizeof()
_LARGEST_BLOCK = 64 << 20
_WINDOW = 64 << 10
"""Bytes that are read at a time where the end of a block is looked for."""
_HASHED = 1 << 31
"""In the last number of a data block: a table of hashes follows the restart points."""
_SNAPPY, _LZ4, _ZSTD = 1, (4, 5), 7
_NUMBERED = re.compile(r"(\d+)\.(sst|log)")
_WITH_LOG_NUMBER = 4
"""Bytes that the pieces of a log used again have more."""
_WRITE = struct.Struct(">QB")
"""In front of a row that was read: sequence number and kind of its write."""
_JUDGED = 100
"""Rows of a table that show of which family it is."""
Fits = Callable[[str, bytes, bytes], bool]


class _Cut(Exception):
    """A structure runs over the end of its bytes."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise _Cut
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise _Cut


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes with their length in front, and where they end."""
    size, at = _varint(data, at)
    if at + size > len(data):
        raise _Cut
    return data[at : at + size], at + size


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + CHECKSUM_DELTA) & 0xFFFFFFFF


# --- tables -------------------------------------------------------------------------------------------


class _Table:
    """One table; what it holds comes with the sequence number and the kind of each write.

    A block is in memory at a time; a file that shrinks meanwhile lacks the blocks that are gone.
    """

    def __init__(self, name: str, source: ByteSource, lost: list[str]) -> None:
        self.name, self.lost = name, lost
        self._source, self._size = source, source.size()
        self.family: str | None = None
        self._checked = True

    def entries(self) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Key, sequence number, kind and value of all entries that can be read."""
        meta, index = self._handles()
        names = dict(self._entries(meta)) if meta is not None else {}
        properties = dict(self._entries(self._handle(names.get(PROPERTIES))))
        name = properties.get(FAMILY_NAME)
        self.family = name.decode("utf-8", "replace") if name is not None else None
        deltas = properties.get(INDEX_DELTAS, b"\x01") != b"\x00"
        bad = 0
        for handle in self._data_blocks(index, deltas=deltas):
            block = self._block(handle)
            if block is None:
                bad += 1
                continue
            yield from self._internal(block)
        if bad:
            self.lost.append(f"{number_of(bad, 'block')} of {self.name}")
        removed = self._block(self._handle(names.get(RANGE_DELETIONS)))
        if removed is not None:
            yield from self._internal(removed)

    def _handles(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Where the block of names and the index lie."""
        end = self._source.read_at(max(self._size - _FOOTER, 0), _FOOTER)
        try:
            footer = TableFooter.parse(end)
            self._checked = footer.checksum_type == CRC32C
            meta, at = self._read_handle(end, 1)
            index, _ = self._read_handle(end, at)
        except (ConstructError, _Cut):
            return None, None
        return meta, index

    @staticmethod
    def _read_handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
        offset, at = _varint(data, at)
        size, at = _varint(data, at)
        return (offset, size), at

    def _handle(self, value: bytes | None) -> tuple[int, int] | None:
        try:
            return None if value is None else self._read_handle(value, 0)[0]
        except _Cut:
            return None

    def _data_blocks(self, index: tuple[int, int] | None, *, deltas: bool) -> Iterator[tuple[int, int]]:
        block = self._block(index)
        if block is None:
            self.lost.append(f"the index of {self.name}")
            yield from self._found_blocks()
            return
        size = 0
        offset = -1
        for value in _index_values(block, deltas=deltas):
            try:
                if offset < 0 or len(value) > 1 or not deltas:
                    (offset, size), _ = self._read_handle(value, 0)
            except _Cut:
                return
            yield offset, size

    def _found_blocks(self) -> Iterator[tuple[int, int]]:
        """Blocks from the start of the file on, each found by the checksum that follows it."""
        at = 0
        while at + _TRAILER.size < self._size:
            crc, size, data = 0, 0, bytearray()
            while size <= _LARGEST_BLOCK:
                if size + _TRAILER.size > len(data):
                    data += self._source.read_at(at + len(data), _WINDOW)
                    if size + _TRAILER.size > len(data):
                        return
                kind, stored = _TRAILER.unpack_from(data, size)
                if kind <= 7 and size and _masked(crc32c(bytes([kind]), crc)) == stored:
                    break
                crc = crc32c(data[size : size + 1], crc)
                size += 1
            else:
                return
            block = self._block((at, size))
            if block is None or not any(kind in (0, 1, 7) for _, _, kind, _ in self._internal(block)):
                return  # the blocks of the table's own come after those of its data
            yield at, size
            at += size + _TRAILER.size

    def _block(self, handle: tuple[int, int] | None) -> bytes | None:
        """Return the content of a block; None where it is not what was written."""
        if handle is None or sum(handle) + _TRAILER.size > self._size:
            return None
        offset, size = handle
        data = self._source.read_at(offset, size + _TRAILER.size)
        if len(data) < size + _TRAILER.size:
            return None
        content, (kind, stored) = data[:size], _TRAILER.unpack_from(data, size)
        if self._checked and _masked(crc32c(bytes([kind]), crc32c(content))) != stored:
            return None
        return _inflated(kind, content)

    def _entries(self, handle: tuple[int, int] | None) -> Iterator[tuple[bytes, bytes]]:
        block = self._block(handle)
        return iter(()) if block is None else _entries_of(block)

    def _internal(self, block: bytes) -> Iterator[tuple[bytes, int, int, bytes]]:
        for key, value in _entries_of(block):
            if len(key) >= 8:
                end = int.from_bytes(key[-8:], "little")
                yield key[:-8], end >> 8, end & 0xFF, value


def _inflated(kind: int, content: bytes) -> bytes | None:
    """Return a block decompressed; in front of the data its size stands, but for Snappy, which has it itself."""
    if kind == 0:
        return content
    try:
        size, at = _varint(content, 0)
        if size <= _LARGEST_BLOCK and kind == _SNAPPY:
            from pyarrow import Codec

            return bytes(Codec("snappy").decompress(content, size))
        if size <= _LARGEST_BLOCK and kind in _LZ4:
            from lz4.block import decompress

            return bytes(decompress(content[at:], uncompressed_size=size))
        if size <= _LARGEST_BLOCK and kind == _ZSTD:
            from zstandard import ZstdDecompressor

            return ZstdDecompressor().decompress(content[at:], max_output_size=size)
    except Exception:  # noqa: BLE001, S110 -- each library has errors of its own
        pass
    return None


def _end_of_entries(block: bytes) -> int:
    """Where the restart points of a block begin."""
    if len(block) < 4:
        return 0
    last = int.from_bytes(block[-4:], "little")
    end = len(block) - 4
    if last & _HASHED and end >= 2:
        end -= 2 + int.from_bytes(block[end - 2 : end], "little")
    return max(end - 4 * (last & ~_HASHED), 0)


def _entries_of(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block, up to where it does not hold together."""
    at, end, key = 0, _end_of_entries(block), b""
    try:
        while at < end:
            shared, at = _varint(block, at)
            unshared, at = _varint(block, at)
            size, at = _varint(block, at)
            if shared > len(key) or at + unshared + size > end:
                return
            key = key[:shared] + block[at : at + unshared]
            at += unshared
            yield key, block[at : at + size]
            at += size
    except _Cut:
        return


def _index_values(block: bytes, *, deltas: bool) -> Iterator[bytes]:
    """Yield the handles of an index block; with deltas no size stands in front of a value."""
    if not deltas:
        yield from (value for _, value in _entries_of(block))
        return
    at, end = 0, _end_of_entries(block)
    try:
        while at < end:
            _, at = _varint(block, at)
            unshared, at = _varint(block, at)
            at += unshared
            start = at
            _, at = _varint(block, at)
            _, at = _varint(block, at)
            yield block[start:at]
    except _Cut:
        return


# --- logs ---------------------------------------------------------------------------------------------


def _log_records(blocks: Iterable[bytes], damage: list[int]) -> Iterator[bytes]:
    """Yield records of a write-ahead log or a manifest; after damage, whose place is noted, those of the next block."""
    parts: list[bytes] = []
    for number, block in enumerate(blocks):
        at = 0
        while at + _PIECE.size <= len(block):
            stored, size, kind = _PIECE.unpack_from(block, at)
            if kind == 0 and size == 0:
                break  # room that was made and not used
            more = _WITH_LOG_NUMBER if 5 <= kind <= 8 else 0
            content = block[at + _PIECE.size : at + _PIECE.size + more + size]
            if len(content) < more + size or _masked(crc32c(bytes([kind]) + content)) != stored:
                parts = []
                damage.append(number * LOG_BLOCK + at)
                break
            at += _PIECE.size + more + size
            kind = kind - 4 if more else kind
            if kind in (1, 2):
                parts = []
            parts.append(content[more:])
            if kind in (1, 4):
                yield b"".join(parts)
                parts = []


def _writes(record: bytes) -> Iterator[tuple[int, bytes, int, int, bytes]]:
    """Family, key, sequence number, kind and value of the writes of a record."""
    try:
        head = WriteBatchHeader.parse(record)
    except ConstructError:
        return
    data, at, sequence = head.writes, 0, head.sequence
    try:
        while at < len(data):
            kind, at, family = data[at], at + 1, 0
            if kind in WriteKind.IN_FAMILY:
                family, at = _varint(data, at)
                kind = WriteKind.IN_FAMILY[kind]
            if kind == WriteKind.NOOP:
                continue
            key, at = _text(data, at)
            if kind == WriteKind.LOG_DATA:
                continue
            value = b""
            if kind in (WriteKind.VALUE, WriteKind.RANGE_DELETION):
                value, at = _text(data, at)
            elif kind not in (WriteKind.DELETION, WriteKind.SINGLE_DELETION):
                return
            yield family, key, sequence, kind, value
            sequence += 1
    except _Cut:
        return


@dataclass(slots=True)
class _Manifest:
    """What a manifest says: names of families, tables that count, and the first log that each family still needs."""

    families: dict[int, str] = field(default_factory=lambda: {0: "default"})
    tables: dict[int, int] = field(default_factory=dict)
    logs: dict[int, int] = field(default_factory=dict)
    is_whole: bool = False

    def add(self, record: bytes) -> None:
        """Take one edit.

        Raises:
            ConstructError: it does not hold together.
        """
        fields, source = list[Any](), io.BytesIO(record)
        while source.tell() < len(record):
            fields.append(ManifestField.parse_stream(source))
        last = {found.tag: found.value for found in fields}
        family = int(last.get(ManifestTag.FAMILY, 0))
        if ManifestTag.FAMILY_ADD in last:
            self.families[family] = bytes(last[ManifestTag.FAMILY_ADD]).decode("utf-8", "replace")
        if ManifestTag.FAMILY_DROP in last:
            self.families.pop(family, None)
        if ManifestTag.LOG_NUMBER in last:
            self.logs[family] = max(int(last[ManifestTag.LOG_NUMBER]), self.logs.get(family, 0))
        for found in fields:
            if found.tag == ManifestTag.DELETED_FILE:
                self.tables.pop(found.value.number, None)
        self.tables |= {f.value.number: family for f in fields if f.tag == ManifestTag.NEW_FILE}


def _manifest(store: StoreFiles, path: str) -> _Manifest:
    names = sorted((e.name for e in store.tree.entries(path) if e.name.startswith("MANIFEST-")), reverse=True)
    for name in names:
        found, damage = _Manifest(), list[int]()
        try:
            for record in _log_records(_blocks(store, f"{path}/{name}"), damage):
                found.add(record)
        except ConstructError:
            damage.append(1)
        found.is_whole = not damage and bool(found.logs)
        if found.is_whole or len(found.families) > 1:
            return found
    return _Manifest()


# --- all of a database --------------------------------------------------------------------------------


class SalvagedDatabase(Database):
    """What could be read of a database whose files the library refuses; :func:`salvaged_database` makes one.

    Attributes:
        lost: what could not be read, a clause each.
    """

    def __init__(self, scratch: NewDatabase, path: str) -> None:
        super().__init__(None, path, [])
        self._scratch, self.lost = scratch, list[str]()
        self._ranges: list[tuple[str, bytes, bytes, int]] = []

    def take(self, family: str, key: bytes, sequence: int, kind: int, value: bytes) -> None:
        """Take one write; of those of a key the newest counts."""
        if kind == WriteKind.RANGE_DELETION:
            self._ranges.append((family, key, value, sequence))
        elif kind in (WriteKind.DELETION, WriteKind.VALUE, WriteKind.SINGLE_DELETION):
            place = _place(family) + key
            known = self._scratch.get("default", place)
            if known is None or _WRITE.unpack_from(known)[0] <= sequence:
                self._scratch.put("default", place, _WRITE.pack(sequence, kind) + value)
            if family not in self.families:
                self.families.append(family)

    def rows(self, family: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[Row]:
        """The same as of the library, of rows that are not deleted."""
        place = _place(family)
        first = place + start if start else b""
        for name, written in self._scratch.rows("default", place + prefix, first):
            value = self._value(family, name[len(place) :], written)
            if value is not None:
                yield name[len(place) :], value

    def get(self, family: str, key: bytes) -> bytes | None:
        """The same as of the library."""
        written = self._scratch.get("default", _place(family) + key)
        return None if written is None else self._value(family, key, written)

    def _value(self, family: str, key: bytes, written: bytes) -> bytes | None:
        sequence, kind = _WRITE.unpack_from(written)
        if kind != WriteKind.VALUE:
            return None
        deleted = any(f == family and b <= key < e and s > sequence for f, b, e, s in self._ranges)
        return None if deleted else written[_WRITE.size :]


def _place(family: str) -> bytes:
    name = family.encode("utf-8", "replace")
    return len(name).to_bytes(4, "big") + name


@contextmanager
def salvaged_database(store: StoreFiles, path: str, fits: Fits, directory: Path) -> Iterator[SalvagedDatabase]:
    """Every row that can be read of a database, with what counts of it as far as sequence numbers show.

    Args:
        fits: whether a row has the format of a family: for tables that do not name theirs any more.
        directory: where there is room for the rows, which need not fit into memory.

    Raises:
        MissingExtra: the package rocksdict is not installed.
    """
    manifest = _manifest(store, path)
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(dir=directory) as scratch, new_database(Path(scratch), ()) as rows:
        found = SalvagedDatabase(rows, path)
        if not manifest.is_whole:
            found.lost.append("the manifest, so rows that were deleted may be among those read")
        there = _numbered(store, path)
        for name, number, suffix in there:
            if suffix == "log":
                _take_log(store, manifest, number, f"{path}/{name}", found)
            elif not manifest.is_whole or number in manifest.tables:
                _take_table(store, manifest, number, f"{path}/{name}", found, fits)
        missing = manifest.tables.keys() - {number for _, number, suffix in there if suffix == "sst"}
        found.lost += [f"{number:06d}.sst, which is gone" for number in sorted(missing)]
        yield found


_OTHERS = ("offset", "timer", "trans", "popState", "topic", "subscriptionGroup", "consumerOffset", "forbidden")
"""Families of brokers, for a database whose manifest is lost."""


def _take_table(
    store: StoreFiles, manifest: _Manifest, number: int, path: str, found: SalvagedDatabase, fits: Fits
) -> None:
    with closing(store.tree.open(path)) as source:
        table = _Table(path.rpartition("/")[2], source, found.lost)
        entries = table.entries()
        first = list(islice(entries, _JUDGED))
        own = table.family or manifest.families.get(manifest.tables.get(number, -1), "")
        family = own or _family_of(first, [*manifest.families.values(), *_OTHERS], fits)
        for entry in chain(first, entries):
            found.take(family, *entry)


def _take_log(store: StoreFiles, manifest: _Manifest, number: int, path: str, found: SalvagedDatabase) -> None:
    damage: list[int] = []
    for record in _log_records(_blocks(store, path), damage):
        for family, key, sequence, kind, value in _writes(record):
            known = manifest.families.get(family)
            if known is not None and number >= manifest.logs.get(family, 0):
                found.take(known, key, sequence, kind, value)
    if damage:
        found.lost.append(f"parts of the write-ahead log {path.rpartition('/')[2]}")


def _blocks(store: StoreFiles, path: str) -> Iterator[bytes]:
    """The blocks of a log, one in memory at a time."""
    with closing(store.tree.open(path)) as source:
        at = 0
        while block := source.read_at(at, LOG_BLOCK):
            yield block
            at += LOG_BLOCK


def _numbered(store: StoreFiles, path: str) -> list[tuple[str, int, str]]:
    """Tables and logs by number."""
    names = (_NUMBERED.fullmatch(e.name) for e in store.tree.entries(path) if not e.is_directory)
    return sorted(((m[0], int(m[1]), m[2]) for m in names if m is not None), key=lambda item: item[1])


def _family_of(entries: list[tuple[bytes, int, int, bytes]], families: list[str], fits: Fits) -> str:
    """Return the family whose format most rows have."""
    rows = [(key, value) for key, _, kind, value in entries if kind == WriteKind.VALUE]
    scores: dict[str, Any] = {family: sum(fits(family, *row) for row in rows) for family in families}
    return max(scores, key=lambda family: scores[family]) if rows else "default"
