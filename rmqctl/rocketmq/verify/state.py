"""A store's own files against its log and queues: checkpoint, abort, lock, configuration, timers (spec 5, 9, 11, 12).

Of configuration: files that cannot be read, offsets outside of their queues, unknown topics. Of timers: units that
cannot be, slots that point nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from formats.errors import DecodeError
from formats.layout import plan_of
from formats.rocketmq.abort_lock import abort_pid
from formats.rocketmq.checkpoint import Checkpoint
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from formats.rocketmq.timer import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MAGIC_BITS,
    UNIT_SIZE,
    WHEEL_SLOTS,
    TimerCheck,
    TimerLogBlank,
    TimerLogUnit,
    TimerWheelSlot,
)
from rmqctl.errors import MissingExtra
from rmqctl.files.tree import read_all
from rmqctl.findings import Finding, FindingKind, Severity
from rmqctl.rocketmq.dispatch.queue_ends import queue_rows
from rmqctl.rocketmq.findings.derived import QUEUE_ORPHAN
from rmqctl.rocketmq.findings.state import (
    CHECKPOINT_AHEAD,
    CHECKPOINT_BEHIND,
    CHECKPOINT_LENGTH,
    CHECKPOINT_MISSING,
    CHECKPOINT_OFFSET,
    CHECKPOINT_ZERO,
    CONFIG_BACKUP,
    CONFIG_CONSUMER_OFFSET,
    CONFIG_DELAY_OFFSET,
    CONFIG_FALLBACK,
    CONFIG_NO_OFFSETS,
    CONFIG_NO_TOPICS,
    CONFIG_UNKNOWN_TOPIC,
    CONFIG_UNREADABLE,
    STORE_ABORT,
    STORE_RUNNING,
    TIMER_CHECK,
    TIMER_LOG,
)
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.record import LogReader, total_size_of
from rmqctl.rocketmq.queues.files import Queue, Units
from rmqctl.rocketmq.state.config import (
    CONFIG,
    PATH,
    ConfigFile,
    ConsumerOffset,
    config_files,
    configured_topics,
    consumer_offsets,
    delay_offsets,
    has_stored_config,
    has_version_2,
    is_own_topic,
    known_topics,
    needs_no_entry,
    read_checkpoint,
    read_config,
    topic_names,
    topics_with_queues,
)
from rmqctl.rocketmq.state.releases import has_known_broker
from rmqctl.rocketmq.store.databases import DatabaseDamaged
from rmqctl.rocketmq.store.files import (
    BATCH_QUEUES,
    QUEUES,
    QueueFiles,
    StoreFile,
    StoreFiles,
    is_unread,
    missing_log,
    refusals_of,
    sequence,
)
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.text import instant, number_of

_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
_OFFSETS = ("master_flushed_offset", "confirm_phy_offset", "logics_physical_offset")
_BLANK = plan_of(TimerLogBlank).runs[0].packer
_FIELDS_SIZE = plan_of(Checkpoint).runs[0].field("master_flushed_offset").offset
_LAZY_LOGICS = (5, 5, 0)
_FIRST_FLUSH_MS = 60_000
_FLUSH_MS = 200
"""A flush of the queues puts back the time that it read at its start (FlushConsumeQueueService.doFlush).

As long as a flush may take; brokers that were killed were seen from 228 ms on.
"""
_INDEX_FLUSH_MS = 2_000
"""Of a full index file, which a thread of its own flushes."""


def check_state(store: StoreFiles, context: LogContext) -> Iterator[Finding]:
    """Yield findings about the store's state."""
    if context.running:
        yield Finding(STORE_RUNNING, "lock", 0, 0, "a broker holds the lock; what was read may be changing")
    elif context.crashed:
        pid = abort_pid(read_all(store.tree, "abort") or b"")
        who = f" (process {pid})" if pid else ""
        yield Finding(STORE_ABORT, "abort", 0, 0, f"the last broker{who} did not stop cleanly")
    yield from check_checkpoint(store, context)


