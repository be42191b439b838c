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
    HOUR_MS,
    INDEX_MARK,
    INDEX_TIME,
    POP_FAMILY,
    TIMER_DELIVERED,
    TIMER_FAMILY,
    TIMER_SCANNED,
)
from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq.dispatch.index import index_row_keys
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
from rmqctl.rocketmq.log.commitlog import CommitLog, LogState, walk_file
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import UNIT, Queue
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
from rmqctl.rocketmq.store.files import QUEUES, SEPARATE_QUEUES, QueueFiles, RocketMQStore
from rmqctl.rocketmq.store.geometry import flag
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.text import number_of

_NOT_TIMERS, _INDEX_MARKS = (TIMER_DELIVERED, TIMER_SCANNED), (INDEX_MARK, INDEX_TIME)
_CACHED = 1 << 14
_ONE_DATABASE = (5, 5, 0)
_INCREMENTAL, _OFFSET_VERSION = "persistConsumerOffsetIncrementally", "consumerOffsetVersion"
"""The setting, and the family that is there early only with it."""
Fields = Callable[[int], "dict[str, Any] | None"]


def check_databases(store: RocketMQStore, context: LogContext, *, cross: bool) -> Iterator[Finding]:
    """Findings of every database that is there; none without the package that reads them.

    Args:
        cross: compare rows with the log and with queue files.

    Raises:
        OSError: a file cannot be read.
        Refused: the store is remote.
    """
    if all(has_database(store, path) for path in (QUEUES, SEPARATE_QUEUES)):
        message = f"{QUEUES}/ and {SEPARATE_QUEUES}/ both hold a database of queues"
        yield Finding(DATABASE_TWO_PLACES, SEPARATE_QUEUES, 0, 0, message)
    for path in databases_of(store) if can_read() else ():
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
                f"family {family}: {number_of(len(odd), 'row')} fit no format, the first has the key {odd[0][:40]!r}"
            )
            yield Finding(DATABASE_ROW, database.path, 0, 0, message)


def _stop(store: RocketMQStore, database: Database, context: LogContext) -> Iterator[Finding]:
    """What the two defects of 5.5.0 leave whose stop closes the one database of configuration first."""
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


def _checked(store: RocketMQStore, database: Database, context: LogContext) -> Iterator[Finding]:
    if database.path == store.queue_database:
        yield from _queues(store, QueueDatabase(database), context)
    elif database.path == MESSAGES:
        with LogReader(context.log_files) as log:
            fields: Fields = lru_cache(_CACHED)(log.fields)
            yield from _index(store, database, context, fields)
            yield from _timers(database, context, fields)
            yield from _halves(database, context, fields)
    elif database.path == POP:
        yield from _pop(database)


def _end(context: LogContext) -> int:
    return context.limit if context.end is None else context.end


def _wrong(database: Database, family: str, message: str, physical: int | None = None) -> Finding:
    return Finding(DATABASE_WRONG_ROW, database.path, 0, 0, f"family {family}: {message}", physical_offset=physical)


# --- queues -------------------------------------------------------------------------------------------


def _queues(store: RocketMQStore, database: QueueDatabase, context: LogContext) -> Iterator[Finding]:
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
            told = "is missing" if own is None else f"names offset {own[1]} and record {own[0]}"
            message = f"the row max {told}, the last unit has offset {last.queue_offset}, record {last.physical_offset}"
            above = (
                own is not None and last.queue_offset > own[1]
            )  # what a cut of the log leaves until it is overwritten
            severity = Severity.NOTE if above else None
            yield Finding(DATABASE_REACH, place, 0, 0, message, severity, topic=topic, queue_id=queue_id)
        if not store.in_database(topic):
            yield from _twin(store, database, (topic, queue_id), context)


def _twin(
    store: RocketMQStore, database: QueueDatabase, key: tuple[str, int], context: LogContext
) -> Iterator[Finding]:
    """Units of a queue in the database that are others than those in its files."""
    topic, queue_id = key
    queue = Queue.open(QueueFiles(QUEUES, topic, queue_id, f"{QUEUES}/{topic}/{queue_id}", store.tree))
    units = {u.queue_offset: (u.physical_offset, u.size, u.tags_code) for u in database.units_of(topic, queue_id)}
    different, low, high = [], min(units, default=0), max(units, default=-1)
    for file in queue.files:
        for first, some in queue.chunks(file):
            base = file.base // UNIT.itemsize + first
            live = (some["size"] > 0) & (some["physical_offset"] >= context.min_offset)
            for row in np.flatnonzero(live).tolist():
                offset, found = base + row, units.get(base + row)
                if low <= offset <= high and found != tuple(some[row].tolist()):
                    different.append(offset)
    if different:
        message = (
            f"{number_of(len(different), 'unit')} of {topic}/{queue_id} in RocksDB differ from those in the files, "
            f"from queue offset {different[0]} on"
        )
        place = store.queue_database or QUEUES
        yield Finding(DATABASE_TWIN, place, 0, 0, message, topic=topic, queue_id=queue_id, queue_offset=different[0])


# --- messages -----------------------------------------------------------------------------------------


