"""RocksDB databases of a store against the log and against their twins in files (spec A4 to A6).

Rows that a killed broker had in memory alone are made again when it starts: that they are missing is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from formats.rocketmq.properties import split_properties
from formats.rocketmq.rocksdb_messages import (
    HALF_FAMILY,
    HALF_VALUE,
    INDEX_MARK,
    INDEX_TIME,
    LEAD,
    MARK,
    POP_FAMILY,
    TIMER_DELIVERED,
    TIMER_FAMILY,
    TIMER_SCANNED,
    TIMER_VALUE,
    has_half_key,
    is_timer,
    last_number,
    leading_number,
    mark_of,
)
from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq.dispatch.database_rows import (
    DELIVERED_SLACK,
    INDEX_FAMILY,
    WHEEL_TOPIC,
    MessageRows,
    index_row_keys,
    is_pending,
    marks_in,
    oldest_half,
    records_from,
    spilled_rows,
)
from rmqctl.rocketmq.findings.state import (
    DATABASE_LAST_OFFSETS,
    DATABASE_MISSING_ROWS,
    DATABASE_REACH,
    DATABASE_ROW,
    DATABASE_TWIN,
    DATABASE_TWO_PLACES,
    DATABASE_UNCLEAN_STOP,
    DATABASE_UNREADABLE,
    DATABASE_WRONG_ROW,
)
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import UNIT, Queue, is_pre_blank
from rmqctl.rocketmq.queues.rocksdb import QueueDatabase
from rmqctl.rocketmq.store.database_rows import fits
from rmqctl.rocketmq.store.databases import (
    MESSAGES,
    METADATA,
    POP,
    Database,
    DatabaseDamaged,
    can_read,
    databases_of,
    has_database,
    open_database,
)
from rmqctl.rocketmq.store.files import QUEUES, SEPARATE_QUEUES, StoreFiles
from rmqctl.rocketmq.store.geometry import flag
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.text import instant, number_of

_NOT_TIMERS, _INDEX_MARKS = (TIMER_DELIVERED, TIMER_SCANNED), (INDEX_MARK, INDEX_TIME)
_CACHED = 1 << 14
_ONE_DATABASE = (5, 5, 0)
_INCREMENTAL, _OFFSET_VERSION = "persistConsumerOffsetIncrementally", "consumerOffsetVersion"
"""The setting, and the family that is there early only with it."""
Fields = Callable[[int], "dict[str, Any] | None"]


def check_databases(store: StoreFiles, context: LogContext, *, cross: bool) -> Iterator[Finding]:
    """Yield findings of every database that is there; none without the package that reads them.

    Args:
        cross: compare rows with the log and with queue files.

    Raises:
        Refused: the store is remote.
    """
    if all(has_database(store, path) for path in (QUEUES, SEPARATE_QUEUES)):
        message = f"{QUEUES}/ and {SEPARATE_QUEUES}/ both hold a database of queues"
        yield Finding(DATABASE_TWO_PLACES, SEPARATE_QUEUES, 0, 0, message)
    found = databases_of(store)
    for path in found if found and can_read() else ():
        try:
            with open_database(store, path, "checking a database") as database:
                if cross and path not in (MESSAGES, POP):
                    yield from _strange(database)
                if path == METADATA:
                    yield from _stop(store, database, context)
                if cross and store.log_files:
                    yield from _checked(store, database, context)
        except DatabaseDamaged as error:
            if path != store.queue_database or not cross:  # the checks of queues say it
                yield Finding(DATABASE_UNREADABLE, path, 0, 0, f"the database cannot be read: {error.reason}")


def _strange(database: Database) -> Iterator[Finding]:
    """Rows that have not the format of their column family, one finding a family."""
    for family in database.families:
        odd = [key for key, value in database.rows(family) if not fits(database.path, family, key, value)]
        if odd:
            message = (
                f"family {family}: {number_of(len(odd), 'row', 'fit')} no format, the first has the key {odd[0][:40]!r}"
            )
            yield Finding(DATABASE_ROW, database.path, 0, 0, message)


def _stop(store: StoreFiles, database: Database, context: LogContext) -> Iterator[Finding]:
    """Yield what the two defects of 5.5.0 leave whose stop closes the one database of configuration first."""
    if context.running or context.highest_release < _ONE_DATABASE:
        return
    logs = [e.size for e in store.tree.entries(METADATA) if e.name.endswith(".log")]
    incremental = flag(store.settings, _INCREMENTAL, default=_OFFSET_VERSION in database.families)
    if not store.has_abort and not incremental:
        message = "commits of the last seconds before the stop may be missing from family consumerOffset"
        yield Finding(DATABASE_LAST_OFFSETS, METADATA, 0, 0, message)
    elif store.has_abort and incremental and logs and not any(logs):
        message = "abort is there, but this database was closed in order"
        yield Finding(DATABASE_UNCLEAN_STOP, METADATA, 0, 0, message)


def _checked(store: StoreFiles, database: Database, context: LogContext) -> Iterator[Finding]:
    if database.path == store.queue_database:
        yield from _queues(store, QueueDatabase(database), context)
    elif database.path == MESSAGES:
        with LogReader(context.log_files) as log:
            fields: Fields = lru_cache(_CACHED)(log.fields)
            yield from _index(database, context, fields)
            yield from _timers(database, context, fields)
            yield from _halves(database, context, fields)
        yield from _against_log(store, database, context)
    elif database.path == POP:
        yield from _pop(database)


def _end(context: LogContext) -> int:
    return context.limit if context.end is None else context.end


def _wrong(database: Database, family: str, message: str, physical: int | None = None) -> Finding:
    return Finding(DATABASE_WRONG_ROW, database.path, 0, 0, f"family {family}: {message}", physical_offset=physical)


# --- queues -------------------------------------------------------------------------------------------


def _queues(store: StoreFiles, database: QueueDatabase, context: LogContext) -> Iterator[Finding]:
    reached, end, place = database.dispatched_end(), _end(context), store.queue_database or QUEUES
    if reached > end:
        message = f"the checkpoint says that records up to {reached} are dispatched, but the log ends at {end}"
        yield Finding(DATABASE_REACH, place, 0, 0, message, physical_offset=end)
    elif reached < end and not context.running:
        message = f"the checkpoint says that records up to {reached} are dispatched, the log ends at {end}"
        severity = Severity.NOTE if context.crashed or not reached else None
        yield Finding(DATABASE_REACH, place, 0, 0, message, severity, physical_offset=reached)
    for topic, queue_id in database.queues():
        last, own = database.last_unit(topic, queue_id), database.end_of(topic, queue_id)
        if last is not None and (own is None or own != (last.physical_offset, last.queue_offset)):
            what = "is missing" if own is None else f"names offset {own[1]} and record {own[0]}"
            message = f"the row max {what}, the last unit has offset {last.queue_offset}, record {last.physical_offset}"
            above = (
                own is not None and last.queue_offset > own[1]
            )  # what a cut of the log leaves until it is overwritten
            severity = Severity.NOTE if above else None
            yield Finding(DATABASE_REACH, place, 0, 0, message, severity, topic=topic, queue_id=queue_id)
    yield from _twins(store, database, min(reached, end), context)


def _twins(store: StoreFiles, database: QueueDatabase, reached: int, context: LogContext) -> Iterator[Finding]:
    """Yield the queues that are in files as well, with those that have no unit in the database.

    The database holds what was dispatched since brokers write queues twice: from the record of its first unit on.
    """
    firsts = [unit for key in database.queues() if (unit := next(database.units_of(*key), None)) is not None]
    live = [unit.physical_offset for unit in firsts if unit.physical_offset >= context.min_offset]
    since = min(live, default=context.limit)
    names = {key for key in database.queues() if not store.in_database(key[0])}
    for files in store.queues(QUEUES):
        if not store.in_database(files.topic):
            queue = Queue.open(files)
            names.discard(queue.key)
            yield from _twin(store, database, queue, (since, reached), context)
            yield from _beyond(store, database, queue.key, queue.end() // UNIT.itemsize, context)
    for key in sorted(names):
        yield from _beyond(store, database, key, 0, context)


def _beyond(
    store: StoreFiles, database: QueueDatabase, key: tuple[str, int], end: int, context: LogContext
) -> Iterator[Finding]:
    """Units of a queue from a queue offset on, where its files end."""
    count = sum(int((w["physical_offset"] >= context.min_offset).sum()) for w in database.windows(*key, end))
    if count:
        topic, queue_id = key
        message = f"{topic}/{queue_id}: {number_of(count, 'unit')} in RocksDB from {end} on, where no file is"
        severity = Severity.NOTE if context.crashed or context.running else None
        place = store.queue_database or QUEUES
        yield Finding(DATABASE_TWIN, place, 0, 0, message, severity, topic=topic, queue_id=queue_id, queue_offset=end)


def _twin(
    store: StoreFiles, database: QueueDatabase, queue: Queue, dispatched: tuple[int, int], context: LogContext
) -> Iterator[Finding]:
    """Units of a queue in the database that are others than those in its files, not in them, or not there."""
    counts, example = [0, 0], -1
    topic, queue_id = queue.key
    for file in queue.files:
        for first, some in queue.chunks(file):
            base = file.base // UNIT.itemsize + first
            units = np.zeros(len(some), UNIT)
            for window in database.windows(topic, queue_id, base, base + len(some) - 1):
                for name in UNIT.names or ():
                    units[name][window["queue_offset"] - base] = window[name]
            there = (units["size"] > 0) & (units["physical_offset"] >= context.min_offset)
            physical = some["physical_offset"]
            due = (some["size"] > 0) & ~is_pre_blank(some) & (physical >= max(dispatched[0], context.min_offset))
            wrong = there & (units != some)
            missing = due & (physical < dispatched[1]) & (units["size"] <= 0)
            for number, found in enumerate((wrong, missing)):
                counts[number] += int(found.sum())
            either = np.flatnonzero(wrong | missing)
            example = base + int(either[0]) if len(either) and example < 0 else example
    if any(counts):
        message = (
            f"{topic}/{queue_id}: {number_of(counts[0], 'unit')} in RocksDB differ from those in the files, "
            f"{counts[1]:,} are missing, from queue offset {example} on"
        )
        place = store.queue_database or QUEUES
        yield Finding(DATABASE_TWIN, place, 0, 0, message, topic=topic, queue_id=queue_id, queue_offset=example)


# --- messages -----------------------------------------------------------------------------------------


def _keys_of(fields: dict[str, Any] | None, physical: int) -> frozenset[bytes]:
    if fields is None:
        return frozenset()
    properties = dict(split_properties(fields["properties"]))
    return frozenset(
        index_row_keys(fields["topic"], properties, fields["sys_flag"], fields["store_timestamp"], physical)
    )


def _index(database: Database, context: LogContext, fields: Fields) -> Iterator[Finding]:
    """Rows without a record that has the key."""
    wrong = beyond = 0
    example = -1
    for key, value in database.rows("default"):
        if key in _INDEX_MARKS:
            continue
        physical = last_number(key)
        if physical < context.min_offset and len(key) > 2 * LEAD:
            continue
        if physical >= _end(context):
            beyond += 1
            continue
        found = fields(physical)
        stored = mark_of(value)
        right = found is not None and found["store_timestamp"] == stored and key in _keys_of(found, physical)
        if not right and not context.is_damaged(physical, physical + 1):
            wrong, example = wrong + 1, physical if example < 0 else example
    if wrong:
        message = f"{number_of(wrong, 'index row', 'fit')} no record of the log, the first points to {example}"
        yield _wrong(database, "default", message, example)
    if beyond:
        message = f"{number_of(beyond, 'index row', 'point')} beyond the end of the log; queries leave out such rows"
        yield Finding(DATABASE_WRONG_ROW, database.path, 0, 0, message, Severity.NOTE)


def _against_log(store: StoreFiles, database: Database, context: LogContext) -> Iterator[Finding]:
    """Yield what the records of the log demand, and marks beyond its end.

    Records in front of the oldest hour of the index are no part of it: it was switched on later, or they expired.
    """
    marks = marks_in(store, database)
    entries = (key for key, _ in database.rows(INDEX_FAMILY) if key not in _INDEX_MARKS and len(key) > LEAD)
    first = next(entries, b"")[:LEAD] if marks.index is not None else b""
    timed = marks.timers is not None and next(database.rows(TIMER_FAMILY), None) is not None
    halved = marks.halves is not None and next(database.rows(HALF_FAMILY), None) is not None
    for family, mark in ((INDEX_FAMILY, marks.index), (HALF_FAMILY, marks.halves)):
        if mark is not None and mark >= max(_end(context), 1):
            message = f"family {family}: the mark names a record at {mark}, but the log ends at {_end(context)}"
            yield Finding(DATABASE_REACH, database.path, 0, 0, message, physical_offset=mark)
    if not (first or timed or halved):
        return
    index = _IndexRows(database, first, marks.index or 0)
    with spilled_rows(store, None, index, indexed=bool(first)) as rows:
        unread = 0
        for record in records_from(store.log_files, 0, _end(context), crashed=context.crashed):
            if record["topic"] == WHEEL_TOPIC and record["queue_offset"] >= (marks.timers or 0):
                unread += 1
            else:
                rows.add(record)
        yield from index.findings(context)
        if timed:
            yield from _timers_missing(database, rows, unread, context)
        if halved:
            yield from _halves_missing(database, rows, marks.halves or 0, context)


class _IndexRows:
    """Takes the rows that the index must have, and keeps the records that lack one.

    Args:
        first: the oldest hour that the index holds, in 8 bytes.
        mark: of the last record that is in it; those after it are dispatched again when a crashed broker starts.
    """

    def __init__(self, database: Database, first: bytes, mark: int) -> None:
        self._database, self._first, self._mark = database, first, mark
        self._counts, self._examples, self._last = [0, 0], [-1, -1], -1

    def __setitem__(self, key: bytes, value: bytes) -> None:
        if key[:LEAD] < self._first or self._database.get(INDEX_FAMILY, key) is not None:
            return
        physical = last_number(key)
        late = physical >= self._mark
        if physical != self._last:
            self._last = physical
            self._counts[late] += 1
            self._examples[late] = physical if self._examples[late] < 0 else self._examples[late]

    def findings(self, context: LogContext) -> Iterator[Finding]:
        """Say how many there were."""
        (early, late), (first, first_late) = self._counts, self._examples
        if early:
            message = f"{number_of(early, 'record', 'lack')} rows in the index, the first at {first}"
            yield Finding(DATABASE_MISSING_ROWS, self._database.path, 0, 0, message, physical_offset=first)
        if late:
            what = f"{number_of(late, 'record', 'are')} not in the index, the first at {first_late}"
            message = f"{what}; the index reaches to {self._mark}"
            severity = Severity.NOTE if context.crashed or context.running else None
            yield Finding(
                DATABASE_MISSING_ROWS, self._database.path, 0, 0, message, severity, physical_offset=first_late
            )


def _timers_missing(database: Database, rows: MessageRows, unread: int, context: LogContext) -> Iterator[Finding]:
    """Timers that are not due yet and have no row, and rows of timers that were taken back."""
    delivered = database.get(TIMER_FAMILY, TIMER_DELIVERED) or b""
    at = leading_number(delivered)
    if context.newest_store_timestamp and at > context.newest_store_timestamp + DELIVERED_SLACK:
        message = f"family timer: timers until {instant(at)} are said to be delivered, the last message was stored at "
        yield Finding(DATABASE_REACH, database.path, 0, 0, f"{message}{instant(context.newest_store_timestamp)}")
        delivered = b""
    lost = [
        TIMER_VALUE.unpack(value)[1]
        for key, value in rows.timers.items()
        if key[:LEAD] >= delivered and is_pending(rows, key, there := database.get(TIMER_FAMILY, key)) and there is None
    ]
    if lost:
        what = f"{number_of(len(lost), 'pending timer', 'have')} no row"
        message = f"family timer: {what}, the first at {min(lost)}"
        yield Finding(DATABASE_MISSING_ROWS, database.path, 0, 0, message, physical_offset=min(lost))
    if unread:
        message = f"family timer: {number_of(unread, 'timer', 'were')} not read yet; brokers go on there"
        yield Finding(DATABASE_MISSING_ROWS, database.path, 0, 0, message, Severity.NOTE)
    back = sum(
        key[:LEAD] >= delivered and key in rows.recalled and key not in rows.timers
        for key, _ in database.rows(TIMER_FAMILY)
    )
    if back:
        severity = Severity.NOTE if context.crashed else None
        message = f"family timer: {number_of(back, 'row', 'are')} of timers that were taken back"
        yield Finding(DATABASE_WRONG_ROW, database.path, 0, 0, message, severity)


def _halves_missing(database: Database, rows: MessageRows, mark: int, context: LogContext) -> Iterator[Finding]:
    """Half messages that are open and have no row, and rows of those that have ended.

    One that was checked too often is given up: its row is deleted, and the log does not say so.
    """
    oldest, lost, perhaps, late = oldest_half(rows, database), list[int](), list[int](), list[int]()
    for key in rows.halves:
        if database.get(HALF_FAMILY, key) is None:
            physical = leading_number(key)
            (late if physical > mark else lost if key > oldest else perhaps).append(physical)
    for found, words, what, severity in (
        (lost, ("open half message", "have"), "no row", None),
        (perhaps, ("half message", "have"), "neither an end nor a row: given up, or the row is lost", Severity.NOTE),
        (
            late,
            ("half message", "were"),
            "not read yet; brokers go on there",
            Severity.NOTE if context.crashed else None,
        ),
    ):
        if found:
            message = f"family trans: {number_of(len(found), *words)} {what}, the first at {found[0]}"
            yield Finding(DATABASE_MISSING_ROWS, database.path, 0, 0, message, severity, physical_offset=found[0])
    ended = [key for key, _ in database.rows(HALF_FAMILY) if key[:LEAD] in rows.ended and key != INDEX_MARK]
    if ended:
        severity = Severity.NOTE if context.crashed or context.running else None
        message = f"family trans: {number_of(len(ended), 'row', 'are')} of transactions that have ended"
        yield Finding(DATABASE_WRONG_ROW, database.path, 0, 0, message, severity)


def _timers(database: Database, context: LogContext, fields: Fields) -> Iterator[Finding]:
    for key, value in database.rows(TIMER_FAMILY):
        if key in _NOT_TIMERS:
            continue
        if not is_timer(key, value):
            yield _wrong(database, TIMER_FAMILY, f"a row of {len(key)} and {len(value)} bytes is none of a timer")
            continue
        size, physical = TIMER_VALUE.unpack(value)
        if physical >= context.min_offset:
            found = fields(physical)
            properties = {} if found is None else dict(split_properties(found["properties"]))
            due = properties.get(b"TIMER_OUT_MS", b"")
            same = due == b"%d" % leading_number(key)
            if found is None or not same or properties.get(b"UNIQ_KEY") != key[LEAD:] or found["total_size"] != size:
                yield _wrong(database, TIMER_FAMILY, f"no timer message of the row lies at {physical}", physical)


def _halves(database: Database, context: LogContext, fields: Fields) -> Iterator[Finding]:
    for key, value in database.rows(HALF_FAMILY):
        if key == INDEX_MARK:
            continue
        physical = leading_number(key)
        found = fields(physical) if physical >= context.min_offset else None
        properties = {} if found is None else dict(split_properties(found["properties"]))
        wanted = MARK.join((b"", properties.get(b"REAL_TOPIC", b""), properties.get(b"__transactionId__", b"")))
        if physical < context.min_offset and has_half_key(key):
            continue
        size = HALF_VALUE.unpack(value)[1] if len(value) == HALF_VALUE.size else None
        if found is None or key[LEAD:] != wanted or found["total_size"] != size:
            yield _wrong(database, HALF_FAMILY, f"no half message of the row lies at {physical}", physical)


def _pop(database: Database) -> Iterator[Finding]:
    for key, value in database.rows(POP_FAMILY):
        if key[LEAD:].count(MARK) < 3 or not value.startswith(b"{"):
            yield _wrong(database, POP_FAMILY, f"key {key[:40].hex()} is none of a pop message")