def check_checkpoint(store: StoreFiles, context: LogContext) -> Iterator[Finding]:
    """Yield findings about the checkpoint; it is held to the end of the log where that is known."""
    found = read_checkpoint(store)
    has_log = bool(store.log_files)
    if found is None:
        if has_log:
            entry, what = store.tree.stat("checkpoint"), "there is no checkpoint, but a commit log"
            if entry is not None and entry.is_directory:
                what = "a directory lies in its place"
            yield _finding(CHECKPOINT_MISSING, 0, what)
        return
    fields, length = found
    if length < _FIELDS_SIZE:
        yield _finding(CHECKPOINT_LENGTH, length, f"{length} bytes, at least {_FIELDS_SIZE} expected")
        return
    yield from _offsets(fields, context)
    yield from _times(fields, context, store)


def _offsets(fields: dict[str, int], context: LogContext) -> Iterator[Finding]:
    """Physical offsets that 5.x keeps; a slave knows of its master more than it has itself."""
    end = context.end
    for number, name in enumerate(_OFFSETS):
        value, at = fields[name], _FIELDS_SIZE + 8 * number
        if value < 0 or (end is not None and value > end):
            message = f"{name} is {value}" + ("" if end is None else f", but the log ends at {end}")
            is_master_s = name == _OFFSETS[0] and value >= 0
            severity = Severity.NOTE if is_master_s else None
            yield Finding(CHECKPOINT_OFFSET, PATH, at, 8, message, severity)


def _times(fields: dict[str, int], context: LogContext, store: StoreFiles) -> Iterator[Finding]:
    last = context.last_store_timestamp
    newest = f"the last record was stored at {instant(last)}"
    names = [n for n in _TIMES if fields[n] > max(last, context.newest_store_timestamp)]
    if names and last:
        values = ", ".join(f"{n} {instant(fields[n])}" for n in names)
        yield _finding(CHECKPOINT_AHEAD, _FIELDS_SIZE, f"{values}, but {newest}")
        return
    negative = [n for n in _TIMES if fields[n] < 0]
    if negative:
        values = ", ".join(f"{n} {instant(fields[n])}" for n in negative)
        yield _finding(CHECKPOINT_ZERO, _FIELDS_SIZE, f"{values}: before 1970, where no broker wrote anything")
        return
    if not last:
        return
    lazy = context.highest_release >= _LAZY_LOGICS  # logics changes at the 60 s flush only, not at shutdown
    zero = [n for n in _TIMES[:2] if fields[n] == 0]
    if zero:
        message = f"{' and '.join(zero)} {'is' if len(zero) == 1 else 'are'} zero, {newest}"
        expected = context.crashed or lazy or _TIMES[1] not in zero
        rocksdb, some = store.is_rocksdb, any(fields[n] for n in _TIMES)
        normal = rocksdb or (expected and (some or _is_young(store, context)))
        severity = Severity.NOTE if normal else None
        yield _finding(CHECKPOINT_ZERO, _FIELDS_SIZE, message, severity)
        return
    names = [_TIMES[0]] if lazy else list(_TIMES[:2])
    older = [n for n in names if fields[n] < last]
    if older:
        values = ", ".join(f"{n} {instant(fields[n])}" for n in older)
        settled = not (context.crashed or context.running)  # a clean stop writes logics with the last dispatched record
        late = _TIMES[1] in older and last - fields[_TIMES[1]] > _FLUSH_MS
        severity = Severity.WARNING if settled and late else None
        yield _finding(CHECKPOINT_BEHIND, _FIELDS_SIZE, f"{values}, {newest}", severity)


def _is_young(store: StoreFiles, context: LogContext) -> bool:
    """Whether the broker may have ended before it wrote any time into its first checkpoint.

    The file is written by the thorough flush of the queues, 60 s after the start
    (``flushConsumeQueueThoroughInterval``), and when an index file is full.
    """
    if context.min_offset or not store.log_files:
        return False
    with LogReader(store.log_files) as log:
        first = log.store_timestamp(0)
    age = context.last_store_timestamp - first if first else _FIRST_FLUSH_MS
    return age < (_FIRST_FLUSH_MS if len(store.index_files) == 1 else _INDEX_FLUSH_MS)


def _finding(kind: FindingKind, size: int, message: str, severity: Severity | None = None) -> Finding:
    return Finding(kind, PATH, 0, size, message, severity)


