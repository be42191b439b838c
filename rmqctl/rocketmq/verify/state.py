"""Checkpoint, abort and lock against what the log shows (spec 5, 12)."""

from __future__ import annotations

from collections.abc import Iterator

from formats.rocketmq.abort_lock import abort_pid
from rmqctl.files.tree import read_all
from rmqctl.findings import Finding, FindingKind, Severity
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.checkpoint import PATH, read_checkpoint
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.store import RocketMQStore
from rmqctl.rocketmq.verify.context import LogContext

_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
_OFFSETS = ("master_flushed_offset", "confirm_phy_offset", "logics_physical_offset")
_FIELDS_SIZE = 24
_LAZY_LOGICS = (5, 5, 0)
_FIRST_FLUSH_MS = 60_000
_FLUSH_MS = 200
"""A flush of the queues puts back the time that it read at its start (FlushConsumeQueueService.doFlush).

As long as a flush may take; brokers that were killed were seen from 228 ms on.
"""
_INDEX_FLUSH_MS = 2_000
"""Of a full index file, which a thread of its own flushes."""


def check(store: RocketMQStore, context: LogContext) -> Iterator[Finding]:
    """Findings about the store's state.

    Raises:
        OSError: a file cannot be read.
    """
    if context.running:
        yield Finding(kinds.STORE_RUNNING, "lock", 0, 0, "a broker holds the lock; what was read may be changing")
    elif context.crashed:
        pid = abort_pid(read_all(store.tree, "abort") or b"")
        who = f" (process {pid})" if pid else ""
        yield Finding(kinds.STORE_ABORT, "abort", 0, 0, f"the last broker{who} did not stop cleanly")
    yield from _checkpoint(store, context)


def _checkpoint(store: RocketMQStore, context: LogContext) -> Iterator[Finding]:
    found = read_checkpoint(store)
    has_log = bool(store.log_files)
    if found is None:
        if has_log:
            yield _finding(kinds.CHECKPOINT_MISSING, 0, "there is no checkpoint, but a commit log")
        return
    fields, length = found
    if length < _FIELDS_SIZE:
        yield _finding(kinds.CHECKPOINT_LENGTH, length, f"{length} bytes, at least {_FIELDS_SIZE} expected")
        return
    yield from _offsets(fields, context)
    yield from _times(fields, context, store)


def _offsets(fields: dict[str, int], context: LogContext) -> Iterator[Finding]:
    """Physical offsets that 5.x keeps; a slave knows of its master more than it has itself."""
    end = context.end
    if not context.log_files:
        return  # nothing is right that is said of a log that is not there
    for number, name in enumerate(_OFFSETS):
        value, at = fields[name], _FIELDS_SIZE + 8 * number
        if value < 0 or (end is not None and value > end):
            message = f"{name} is {value}, but the log ends at {context.limit if end is None else end}"
            is_master_s = name == _OFFSETS[0] and value >= 0
            severity = Severity.NOTE if is_master_s else None
            yield Finding(kinds.CHECKPOINT_OFFSET, PATH, at, 8, message, severity)


def _times(fields: dict[str, int], context: LogContext, store: RocketMQStore) -> Iterator[Finding]:
    last = context.last_store_timestamp
    names = [n for n in _TIMES if fields[n] > max(last, context.newest_store_timestamp)]
    if names and last:
        values = ", ".join(f"{n} {fields[n]}" for n in names)
        yield _finding(kinds.CHECKPOINT_AHEAD, _FIELDS_SIZE, f"{values}, but the last record was stored at {last}")
        return
    if not last:
        return
    lazy = context.highest_release >= _LAZY_LOGICS  # logics changes at the 60 s flush only, not at shutdown
    zero = [n for n in _TIMES[:2] if fields[n] == 0]
    if zero:
        message = f"{' and '.join(zero)} {'is' if len(zero) == 1 else 'are'} zero, the last record was stored at {last}"
        expected = context.crashed or lazy or _TIMES[1] not in zero
        rocksdb, some = store.is_rocksdb, any(fields[n] for n in _TIMES)
        normal = rocksdb or (expected and (some or _is_young(store, context)))
        severity = Severity.NOTE if normal else None
        yield _finding(kinds.CHECKPOINT_ZERO, _FIELDS_SIZE, message, severity)
        return
    names = [_TIMES[0]] if lazy else list(_TIMES[:2])
    behind = [n for n in names if fields[n] < last]
    if behind:
        values = ", ".join(f"{n} {fields[n]}" for n in behind)
        settled = not (context.crashed or context.running)  # a clean stop writes logics with the last dispatched record
        late = _TIMES[1] in behind and last - fields[_TIMES[1]] > _FLUSH_MS
        severity = Severity.WARNING if settled and late else None
        yield _finding(
            kinds.CHECKPOINT_BEHIND, _FIELDS_SIZE, f"{values}, the last record was stored at {last}", severity
        )


def _is_young(store: RocketMQStore, context: LogContext) -> bool:
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
