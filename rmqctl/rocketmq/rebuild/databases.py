"""RocksDB databases made from the log: the rows that must be in them, and a new database that holds them (spec A4, A5).

What the log does not tell is taken from the old database as far as it can be read: units of expired messages, how often
a half message was checked, which timers were delivered. A database is never written to; a new one takes its place.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.layout import plan_of
from formats.rocketmq.rocksdb import (
    CHECKPOINT_TOPIC,
    OFFSET_FAMILY,
    UNIT_FAMILY,
    QueueEnd,
    QueueEndKey,
    QueueUnitValue,
    parse_unit_key,
    queue_prefix,
)
from formats.rocketmq.rocksdb_messages import (
    HALF_FAMILY,
    INDEX_MARK,
    INDEX_TIME,
    TIMER_DELIVERED,
    TIMER_FAMILY,
    TIMER_SCANNED,
    parse_message_index_key,
)
from rmqctl.repair.edits import Create, Edit, Quarantine
from rmqctl.rocketmq.dispatch.database_rows import (
    INDEX_FAMILY,
    Marks,
    MessageRows,
    Rows,
    marks_in,
    records_from,
    wheel_offset,
)
from rmqctl.rocketmq.dispatch.dispatched import Dispatcher, Key, Wanted
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.commitlog import CommitLog, LogState, walk_file
from rmqctl.rocketmq.store.database_files import salvaged_rows
from rmqctl.rocketmq.store.database_rows import fits
from rmqctl.rocketmq.store.databases import MESSAGES, DatabaseDamaged, Row, open_database, write_database
from rmqctl.rocketmq.store.files import LIGHT, RocketMQStore

_UNIT, _END = plan_of(QueueUnitValue).runs[0].packer, plan_of(QueueEnd).runs[0].packer
_CHECKPOINT: bytes = QueueEndKey.build({"topic": CHECKPOINT_TOPIC, "end": b"max", "queue_id": 0})
_LIGHT = LIGHT.encode()
_TAKE_EVERY = 1 << 20
_SECOND = 1000
_MOST_DESTROYED = 10_000_000
"""A queue does not end further behind its last record than this."""
_MOST_CHECKS = 10_000
"""A larger count of checks of a half message is none."""
_FILE = re.compile(r"CURRENT|IDENTITY|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|\d+\.(sst|log|ldb|blob|dbtmp)")
_UNITS = np.dtype([("offset", "i8"), ("physical", "i8"), ("size", "i4"), ("tags_code", "i8"), ("time", "i8")])


@dataclass(frozen=True, slots=True)
class OldDatabase:
    """What can be read of a database.

    Attributes:
        families: rows by key for each column family that is there.
        is_whole: every row was read; else some may be missing, and what is there may be outdated.
        lost: what could not be read, a clause each.
    """

    path: str
    families: Mapping[str, Rows]
    is_whole: bool = True
    lost: tuple[str, ...] = ()

    def rows(self, family: str) -> Rows:
        """Rows of a family; none of one that is not there."""
        return self.families.get(family, {})


def read_old(store: RocketMQStore, path: str) -> OldDatabase:
    """Return what can be read of a database; where the library opens it not, block by block.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        OSError: a file cannot be read.
    """
    try:
        with open_database(store, path, "mending a database") as database:
            return OldDatabase(path, {family: dict(database.rows(family)) for family in database.families})
    except DatabaseDamaged:
        found = salvaged_rows(store, path, lambda family, key, value: fits(path, family, key, value))
        return OldDatabase(path, found.families, is_whole=False, lost=tuple(found.lost))


@dataclass(slots=True)
class NewDatabase:
    """A database as it must be.

    Attributes:
        families: where to get the rows of each column family from.
        made, changed, dropped: rows that the old one lacks, has otherwise, and has too many.
        notes: what could not be known, a clause each.
    """

    path: str
    families: dict[str, Iterable[Row]] = field(default_factory=dict)
    made: int = 0
    changed: int = 0
    dropped: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """The old one holds the same rows."""
        return not (self.made or self.changed or self.dropped)

    def put(self, family: str, old: Rows, new: Rows) -> None:
        """Take the rows of a family."""
        self.families[family] = new.items()
        self.made += len(new.keys() - old.keys())
        self.dropped += len(old.keys() - new.keys())
        self.changed += sum(old.get(key, value) != value for key, value in new.items())

    def what(self) -> str:
        """Return what differs, for people."""
        return f"{self.made:,} rows made, {self.changed:,} put right, {self.dropped:,} left out"

    def write(self, directory: Path) -> Path:
        """Write the database below a directory that stands for the root of the store.

        Raises:
            MissingExtra: the package rocksdict is not installed.
            OSError: it cannot be written.
        """
        place = directory / self.path
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as new:
            write_database(Path(new), self.families)
            for file in Path(new).iterdir():
                file.rename(place / file.name)
        return place


def is_database_file(name: str) -> bool:
    """Whether a file belongs to the data of a database; its lock and its text logs do not."""
    return _FILE.fullmatch(name) is not None


def replacement(store: RocketMQStore, path: str, built: Path | None) -> tuple[Edit, ...]:
    """Return the edits that put a new database in the place of an old one, which goes to quarantine.

    Args:
        built: where the new one lies; None to have none.
    """
    old = [e.name for e in store.tree.entries(path) if not e.is_directory and is_database_file(e.name)]
    gone: list[Edit] = [Quarantine(f"{path}/{name}") for name in old]
    names = sorted(f.name for f in built.iterdir() if is_database_file(f.name)) if built is not None else []
    return (*gone, *(Create(f"{path}/{name}", source=built / name) for name in names if built is not None))


# --- queues -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Log:
    """Units of all queues, and what of the log they come from."""

    queues: dict[Key, npt.NDArray[Any]] = field(default_factory=dict)
    begin: int = 0
    end: int = 0
    damage: list[tuple[int, int]] = field(default_factory=list)

    def is_damaged(self, physical: int) -> bool:
        """Whether no record can be read at an offset."""
        return any(begin <= physical < begin + size for begin, size in self.damage)


def queue_database(store: RocketMQStore, old: OldDatabase) -> NewDatabase:
    """Return the database of queues that the log demands.

    Raises:
        OSError: the log cannot be read.
    """
    log, made = _dispatched(store), NewDatabase(old.path)
    kept = _kept_units(old, log)
    ends = old.rows(OFFSET_FAMILY)
    if old.is_whole:  # light queues that are not there have expired
        known = {key for name in ends if (key := _queue_of(name)) is not None}
        known |= {unit[:2] for name in old.rows(UNIT_FAMILY) if (unit := parse_unit_key(name)) is not None}
        reached = int.from_bytes(ends.get(_CHECKPOINT, b"")[:8], "big", signed=True)
        for key in [k for k in log.queues if k[0].startswith(_LIGHT) and k not in known]:
            if int(log.queues[key]["physical"].max(initial=-1)) < reached:
                del log.queues[key]
    _count(made, old.rows(UNIT_FAMILY), log, kept)
    made.families[UNIT_FAMILY] = _UnitRows(log, kept)
    made.put(OFFSET_FAMILY, ends, _ends(ends, log, kept))
    return made


def _dispatched(store: RocketMQStore) -> _Log:
    """Return what the whole log dispatches to queues; a record that is there twice counts where it lies last."""
    found = _Log(begin=store.log_files[0].base if store.log_files else 0)
    dispatcher = Dispatcher(DispatchRules.of(store), Wanted(index=False))
    parts: dict[Key, list[npt.NDArray[Any]]] = {}
    places: list[Ints] = []
    times: list[Ints] = []
    waiting = 0

    def take() -> None:
        done = dispatcher.take()
        at, stored = (np.concatenate(a) if a else np.zeros(0, np.int64) for a in (places, times))
        for piece in done.pieces:
            units = np.zeros(len(piece.units), _UNITS)
            units["offset"] = piece.first + np.arange(len(units)) if piece.offsets is None else piece.offsets
            units["physical"], units["size"] = piece.units["physical_offset"], piece.units["size"]
            units["tags_code"] = piece.units["tags_code"]
            units["time"] = stored[np.searchsorted(at, units["physical"])]
            parts.setdefault(piece.key, []).append(units)
        found.end = max(found.end, done.end)
        found.damage.extend(done.damage)
        places.clear()
        times.clear()

    state = LogState()
    for context in CommitLog(store.log_files, crashed=store.has_abort).contexts():
        for part in walk_file(context, state):
            dispatcher.add(part)
            places.append(part.block.physical)
            times.append(part.block["store_timestamp"].astype(np.int64))
            waiting += len(part.block)
            if waiting >= _TAKE_EVERY:
                take()
                waiting = 0
    take()
    for key, units in parts.items():
        joined = np.concatenate(units)[::-1]
        found.queues[key] = joined[np.unique(joined["offset"], return_index=True)[1]]
    return found


def _unit_key(key: Key, offset: int) -> bytes:
    return queue_prefix(*key) + offset.to_bytes(8, "big", signed=True)


def _kept_units(old: OldDatabase, log: _Log) -> dict[Key, dict[int, bytes]]:
    """Units of messages that the log does not hold, because they expired or their records are damaged."""
    kept: dict[Key, dict[int, bytes]] = {}
    for name, value in old.rows(UNIT_FAMILY).items():
        unit = parse_unit_key(name)
        if unit is None or len(value) != _UNIT.size:
            continue
        physical = _UNIT.unpack(value)[0]
        key, offset = unit[:2], unit[2]
        if (0 <= physical < log.begin or log.is_damaged(physical)) and 0 <= offset <= _last_offset(old, log, key):
            own = log.queues.get(key)
            if own is None or not _holds(own, offset):
                kept.setdefault(key, {})[offset] = value
    return kept


def _last_offset(old: OldDatabase, log: _Log, key: Key) -> int:
    """The largest queue offset that a queue may have: that of the log's last record, or what the old database says.

    The key of a unit may be damaged, and so may the row that names the end of its queue.
    """
    own = log.queues.get(key)
    known = int(own["offset"][-1]) if own is not None and len(own) else -1
    name = QueueEndKey.build({"topic": key[0], "end": b"max", "queue_id": key[1]})
    end = old.rows(OFFSET_FAMILY).get(name, b"")
    told = _END.unpack(end)[1] if len(end) == _END.size else -1
    return max(known, told if known < 0 or told <= known + _MOST_DESTROYED else -1)


def _holds(units: npt.NDArray[Any], offset: int) -> bool:
    at = int(np.searchsorted(units["offset"], offset))
    return at < len(units) and int(units["offset"][at]) == offset


@dataclass(frozen=True, slots=True)
class _UnitRows:
    """The rows of all units; may be gone through again and again."""

    log: _Log
    kept: dict[Key, dict[int, bytes]]

    def __iter__(self) -> Iterator[Row]:
        for key, units in self.log.queues.items():
            for offset, *fields in units.tolist():
                yield _unit_key(key, offset), _UNIT.pack(*fields)
        for key, rows in self.kept.items():
            for offset, value in rows.items():
                yield _unit_key(key, offset), value


def _count(made: NewDatabase, old: Rows, log: _Log, kept: dict[Key, dict[int, bytes]]) -> None:
    """Note in what the units differ."""
    there = 0
    for key, value in _UnitRows(log, kept):
        found = old.get(key)
        there += found is not None
        made.made += found is None
        made.changed += found is not None and found != value
    made.dropped += len(old) - there


def _queue_of(name: bytes) -> Key | None:
    """Return the queue that a row of its ends is about."""
    size = int.from_bytes(name[:4], "big")
    if len(name) != size + 4 + 1 + 1 + 3 + 1 + 4 or name[5 : 5 + size] == CHECKPOINT_TOPIC:
        return None
    return name[5 : 5 + size], int.from_bytes(name[-4:], "big", signed=True)


def _ends(old: Rows, log: _Log, kept: dict[Key, dict[int, bytes]]) -> Rows:
    """Return the ends of all queues: by their units where the log has any, else as the old rows have them."""
    rows: Rows = {_CHECKPOINT: log.end.to_bytes(8, "big", signed=True)}
    known = log.queues.keys() | kept.keys()
    for name, value in old.items():
        key = _queue_of(name)
        if key is not None and key not in known and len(value) == _END.size:
            physical = _END.unpack(value)[0]
            if 0 <= physical <= log.begin or name[-8:-5] == b"min":
                rows[name] = value
    for topic, queue_id in known:
        units = log.queues.get((topic, queue_id), np.zeros(0, _UNITS))
        last = (int(units["offset"][-1]), int(units["physical"][-1])) if len(units) else (-1, -1)
        others = kept.get((topic, queue_id), {})
        if others and max(others) > last[0]:
            last = max(others), _UNIT.unpack(others[max(others)])[0]
        first = (int(units["offset"][0]), int(units["physical"][0])) if len(units) else (last[0] + 1, log.begin)
        for end, (offset, physical) in ((b"max", last), (b"min", first)):
            name = QueueEndKey.build({"topic": topic, "end": end, "queue_id": queue_id})
            own = old.get(name, b"")
            if end == b"max" or own:  # the smallest offset gets its row when somebody asks for it
                there = _END.unpack(own) if len(own) == _END.size else (-1, -1)
                is_right = end == b"min" and there[1] == offset and 0 <= there[0] <= physical
                rows[name] = own if is_right else _END.pack(physical, offset)
    return rows


# --- messages -----------------------------------------------------------------------------------------


def message_database(store: RocketMQStore, old: OldDatabase) -> NewDatabase:
    """Return the database of index, timers and half messages that the log demands.

    Raises:
        OSError: the log cannot be read.
    """
    made = NewDatabase(MESSAGES)
    begin = store.log_files[0].base if store.log_files else 0
    rows, last, end = MessageRows(0, 0, 0), 0, begin
    for record in records_from(store.log_files, begin, 1 << 63, crashed=store.has_abort):
        rows.add(record)
        end, last = record["physical_offset"] + record["total_size"], max(last, record["store_timestamp"])
    marks = marks_in(store, old.rows, is_whole=old.is_whole)
    if not old.is_whole:
        marks = _guessed(store, marks, rows)
    index, timers, halves = (old.rows(family) for family in (INDEX_FAMILY, TIMER_FAMILY, HALF_FAMILY))
    made.put(INDEX_FAMILY, index, index if marks.index is None else _index(index, rows, begin, whole=old.is_whole))
    made.put(TIMER_FAMILY, timers, timers if marks.timers is None else _timers(timers, rows, begin, last))
    new = halves if marks.halves is None else _halves(halves, rows, begin, end, whole=old.is_whole)
    made.put(HALF_FAMILY, halves, new)
    if marks.halves is not None and not old.is_whole:
        made.notes.append("transactions that were given up are checked again, and all checks are counted from 0")
    return made


def _guessed(store: RocketMQStore, marks: Marks, rows: MessageRows) -> Marks:
    """Which families brokers of the store write, where nothing can be read of some."""
    settled = store.settings
    index, halves, timers = marks.index, marks.halves, marks.timers
    if index is None and "indexRocksDBEnable" not in settled and not store.index_files:
        index = 0
    if halves is None and "transRocksDBEnable" not in settled and rows.half_mark >= 0:
        halves = 0
    if timers is None and "timerRocksDBEnable" not in settled and not store.has_abort:
        timers = 0 if wheel_offset(store) < rows.scanned else None
    return Marks(index, halves, timers)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def _index(old: Rows, rows: MessageRows, begin: int, *, whole: bool) -> Rows:
    """Rows of the log from the oldest hour of the old index on, and old rows of expired messages."""
    entries = {key: entry for key in old if (entry := parse_message_index_key(key)) is not None}
    since = min((entry.hour for entry in entries.values()), default=0) if whole else 0
    new = {key: value for key, value in rows.index.items() if int.from_bytes(key[:8], "big", signed=True) >= since}
    new |= {key: old[key] for key, entry in entries.items() if 0 <= entry.physical_offset < begin}
    if rows.index_mark >= 0:
        new |= {INDEX_MARK: _number(rows.index_mark), INDEX_TIME: _number(rows.index_time)}
    return new


def _timers(old: Rows, rows: MessageRows, begin: int, last: int) -> Rows:
    """Timers that are not delivered, and of delivered ones the old rows that are right."""
    delivered = old.get(TIMER_DELIVERED, b"")
    open_timers = {key: value for key, value in rows.timers.items() if key not in rows.delivered}
    if len(delivered) != 8:  # without it a start skips what fell due meanwhile
        first = min((int.from_bytes(key[:8], "big") for key in open_timers), default=last)
        delivered = _number(min(first, last) // _SECOND * _SECOND)
    new = {key: value for key, value in rows.timers.items() if old.get(key) == value and key[:8] < delivered}
    new |= {key: value for key, value in open_timers.items() if key[:8] >= delivered}
    for key, value in old.items():  # their records have expired
        is_timer = len(key) > 8 and len(value) == 12 and key not in (TIMER_SCANNED, TIMER_DELIVERED, *rows.recalled)
        if is_timer and 0 <= int.from_bytes(value[4:], "big", signed=True) < begin:
            new.setdefault(key, value)
    scanned = int.from_bytes(old.get(TIMER_SCANNED, b""), "big", signed=True)
    new[TIMER_SCANNED] = _number(max(rows.scanned, 0) or scanned)
    new[TIMER_DELIVERED] = delivered
    return new


def _halves(old: Rows, rows: MessageRows, begin: int, end: int, *, whole: bool) -> Rows:
    """Old rows that are right, and half messages that the old rows may lack."""
    mark = int.from_bytes(old.get(INDEX_MARK, b""), "big", signed=True) if whole else -1
    new: Rows = {}
    for key, value in rows.halves.items():
        found = old.get(key, b"")
        if len(found) == len(value) and int.from_bytes(found[:4], "big") < _MOST_CHECKS:
            new[key] = found[:4] + value[4:]
        elif key in old or int.from_bytes(key[:8], "big") > mark:  # others were given up
            new[key] = value
    for key, value in old.items():
        physical = int.from_bytes(key[:8], "big", signed=True)
        if len(value) == 8 and len(key) > 10 and 0 <= physical < min(begin, end) and physical not in rows.ended:
            new.setdefault(key, value)
    if rows.half_mark >= 0:
        new[INDEX_MARK] = _number(rows.half_mark)
    return new
