"""Queues, index and databases as the log says they must be: what differs, as edits (spec 14.2).

The log is the truth. What it dispatches is built beside the store; of files that are there only the bytes that differ
are written, so that nothing else of a queue moves.

A RocksDB database is put in place as a whole, and the old one goes to quarantine. Queues, index, timers and
transactions come from the log. Configuration and pop state are in no log: what can be read of them is kept, rows that
fit no format are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from formats.layout import plan_of
from formats.rocketmq.rocksdb import TOPIC_DATA
from formats.rocketmq.timer import UNIT_SIZE, TimerCheck, TimerLogUnit
from rmqctl.errors import RmqctlError
from rmqctl.files.local import ByteSource, LocalFile
from rmqctl.files.tree import read_all
from rmqctl.findings import Finding, Severity
from rmqctl.installation import line_for_extra
from rmqctl.repair.edits import Edit, Overwrite, Quarantine, Step, changes, placed
from rmqctl.rocketmq.dispatch.queue_ends import queue_rows
from rmqctl.rocketmq.findings.derived import INDEX_FILE_NAME, QUEUE_DATABASE, QUEUE_ORPHAN, QUEUE_UNDISPATCHED
from rmqctl.rocketmq.findings.state import DATABASE_TWIN, DATABASE_TWO_PLACES, TIMER_CHECK, TIMER_LOG
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Units, is_pre_blank
from rmqctl.rocketmq.queues.rocksdb import open_queues
from rmqctl.rocketmq.rebuild.compare import Change, FileDifference
from rmqctl.rocketmq.rebuild.databases import (
    MadeDatabase,
    OldDatabase,
    making,
    message_database,
    open_old,
    queue_database,
    replacement,
)
from rmqctl.rocketmq.rebuild.rebuild import Rebuild, RebuildOptions
from rmqctl.rocketmq.repair.config import topic_settings
from rmqctl.rocketmq.repair.damage import Break, LogDamage
from rmqctl.rocketmq.repair.served import served_name
from rmqctl.rocketmq.store.database_rows import fits
from rmqctl.rocketmq.store.databases import CONFIG_V2, MESSAGES, METADATA, TOPICS_V1, DatabaseDamaged, can_read
from rmqctl.rocketmq.store.files import BATCH_QUEUES, INDEX, QUEUES, QUEUES_EXT, SEPARATE_QUEUES, StoreFiles
from rmqctl.rocketmq.store.geometry import flag
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.state import stale_timers, timer_files, timer_queue_end
from rmqctl.text import number_of

_CHUNK = 20 * 46 << 10
_LARGEST_HOLE = 10_000_000
_NAMES = {INDEX_FILE_NAME.id}
_KINDS = (QUEUES, QUEUES_EXT, BATCH_QUEUES)
_REFERENCE = next(f.offset for f in plan_of(TimerLogUnit).runs[0].fields if f.name == "physical_offset")
_QUEUE_OFFSET_AT = next(f.offset for f in plan_of(TimerCheck).runs[0].fields if f.name == "last_timer_queue_offset")
_NOWHERE = (-1).to_bytes(8, "big", signed=True)


def queue_steps(
    store: StoreFiles,
    findings: Iterable[Finding],
    damage: Callable[[], LogDamage],
    directory: Path,
    index: list[FileDifference],
    counted: int = 0,
) -> Iterator[Step]:
    """Yield steps for the queues in files of every topic that has a finding.

    Where any is built, so is what a killed broker had not dispatched: a queue built to the end of the log beside others
    that lag would make those look as if they lacked units.

    Args:
        store: with the log as it will be.
        findings: of a verification of it.
        damage: what its log shows, asked where it is needed.
        directory: where to build; must stay until the plan is carried out.
        index: takes the changes of index files where the findings ask for them, made on the same walk over the log.
        counted: messages after the end of the log that an earlier step counts as lost already.
    """
    findings = list(findings)
    found = [f for f in findings if f.kind.id.startswith("queue.")]
    wrong = [f for f in found if f.level is not Severity.NOTE]
    first = _by_topic(f for f in wrong if f.kind is not QUEUE_ORPHAN)
    first = {topic: finding for topic, finding in first.items() if not store.in_database(topic)}
    if not first:
        return
    late = (f for f in found if f.kind is QUEUE_UNDISPATCHED and not store.in_database(topic_of(f)))
    first = _by_topic(late) | first
    shown = damage()
    for hole in shown.holes:
        if hole.topic in first and hole.missing > _LARGEST_HOLE:
            yield _endless(first.pop(hole.topic), hole)
    topics = frozenset(t.encode("utf-8", "surrogateescape") for t in first)
    if not topics:
        return
    rebuild = Rebuild(store, RebuildOptions(index=bool(_of_index(findings)), topics=topics))
    for change in rebuild.run(directory).changes:
        parts = change.file.split("/")
        if parts[0] == INDEX:
            index.append(change)
            continue
        edits = tuple(_edits(store, change))
        if edits:
            kind = _kind_at(wrong, change.file) or first[parts[1]].kind.id
            ahead = _ahead(store, change, shown.end)
            why = "what the records of the log dispatch to the queue"
            why += f"; the messages of {ahead} units are behind the end of the log" if ahead else ""
            known, counted = min(ahead, counted), max(counted - ahead, 0)
            yield Step(kind, change.file, _what(change), why, edits, loses=ahead - known)


def _by_topic(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Return the first finding of each topic."""
    first: dict[str, Finding] = {}
    for finding in findings:
        if topic_of(finding):
            first.setdefault(topic_of(finding), finding)
    return first


