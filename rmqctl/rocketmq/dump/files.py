"""Everything beside the log and the queues as rows, each with the field names of its schema.

Index files (spec 4): the header, each used slot with its chain, and every entry. Timer files of 5.x (spec 11): wheel
slots in use, log units, the progress file. Small files (spec 1.5, 5, 9, 12): checkpoint, abort, lock, epochs, identity,
configuration. DLedger files (spec 2.14): entries with the messages in them, and the entry index. RocksDB databases
(spec 10, A2 to A6): a row of one has no position in a file, so ``position`` is null and ``family`` names the column
family; what cannot be taken apart is shown with key and value in hex, followed by a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from construct import ConstructError

from formats.errors import DecodeError
from formats.layout import plan_of
from formats.rocketmq import rocksdb
from formats.rocketmq.abort_lock import abort_pid
from formats.rocketmq.checkpoint import Checkpoint
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.dledger import (
    ENTRY_SIZE,
    DLedgerCheckpointLine,
    DLedgerEntry,
    DLedgerIndexUnit,
    DLedgerTermLine,
    parse_lines,
)
from formats.rocketmq.epoch import parse_epochs, parse_identity
from formats.rocketmq.index import IndexSlot
from formats.rocketmq.timer import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MAGIC_BITS,
    UNIT_SIZE,
    TimerCheck,
    TimerLogBlank,
    TimerLogUnit,
    TimerMagic,
    TimerWheelSlot,
)
from rmqctl.files.local import ByteSource
from rmqctl.files.lock import is_locked
from rmqctl.files.tree import Entry, LocalTree, read_all
from rmqctl.findings import Finding, FindingKind
from rmqctl.rocketmq.dump.log import LogDump, Request
from rmqctl.rocketmq.dump.queues import Records, chunks, unit_rows, used
from rmqctl.rocketmq.dump.record import Row
from rmqctl.rocketmq.findings.derived import INDEX_CHAIN, INDEX_FILE_LENGTH
from rmqctl.rocketmq.findings.state import CHECKPOINT_LENGTH, CONFIG_UNREADABLE, DATABASE_ROW, FILE_STRAY, TIMER_LOG
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.columns import rows_of
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store import databases
from rmqctl.rocketmq.store.database_rows import Decoder, decoder_of
from rmqctl.rocketmq.store.files import QUEUES, SEPARATE_QUEUES, StoreFile, StoreFiles
from rmqctl.rocketmq.store.geometry import ENTRY, HEADER, IndexGeometry, detect_index_geometry, integer
from rmqctl.text import text_or_base64

_SLOT = plan_of(IndexSlot).runs[0].dtype
Numbers = npt.NDArray[np.int32]


def _of_whole(rows: Callable[[bytes, str], Iterator[Row]]) -> Callable[[StoreFile, Request], Iterator[Row]]:
    """Rows of a small file that is read at once."""
    return lambda file, _: rows(read_all(file.tree, file.path) or b"", file.name)


def configured_index(settings: Mapping[str, str]) -> IndexGeometry | None:
    """Slots and entries of index files by broker.conf; None when it does not say."""
    slots, entries = integer(settings, "maxHashSlotNum"), integer(settings, "maxIndexNum")
    return IndexGeometry(slots, entries) if slots and entries else None


def index_file_rows(file: StoreFile, request: Request) -> Iterator[Row]:
    """Rows of an index file, as large as broker.conf or its entries say."""
    entry = Entry(file.path.rpartition("/")[2], file.path, is_directory=False, size=file.size)
    geometry = configured_index(request.settings) or detect_index_geometry(file.tree, [entry])
    with closing(file.open()) as source:
        yield from index_rows(source, file.name, geometry)


def index_rows(source: ByteSource, file: str, geometry: IndexGeometry | None) -> Iterator[Row]:
    """Header, used slots by number, entries by number.

    Args:
        geometry: slots and entries; None when nothing shows them, then only the header is shown.
    """
    raw = source.read_at(0, HEADER.packer.size)
    if len(raw) < HEADER.packer.size:
        message = f"{len(raw)} bytes are too few for the header of {HEADER.packer.size}"
        yield Finding(INDEX_FILE_LENGTH, file, 0, len(raw), message).row()
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
        """Yield used slots, each with the numbers of its entries from the newest on, as far as they lead."""
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
                    yield Finding(INDEX_CHAIN, self.file, at, 4, f"slot {slot}: {broken}").row()

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
        """Entries by number, as far as there are any after the header's count."""
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


