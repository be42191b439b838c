"""Rows that the records of a log demand in the database of messages: index, timers, half messages (spec A5).

The database is ``rocksdbstore/``; records are added in log order, as dispatch meets them. How far its rows reach in
the log its own marks say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from formats.rocketmq.message import ROLLBACK, TRANSACTION
from formats.rocketmq.properties import split_properties
from formats.rocketmq.rocksdb_messages import (
    HALF_FAMILY,
    HALF_VALUE,
    HOUR_MS,
    INDEX_MARK,
    LEAD,
    MARK,
    NUMBER,
    TIMER_FAMILY,
    TIMER_SCANNED,
    TIMER_VALUE,
    mark_of,
    message_index_prefix,
)
from formats.rocketmq.timer import TimerCheck
from rmqctl.files.tree import read_all
from rmqctl.rocketmq.log.commitlog import CommitLog, LogState, walk_file
from rmqctl.rocketmq.store.databases import Database, StoredRows, new_database
from rmqctl.rocketmq.store.files import StoreFile, StoreFiles
from rmqctl.rocketmq.store.geometry import flag

WHEEL_TOPIC = b"rmq_sys_wheel_timer"
HALF_TOPIC, OP_TOPIC = b"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", b"RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
INDEX_FAMILY = "default"
_OUT, _DELETES, _UNIQUE_KEY, _TRANS_OFFSET = b"TIMER_OUT_MS", b"TIMER_DEL_UNIQKEY", b"UNIQ_KEY", b"TRANS_OFFSET"
_IMMUNE = b"CHECK_IMMUNITY_TIME_IN_SECONDS"
_CHECKS, _LAST = 10_000, b"\xff" * 9
"""More checks of a half message than any broker makes, and a key after those of all half messages."""
DELIVERED_SLACK = 60_000
"""Timers are delivered up to a time when one was: its message was stored then, ms, and this is long after it."""
_SWITCHES = {
    INDEX_FAMILY: "indexRocksDBEnable",
    TIMER_FAMILY: "timerRocksDBEnable",
    HALF_FAMILY: "transRocksDBEnable",
}
Fields = dict[str, Any]
Table = MutableMapping[bytes, bytes]


class Sink(Protocol):
    """What takes rows."""

    def __setitem__(self, key: bytes, value: bytes, /) -> None:
        """Take a row."""


def records_from(files: list[StoreFile], begin: int, end: int, *, crashed: bool) -> Iterator[Fields]:
    """Fields of the records of a log between two physical offsets, in log order."""
    state = LogState()
    for context in CommitLog(files, crashed=crashed).contexts():
        if context.file.base + context.file.size <= begin:
            continue
        for part in walk_file(context, state):
            for row in range(len(part.block)):
                physical = part.block.physical_of(row)
                if physical >= end:
                    return
                if physical >= begin:
                    yield part.block.record(row) | {"physical_offset": physical}


@dataclass(slots=True)
class MessageRows:
    """Rows by key, as they are once the records added so far are dispatched.

    The tables are dictionaries; others may be given that hold more rows than memory does. The index is only written.

    Args:
        index_from, halves_from, timers_from: physical offsets, and the queue offset of timers, from which on records
            are taken; None for a table that brokers of the store do not write.
        in_wheel: queue offset of the first timer that the timer wheel did not take; rows of those before are `early`.

    Attributes:
        index_mark, index_time, half_mark: of the last record that was taken; -1 without one.
        scanned: queue offset of the next timer; -1 without one.
        ended: half messages, by physical offset, that an op message names.
        recalled: timers by due time and unique key that another one takes back; delivered: those whose message was
            put into its topic. The values say nothing.
        open_halves: keys of the rows of half messages by physical offset.
        immune: keys of those that are not checked for some time.
    """

    index_from: int | None = None
    halves_from: int | None = None
    timers_from: int | None = None
    in_wheel: int = 0
    index: Sink = field(default_factory=dict[bytes, bytes])
    halves: Table = field(default_factory=dict)
    timers: Table = field(default_factory=dict)
    ended: Table = field(default_factory=dict)
    recalled: Table = field(default_factory=dict)
    delivered: Table = field(default_factory=dict)
    early: Table = field(default_factory=dict)
    open_halves: dict[bytes, bytes] = field(default_factory=dict)
    immune: set[bytes] = field(default_factory=set)
    index_mark: int = -1
    index_time: int = -1
    half_mark: int = -1
    scanned: int = -1

    def add(self, record: Fields) -> None:
        """Dispatch one record."""
        physical, topic = record["physical_offset"], record["topic"]
        properties = dict(split_properties(record["properties"]))
        if self.index_from is not None and physical >= self.index_from:
            self._index(record, properties, physical)
        if self.timers_from is not None:
            self._timer(record, properties, physical)
        if self.halves_from is not None and physical >= self.halves_from and topic in (HALF_TOPIC, OP_TOPIC):
            self._half(record, properties, physical)

    def _index(self, record: Fields, properties: dict[bytes, bytes], physical: int) -> None:
        stored = record["store_timestamp"]
        keys = index_row_keys(record["topic"], properties, record["sys_flag"], stored, physical)
        if keys:
            value = NUMBER.pack(stored)
            for key in keys:
                self.index[key] = value
            self.index_mark, self.index_time = physical, stored

    def _timer(self, record: Fields, properties: dict[bytes, bytes], physical: int) -> None:
        """Add a timer, one that takes another back, or the message of a timer that was delivered."""
        out, unique = properties.get(_OUT, b""), properties.get(_UNIQUE_KEY, b"")
        due = int(out) if out.isdigit() and len(out) < 19 else -1
        if record["topic"] != WHEEL_TOPIC:
            if due >= 0:
                self.delivered[NUMBER.pack(due) + unique] = b""
            return
        if record["queue_offset"] < (self.timers_from or 0):
            return
        self.scanned = record["queue_offset"] + 1
        deleted = properties.get(_DELETES)
        if due < 0:
            return
        if deleted is not None:
            key = NUMBER.pack(due) + (deleted.partition(b"+")[2] or deleted)
            self.recalled[key] = b""
            self.timers.pop(key, None)
        elif due > record["store_timestamp"]:  # others are delivered when they are read
            key = NUMBER.pack(due) + unique
            self.timers[key] = TIMER_VALUE.pack(record["total_size"], physical)
            if record["queue_offset"] < self.in_wheel:
                self.early[key] = b""
            else:
                self.early.pop(key, None)

    def _half(self, record: Fields, properties: dict[bytes, bytes], physical: int) -> None:
        if record["topic"] == OP_TOPIC:
            named = properties.get(_TRANS_OFFSET, b"")
            if named.isdigit() and len(named) < 19:
                gone = NUMBER.pack(int(named))
                self.ended[gone] = b""
                self.halves.pop(self.open_halves.pop(gone, b""), None)
            return
        if physical > 0:
            self.half_mark = physical
        names = properties.get(b"REAL_TOPIC", b""), properties.get(b"__transactionId__", b"")
        key = NUMBER.pack(physical) + MARK + MARK.join(names)
        self.open_halves[key[:LEAD]] = key
        if _IMMUNE in properties:
            self.immune.add(key)
        self.halves[key] = HALF_VALUE.pack(0, record["total_size"])


# --- how far the rows reach ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Marks:
    """How far the families of the database of messages reach in the log; None for one that is not written.

    Attributes:
        index, halves: physical offset of the last record that has its rows, 0 without one.
        timers: the next queue offset of the timer topic.
    """

    index: int | None = None
    halves: int | None = None
    timers: int | None = None

    @property
    def offsets(self) -> list[int]:
        """Those in the log."""
        return [mark for mark in (self.index, self.halves) if mark is not None]


def marks_in(store: StoreFiles, database: Database, *, is_whole: bool = True) -> Marks:
    """Return the marks that the rows of each family of an open database name.

    Args:
        is_whole: all rows can be read; else a family without rows may have had some, and broker.conf alone counts.

    Raises:
        DatabaseDamaged: a block cannot be read.
    """
    index, halves = (
        (mark_of(database.get(family, INDEX_MARK)) or 0) if _is_written(store, database, family) else None
        for family in (INDEX_FAMILY, HALF_FAMILY)
    )
    timers = None
    if _is_written(store, database, TIMER_FAMILY):
        scanned = mark_of(database.get(TIMER_FAMILY, TIMER_SCANNED)) or 0
        timers = max(scanned, wheel_offset(store)) if is_whole else scanned
    return Marks(index, halves, timers)


def marks_of_none(store: StoreFiles) -> Marks:
    """Return the marks of an empty database: of the families that broker.conf has written."""
    written = (flag(store.settings, _SWITCHES[family], default=False) for family in (INDEX_FAMILY, HALF_FAMILY))
    return Marks(*(0 if switch else None for switch in written))


def _is_written(store: StoreFiles, database: Database, family: str) -> bool:
    """By broker.conf; without a word there, a family that has rows is one that is written."""
    switch = _SWITCHES[family]
    if switch in store.settings:
        return flag(store.settings, switch, default=False)
    return next(database.rows(family), None) is not None


def wheel_offset(store: StoreFiles) -> int:
    """Return the next queue offset that the timer wheel reads; it stays as it was once RocksDB took over."""
    offset: int = timer_check(store).last_timer_queue_offset
    return offset


def timer_check(store: StoreFiles) -> Any:
    """Return how far the timer wheel came, with the fields of ``TimerCheck``; zeros without the file."""
    data = read_all(store.tree, "config/timercheck") or b""
    return TimerCheck.parse(data.ljust(TimerCheck.sizeof(), b"\0"))


_SCRATCH = ("timers", "halves", "ended", "recalled", "delivered", "early")


@contextmanager
def spilled_rows(store: StoreFiles, directory: Path | None, index: Sink, *, indexed: bool) -> Iterator[MessageRows]:
    """Rows of a whole log whose tables lie on the disk: there may be more timers and half messages than memory holds.

    Args:
        directory: to put them into; None for that of temporary files.
        indexed: give the rows of the index to ``index``.

    Raises:
        MissingExtra: the package rocksdict is not installed.
    """
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(dir=directory) as place, new_database(Path(place), _SCRATCH) as scratch:
        timers, halves, ended, recalled, delivered, early = (StoredRows(scratch, name) for name in _SCRATCH)
        yield MessageRows(
            0 if indexed else None, 0, 0, wheel_offset(store), index,
            timers=timers, halves=halves, ended=ended, recalled=recalled, delivered=delivered, early=early,
        )  # fmt: skip


# --- what must be there -------------------------------------------------------------------------------


def is_pending(rows: MessageRows, key: bytes, there: bytes | None) -> bool:
    """Whether a timer of the log that is not due yet must have a row; not if it was delivered, or the wheel has it.

    Args:
        there: the row that the database has.
    """
    return key not in rows.delivered and (there is not None or key not in rows.early)


def has_checks(value: bytes | None) -> bool:
    """Whether the row of a half message says how often it was checked."""
    return value is not None and len(value) == HALF_VALUE.size and 0 <= HALF_VALUE.unpack(value)[0] < _CHECKS


def oldest_half(rows: MessageRows, database: Database) -> bytes:
    """The key of the oldest half message of the log that has a sound row, above all keys where there is none.

    All half messages are checked in turns, so a later one is not given up before it: that one's row must be there.
    """
    there = (key for key in rows.halves if key not in rows.immune and has_checks(database.get(HALF_FAMILY, key)))
    return next(there, _LAST)


# --- keys of the index ------------------------------------------------------------------------------


_KEYS, _TAGS, _UNIQUE_KEY = b"KEYS", b"TAGS", b"UNIQ_KEY"


def index_row_keys(
    topic: bytes, properties: Mapping[bytes, bytes], sys_flag: int, store_timestamp: int, physical: int
) -> list[bytes]:
    """Keys of the rows, each once: of KEYS, TAGS and UNIQ_KEY; none for records without a unique key."""
    unique = properties.get(_UNIQUE_KEY, b"")
    if not unique or sys_flag & TRANSACTION == ROLLBACK or store_timestamp <= 0:
        return []
    hour = store_timestamp // HOUR_MS * HOUR_MS
    end = unique + MARK + NUMBER.pack(physical)
    texts = [(b"K", part) for part in dict.fromkeys(properties.get(_KEYS, b"").split(b" ")) if part]
    texts += [(b"T", properties[_TAGS])] if properties.get(_TAGS) else []
    rows = [message_index_prefix(hour, topic, kind, text) + end for kind, text in texts]
    return [*rows, message_index_prefix(hour, topic, b"U", unique) + NUMBER.pack(physical)]