# --- configuration against the queues ---------------------------------------------------------------


_NAMED = 5
_IN_PLACE = (5, 1, 0)
Key = tuple[str, int]
Ranges = Mapping[Key, tuple[int, int]]


def check_config(store: StoreFiles, context: LogContext) -> Iterator[Finding]:
    """Yield findings about config/."""
    yield from _unreadable(store, context)
    yield from _no_topics(store)
    yield from _no_offsets(store)
    if missing_log(store) is None:
        yield from _orphans(store)
    if store.is_rocksdb or has_stored_config(store):
        return  # the databases count, not the files (spec 10.3)
    if missing_log(store) is not None:
        return  # nobody knows where the queues end
    consumers, delays = consumer_offsets(store), delay_offsets(store)
    try:
        ranges = _ranges(store, context, consumers, delays)
    except DatabaseDamaged:  # the checks of queues say it; nobody knows where the queues in it end
        consumers = [c for c in consumers if not store.in_database(c.topic)]
        ranges = _ranges(store, context, consumers, delays)
    known = topic_names(store)
    read = _is_read(store)
    yield from _consumers([c for c in consumers if read((c.topic, c.queue_id))], ranges, known)
    delays = {level: n for level, n in delays.items() if read(_delay_queue(level))}
    yield from _delays(delays, ranges, running=context.running)


def _unreadable(store: StoreFiles, context: LogContext) -> Iterator[Finding]:
    for file in config_files(store):
        if file.error is None:
            yield from _backup(store, file, context)
            continue
        kind = CONFIG_FALLBACK if file.fallback else CONFIG_UNREADABLE
        helped = "its .bak is good" if file.fallback else "its .bak does not help"
        message = f"the file {_as_clause(file.error)}; {helped}"
        yield Finding(kind, file.path, file.error.offset, 0, message, about=_kept_in(file.path))


_KEPT = {
    "topics": "topics and their settings",
    "subscriptionGroup": "consumer groups and their settings",
    "consumerOffset": "how far consumer groups have read",
    "delayOffset": "how far delayed messages are delivered",
    "consumerFilter": "filters of consumers",
    "consumerOrderInfo": "what orderly consumers hold",
    "timermetrics": "counts of timer messages",
    "transactionMetrics": "counts of transactions",
}
"""What configuration files keep, in words of whoever uses the store."""


def _kept_in(path: str) -> str | None:
    return _KEPT.get(path.removeprefix(f"{CONFIG}/").partition(".")[0])


def _no_topics(store: StoreFiles) -> Iterator[Finding]:
    """Find that nothing names the topics of a broker's store: neither topics.json nor its .bak is there."""
    file = read_config(store, "topics.json")
    if not file.missing or store.tree.stat(f"{file.path}.bak") is not None or has_stored_config(store):
        return
    try:
        is_served = needs_no_entry(store)
        topics = [topic for topic in known_topics(store) if not is_served(topic)]
    except MissingExtra:  # the checks of queues say it
        return
    if topics and has_known_broker(store):
        more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
        message = f"there is no such file, and no .bak: no broker serves {', '.join(topics[:_NAMED])}{more}"
        yield Finding(CONFIG_NO_TOPICS, file.path, 0, 0, message, about=_kept_in(file.path))


def _no_offsets(store: StoreFiles) -> Iterator[Finding]:
    """Find that nothing holds the positions of groups whose topics are there: no file, no .bak and no database."""
    file = read_config(store, "consumerOffset.json")
    copies = (f"{file.path}.bak", f"{CONFIG}/lmqConsumerOffset.json", f"{CONFIG}/lmqConsumerOffset.json.bak")
    if not file.missing or has_stored_config(store) or any(store.tree.stat(name) is not None for name in copies):
        return
    try:
        groups = [topic.split("%", 2)[2] for topic in known_topics(store) if topic.startswith(("%RETRY%", "%DLQ%"))]
    except MissingExtra:  # the checks of queues say it
        return
    if groups and has_known_broker(store):
        names = list(dict.fromkeys(sorted(groups)))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        message = (
            f"there is no such file, and no .bak: nothing says where {', '.join(names[:_NAMED])}{more} had read to"
        )
        yield Finding(CONFIG_NO_OFFSETS, file.path, 0, 0, message)


