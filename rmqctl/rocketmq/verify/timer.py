"""The timer log and the timer wheel: units that cannot be, slots that point nowhere (spec 11)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from formats.layout import plan_of
from formats.rocketmq.timer import BLANK_MAGIC, BLANK_SIZE, UNIT_SIZE, WHEEL_SLOTS, TimerLogUnit, TimerWheelSlot
from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.store import RocketMQStore, StoreFile, sequence
from rmqctl.rocketmq.verify.context import LogContext

UNIT = plan_of(TimerLogUnit).runs[0].dtype
SLOT = plan_of(TimerWheelSlot).runs[0].dtype
WHEEL = "timerwheel"
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
        end, problem = _units(file)
        if problem is not None:
            yield problem
    yield from _wheel(store, end, context)


def _units(file: StoreFile) -> tuple[int, Finding | None]:
    """Where the units of a file end (offset in the timer log), and the first that cannot be."""
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
        return file.base + (file.size if rest and any(rest) else at), None
    message = f"size {int.from_bytes(rest[:4], 'big')} where a unit of {UNIT_SIZE} bytes or a blank should be"
    return file.base + at, Finding(kinds.TIMER_LOG, file.name, at, min(UNIT_SIZE, len(rest)), message)


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