def _of_index(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings for which the index is made again."""
    found = [f for f in findings if f.kind.id.startswith("index.") and f.level is not Severity.NOTE]
    return [f for f in found if f.kind.id not in _NAMES]


def index_steps(
    store: StoreFiles, findings: Iterable[Finding], directory: Path, made: Iterable[FileDifference] = ()
) -> Iterator[Step]:
    """Yield steps that make the index again if anything in it is wrong; arguments as for :func:`queue_steps`.

    Args:
        made: the changes, where they are known already.
    """
    wrong = _of_index(findings)
    if not wrong:
        return
    for change in made or Rebuild(store, RebuildOptions(queues=False)).run(directory).changes:
        edits = tuple(_replaced(change)) if change.file.startswith(f"{INDEX}/") else ()
        if edits:
            kind = _kind_at(wrong, change.file) or wrong[0].kind.id
            yield Step(kind, change.file, _what(change), "the keys of the log's records, in log order", edits)


def timer_steps(store: StoreFiles, findings: Iterable[Finding], damage: Callable[[], LogDamage]) -> Iterator[Step]:
    """Put timers of lost messages out of reach: their units point in front of the log, where a broker finds nothing.

    A broker passes a unit over whose message it does not find. But it writes its next messages where the lost ones
    were, reads one of those for the unit, fails on it and tries again for ever (apache/rocketmq#10668). Taking units
    out is not safe: a start makes the wheel's slots again from all units of the last files.

    Args:
        store: with the log as it will be.
        damage: what that shows, asked where it is needed.
    """
    named = {f.file for f in findings if f.kind is TIMER_LOG}
    files = [file for file in timer_files(store) if file.name in named]
    if not files:
        return
    shown = damage()
    ranges = tuple((gap.begin, gap.end) for gap in shown.gaps)
    context = replace(LogContext.of(store), end=shown.end, damaged=ranges)
    for file in files:
        units, rows = stale_timers(file, context)
        edits = []
        for row, physical in zip(rows.tolist(), units["physical_offset"][rows].tolist(), strict=True):
            at, before = row * UNIT_SIZE + _REFERENCE, physical.to_bytes(8, "big", signed=True)
            edits.append(Overwrite(file.name, at, before, _NOWHERE))
        if edits:
            what = f"put {number_of(len(edits), 'timer')} of lost messages out of reach"
            why = f"the log, which ends at {shown.end}, does not hold them, and others will lie in their place"
            yield Step(TIMER_LOG.id, file.name, what, why, tuple(edits))


def timer_check_steps(store: StoreFiles, findings: Iterable[Finding]) -> Iterator[Step]:
    """Lower the queue offset in config/timercheck to the end of the timer queue, as brokers of 5.5 do when they start.

    Args:
        store: with the queues as they will be.
    """
    for finding in findings:
        end = timer_queue_end(store) if finding.kind is TIMER_CHECK and finding.offset == _QUEUE_OFFSET_AT else None
        data = read_all(store.tree, finding.file) if end is not None else None
        if end is None or data is None:
            continue
        before = data[_QUEUE_OFFSET_AT : _QUEUE_OFFSET_AT + 8]
        if int.from_bytes(before, "big", signed=True) > end:
            edit = Overwrite(finding.file, _QUEUE_OFFSET_AT, before, end.to_bytes(8, "big"))
            why = "timers that come to the queue before that offset would not be taken up"
            yield Step(TIMER_CHECK.id, finding.file, f"go on at the end of the timer queue, {end}", why, (edit,))


def topic_of(finding: Finding) -> str:
    """Return the topic of a finding about a queue."""
    parts = finding.file.split("/")
    return finding.topic or (parts[1] if len(parts) > 2 and parts[0] in _KINDS else "")


def _kind_at(findings: Iterable[Finding], file: str) -> str | None:
    """Return the id of the finding about a file or its directory."""
    return next((f.kind.id for f in findings if f.file == file or file.startswith(f"{f.file}/")), None)


def _ahead(store: StoreFiles, change: FileDifference, end: int) -> int:
    """Units of a queue file that point after the end of the log: to messages that were there and are not.

    A place for which the log has a message is not counted: there the unit is wrong, and no message is lost.
    """
    dtype = {QUEUES: UNIT, BATCH_QUEUES: BATCH_UNIT}.get(change.file.partition("/")[0])
    if dtype is None or store.tree.stat(change.file) is None:
        return 0
    units = _units(store.tree.open(change.file), dtype)
    lost = (units["size"] > 0) & (units["physical_offset"] >= end)
    if lost.any() and change.staged is not None:
        built = _units(LocalFile(str(change.staged)), dtype)
        lost[: len(built)] &= (built["size"] == 0)[: len(lost)]
    return int(np.count_nonzero(lost))


def _units(source: ByteSource, dtype: np.dtype[np.void]) -> Units:
    """All whole units of a queue file."""
    try:
        return np.frombuffer(source.read_at(0, source.size() // dtype.itemsize * dtype.itemsize), dtype)
    finally:
        source.close()


def _endless(finding: Finding, hole: Break) -> Step:
    why = (
        f"the record at {hole.before} carries queue offset {hole.offset}, {hole.missing:,} behind the one in front: "
        "its field is damaged, and a queue built by it would fill the disk; --neutralize or restore it first"
    )
    return Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)


def _what(change: FileDifference) -> str:
    match change.change:
        case Change.CREATE:
            return "build from the log"
        case Change.REMOVE:
            return f"move to quarantine: {change.why}"
        case _:
            return f"put right from the log: {change.why}"


def _edits(store: StoreFiles, change: FileDifference) -> Iterator[Edit]:
    """Yield the edits for one queue file; a file of the right length is changed only where it differs."""
    entry = store.tree.stat(change.file)
    same = change.staged is not None and entry is not None and entry.size == change.staged.stat().st_size
    if change.change is Change.REPLACE and change.staged is not None and same:
        yield from _different(store, change.file, change.staged)
    else:
        yield from _replaced(change)


def _replaced(change: FileDifference) -> Iterator[Edit]:
    if change.change in (Change.EQUAL, Change.KEEP):
        return
    if change.change is not Change.CREATE:
        yield Quarantine(change.file)
    if change.staged is not None and change.change is not Change.REMOVE:
        yield from placed(change.file, change.staged)


def _different(store: StoreFiles, name: str, staged: Path) -> Iterator[Overwrite]:
    """Yield overwrites for the bytes in which a file differs from what was built; units of expired messages stay."""
    with (
        closing(store.tree.open(name)) as old,
        closing(LocalFile(str(staged))) as new,
        LogReader(store.log_files) as log,
    ):
        for at in range(0, old.size(), _CHUNK):
            a, b = old.read_at(at, _CHUNK), new.read_at(at, _CHUNK)
            if a != b:
                b = _kept(name, at, a, b, log) if name.startswith(f"{QUEUES}/") else b
                yield from changes(name, at, a, b)


def _kept(name: str, at: int, old: bytes, new: bytes, log: LogReader) -> bytes:
    """Return the new units, but the old ones where those point before the log and only filler could be built, and where
    they lead to one of two whole records that name the same place in the queue.
    """
    a, b = np.frombuffer(old, UNIT), np.frombuffer(new, UNIT).copy()
    keeps = (a["physical_offset"] < log.min_offset) & (a["physical_offset"] >= 0) & (a["size"] > 0) & is_pre_blank(b)
    _, topic, queue_id, base = name.split("/")
    first = (int(base) + at) // UNIT.itemsize
    is_other = (a["size"] > 0) & (b["size"] > 0) & (a["physical_offset"] != b["physical_offset"])
    for row in np.flatnonzero(is_other & ~is_pre_blank(a) & ~is_pre_blank(b)).tolist():
        keeps[row] = bool(served_name(log, (topic, int(queue_id), first + row), int(a["physical_offset"][row])))
    b[keeps] = a[keeps]
    return b.tobytes()


# --- databases -------------------------------------------------------------------------------------


_AREA = "database."
_LONGEST_TOPIC = 127


def database_steps(store: StoreFiles, findings: Iterable[Finding], directory: Path) -> Iterator[Step]:
    """Yield a step for each database that has a finding.

    Args:
        store: with the log as it will be.
        findings: of a verification of it.
        directory: where to build; must stay until the plan is carried out.
    """
    wrong = [f for f in findings if f.level is not Severity.NOTE]
    two = next((f for f in wrong if f.kind is DATABASE_TWO_PLACES), None)
    if two is not None:
        yield _one_place(store, two)
        return
    found: dict[str, list[Finding]] = {}
    for finding in wrong:
        path = _database_of(store, finding)
        if path is not None:
            found.setdefault(path, []).append(finding)
    for path, own in found.items():
        step = _mended(store, path, own[0], directory)
        if step.edits or any(finding.kind is not DATABASE_TWIN for finding in own):  # else the files are wrong
            yield step


def _database_of(store: StoreFiles, finding: Finding) -> str | None:
    """Return the database that a finding is about."""
    if finding.kind.id.startswith(_AREA):
        return finding.file
    if finding.kind is QUEUE_DATABASE:
        return store.queue_database
    topic = topic_of(finding)
    if finding.kind.id.startswith("queue.") and finding.kind is not QUEUE_ORPHAN and topic and store.in_database(topic):
        return store.queue_database
    return None


def _one_place(store: StoreFiles, finding: Finding) -> Step:
    """Leave the database that broker.conf names, else the one that reaches further."""
    if "useSeparateStorePathForRocksdbCQ" in store.settings:
        separate = flag(store.settings, "useSeparateStorePathForRocksdbCQ", default=False)
        keep, why = SEPARATE_QUEUES if separate else QUEUES, "broker.conf names the other"
    else:
        reaches = {path: _reach(store, path) for path in (SEPARATE_QUEUES, QUEUES)}
        keep, why = max(reaches, key=lambda path: reaches[path]), "the other one holds more of the log"
    gone = QUEUES if keep == SEPARATE_QUEUES else SEPARATE_QUEUES
    return Step(finding.kind.id, gone, "move the database to quarantine", why, replacement(store, gone, None))


def _reach(store: StoreFiles, path: str) -> int:
    """How much of the log a database of queues holds; -1 for one that cannot be opened."""
    try:
        with open_queues(store, path) as database:
            return database.dispatched_end()
    except DatabaseDamaged:
        return -1


def made_new(store: StoreFiles, old: OldDatabase, directory: Path) -> MadeDatabase:
    """Return the database as it must be, built in a directory."""
    if old.path in (QUEUES, SEPARATE_QUEUES):
        return queue_database(store, old, directory)
    if old.path == MESSAGES:
        return message_database(store, old, directory)
    with making(old, directory, old.families) as (made, new):
        for family in old.families:
            for key, value in old.rows(family):
                right = value if fits(old.path, family, key, value) else _topic_row(store, old.path, family, key)
                if right is not None:
                    new.put(family, key, right)
                if right is not None and right != value:
                    name = repr(key[-_LONGEST_TOPIC:])
                    made.notes.append(f"topic {name} gets the default settings for the queues it has")
    return made


def _topic_row(store: StoreFiles, path: str, family: str, key: bytes) -> bytes | None:
    """Return the row of a topic whose settings are damaged: without one a broker deletes the topic's queues in
    RocksDB.
    """
    name, start = key, b""
    if path == CONFIG_V2 and key.startswith(TOPIC_DATA):
        name, start = key[len(TOPIC_DATA) + 2 :], b"\x01"
    elif (path, family) not in ((METADATA, "topic"), (TOPICS_V1, "default")):
        return None
    topic = name.decode("utf-8", "replace")
    with suppress(RmqctlError, OSError):
        count = max((row.queue_id + 1 for row in queue_rows(store, as_found=True) if row.topic == topic), default=0)
        value = start + json.dumps(topic_settings(topic, count), separators=(",", ":"), ensure_ascii=False).encode()
        return value if count and fits(path, family, key, value) else None
    return None


def _mended(store: StoreFiles, path: str, finding: Finding, directory: Path) -> Step:
    if not can_read():
        why = f"the extra rocksdb is not installed, which writes databases: {line_for_extra('rocksdb')}"
        return Step(finding.kind.id, path, f"left as it is: {finding.message}", why)
    in_log = path in (QUEUES, SEPARATE_QUEUES, MESSAGES)
    with open_old(store, path, directory) as old:
        if not in_log and not any(next(old.rows(family), None) for family in old.families):
            why = "nothing of it can be read, and no log holds it: take it from a copy"
            return Step(finding.kind.id, path, f"left as it is: {finding.message}", why)
        made, is_whole, lost = made_new(store, old, directory), old.is_whole, old.lost
    if made.is_equal and is_whole:
        why = "the log demands the rows that are there"
        return Step(finding.kind.id, path, f"left as it is: {finding.message}", why)
    what = f"make the database new: {made.what()}"
    why = "what the records of the log dispatch to it" if in_log else "the rows that can be read"
    if lost:
        made.notes.append(f"of the old one cannot be read: {', '.join(lost)}")
    why = "; ".join([why, *made.notes])
    return Step(finding.kind.id, path, what, why, replacement(store, path, made.place(directory)))
