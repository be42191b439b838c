"""What a broker's start writes into the databases of a store, and which of them decide where it begins (spec A4.3, A5).

A database is one more place that dispatch writes to: it says how far it got, and the start begins at the least of all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from formats.rocketmq.rocksdb_messages import HALF_FAMILY, TIMER_DELIVERED, TIMER_FAMILY, TIMER_SCANNED
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.database_rows import INDEX_FAMILY, Marks, MessageRows, marks_in, records_from
from rmqctl.rocketmq.index.files import may_have_rows
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
    open_database,
)
from rmqctl.rocketmq.store.files import RocketMQStore, StoreFile

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
    """

    database: str
    family: str
    reached: int | None
    reaches: int | None
    rows: int
    skipped: int = 0
    error: str | None = None

    def row(self) -> dict[str, Any]:
        """As a part of the JSON object of `recover`."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def says_something(self) -> bool:
        """Whether there is anything that a person should know."""
        return bool(self.rows or self.skipped or self.error)

    def sentence(self) -> str:
        """The same for people."""
        if self.error is not None:
            return f"CANNOT open {self.database}, and does without index, timers and transactions in it: {self.error}"
        what = "timer queue offset" if self.family == TIMER_FAMILY else "byte"
        had = "nothing yet" if self.reached is None else f"up to {what} {self.reached:,}"
        text = (
            f"writes {self.rows:,} rows that are missing into {self.database}, family {self.family}, which holds {had}"
        )
        return f"{text}; SKIPS {self.skipped:,} timers that fell due meanwhile" if self.skipped else text


def marks_of(store: RocketMQStore, release: Release) -> Marks:
    """The marks; none without the package that reads databases, nor of a database that cannot be opened.

    Raises:
        Refused: the store is remote.
    """
    if release < SINCE or not may_have_rows(store) or not can_read():
        return Marks()
    try:
        return _marks(store)
    except DatabaseDamaged:  # MessageRocksDBStorage: the broker goes on without it
        return Marks()


def _marks(store: RocketMQStore) -> Marks:
    with open_database(store, MESSAGES, "reading how far the index in RocksDB reaches") as database:
        return marks_in(store, database)


def message_starts(
    store: RocketMQStore, log: list[StoreFile], begin: int, end: int, marks: Marks, now_ms: int | None = None
) -> Iterator[DatabaseStart]:
    """What a start does to the families of the database of messages.

    Args:
        begin: where dispatch begins; end: of the log afterwards.
        now_ms: when the broker starts; default: now.

    Raises:
        OSError: the log cannot be read.
        MissingExtra, Refused: as `open_database`.
    """
    if not may_have_rows(store):
        return
    try:
        yield from _message_starts(store, log, begin, end, marks, now_ms)
    except DatabaseDamaged as error:
        yield DatabaseStart(MESSAGES, INDEX_FAMILY, None, None, 0, error=error.reason)


def _message_starts(
    store: RocketMQStore, log: list[StoreFile], begin: int, end: int, marks: Marks, now_ms: int | None
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


def refused_database(store: RocketMQStore) -> str:
    """Why no broker starts on the databases of configuration or pop, one sentence; empty where it does.

    Raises:
        MissingExtra, Refused: as `open_database`.
    """
    inside = [path for path in (CONFIG_V2, METADATA) if has_database(store, path)][:1]
    if not inside and store.is_rocksdb:
        inside = [path for path in (TOPICS_V1, GROUPS_V1, OFFSETS_V1) if has_database(store, path)]
    if has_database(store, POP):  # PopConsumerService.start
        inside.append(POP)
    for path in inside:
        try:
            with open_database(store, path, "looking whether a broker opens its databases"):
                pass
        except DatabaseDamaged as error:
            return f"the RocksDB database {path} cannot be opened: {error.reason}"
    return ""


def _skipped(database: Database, now: int) -> int:
    """Rows of timers that are due already, where nothing says up to when they were delivered."""
    if database.get(TIMER_FAMILY, TIMER_DELIVERED) is not None:
        return 0
    keys = (key for key, value in database.rows(TIMER_FAMILY) if key != TIMER_SCANNED and len(value) == 12)
    return sum(0 < int.from_bytes(key[:8], "big", signed=True) < now - _WAIT_MS for key in keys)
