"""The timer log and the timer wheel: units that cannot be, slots that point nowhere (spec 11)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from formats.layout import plan_of
from formats.rocketmq.timer import (
    BLANK_MAGIC,
    BLANK_SIZE,
    UNIT_SIZE,
    WHEEL_SLOTS,
    TimerCheck,
    TimerLogUnit,
    TimerWheelSlot,
)
from rmqctl.files.tree import read_all
from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.queue_files import Queue, Units
from rmqctl.rocketmq.store import QUEUES, QueueFiles, RocketMQStore, StoreFile, sequence
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.text import number_of

UNIT = plan_of(TimerLogUnit).runs[0].dtype
SLOT = plan_of(TimerWheelSlot).runs[0].dtype
_CHECK = plan_of(TimerCheck).runs[0]
WHEEL, CHECK = "timerwheel", "config/timercheck"
_TOPIC = "rmq_sys_wheel_timer"
_LOOKED_UP = 4096
_CLOCK_MS = 86_400_000
_CHUNK = 1 << 15
_MAGIC_BITS = 0xF


def check(store: RocketMQStore, context: LogContext) -> Iterator[Finding]:
    """Findings of the timer files; none where there are no such files.

    Raises:
        OSError: a file cannot be read.
    """
    files, _ = sequence(store.tree, "timerlog", "timerlog")
    end = files[0].base if files else 0
    for file in files:
        end, problem, units = _units(file)
        if problem is not None:
            yield problem
        yield from _references(file, units, context)
    yield from _wheel(store, end, context)
    yield from _progress(store, end, context)


def _references(file: StoreFile, units: Units, context: LogContext) -> Iterator[Finding]:
    """Units whose message lies behind the end of the log, or is not there any more: the log was cut (#10668).

    Of the others the last are looked up in the log: those that a cut leaves.
    """
    if context.end is None or not len(units):
        return
    physical = units["physical_offset"].astype(np.int64)
    wrong = physical + units["message_size"] > context.end
    with LogReader(context.log_files) as log:
        for row in range(max(len(units) - _LOOKED_UP, 0), len(units)):
            begin, size = int(physical[row]), int(units["message_size"][row])
            if wrong[row] or begin < context.min_offset or context.is_damaged(begin, begin + max(size, 1)):
                continue
            head = log.head(begin)
            wrong[row] = head is None or int.from_bytes(head[1][:4], "big", signed=True) != size
    rows = np.flatnonzero(wrong)
    if len(rows):
        first = int(rows[0])
        message = (
            f"{number_of(len(rows), 'unit')} of the timer log for messages that the log does not hold, the first of "
            f"{int(units['message_size'][first])} bytes at {int(physical[first])}; the log ends at {context.end}"
        )
        yield Finding(
            kinds.TIMER_LOG, file.name, first * UNIT_SIZE, UNIT_SIZE, message, physical_offset=int(physical[first])
        )


def _progress(store: RocketMQStore, end: int, context: LogContext) -> Iterator[Finding]:
    """What config/timercheck says against the timer log and the timer queue."""
    data = read_all(store.tree, CHECK)
    if not data:
        return
    fields = dict(
        zip(
            _CHECK.names, _CHECK.packer.unpack(data[: _CHECK.packer.size].ljust(_CHECK.packer.size, b"\0")), strict=True
        )
    )
    limits = {"last_timer_log_flush_pos": (end, "the timer log ends at")}
    if context.end is not None:
        queue = Queue.open(QueueFiles(QUEUES, _TOPIC, 0, f"{QUEUES}/{_TOPIC}/0", store.tree))
        if queue.files:
            limits["last_timer_queue_offset"] = queue.end() // queue.dtype.itemsize, "the timer queue ends at"
    found = store.tree.stat(CHECK)
    written = max(found.mtime_ms if found else 0, context.newest_store_timestamp)
    if written:
        limits["last_read_time"] = written + _CLOCK_MS, "the file was written before"
    for name, (limit, what) in limits.items():
        if not 0 <= fields[name] <= limit and not (fields[name] > limit and (context.crashed or context.running)):
            at = 8 * _CHECK.names.index(name)
            yield Finding(kinds.TIMER_CHECK, CHECK, at, 8, f"{name} is {fields[name]}, but {what} {limit}")


def _units(file: StoreFile) -> tuple[int, Finding | None, Units]:
    """Where the units of a file end (offset in the timer log), the first that cannot be, and those in front of it."""
    source = file.open()
    try:
        data = source.read_at(0, file.size)
    finally:
        source.close()
    units = np.frombuffer(data, UNIT, len(data) // UNIT_SIZE)
    fine = (units["size"] == UNIT_SIZE) & ((units["magic"] & ~_MAGIC_BITS) == 0) & (units["magic"] != 0)
    count = int(np.argmin(fine)) if not fine.all() else len(units)
    at = count * UNIT_SIZE
    rest = data[at:]
    if not any(rest) or _is_blank(rest):
        return file.base + (file.size if rest and any(rest) else at), None, units[:count]
    message = f"size {int.from_bytes(rest[:4], 'big')} where a unit of {UNIT_SIZE} bytes or a blank should be"
    problem = Finding(kinds.TIMER_LOG, file.name, at, min(UNIT_SIZE, len(rest)), message)
    return file.base + at, problem, units[:count]


def _is_blank(rest: bytes) -> bool:
    return int.from_bytes(rest[12:BLANK_SIZE], "big", signed=True) == BLANK_MAGIC


def _wheel(store: RocketMQStore, end: int, context: LogContext) -> Iterator[Finding]:
    entry = store.tree.stat(WHEEL)
    if entry is None or entry.is_directory:
        return
    size = WHEEL_SLOTS * SLOT.itemsize
    if entry.size not in (0, size):
        yield Finding(kinds.TIMER_LOG, WHEEL, 0, 0, f"{entry.size} bytes, {size} expected")
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
    """Slots that point behind the end of the timer log; the wheel may be ahead of it after a crash."""
    slots = np.frombuffer(data, SLOT, len(data) // SLOT.itemsize)
    wrong = (slots["time"] > 0) & (slots["last"] >= end) & (slots["count"] > 0)
    if context.crashed or context.running:
        return
    for row in np.flatnonzero(wrong).tolist():
        message = f"the slot's last unit lies at {int(slots['last'][row])}, but the timer log ends at {end}"
        yield Finding(kinds.TIMER_LOG, WHEEL, start + row * SLOT.itemsize, SLOT.itemsize, message)