def _as_clause(error: DecodeError) -> str:
    """Return what is wrong with a file as it goes on after its subject: ``is empty``, ``is no JSON: ...``."""
    text = str(error)
    return f"is no JSON: {text[0].lower()}{text[1:]}" if text[:1].isupper() else text


def _backup(store: StoreFiles, file: ConfigFile, context: LogContext) -> Iterator[Finding]:
    """Find a ``.bak`` that no broker could load, beside a good file that 5.1.0 and later write in place."""
    path = f"{file.path}.bak"
    data = read_all(store.tree, path)
    if data is None:
        return
    why = ""
    try:
        document = parse_config(data)
        why = "" if document is None or isinstance(document, dict) else "it holds no object"
    except DecodeError as error:
        why = f"it {_as_clause(error)}"
    if why:
        severity = None if context.highest_release >= _IN_PLACE else Severity.NOTE
        message = f"no broker can load this copy: {why}; the file itself is good"
        yield Finding(CONFIG_BACKUP, path, 0, 0, message, severity, about=_kept_in(path))


def _is_read(store: StoreFiles) -> Callable[[Key], bool]:
    """Whether the files of a queue could be read, or are not there; else nobody knows where it ends."""
    refusals = refusals_of(store.tree)
    return lambda key: not any(is_unread(refusals, f"{kind}/{key[0]}/{key[1]}") for kind in (QUEUES, BATCH_QUEUES))


def _ranges(
    store: StoreFiles, context: LogContext, consumers: Iterable[ConsumerOffset], delays: Iterable[int]
) -> Ranges:
    """Smallest and next offset of the queues that are there and that somebody has an offset in."""
    wanted = {(c.topic, c.queue_id) for c in consumers} | {_delay_queue(level) for level in delays}
    wanted = {key for key in wanted if key[0] and "/" not in key[0] and key[0] not in (".", "..")}
    if not wanted:
        return {}
    dispatched = context.dispatched if context.dispatched >= 0 else None
    return {(r.topic, r.queue_id): (r.min_offset, r.max_offset) for r in queue_rows(store, wanted, dispatched)}


def _consumers(consumers: list[ConsumerOffset], ranges: Ranges, known: set[str] | None) -> Iterator[Finding]:
    for own in consumers:
        key = own.topic, own.queue_id
        limit = ranges.get(key, (0, 0))[1]
        if known is not None and own.topic not in known and not is_own_topic(own.topic) and key not in ranges:
            message = f"group {own.group} has an offset of {_queue(own)}, a topic that topics.json does not know"
            yield _config_finding(CONFIG_UNKNOWN_TOPIC, own, message)
        elif own.offset < 0:
            message = f"group {own.group} stands at {own.offset} of {_queue(own)}, and queue offsets begin at 0"
            yield _config_finding(CONFIG_CONSUMER_OFFSET, own, message)
        elif own.offset > limit:
            message = f"group {own.group} stands at {own.offset} of {_queue(own)}, which ends at {limit}"
            yield _config_finding(CONFIG_CONSUMER_OFFSET, own, message)


def _queue(own: ConsumerOffset) -> str:
    return f"{own.topic}/{own.queue_id}"


def _config_finding(kind: FindingKind, own: ConsumerOffset, message: str) -> Finding:
    return Finding(kind, own.file, 0, 0, message, topic=own.topic, queue_id=own.queue_id)


def _delay_queue(level: int) -> Key:
    return SCHEDULE_TOPIC, level - 1


def _delays(delays: Mapping[int, int], ranges: Ranges, *, running: bool) -> Iterator[Finding]:
    """A running broker writes its positions every few seconds: retention may be ahead of those in the file."""
    for level, offset in delays.items():
        low, high = ranges.get(_delay_queue(level), (0, 0))
        if not (0 if running else low) <= offset <= high:
            message = f"level {level} stands at {offset}, but its queue holds {low} to {high}"
            yield Finding(
                CONFIG_DELAY_OFFSET, f"{CONFIG}/delayOffset.json", 0, 0, message, topic=SCHEDULE_TOPIC,
                queue_id=level - 1,
            )  # fmt: skip


