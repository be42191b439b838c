"""Timer files of 5.x as rows: wheel slots in use, log units, the progress file (spec 11)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from formats.layout import plan_of
from formats.rocketmq.timer import (
    BLANK_MAGIC,
    BLANK_SIZE,
    UNIT_SIZE,
    TimerCheck,
    TimerLogBlank,
    TimerLogUnit,
    TimerMagic,
    TimerWheelSlot,
)
from rmqctl.files.source import ByteSource
from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.rows.units import Records, Row, chunks, unit_rows, used
from rmqctl.rocketmq.store import StoreFile

DEFAULT_PRECISION = 1000
"""ms a slot of the wheel stands for (timerPrecisionMs)."""

_SLOT_NAMES = {"time": "slot_time"}  # counts slots, which no reader of a key "time" would expect
_SLOT = plan_of(TimerWheelSlot).runs[0].dtype
_UNIT = plan_of(TimerLogUnit).runs[0].dtype
_BLANK = plan_of(TimerLogBlank).runs[0].packer
_CHECK = plan_of(TimerCheck).runs[0]
_ALL_FLAGS = int(TimerMagic.DEFAULT | TimerMagic.ROLL | TimerMagic.DELETE)
_MAGIC_BITS = 0xF


def wheel_rows(source: ByteSource, file: str, precision: int = DEFAULT_PRECISION) -> Iterator[Row]:
    """Slots that hold anything, by number.

    Args:
        precision: ms a slot stands for.

    Raises:
        OSError: the file cannot be read.
    """
    for position, slots in chunks(source, _SLOT, 0, source.size()):
        rows = np.flatnonzero(used(slots))
        positions = position + rows * _SLOT.itemsize
        numbers = (positions // _SLOT.itemsize).tolist()
        before = {"slot": numbers}
        for row in unit_rows("timer_slot", file, positions.tolist(), slots[rows], before=before, names=_SLOT_NAMES):
            row["delivery_timestamp"] = row["slot_time"] * precision
            yield row


def timer_log_rows(file: StoreFile) -> Iterator[Row]:
    """Units of one timer log file up to its blank or the room behind it; what is no unit is a finding in its place.

    Raises:
        OSError: the file cannot be read.
    """
    source = file.open()
    try:
        size = source.size()
        for position, units in chunks(source, _UNIT, 0, size):
            for row in _log_chunk(file, position, units, size):
                yield row
                if row["kind"] != "timer_log_unit":
                    return
        rest = size % UNIT_SIZE
        if rest >= BLANK_SIZE:
            yield from _blank(file, size - rest, source.read_at(size - rest, BLANK_SIZE))
    finally:
        source.close()


def _log_chunk(file: StoreFile, position: int, units: Records, size: int) -> Iterator[Row]:
    good = (units["size"] == UNIT_SIZE) & (units["magic"] & ~_MAGIC_BITS == 0)
    count = len(units) if good.all() else int(np.argmin(good))
    positions = range(position, position + count * UNIT_SIZE, UNIT_SIZE)
    for row in unit_rows("timer_log_unit", file.name, positions, units[:count]):
        row["flags"] = [flag.name.lower() for flag in TimerMagic if row["magic"] & flag and flag.name]
        row["delivery_timestamp"] = row["write_time"] + row["delay"]
        yield row
    if count < len(units):
        at = position + count * UNIT_SIZE
        found = list(_blank(file, at, units[count].tobytes()[:BLANK_SIZE]))
        yield from found
        if not found and units[count:].tobytes().strip(b"\0"):
            message = f"size {int(units['size'][count])} and magic {int(units['magic'][count])} are those of no unit"
            yield Finding(kinds.TIMER_LOG, file.name, at, size - at, message).row()


def _blank(file: StoreFile, position: int, data: bytes) -> Iterator[Row]:
    """The blank that closes a file, if it lies there."""
    size, _, magic = _BLANK.unpack(data)
    if magic == BLANK_MAGIC:
        yield {"kind": "timer_log_blank", "file": file.name, "position": position, "size": size}


def check_rows(data: bytes, file: str) -> Iterator[Row]:
    """The progress of the timer; a file too short for its fields is read as zeros behind its end."""
    values = _CHECK.packer.unpack(data[: _CHECK.packer.size].ljust(_CHECK.packer.size, b"\0"))
    yield {"kind": "timer_check", "file": file, **dict(zip(_CHECK.names, values, strict=True))}
