"""RocksDB databases made from the log: the rows that must be in them, and a new database that holds them (spec A4, A5).

What the log does not say is taken from the old database as far as it can be read: units of expired messages, how often
a half message was checked, which timers were delivered. A database is never written to; a new one takes its place.
"""

from __future__ import annotations

import re
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.layout import plan_of
from formats.rocketmq.rocksdb import (
    CHECKPOINT_TOPIC,
    LARGEST_OFFSET,
    OFFSET_FAMILY,
    UNIT_FAMILY,
    QueueEnd,
    QueueEndKey,
    QueueUnitValue,
    dispatched_end,
    parse_end_key,
    parse_unit_key,
    queue_prefix,
)
from formats.rocketmq.rocksdb_messages import (
    HALF_FAMILY,
    HALF_VALUE,
    INDEX_MARK,
    INDEX_TIME,
    LEAD,
    NUMBER,
    TIMER_DELIVERED,
    TIMER_FAMILY,
    TIMER_SCANNED,
    TIMER_VALUE,
    has_half_key,
    is_timer,
    leading_number,
    mark_of,
    parse_message_index_key,
)
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.repair.edits import Create, Edit, Quarantine
from rmqctl.rocketmq.dispatch.database_rows import (
    DELIVERED_SLACK,
    INDEX_FAMILY,
    Marks,
    MessageRows,
    has_checks,
    is_pending,
    marks_in,
    oldest_half,
    records_from,
    spilled_rows,
    wheel_offset,
)
from rmqctl.rocketmq.dispatch.dispatched import Dispatcher, Key, Wanted
from rmqctl.rocketmq.dispatch.rules import DispatchRules, assumed_levels
from rmqctl.rocketmq.index import index_files
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.commitlog import CommitLog, LogState, walk_file
from rmqctl.rocketmq.queues.rocksdb import queues_in
from rmqctl.rocketmq.state.config import read_checkpoint
from rmqctl.rocketmq.store.database_rows import fits
from rmqctl.rocketmq.store.databases import (
    Database,
    DatabaseDamaged,
    NewDatabase,
    Row,
    new_database,
    open_database,
)
from rmqctl.rocketmq.store.files import LIGHT, StoreFiles
from rmqctl.rocketmq.store.geometry import index_geometry

UNIT_ROW, END = plan_of(QueueUnitValue).runs[0].packer, plan_of(QueueEnd).runs[0].packer
CHECKPOINT: bytes = QueueEndKey.build({"topic": CHECKPOINT_TOPIC, "end": b"max", "queue_id": 0})
_LIGHT = LIGHT.encode()
_TAKE_EVERY = 1 << 18
_SECOND = 1000
_MOST_DESTROYED = 10_000_000
"""A queue does not end further after its last record than this."""
_FILE = re.compile(r"CURRENT|IDENTITY|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|\d+\.(sst|log|ldb|blob|dbtmp)")