def _orphans(store: StoreFiles) -> Iterator[Finding]:
    """Find topics with queues that the configuration does not name, wherever queues and configuration are; that of
    version 2 never names topics that were made by themselves.
    """
    known = None if has_version_2(store) else configured_topics(store)
    if known is None:
        return
    try:
        found = topics_with_queues(store)
    except MissingExtra:  # the checks of queues say it
        return
    is_served = needs_no_entry(store)
    where = "the configuration in RocksDB" if has_stored_config(store) else "topics.json"
    for topic, path in sorted(found.items()):
        if topic not in known and not is_served(topic):
            message = f"topic {topic} has queues, but {where} does not know it"
            yield Finding(QUEUE_ORPHAN, path, 0, 0, message, topic=topic)


# --- the timer log and the timer wheel --------------------------------------------------------------


UNIT = plan_of(TimerLogUnit).runs[0].dtype
SLOT = plan_of(TimerWheelSlot).runs[0].dtype
_CHECK = plan_of(TimerCheck).runs[0]
WHEEL, CHECK = "timerwheel", "config/timercheck"
_TOPIC = "rmq_sys_wheel_timer"
_LOOKED_UP = 4096
_CLOCK_MS = 86_400_000
_CHUNK = 1 << 15


def check_timer(store: StoreFiles, context: LogContext) -> Iterator[Finding]:
    """Yield findings of the timer files; none where there are no such files."""
    yield from (replace(finding, about="timer messages") for finding in _timers(store, context))


def _timers(store: StoreFiles, context: LogContext) -> Iterator[Finding]:
    files = timer_files(store)
    end = files[0].base if files else 0
    for file in files:
        end, problem, units = _units(file)
        if problem is not None:
            yield problem
        yield from _references(file, units, context)
    yield from _wheel(store, end, context)
    yield from _progress(store, end, context)


def timer_files(store: StoreFiles) -> list[StoreFile]:
    """Return the files of the timer log, ascending."""
    return sequence(store.tree, "timerlog", "timerlog")[0]


def stale_timers(file: StoreFile, context: LogContext) -> tuple[Units, Ints]:
    """Return the units of a file of the timer log, and the rows of those for messages that the log does not hold."""
    units = _units(file)[2]
    return units, _stale(units, context)


def _stale(units: Units, context: LogContext) -> Ints:
    """Units whose message lies after the end of the log, or is not there any more: the log was cut (#10668).

    Of the others the last are looked up in the log: those that a cut leaves. What points in front of the log has
    expired, or was put out of reach.
    """
    if context.end is None or not len(units):
        return np.zeros(0, np.int64)
    physical = units["physical_offset"].astype(np.int64)
    wrong = (physical >= context.min_offset) & (physical + units["message_size"] > context.end)
    with LogReader(context.log_files) as log:
        for row in range(max(len(units) - _LOOKED_UP, 0), len(units)):
            begin, size = int(physical[row]), int(units["message_size"][row])
            if wrong[row] or begin < context.min_offset or context.is_damaged(begin, begin + max(size, 1)):
                continue
            head = log.head(begin)
            wrong[row] = head is None or total_size_of(head[1]) != size
    return np.flatnonzero(wrong)


def _references(file: StoreFile, units: Units, context: LogContext) -> Iterator[Finding]:
    rows = _stale(units, context)
    if len(rows):
        first, physical = int(rows[0]), int(units["physical_offset"][rows[0]])
        message = (
            f"{number_of(len(rows), 'unit')} of the timer log for messages that the log does not hold, the first of "
            f"{int(units['message_size'][first])} bytes at {physical}; the log ends at {context.end}"
        )
        yield Finding(TIMER_LOG, file.name, first * UNIT_SIZE, UNIT_SIZE, message, physical_offset=physical)


def timer_queue_end(store: StoreFiles) -> int | None:
    """Return the next queue offset of the timer queue, None where it has no file."""
    queue = Queue.open(QueueFiles(QUEUES, _TOPIC, 0, f"{QUEUES}/{_TOPIC}/0", store.tree))
    return queue.end() // queue.dtype.itemsize if queue.files else None