def _keys_of(fields: dict[str, Any] | None, physical: int) -> frozenset[bytes]:
    if fields is None:
        return frozenset()
    properties = dict(split_properties(fields["properties"]))
    return frozenset(
        index_row_keys(fields["topic"], properties, fields["sys_flag"], fields["store_timestamp"], physical)
    )


def _index(store: RocketMQStore, database: Database, context: LogContext, fields: Fields) -> Iterator[Finding]:
    """Rows without a record that has the key, and records without their rows."""
    mark = database.get("default", INDEX_MARK)
    rows = wrong = beyond = 0
    example = -1
    for key, value in database.rows("default"):
        if key in _INDEX_MARKS:
            continue
        rows += 1
        physical = int.from_bytes(key[-8:], "big", signed=True)
        if physical < context.min_offset and len(key) > 16:
            continue
        if physical >= _end(context):
            beyond += 1
            continue
        found = fields(physical)
        stored = int.from_bytes(value, "big", signed=True)
        right = found is not None and found["store_timestamp"] == stored and key in _keys_of(found, physical)
        if not right and not context.is_damaged(physical, physical + 1):
            wrong, example = wrong + 1, physical if example < 0 else example
    if wrong:
        message = f"{number_of(wrong, 'index row')} fit no record of the log, the first points to {example}"
        yield _wrong(database, "default", message, example)
    if beyond:
        message = f"{number_of(beyond, 'index row')} point beyond the end of the log; queries leave them out"
        yield Finding(DATABASE_WRONG_ROW, database.path, 0, 0, message, Severity.NOTE)
    if rows:
        yield from _missing(store, database, context, int.from_bytes(mark or b"", "big", signed=True))


def _missing(store: RocketMQStore, database: Database, context: LogContext, mark: int) -> Iterator[Finding]:
    """Records whose rows are not there; those from the mark on are dispatched again when a crashed broker starts.

    Records in front of the oldest hour of the index are no part of it: it was switched on later, or they expired.
    """
    first = next((key for key, _ in database.rows("default") if key not in _INDEX_MARKS), b"")[:8]
    since = int.from_bytes(first, "big", signed=True) if len(first) == 8 else 0
    early: list[int] = []
    late: list[int] = []
    state = LogState()
    for file in CommitLog(store.log_files, crashed=context.crashed).contexts():
        for part in walk_file(file, state):
            block = part.block
            for row in range(len(block)):
                found = block.record(row)
                if found["store_timestamp"] // HOUR_MS * HOUR_MS < since:
                    continue
                physical = int(block.physical[row])
                if any(database.get("default", key) is None for key in _keys_of(found, physical)):
                    (late if physical >= mark else early).append(physical)
    if early:
        message = f"{number_of(len(early), 'record')} lack rows in the index, the first at {early[0]}"
        yield Finding(DATABASE_MISSING_ROWS, database.path, 0, 0, message, physical_offset=early[0])
    if late:
        message = f"{number_of(len(late), 'record')} from {late[0]} on are not in the index, which reaches to {mark}"
        severity = Severity.NOTE if context.crashed or context.running else None
        yield Finding(DATABASE_MISSING_ROWS, database.path, 0, 0, message, severity, physical_offset=late[0])


def _timers(database: Database, context: LogContext, fields: Fields) -> Iterator[Finding]:
    for key, value in database.rows(TIMER_FAMILY):
        if key in _NOT_TIMERS:
            continue
        size, physical = int.from_bytes(value[:4], "big", signed=True), int.from_bytes(value[4:], "big", signed=True)
        if len(value) != 12 or len(key) <= 8:
            yield _wrong(database, TIMER_FAMILY, f"a row of {len(key)} and {len(value)} bytes is none of a timer")
        elif physical >= context.min_offset:
            found = fields(physical)
            properties = {} if found is None else dict(split_properties(found["properties"]))
            due = properties.get(b"TIMER_OUT_MS", b"")
            same = due == b"%d" % int.from_bytes(key[:8], "big", signed=True)
            if found is None or not same or properties.get(b"UNIQ_KEY") != key[8:] or found["total_size"] != size:
                yield _wrong(database, TIMER_FAMILY, f"no timer message of the row lies at {physical}", physical)


def _halves(database: Database, context: LogContext, fields: Fields) -> Iterator[Finding]:
    for key, value in database.rows(HALF_FAMILY):
        if key == INDEX_MARK:
            continue
        physical = int.from_bytes(key[:8], "big", signed=True)
        found = fields(physical) if physical >= context.min_offset else None
        properties = {} if found is None else dict(split_properties(found["properties"]))
        wanted = b"@".join((b"", properties.get(b"REAL_TOPIC", b""), properties.get(b"__transactionId__", b"")))
        size = int.from_bytes(value[4:], "big", signed=True)
        if physical < context.min_offset and len(key) > 10:
            continue
        if found is None or key[8:] != wanted or len(value) != 8 or found["total_size"] != size:
            yield _wrong(database, HALF_FAMILY, f"no half message of the row lies at {physical}", physical)


def _pop(database: Database) -> Iterator[Finding]:
    for key, value in database.rows(POP_FAMILY):
        if key[8:].count(b"@") < 3 or not value.startswith(b"{"):
            yield _wrong(database, POP_FAMILY, f"key {key[:40].hex()} is none of a pop message")