@dataclass(frozen=True, slots=True)
class OldDatabase:
    """What can be read of a database, open.

    Attributes:
        is_whole: every row can be read; else some may be missing, and what is there may be outdated.
        lost: what cannot be read, a clause each.
    """

    path: str
    database: Database
    is_whole: bool = True
    lost: tuple[str, ...] = ()

    @property
    def families(self) -> list[str]:
        """The column families that are there."""
        return self.database.families

    def rows(self, family: str) -> Iterator[Row]:
        """Rows of a family by key; none of one that is not there."""
        return self.database.rows(family)

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value of a key; None where it is not there."""
        return self.database.get(family, key)


@contextmanager
def open_old(store: StoreFiles, path: str, directory: Path) -> Iterator[OldDatabase]:
    """What can be read of a database; where the library does not open it, or not all of it, block by block.

    Args:
        directory: has room for what is read block by block.

    Raises:
        MissingExtra: the package rocksdict is not installed.
    """
    with ExitStack() as opened:
        try:
            database = opened.enter_context(open_database(store, path, "mending a database"))
            for family in database.families:
                for _ in database.rows(family):  # of a damaged block the library says it when it comes to it
                    pass
            old = OldDatabase(path, database)
        except DatabaseDamaged:
            opened.close()
            suits = partial(fits, path)
            from rmqctl.rocketmq.store.database_files import salvaged_database

            found = opened.enter_context(salvaged_database(store, path, suits, directory))
            old = OldDatabase(path, found, is_whole=False, lost=tuple(found.lost))
        yield old


@dataclass(slots=True)
class MadeDatabase:
    """A database as it must be, built beside the old one.

    Attributes:
        staged: where it lies.
        made, changed, dropped: rows that the old one lacks, has otherwise, and has too many.
        notes: what could not be known, a clause each.
    """

    path: str
    staged: Path
    made: int = 0
    changed: int = 0
    dropped: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """The old one holds the same rows."""
        return not (self.made or self.changed or self.dropped)

    def compare(self, old: OldDatabase, new: Database) -> None:
        """Count in what the rows of two databases differ; both are gone through side by side."""
        for family in {*old.families, *new.families}:
            before, after = old.rows(family), new.rows(family)
            left, right = next(before, None), next(after, None)
            while left is not None or right is not None:
                if right is None or (left is not None and left[0] < right[0]):
                    self.dropped += 1
                    left = next(before, None)
                elif left is None or right[0] < left[0]:
                    self.made += 1
                    right = next(after, None)
                else:
                    self.changed += left[1] != right[1]
                    left, right = next(before, None), next(after, None)

    def what(self) -> str:
        """Return what differs, for people."""
        return f"{self.made:,} rows made, {self.changed:,} put right, {self.dropped:,} left out"

    def place(self, directory: Path) -> Path:
        """Put it below a directory that stands for the root of the store, and return where it lies there."""
        place = directory / self.path
        place.mkdir(parents=True, exist_ok=True)
        for file in self.staged.iterdir():
            file.rename(place / file.name)
        self.staged.rmdir()
        return place


@contextmanager
def making(old: OldDatabase, directory: Path, families: Iterable[str]) -> Iterator[tuple[MadeDatabase, NewDatabase]]:
    """A new database to write; what it differs in from the old one is counted at the end.

    Rows are written in the order of the log, and two databases can be compared in the order of their keys only: that is
    a pass over both once all is written, which reads what is on disk. To look each row up as it is written costs as
    much.

    Args:
        directory: to build it in.

    Raises:
        MissingExtra: the package rocksdict is not installed.
    """
    made = MadeDatabase(old.path, Path(tempfile.mkdtemp(dir=directory, prefix="database-")))
    with new_database(made.staged, families) as new:
        yield made, new
        made.compare(old, new)


def is_database_file(name: str) -> bool:
    """Whether a file belongs to the data of a database; its lock and its text logs do not."""
    return _FILE.fullmatch(name) is not None


def replacement(store: StoreFiles, path: str, built: Path | None) -> tuple[Edit, ...]:
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
class _Span:
    """Of the units of a queue that the log has: the first one, and the physical offset of the last."""

    first_offset: int = LARGEST_OFFSET
    first_physical: int = 0
    last_physical: int = -1


@dataclass(slots=True)
class _Log:
    """What of the log the units come from, and the queues that it has units of."""

    queues: dict[Key, _Span] = field(default_factory=dict)
    begin: int = 0
    end: int = 0
    damage: list[tuple[int, int]] = field(default_factory=list)

    def is_damaged(self, physical: int) -> bool:
        """Whether no record can be read at an offset."""
        at = bisect_right(self.damage, (physical, 1 << 63)) - 1
        return at >= 0 and physical < sum(self.damage[at])


def queue_database(store: StoreFiles, old: OldDatabase, directory: Path) -> MadeDatabase:
    """Return the database of queues that the log demands."""
    with making(old, directory, [UNIT_FAMILY, OFFSET_FAMILY]) as (made, new):
        log = dispatch_queues(store, new)
        known = _known_queues(old)
        if old.is_whole:  # light queues that are not there have expired
            reached = dispatched_end(old.get(OFFSET_FAMILY, CHECKPOINT))
            for key in [k for k in log.queues if k[0].startswith(_LIGHT) and k not in known]:
                if log.queues[key].last_physical < reached:
                    del log.queues[key]
                    for name, _ in new.rows(UNIT_FAMILY, queue_prefix(*key)):
                        new.delete(UNIT_FAMILY, name)
        delayed = (queue_id for topic, queue_id in log.queues if topic == SCHEDULE_TOPIC.encode())
        made.notes += filter(None, [assumed_levels(store, delayed)])
        _keep_units(old, new, log)
        _put_ends(old, new, log, min(log.end, _index_in_doubt(store)) if store.has_abort else log.end)
    return made


def _index_in_doubt(store: StoreFiles) -> int:
    """Where the first index file begins that the start of a crashed broker deletes, as it is newer than the checkpoint.

    Its keys are made again only if dispatch begins there, and so the database must not say that it reaches further.
    """
    found = read_checkpoint(store)
    indexed = found[0]["index_msg_timestamp"] if found is not None else 0
    files = index_files(store, index_geometry(store))
    try:
        doubtful = [f.header["begin_phy_offset"] for f in files if f.header["end_timestamp"] > indexed]
    finally:
        for file in files:
            file.close()
    return max(min(doubtful, default=LARGEST_OFFSET), 0)


def _known_queues(old: OldDatabase) -> set[Key]:
    """The queues that have a row of theirs, of units or of ends."""
    known = {key for name, _ in old.rows(OFFSET_FAMILY) if (key := parse_end_key(name)) is not None}
    last: Key | None = None
    for name, _ in old.rows(UNIT_FAMILY):
        unit = parse_unit_key(name)
        if unit is not None and unit[:2] != last:
            last = unit[:2]
            known.add(last)
    return known


def dispatch_queues(store: StoreFiles, new: NewDatabase, since: int = 0) -> _Log:
    """Write what the log dispatches to queues; a record that is there twice counts where it lies last.

    Args:
        since: physical offset of the first record that is dispatched.
    """
    found = _Log(begin=store.log_files[0].base if store.log_files else 0)
    dispatcher = Dispatcher(DispatchRules.of(store), Wanted(index=False))
    places: list[Ints] = []
    times: list[Ints] = []
    waiting = 0

    def take() -> None:
        done = dispatcher.take()
        at, stored = (np.concatenate(a) if a else np.zeros(0, np.int64) for a in (places, times))
        for piece in done.pieces:
            offsets = piece.first + np.arange(len(piece.units)) if piece.offsets is None else piece.offsets
            physical, prefix = piece.units["physical_offset"].astype(np.int64), queue_prefix(*piece.key)
            columns: tuple[npt.NDArray[Any], ...] = (
                physical,
                piece.units["size"],
                piece.units["tags_code"],
                stored[np.searchsorted(at, physical)],
            )
            new_ones = physical >= since
            physical, offsets = physical[new_ones], offsets[new_ones]
            columns = tuple(column[new_ones] for column in columns)
            for offset, *fields in zip(offsets.tolist(), *(column.tolist() for column in columns), strict=True):
                new.put(UNIT_FAMILY, prefix + offset.to_bytes(8, "big", signed=True), UNIT_ROW.pack(*fields))
            if len(physical):
                span, first = found.queues.setdefault(piece.key, _Span()), len(offsets) - 1 - np.argmin(offsets[::-1])
                if offsets[first] <= span.first_offset:
                    span.first_offset, span.first_physical = int(offsets[first]), int(physical[first])
                span.last_physical = max(span.last_physical, int(physical.max()))
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
    found.damage.sort()
    return found


def _keep_units(old: OldDatabase, new: NewDatabase, log: _Log) -> None:
    """Keep units of messages that the log does not hold, because they expired or their records are damaged."""
    last: tuple[Key, int] | None = None
    for name, value in old.rows(UNIT_FAMILY):
        unit = parse_unit_key(name)
        if unit is None or len(value) != UNIT_ROW.size:
            continue
        physical, key, offset = UNIT_ROW.unpack(value)[0], unit[:2], unit[2]
        if 0 <= physical < log.begin or log.is_damaged(physical):
            if last is None or last[0] != key:
                last = key, _last_offset(old, new, key)
            if 0 <= offset <= last[1] and new.get(UNIT_FAMILY, name) is None:
                new.put(UNIT_FAMILY, name, value)


def _last_offset(old: OldDatabase, new: NewDatabase, key: Key) -> int:
    """The largest queue offset that a queue may have: that of the log's last record, or what the old database says.

    The key of a unit may be damaged, and so may the row that names the end of its queue.
    """
    known = last_unit_in(new, key)[0]
    end = old.get(OFFSET_FAMILY, end_key(key, b"max")) or b""
    said = END.unpack(end)[1] if len(end) == END.size else -1
    return max(known, said if known < 0 or said <= known + _MOST_DESTROYED else -1)


def last_unit_in(new: NewDatabase, key: Key) -> tuple[int, int]:
    """Queue offset and physical offset of the last unit of a queue; -1 and -1 without one.

    Rows that do not have the format of a unit are passed over.
    """
    cursor, prefix = new.family(UNIT_FAMILY).iter(), queue_prefix(*key)
    cursor.seek_for_prev(prefix + NUMBER.pack(LARGEST_OFFSET))
    while cursor.valid() and (name := bytes(cursor.key())).startswith(prefix):
        unit, value = parse_unit_key(name), bytes(cursor.value())
        if unit is not None and len(value) == UNIT_ROW.size:
            return unit[2], UNIT_ROW.unpack(value)[0]
        cursor.prev()
    return -1, -1


def end_key(key: Key, end: bytes) -> bytes:
    name: bytes = QueueEndKey.build({"topic": key[0], "end": end, "queue_id": key[1]})
    return name


def _put_ends(old: OldDatabase, new: NewDatabase, log: _Log, reaches: int) -> None:
    """Write the ends of all queues: by their units where there are any, else as the old rows have them."""
    new.put(OFFSET_FAMILY, CHECKPOINT, reaches.to_bytes(8, "big", signed=True))
    known = set[Key]()
    for topic, queue_id in queues_in(new):
        key = topic, queue_id
        known.add(key)
        last = last_unit_in(new, key)
        span = log.queues.get(key, _Span(last[0] + 1, log.begin))
        for end, (offset, physical) in ((b"max", last), (b"min", (span.first_offset, span.first_physical))):
            name = end_key(key, end)
            own = old.get(OFFSET_FAMILY, name) or b""
            if end == b"max" or own:  # the smallest offset gets its row when somebody asks for it
                there = END.unpack(own) if len(own) == END.size else (-1, -1)
                is_right = end == b"min" and there[1] == offset and 0 <= there[0] <= physical
                new.put(OFFSET_FAMILY, name, own if is_right else END.pack(physical, offset))
    for name, value in old.rows(OFFSET_FAMILY):
        queue = parse_end_key(name)
        is_other = queue is not None and queue not in known and len(value) == END.size
        if is_other and (0 <= END.unpack(value)[0] <= log.begin or name[-8:-5] == b"min"):
            new.put(OFFSET_FAMILY, name, value)


# --- messages -----------------------------------------------------------------------------------------


def message_database(store: StoreFiles, old: OldDatabase, directory: Path) -> MadeDatabase:
    """Return the database of index, timers and half messages that the log demands."""
    begin, last = store.log_files[0].base if store.log_files else 0, 0
    end = begin
    marks = marks_in(store, old.database, is_whole=old.is_whole)
    if not old.is_whole and marks.index is None and "indexRocksDBEnable" not in store.settings:
        marks = replace(marks, index=None if store.index_files else 0)
    with making(old, directory, [INDEX_FAMILY, TIMER_FAMILY, HALF_FAMILY]) as (made, new), ExitStack() as opened:
        index = IndexRows(new, _oldest_hour(old) if old.is_whole else 0)
        rows = opened.enter_context(spilled_rows(store, directory, index, indexed=marks.index is not None))
        for record in records_from(store.log_files, begin, 1 << 63, crashed=store.has_abort):
            rows.add(record)
            end, last = record["physical_offset"] + record["total_size"], max(last, record["store_timestamp"])
        if not old.is_whole:
            marks = _guessed(store, marks, rows)
        if marks.index is None:
            _copy(old, new, INDEX_FAMILY)
        else:
            _finish_index(old, new, rows, begin)
        if marks.timers is None:
            _copy(old, new, TIMER_FAMILY)
        else:
            _put_timers(old, new, rows, begin, last)
        if marks.halves is None:
            _copy(old, new, HALF_FAMILY)
        else:
            _put_halves(old, new, rows, min(begin, end))
        if marks.halves is not None and not old.is_whole:
            made.notes.append("transactions that were given up are checked again, and all checks are counted from 0")
    return made


def _copy(old: OldDatabase, new: NewDatabase, family: str) -> None:
    for key, value in old.rows(family):
        new.put(family, key, value)


def _guessed(store: StoreFiles, marks: Marks, rows: MessageRows) -> Marks:
    """Which families of timers and half messages brokers of the store write, where nothing can be read of some."""
    settled = store.settings
    halves, timers = marks.halves, marks.timers
    if halves is None and "transRocksDBEnable" not in settled and rows.half_mark >= 0:
        halves = 0
    if timers is None and "timerRocksDBEnable" not in settled and not store.has_abort:
        timers = 0 if wheel_offset(store) < rows.scanned else None
    return Marks(marks.index, halves, timers)


class IndexRows:
    """Takes the rows of the index from an hour on."""

    def __init__(self, new: NewDatabase, since: int) -> None:
        self._new, self._since = new, NUMBER.pack(since)

    def __setitem__(self, key: bytes, value: bytes) -> None:
        if key[:LEAD] >= self._since:
            self._new.put(INDEX_FAMILY, key, value)


def _oldest_hour(old: OldDatabase) -> int:
    """The hour from which on the index holds messages: it was switched on then, or those before have expired."""
    entries = (parse_message_index_key(key) for key, _ in old.rows(INDEX_FAMILY))
    return max(next((entry.hour for entry in entries if entry is not None), 0), 0)


def _finish_index(old: OldDatabase, new: NewDatabase, rows: MessageRows, begin: int) -> None:
    """Add the old rows of expired messages, and the marks."""
    for key, value in old.rows(INDEX_FAMILY):
        entry = parse_message_index_key(key)
        if entry is not None and 0 <= entry.physical_offset < begin:
            new.put(INDEX_FAMILY, key, value)
    if rows.index_mark >= 0:
        new.put(INDEX_FAMILY, INDEX_MARK, NUMBER.pack(rows.index_mark))
        new.put(INDEX_FAMILY, INDEX_TIME, NUMBER.pack(rows.index_time))


def _put_timers(old: OldDatabase, new: NewDatabase, rows: MessageRows, begin: int, last: int) -> None:
    """Timers that are not delivered, and of delivered ones the old rows that are right."""
    delivered = old.get(TIMER_FAMILY, TIMER_DELIVERED) or b""
    latest = NUMBER.pack(min(last + DELIVERED_SLACK, (1 << 63) - 1))
    if len(delivered) != LEAD or delivered > latest:  # without it a start skips what fell due meanwhile
        first = next((leading_number(key) for key in rows.timers if key not in rows.delivered), last)
        delivered = NUMBER.pack(min(first, last) // _SECOND * _SECOND)
    for key, value in rows.timers.items():
        there = old.get(TIMER_FAMILY, key)
        if there == value if key[:LEAD] < delivered else is_pending(rows, key, there):
            new.put(TIMER_FAMILY, key, value)
    for key, value in old.rows(TIMER_FAMILY):  # their records have expired
        is_old = is_timer(key, value) and 0 <= TIMER_VALUE.unpack(value)[1] < begin and key not in rows.recalled
        if is_old and new.get(TIMER_FAMILY, key) is None:
            new.put(TIMER_FAMILY, key, value)
    scanned = old.get(TIMER_FAMILY, TIMER_SCANNED) or b""
    if rows.scanned > 0 or len(scanned) != LEAD:
        scanned = NUMBER.pack(max(rows.scanned, 0))
    new.put(TIMER_FAMILY, TIMER_SCANNED, scanned)
    new.put(TIMER_FAMILY, TIMER_DELIVERED, delivered)


def _put_halves(old: OldDatabase, new: NewDatabase, rows: MessageRows, begin: int) -> None:
    """Old rows that are right, and half messages that the old rows may lack."""
    mark = (mark_of(old.get(HALF_FAMILY, INDEX_MARK)) or 0) if old.is_whole else -1
    oldest = oldest_half(rows, old.database)
    for key, value in rows.halves.items():
        found = old.get(HALF_FAMILY, key)
        if found is not None and has_checks(found):
            new.put(HALF_FAMILY, key, HALF_VALUE.pack(HALF_VALUE.unpack(found)[0], HALF_VALUE.unpack(value)[1]))
        elif found is not None or leading_number(key) > mark or key > oldest:
            new.put(HALF_FAMILY, key, value)
    for key, value in old.rows(HALF_FAMILY):
        is_old = has_half_key(key) and len(value) == HALF_VALUE.size and 0 <= leading_number(key) < begin
        if is_old and key[:LEAD] not in rows.ended and new.get(HALF_FAMILY, key) is None:
            new.put(HALF_FAMILY, key, value)
    if rows.half_mark >= 0:
        new.put(HALF_FAMILY, INDEX_MARK, NUMBER.pack(rows.half_mark))