def _progress(store: StoreFiles, end: int, context: LogContext) -> Iterator[Finding]:
    """Yield what config/timercheck says against the timer log and the timer queue."""
    data = read_all(store.tree, CHECK)
    if not data:
        return
    fields = dict(
        zip(
            _CHECK.names, _CHECK.packer.unpack(data[: _CHECK.packer.size].ljust(_CHECK.packer.size, b"\0")), strict=True
        )
    )
    limits = {"last_timer_log_flush_pos": (end, "the timer log ends at")}
    if context.end is not None and (last := timer_queue_end(store)) is not None:
        limits["last_timer_queue_offset"] = last, "the timer queue ends at"
    found = store.tree.stat(CHECK)
    written = max(found.mtime_ms if found else 0, context.newest_store_timestamp)
    if written:
        limits["last_read_time"] = written + _CLOCK_MS, "the file was written before"
    for name, (limit, what) in limits.items():
        if not 0 <= fields[name] <= limit and not (fields[name] > limit and (context.crashed or context.running)):
            at = 8 * _CHECK.names.index(name)
            yield Finding(TIMER_CHECK, CHECK, at, 8, f"{name} is {fields[name]}, but {what} {limit}")


def _units(file: StoreFile) -> tuple[int, Finding | None, Units]:
    """Where the units of a file end (offset in the timer log), the first that cannot be, and those in front of it."""
    source = file.open()
    try:
        held = max((end for _, end in source.data_ranges(0, file.size)), default=0)
        data = source.read_at(0, min(held + UNIT_SIZE, file.size))  # of a hole at the end no more than shows it
    finally:
        source.close()
    units = np.frombuffer(data, UNIT, len(data) // UNIT_SIZE)
    fine = (units["size"] == UNIT_SIZE) & ((units["magic"] & ~MAGIC_BITS) == 0) & (units["magic"] != 0)
    count = int(np.argmin(fine)) if not fine.all() else len(units)
    at = count * UNIT_SIZE
    rest = data[at:]
    if not any(rest) or _is_blank(rest):
        return file.base + (file.size if rest and any(rest) else at), None, units[:count]
    size = int.from_bytes(rest[: UNIT["size"].itemsize], "big")
    message = f"size {size} where a unit of {UNIT_SIZE} bytes or a blank should be"
    problem = Finding(TIMER_LOG, file.name, at, min(UNIT_SIZE, len(rest)), message)
    return file.base + at, problem, units[:count]


def _is_blank(rest: bytes) -> bool:
    return len(rest) >= BLANK_SIZE and bool(_BLANK.unpack_from(rest)[-1] == BLANK_MAGIC)


def _wheel(store: StoreFiles, end: int, context: LogContext) -> Iterator[Finding]:
    entry = store.tree.stat(WHEEL)
    if entry is None or entry.is_directory:
        return
    size = WHEEL_SLOTS * SLOT.itemsize
    if entry.size not in (0, size):
        yield Finding(TIMER_LOG, WHEEL, 0, 0, f"{entry.size} bytes, {size} expected")
        return
    source = store.tree.open(WHEEL)
    try:
        for start, stop in source.data_ranges(0, entry.size):
            yield from _slots(
                source.read_at(start - start % 32, stop - start + start % 32), start - start % 32, end, context
            )
    finally:
        source.close()


def _slots(data: bytes, start: int, end: int, context: LogContext) -> Iterator[Finding]:
    """Slots that point after the end of the timer log; the wheel may be ahead of it after a crash."""
    slots = np.frombuffer(data, SLOT, len(data) // SLOT.itemsize)
    wrong = (slots["time"] > 0) & (slots["last"] >= end) & (slots["count"] > 0)
    if context.crashed or context.running:
        return
    for row in np.flatnonzero(wrong).tolist():
        message = f"the slot's last unit lies at {int(slots['last'][row])}, but the timer log ends at {end}"
        yield Finding(TIMER_LOG, WHEEL, start + row * SLOT.itemsize, SLOT.itemsize, message)