# --- timer files of 5 -------------------------------------------------------------------------------


DEFAULT_PRECISION = 1000
"""ms a slot of the wheel stands for (timerPrecisionMs)."""

_SLOT_NAMES = {"time": "slot_time"}  # counts slots, which no reader of a key "time" would expect
_WHEEL_SLOT = plan_of(TimerWheelSlot).runs[0].dtype
_UNIT = plan_of(TimerLogUnit).runs[0].dtype
_BLANK = plan_of(TimerLogBlank).runs[0].packer
_CHECK = plan_of(TimerCheck).runs[0]


def wheel_rows(file: StoreFile, request: Request) -> Iterator[Row]:
    """Slots that hold anything, by number; broker.conf says how many ms a slot stands for."""
    precision = integer(request.settings, "timerPrecisionMs") or DEFAULT_PRECISION
    with closing(file.open()) as source:
        for position, slots in chunks(source, _WHEEL_SLOT, 0, source.size()):
            rows = np.flatnonzero(used(slots))
            at = position + rows * _WHEEL_SLOT.itemsize
            before = {"slot": (at // _WHEEL_SLOT.itemsize).tolist()}
            units = unit_rows("timer_slot", file.name, at.tolist(), slots[rows], before=before, names=_SLOT_NAMES)
            for row in units:
                row["delivery_timestamp"] = row["slot_time"] * precision
                yield row


def timer_log_rows(file: StoreFile, _: Request) -> Iterator[Row]:
    """Units of one timer log file up to its blank or the room after it; what is no unit is a finding in its place."""
    source = file.open()
    try:
        size = source.size()
        for position, units in chunks(source, _UNIT, 0, size):
            for row in _log_chunk(file, position, units, size):
                yield row
                if row["kind"] != "timer_log_unit":
                    return
        rest = size % UNIT_SIZE
        if rest >= BLANK_SIZE:
            yield from _blank(file, size - rest, source.read_at(size - rest, BLANK_SIZE))
    finally:
        source.close()


def _log_chunk(file: StoreFile, position: int, units: Records, size: int) -> Iterator[Row]:
    good = (units["size"] == UNIT_SIZE) & (units["magic"] & ~MAGIC_BITS == 0)
    count = len(units) if good.all() else int(np.argmin(good))
    positions = range(position, position + count * UNIT_SIZE, UNIT_SIZE)
    for row in unit_rows("timer_log_unit", file.name, positions, units[:count]):
        row["flags"] = [flag.name.lower() for flag in TimerMagic if row["magic"] & flag and flag.name]
        row["delivery_timestamp"] = row["write_time"] + row["delay"]
        yield row
    if count < len(units):
        at = position + count * UNIT_SIZE
        found = list(_blank(file, at, units[count].tobytes()[:BLANK_SIZE]))
        yield from found
        if not found and units[count:].tobytes().strip(b"\0"):
            message = f"size {int(units['size'][count])} and magic {int(units['magic'][count])} are those of no unit"
            yield Finding(TIMER_LOG, file.name, at, size - at, message).row()


def _blank(file: StoreFile, position: int, data: bytes) -> Iterator[Row]:
    """Yield the blank that closes a file, if it lies there."""
    size, _, magic = _BLANK.unpack(data)
    if magic == BLANK_MAGIC:
        yield {"kind": "timer_log_blank", "file": file.name, "position": position, "size": size}


@_of_whole
def check_rows(data: bytes, file: str) -> Iterator[Row]:
    """Yield the progress of the timer; a file too short for its fields is read as zeros after its end."""
    values = _CHECK.packer.unpack(data[: _CHECK.packer.size].ljust(_CHECK.packer.size, b"\0"))
    yield {"kind": "timer_check", "file": file, **dict(zip(_CHECK.names, values, strict=True))}


# --- small files as rows ----------------------------------------------------------------------------


_CHECKPOINT = plan_of(Checkpoint).runs[0]


@_of_whole
def checkpoint_rows(data: bytes, file: str) -> Iterator[Row]:
    """Yield the checkpoint; a file too short for its fields is read as zeros after its end."""
    size = _CHECKPOINT.packer.size
    values = _CHECKPOINT.packer.unpack(data[:size].ljust(size, b"\0"))
    yield {"kind": "checkpoint", **dict(zip(_CHECKPOINT.names, values, strict=True))}
    if len(data) < size:
        yield _finding(CHECKPOINT_LENGTH, file, len(data), f"{len(data)} bytes, the fields take {size}")


@_of_whole
def abort_rows(data: bytes, file: str) -> Iterator[Row]:
    """Yield the mark of an unclean exit, with the process id of a 5.x broker."""
    yield {"kind": "abort", "file": file, "size": len(data), "pid": abort_pid(data)}


_LOCK_TEXT = 1 << 12
"""Bytes of a lock file that are shown; a broker writes four."""


def lock_rows(file: StoreFile, _: Request) -> Iterator[Row]:
    """Yield the lock file with its first bytes, and whether a broker holds it now; null where nobody can tell."""
    data = read_all(file.tree, file.path, _LOCK_TEXT) or b""
    held = is_locked(file.tree.full(file.path)) if isinstance(file.tree, LocalTree) else None
    yield {"kind": "lock", "file": file.name, "size": file.size, "text": text_or_base64(data), "held": held}


@_of_whole
def epoch_rows(data: bytes, file: str) -> Iterator[Row]:
    """Entries of an epoch file; if they cannot be read, a finding."""
    try:
        for entry in parse_epochs(data):
            yield {"kind": "epoch", "file": file, "epoch": entry.epoch, "start_offset": entry.start_offset}
    except DecodeError as error:
        yield _finding(FILE_STRAY, file, len(data), f"no epoch file: {error}", error.offset)


@_of_whole
def identity_rows(data: bytes, file: str) -> Iterator[Row]:
    """Names a broker in controller mode goes by."""
    yield {"kind": "broker_identity", "file": file, **parse_identity(data.decode("utf-8", "replace"))}


@_of_whole
def config_rows(data: bytes, file: str) -> Iterator[Row]:
    """Yield a JSON configuration file, parsed as fastjson parses it; if it cannot be read, a finding."""
    try:
        yield {"kind": "config", "file": file, "content": parse_config(data)}
    except DecodeError as error:
        yield _finding(CONFIG_UNREADABLE, file, len(data), str(error), error.offset)


@_of_whole
def dledger_checkpoint_rows(data: bytes, file: str) -> Iterator[Row]:
    """Yield the checkpoint of a DLedger group, lines of ``name=value``; whole numbers become integers."""
    yield {"kind": "dledger_checkpoint", "file": file, "content": _content(DLedgerCheckpointLine, data)}


@_of_whole
def dledger_term_rows(data: bytes, file: str) -> Iterator[Row]:
    """Yield the term and vote of a DLedger group, in the same form."""
    yield {"kind": "dledger_term", "file": file, "content": _content(DLedgerTermLine, data)}


def _content(line: Any, data: bytes) -> Row:
    return {name: _number(value) for name, value in parse_lines(line, data).items()}


def _number(text: int | str) -> Any:
    digits = str(text).removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() else text


def _finding(kind: FindingKind, file: str, size: int, message: str, offset: int = 0) -> Row:
    return Finding(kind, file, offset, max(size - offset, 0), message).row()


# --- dledger files as rows --------------------------------------------------------------------------


_ENTRY = plan_of(DLedgerEntry).runs[0].dtype
_INDEX = plan_of(DLedgerIndexUnit).runs[0].dtype
_NAMES = {"position": "entry_position"}


@dataclass(slots=True)
class DLedgerDump(LogDump):
    """A pass over a DLedger log: in front of each message the header of its entry; entries without a message too."""

    _seen: str = ""
    _end: int = 0

    def between(self, block: Block) -> Iterator[tuple[int, Row]]:
        """Yield what stands between the messages of a block, headers of entries included, with its position in the
        file.
        """
        yield from LogDump.between(self, block)
        if self.wanted.damaged or self.wanted.looks_at_content:
            return
        starts = block.position - ENTRY_SIZE
        yield from self._rows(block, starts, rows_of(block.data, block.at - ENTRY_SIZE, ENTRY_SIZE).view(_ENTRY)[:, 0])
        empty = np.array(self._empty_entries(block, starts), np.int64)
        if len(empty):
            yield from self._rows(block, empty, self._read(block.file, empty))

    def _rows(self, block: Block, positions: Ints, headers: Records) -> Iterator[tuple[int, Row]]:
        rows = unit_rows("dledger_entry", block.file, positions.tolist(), headers, names=_NAMES)
        for position, row in zip(positions.tolist(), rows, strict=True):
            if self.wanted.includes_offset(block.base + position):
                yield position, row

    def _empty_entries(self, block: Block, starts: Ints) -> list[int]:
        """Positions of entries without a message: where the chain, which passes them in silence, left no trace."""
        spans = [*zip(starts.tolist(), (block.position + block.total_size).tolist(), strict=True)]
        spans = sorted(spans + [(g.position, g.end) for g in block.gaps] + [(b.position, b.end) for b in block.blanks])
        if block.file != self._seen:
            self._seen = block.file
            self._end = 0 if self.wanted.from_offset is None else spans[0][0]
        found: list[int] = []
        for start, end in spans:
            found += range(self._end, start, ENTRY_SIZE)
            self._end = end
        return found

    def _read(self, file: str, positions: Ints) -> Records:
        source = next(f for f in self.log.files if f.name == file).open()
        try:
            raw = b"".join(source.read_at(at, ENTRY_SIZE).ljust(ENTRY_SIZE, b"\0") for at in positions.tolist())
        finally:
            source.close()
        return np.frombuffer(raw, _ENTRY)


def entry_index_rows(file: StoreFile, _: Request) -> Iterator[Row]:
    """Units of one file of the entry index that are not all zeros."""
    with closing(file.open()) as source:
        for position, units in chunks(source, _INDEX, 0, source.size()):
            rows = np.flatnonzero(used(units))
            places = (position + rows * _INDEX.itemsize).tolist()
            yield from unit_rows("dledger_index_entry", file.name, places, units[rows], names=_NAMES)


# --- databases ------------------------------------------------------------------------------------


_SHOWN_BYTES = 256


def database_rows(store: StoreFiles, path: str, wanted: Filter) -> Iterator[Row]:
    """Yield the rows of a database, family by family in the order of their names, those in the write-ahead log
    included.

    Args:
        wanted: of queues of other topics no unit is read; all other filters are applied to the rows later.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        DatabaseDamaged: the database cannot be opened, or a part of it not be read.
    """
    with databases.open_database(store, path, f"reading {path}") as database:
        for family in sorted(database.families):
            decode = decoder_of(path, family)
            rows = chain.from_iterable(database.rows(family, prefix) for prefix in _prefixes(path, wanted))
            for key, value in rows:
                yield from _rows(path, family, (key, value), decode)


def _rows(path: str, family: str, row: tuple[bytes, bytes], decode: Decoder) -> Iterator[Row]:
    key, value = row
    try:
        fields = decode(key, value)
    except (ConstructError, DecodeError, UnicodeError):
        fields = None
    if fields is not None:
        kind = fields.pop("kind")
        yield {"kind": kind, "file": path, "position": None, "family": family, **fields}
        return
    shown = {"key": key[:_SHOWN_BYTES].hex(), "value": value[:_SHOWN_BYTES].hex()}
    yield {"kind": "database_row", "file": path, "position": None, "family": family, **shown}
    message = f"a row of family {family} fits no format: key {key[:40].hex()}, value {value[:40].hex()}"
    yield Finding(DATABASE_ROW, path, 0, len(key) + len(value), message).row()


def _prefixes(path: str, wanted: Filter) -> list[bytes]:
    """Return what the keys to be read begin with."""
    if path not in (QUEUES, SEPARATE_QUEUES) or not wanted.topics or wanted.topic_like:
        return [b""]
    return [rocksdb.topic_prefix(topic.encode("utf-8", "surrogateescape")) for topic in wanted.topics]
