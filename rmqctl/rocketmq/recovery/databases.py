"""What a broker's start makes of the databases of a store, and which of them decide where it begins (spec A4.3, A5,
10.1).

A database is one more place that dispatch writes to: it says how far it got, and the start begins at the least of
all. A queue in RocksDB is one more image of a queue in the memory of a recovering broker (RocksDBConsumeQueueStore).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.rocketmq.rocksdb import LARGEST_OFFSET
from formats.rocketmq.rocksdb_messages import HALF_FAMILY, TIMER_DELIVERED, TIMER_FAMILY, is_timer, leading_number
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.database_rows import (
    INDEX_FAMILY,
    Marks,
    MessageRows,
    marks_in,
    marks_of_none,
    records_from,
)
from rmqctl.rocketmq.index import may_have_rows
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.queues.rocksdb import QueueDatabase
from rmqctl.rocketmq.recovery.images import CutFile, QueueImage
from rmqctl.rocketmq.recovery.rules import Key
from rmqctl.rocketmq.state.config import has_version_2
from rmqctl.rocketmq.store.databases import (
    CONFIG_V2,
    GROUPS_V1,
    MESSAGES,
    METADATA,
    OFFSETS_V1,
    POP,
    TOPICS_V1,
    Database,
    DatabaseDamaged,
    can_read,
    has_database,
    log_in_the_way,
    lost_current,
    open_database,
)
from rmqctl.rocketmq.store.files import QUEUES, StoreFile, StoreFiles

SINCE = Release(5, 4, 0)
_WAIT_MS = 10_000
"""Without a time up to which timers were delivered, a start takes the time this long ago."""


@dataclass(frozen=True, slots=True)
class DatabaseStart:
    """What a start does to one column family.

    Attributes:
        reached: what the family says it holds: a physical offset; of timers the next queue offset; None where it
            says nothing.
        reaches: the same afterwards.
        rows: written that are not there yet.
        skipped: timers that fell due while the broker was down and that it never delivers.
        error: why the broker cannot open the database, without which it starts all the same; None where it can.
        emptied: why the broker makes an empty database in its place and deletes its tables; None where it does not.
    """

    database: str
    family: str
    reached: int | None
    reaches: int | None
    rows: int
    skipped: int = 0
    error: str | None = None
    emptied: str | None = None

    def row(self) -> dict[str, Any]:
        """As a part of the JSON object of `recover`."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def says_something(self) -> bool:
        """Whether there is anything that a person should know."""
        return bool(self.rows or self.skipped or self.error or self.emptied)

    def sentence(self) -> str:
        """Say in one sentence what happens to the database."""
        if self.emptied is not None:
            what = f", writes {self.rows:,} rows into it" if self.rows else ""
            return (
                f"MAKES AN EMPTY DATABASE at {self.database}{what}, and DELETES the tables that lie there, as "
                f"{self.emptied}; before a broker is started type: rmqctl repair"
            )
        if self.error is not None:
            return f"CANNOT open {self.database}, and does without index, timers and transactions in it: {self.error}"
        what = "timer queue offset" if self.family == TIMER_FAMILY else "byte"
        had = "nothing yet" if self.reached is None else f"up to {what} {self.reached:,}"
        text = (
            f"writes {self.rows:,} rows that are missing into {self.database}, family {self.family}, which holds {had}"
        )
        return f"{text}; SKIPS {self.skipped:,} timers that fell due meanwhile" if self.skipped else text


def marks_of(store: StoreFiles, release: Release) -> Marks:
    """Return the marks; none without the package that reads databases, nor of a database that cannot be opened.

    Raises:
        Refused: the store is remote.
    """
    if release < SINCE or not may_have_rows(store) or not can_read():
        return Marks()
    if lost_current(store, MESSAGES):
        return Marks() if log_in_the_way(store, MESSAGES) else marks_of_none(store)
    try:
        return _marks(store)
    except DatabaseDamaged:  # MessageRocksDBStorage: the broker goes on without it
        return Marks()


def _marks(store: StoreFiles) -> Marks:
    with open_database(store, MESSAGES, "reading how far the index in RocksDB reaches") as database:
        return marks_in(store, database)


def message_starts(
    store: StoreFiles, log: list[StoreFile], begin: int, end: int, marks: Marks, now_ms: int | None = None
) -> Iterator[DatabaseStart]:
    """Yield what a start does to the families of the database of messages.

    Args:
        begin: where dispatch begins; end: of the log afterwards.
        now_ms: when the broker starts; default: now.

    Raises:
        MissingExtra, Refused: as `open_database`.
    """
    if not may_have_rows(store):
        return
    if reason := lost_current(store, MESSAGES):
        failed = _refusal_of(store, MESSAGES) if log_in_the_way(store, MESSAGES) else None
        yield DatabaseStart(MESSAGES, INDEX_FAMILY, None, None, 0, error=failed, emptied=None if failed else reason)
        return
    try:
        yield from _message_starts(store, log, begin, end, marks, now_ms)
    except DatabaseDamaged as error:
        yield DatabaseStart(MESSAGES, INDEX_FAMILY, None, None, 0, error=error.reason)


