"""Checkpoint, abort and lock against what the log shows (spec 5, 12)."""

from __future__ import annotations

from collections.abc import Iterator

from formats.rocketmq.abort_lock import abort_pid
from rmqctl.files.tree import read_all
from rmqctl.findings import Finding, FindingKind, Severity
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.checkpoint import PATH, read_checkpoint
from rmqctl.rocketmq.store import RocketMQStore
from rmqctl.rocketmq.verify.context import LogContext

_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
_FIELDS_SIZE = 24
_LAZY_LOGICS = (5, 5, 0)


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
    yield from _times(fields, context, store.is_rocksdb)


def _times(fields: dict[str, int], context: LogContext, rocksdb: bool) -> Iterator[Finding]:
    last = context.last_store_timestamp
    names = [n for n in _TIMES if fields[n] > last]
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
        expected = context.crashed or rocksdb or (lazy and zero == [_TIMES[1]])
        severity = Severity.NOTE if expected and (rocksdb or any(fields[n] for n in _TIMES)) else None
        yield _finding(kinds.CHECKPOINT_ZERO, _FIELDS_SIZE, message, severity)
        return
    names = [_TIMES[0]] if lazy else list(_TIMES[:2])
    behind = [n for n in names if fields[n] < last]
    if behind:
        values = ", ".join(f"{n} {fields[n]}" for n in behind)
        settled = not (context.crashed or context.running)  # a clean stop writes logics with the last dispatched record
        severity = Severity.WARNING if settled and _TIMES[1] in behind else None
        yield _finding(
            kinds.CHECKPOINT_BEHIND, _FIELDS_SIZE, f"{values}, the last record was stored at {last}", severity
        )


def _finding(kind: FindingKind, size: int, message: str, severity: Severity | None = None) -> Finding:
    return Finding(kind, PATH, 0, size, message, severity)