def _message_starts(
    store: StoreFiles, log: list[StoreFile], begin: int, end: int, marks: Marks, now_ms: int | None
) -> Iterator[DatabaseStart]:
    now = int(time.time() * 1000) if now_ms is None else now_ms
    with open_database(store, MESSAGES, "foreseeing what a start writes into RocksDB") as database:
        index = _NotThere(database, INDEX_FAMILY)
        rows = MessageRows(
            None if marks.index is None else max(begin, marks.index),
            None if marks.halves is None else max(begin, marks.halves),
            marks.timers,
            index=index,
        )
        since = 0 if marks.timers is not None else min((max(begin, mark) for mark in marks.offsets), default=end)
        for record in records_from(log, since, end, crashed=True):
            rows.add(record)
        timers, halves = (
            sum(database.get(family, key) is None for key in table)
            for family, table in ((TIMER_FAMILY, rows.timers), (HALF_FAMILY, rows.halves))
        )
        for family, reached, reaches, new in (
            (INDEX_FAMILY, marks.index, rows.index_mark, index.count),
            (TIMER_FAMILY, marks.timers, rows.scanned, timers),
            (HALF_FAMILY, marks.halves, rows.half_mark, halves),
        ):
            if reached is not None:
                found = DatabaseStart(MESSAGES, family, reached, max(reached, reaches), new)
                skipped = _skipped(database, now) if family == TIMER_FAMILY else 0
                yield replace(found, skipped=skipped)


class _NotThere:
    """Counts rows of a family that a database lacks; no row comes twice."""

    def __init__(self, database: Database, family: str) -> None:
        self._database, self._family, self.count = database, family, 0

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.count += self._database.get(self._family, key) is None


def _needed(store: StoreFiles) -> list[str]:
    """Databases of configuration and pop without which no broker starts."""
    inside = [METADATA] if has_database(store, METADATA) else []
    inside = [CONFIG_V2] if has_version_2(store) else inside
    if not inside and store.is_rocksdb:
        inside = [path for path in (TOPICS_V1, GROUPS_V1, OFFSETS_V1) if has_database(store, path)]
    if has_database(store, POP):  # PopConsumerService.start
        inside.append(POP)
    return inside


def refused_database(store: StoreFiles) -> str:
    """Why no broker starts on the databases of configuration or pop, one sentence; empty where it does.

    Raises:
        MissingExtra, Refused: as `open_database`.
    """
    for path in _needed(store):
        if log_in_the_way(store, path):
            return f"the RocksDB database {path} cannot be opened: {_refusal_of(store, path)}"
        if lost_current(store, path):
            continue
        try:
            with open_database(store, path, "looking whether a broker opens its databases"):
                pass
        except DatabaseDamaged as error:
            return f"the RocksDB database {path} cannot be opened: {error.reason}"
    return ""


def refused_queues(store: StoreFiles) -> str:
    """The same of a database of queues without CURRENT; empty where a broker makes one, or there is one."""
    path = store.queue_database
    if path is None or not log_in_the_way(store, path):
        return ""
    return f"the RocksDB database {path} cannot be opened: {_refusal_of(store, path)}"


def _refusal_of(store: StoreFiles, path: str) -> str:
    """What RocksDB does where CURRENT is gone and a write-ahead log lies there, and what must be done first."""
    log = log_in_the_way(store, path)
    return (
        f"CURRENT is gone; the start makes a new one and then fails on the write-ahead log {log}, and the next start "
        "has an EMPTY DATABASE and DELETES the tables that lie there; before a broker is started type: rmqctl repair"
    )


def emptied_databases(store: StoreFiles, release: Release) -> list[str]:
    """Return the databases that a start makes empty, their tables deleted, or lets the next start make so."""
    paths = _needed(store) + [path for path in (store.queue_database,) if path is not None]
    if release >= SINCE:
        paths.append(MESSAGES)
    return [path for path in paths if lost_current(store, path)]


def _skipped(database: Database, now: int) -> int:
    """Rows of timers that are due already, where nothing says up to when they were delivered."""
    if database.get(TIMER_FAMILY, TIMER_DELIVERED) is not None:
        return 0
    keys = (key for key, value in database.rows(TIMER_FAMILY) if is_timer(key, value))
    return sum(0 < leading_number(key) < now - _WAIT_MS for key in keys)


# --- one queue of a rocksdb store in the memory of a recovering broker ------------------------------


_ROW = np.dtype([("queue_offset", np.int64), ("physical_offset", np.int64), ("size", np.int64)])
_NOTHING = np.zeros(0, _ROW)
_REFERENCE = "physical_offset", "size", "queue_offset"


class RocksQueueImage(QueueImage):
    """Units of the database, read where they are asked for, and what dispatch puts over them by queue offset.

    Args:
        database: that holds the queue, open as long as the start is replayed; None for a queue that is not in it.
    """

    def __init__(self, key: Key, database: QueueDatabase | None = None) -> None:
        super().__init__(key, [], 0)
        self._database, self._limit, self._last = database, LARGEST_OFFSET, -1
        self._added: list[npt.NDArray[np.void]] = []
        self._minimum = self._maximum = 0
        self._highest = -1
        if database is not None:
            self._load(database)

    def _load(self, database: QueueDatabase) -> None:
        """Find the ends; units beyond the row that names the end of the queue do not count, without one none do."""
        end = database.end_of(*self.key[1:])
        if end is None:
            return
        for units in database.windows(*self.key[1:], last=end[1]):
            self._last = int(units["queue_offset"][-1])
            self._note_ends(units)
        self._maximum = self._last + 1

    def _note_ends(self, units: npt.NDArray[np.void]) -> None:
        self._highest = max(self._highest, int(units["physical_offset"].max()))
        self.max_physical = max(self.max_physical, int((units["physical_offset"] + units["size"]).max()))

    def leave(self) -> None:
        """Forget the database, which is about to be closed."""
        self._database = None

    @property
    def max_offset(self) -> int:
        return self._maximum

    @property
    def min_offset(self) -> int:
        return self._minimum

    def units(
        self, database: QueueDatabase | None, first: int = 0, last: int = LARGEST_OFFSET
    ) -> Iterator[npt.NDArray[np.void]]:
        """Yield the units that count between two queue offsets, ascending: arrays of queue offset, physical offset and
        size.

        Args:
            database: that holds the queue, open.
        """
        put = self._merged()
        put = put[(put["queue_offset"] >= first) & (put["queue_offset"] <= last)]
        for units in self._stored(database, first, min(last, self._last)):
            here = put[: int(np.searchsorted(put["queue_offset"], units["queue_offset"][-1], side="right"))]
            put = put[len(here) :]
            stays = units[~np.isin(units["queue_offset"], here["queue_offset"])]
            merged = np.concatenate([stays, here])
            yield merged[np.argsort(merged["queue_offset"], kind="stable")]
        if len(put):
            yield put

    def _stored(self, database: QueueDatabase | None, first: int, last: int) -> Iterator[npt.NDArray[np.void]]:
        if database is None or last < first:
            return
        for units in database.windows(*self.key[1:], first, last):
            found = np.zeros(len(units), _ROW)
            for name in _ROW.names or ():
                found[name] = units[name]
            found = found[found["physical_offset"] < self._limit]
            if len(found):
                yield found

    def _merged(self) -> npt.NDArray[np.void]:
        """Return what was put, by queue offset; of two units the later one counts."""
        if len(self._added) > 1:
            self._added = [_latest(np.concatenate(self._added))]
        return self._added[0] if self._added else _NOTHING

    def destroy(self) -> None:
        self._cut(-1)
        self.max_physical = -1

    def cuts(self) -> Iterator[CutFile]:
        return iter(())

    def put_many(self, physical: Ints, size: Ints, tags_code: Ints, queue_offset: Ints) -> None:
        new = np.zeros(len(physical), _ROW)
        new["queue_offset"], new["physical_offset"], new["size"] = queue_offset, physical, size
        if not len(new):
            return
        self._note_ends(new)
        new = _latest(new)
        offsets = new["queue_offset"]
        low, high = int(offsets[0]), int(offsets[-1])
        there = np.zeros(len(offsets), bool)
        if low < self._maximum:
            there |= np.isin(offsets, self._merged()["queue_offset"])
        for units in self._stored(self._database, low, min(high, self._last)):
            there |= np.isin(offsets, units["queue_offset"])
        self.appended += int((~there).sum())
        self._added.append(new)
        self._maximum = max(self._maximum, high + 1)

    def truncate(self, physical: int) -> None:
        if self._highest >= physical:
            self._cut(physical)

    def _cut(self, physical: int) -> None:
        """Let units of records from a physical offset on count no more."""
        self._maximum = 0
        for units in self.units(self._database):
            gone = units["physical_offset"] >= physical
            self.lost += zip(*(units[name][gone].tolist() for name in _REFERENCE), strict=True)
            if not gone.all():
                self._maximum = int(units["queue_offset"][~gone][-1]) + 1
        self._limit = physical
        self._added = [put[put["physical_offset"] < physical] for put in self._added]

    def correct_minimum(self, log_begin: int, *, minimum_5: bool) -> None:
        """Find the first unit whose record is in the log; after all of them where none is."""
        self._minimum = self._maximum
        for units in self.units(self._database):
            live = units["physical_offset"] >= log_begin
            if live.any():
                self._minimum = int(units["queue_offset"][live][0])
                return


def _latest(units: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Units by queue offset; of two of one offset the later."""
    units = units[::-1]
    return units[np.unique(units["queue_offset"], return_index=True)[1]]


def rocksdb_images(store: StoreFiles, database: QueueDatabase) -> dict[Key, RocksQueueImage]:
    """Every queue that is read from the open database.

    Raises:
        DatabaseDamaged: a block of it cannot be read.
    """
    keys = ((QUEUES, *key) for key in database.queues() if store.in_database(key[0]))
    return {key: RocksQueueImage(key, database) for key in keys}
