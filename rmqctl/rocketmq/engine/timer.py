"""The timer wheel and its log: where timer messages wait for their time (spec 11; TimerMessageStore.doEnqueue)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from formats.layout import plan_of
from formats.rocketmq.timer import (
    BLANK_MAGIC,
    BLANK_SIZE,
    CHECK_SIZE,
    MAGIC_BITS,
    UNIT_SIZE,
    WHEEL_SLOTS,
    TimerCheck,
    TimerLogBlank,
    TimerLogUnit,
    TimerMagic,
    TimerWheelSlot,
)
from formats.text import java_hash
from rmqctl.files.writing import Disk
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.mapped_files import MappedFiles
from rmqctl.rocketmq.engine.routing import DELETE_KEY, OUT_MS, REAL_TOPIC

WHEEL, LOG, CHECK = "timerwheel", "timerlog", "config/timercheck"
_SLOT = plan_of(TimerWheelSlot).runs[0].packer
_UNIT = plan_of(TimerLogUnit).runs[0].packer
_BLANK = plan_of(TimerLogBlank).runs[0].packer
_CHECK = plan_of(TimerCheck).runs[0]
_UNITS, _SLOTS = plan_of(TimerLogUnit).runs[0].dtype, plan_of(TimerWheelSlot).runs[0].dtype
_AT_ONCE = 1 << 14


@dataclass(slots=True)
class Waiting:
    """A record of the timer topic, as the wheel needs it."""

    physical_offset: int
    size: int
    queue_offset: int
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class TimerUnit:
    """A unit of the timer log: times in ms, where the message lies in the log and its bytes."""

    magic: int
    write_time: int
    physical_offset: int
    size: int


class TimerWheel:
    """The wheel, its log and the file that says how far both are.

    Attributes:
        end: where the next unit of the log goes.
    """

    def __init__(self, root: Path, config: StoreConfig, disk: Disk) -> None:
        """Open the timer files of a store, or make them."""
        self._root, self._config, self._disk = root, config, disk
        self._log = MappedFiles.load(disk, [root / LOG], config.timer_log_file_size)
        self._wheel = disk.open(root / WHEEL, WHEEL_SLOTS * _SLOT.size)
        self._state = self._load_check()
        self._state["last_read_time"] = self._state["last_read_time"] or self.floor(config.clock.now())
        self.end = self._recover()

    @property
    def queue_offset(self) -> int:
        """Queue offset of the timer topic that comes next."""
        return self._state["last_timer_queue_offset"]

    def skip_to(self, queue_offset: int) -> None:
        """Messages in front of a queue offset are done with."""
        self._state["last_timer_queue_offset"] = max(queue_offset, self.queue_offset)

    @property
    def read_time(self) -> int:
        """Slots in front of this time are done with, in ms."""
        return self._state["last_read_time"]

    def move(self, time_ms: int) -> None:
        """Slots in front of a time are done with."""
        self._state["last_read_time"] = max(time_ms, self.read_time)

    def floor(self, time_ms: int) -> int:
        """Return the slot time at or before a time."""
        return time_ms // self._config.timer_precision_ms * self._config.timer_precision_ms

    def is_late(self, waiting: Waiting) -> bool:
        """Whether the slot of a message has been read already."""
        return self.floor(int(waiting.properties.get(OUT_MS, "0"))) < self.read_time

    def next_time(self, until_ms: int) -> int | None:
        """Return the first time from the read time on whose slot has units, and that lies in front of ``until_ms``."""
        precision = self._config.timer_precision_ms
        first = self.read_time // precision
        count = until_ms // precision - first
        if count > WHEEL_SLOTS:
            return self._oldest(first, until_ms // precision)
        for start in range(first, first + max(count, 0), _AT_ONCE):
            times = np.arange(start, min(start + _AT_ONCE, first + count))
            place = times % WHEEL_SLOTS
            raw = os.pread(self._wheel, len(times) * _SLOT.size, int(place[0]) * _SLOT.size)
            if place[-1] < place[0]:
                raw += os.pread(self._wheel, (int(place[-1]) + 1) * _SLOT.size, 0)
            slots = np.frombuffer(raw, _SLOTS, len(times))
            found = np.flatnonzero((slots["time"] == times) & (slots["last"] >= 0))
            if len(found):
                return int(times[found[0]]) * precision
        return None

    def _oldest(self, first: int, end: int) -> int | None:
        """Return the smallest time of all slots in ``[first, end)``, given in units of the precision, as ms."""
        slots = np.frombuffer(os.pread(self._wheel, WHEEL_SLOTS * _SLOT.size, 0), _SLOTS)
        times = slots["time"][(slots["time"] >= first) & (slots["time"] < end) & (slots["last"] >= 0)]
        return int(times.min()) * self._config.timer_precision_ms if len(times) else None

    def units(self, time_ms: int) -> list[TimerUnit]:
        """Return the units of the slot of a time, in the order in which they were put there."""
        found: list[TimerUnit] = []
        at = self._slot(time_ms)["last"]
        while at >= 0 and len(raw := self._log.read(at, UNIT_SIZE)) == UNIT_SIZE:
            size, previous, magic, write_time, _, physical, bytes_, *_ = _UNIT.unpack(raw)
            if size != UNIT_SIZE or previous >= at:
                break
            found.append(TimerUnit(magic, write_time, physical, bytes_))
            at = previous
        return found[::-1]

    def last_unit(self) -> TimerUnit | None:
        """Return the unit that was put last; None in an empty log, or after a blank."""
        raw = self._log.read(self.end - UNIT_SIZE, UNIT_SIZE) if self.end >= UNIT_SIZE else b""
        if len(raw) < UNIT_SIZE:
            return None
        size, _, magic, write_time, _, physical, message_size, *_ = _UNIT.unpack(raw)
        return TimerUnit(magic, write_time, physical, message_size) if size == UNIT_SIZE else None

    def expire(self, min_offset: int) -> list[Path]:
        """Delete files of the log from the oldest on whose last unit is of a message in front of the commit log.

        The last one stays (MappedFileQueue.deleteExpiredFileByOffsetForTimerLog).
        """
        gone, size = [], self._log.file_size
        last = (size - BLANK_SIZE) // UNIT_SIZE * UNIT_SIZE - UNIT_SIZE
        for file in self._log.files[:-1]:
            unit = self._log.read(file.base + last, UNIT_SIZE)
            if len(unit) < UNIT_SIZE:
                break
            size, _, _, _, _, physical, *_ = _UNIT.unpack(unit)
            if size != UNIT_SIZE or physical >= min_offset:
                break
            self._log.remove(file)
            gone.append(file.path)
        return gone

    def enqueue(self, waiting: Waiting, now_ms: int) -> None:
        """Put a message into the slot of its time, or with a roll mark into one on the way."""
        precision = self._config.timer_precision_ms
        write_time = now_ms // precision * precision
        due, magic = int(waiting.properties.get(OUT_MS, "0")), int(TimerMagic.DEFAULT)
        window = self._config.timer_roll_slots * precision
        if due - write_time >= window:
            magic |= TimerMagic.ROLL
            due = write_time + (window // 2 if due - write_time - window < window // 3 else window)
        is_delete = DELETE_KEY in waiting.properties
        magic |= TimerMagic.DELETE if is_delete else 0
        slot = self._slot(due)
        topic = waiting.properties.get(REAL_TOPIC, "")
        unit = _UNIT.pack(
            UNIT_SIZE, slot["last"], magic, write_time, due - write_time, waiting.physical_offset, waiting.size,
            java_hash(topic), 0,
        )  # fmt: skip
        at = self._append(unit)
        first = at if slot["first"] == -1 else slot["first"]
        raw = _SLOT.pack(due // precision, first, at, slot["count"] + (-1 if is_delete else 1), slot["magic"])
        self._disk.write(self._wheel, raw, self._place(due))
        self._state["last_timer_queue_offset"] = waiting.queue_offset + 1

    def save(self, now_ms: int) -> None:
        """Write all down and say how far it is (timercheck)."""
        self._log.sync(0, self.end)
        self._disk.sync(self._wheel)
        self._state |= {
            "last_timer_log_flush_pos": self.end,
            "master_timer_queue_offset": self._state["last_timer_queue_offset"],
            "version_timestamp": now_ms,
            "version_counter": self._state["version_counter"] + 1,
        }
        fd = self._disk.open(self._root / CHECK, CHECK_SIZE)
        try:
            self._disk.write(fd, _CHECK.packer.pack(*(self._state[name] for name in _CHECK.names)), 0)
            self._disk.sync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        os.close(self._wheel)

    def _slot(self, due: int) -> dict[str, Any]:
        """Return what the slot of a time holds; a slot of another time is empty."""
        raw = os.pread(self._wheel, _SLOT.size, self._place(due))
        time, first, last, count, magic = _SLOT.unpack(raw)
        if time != due // self._config.timer_precision_ms:
            return {"first": -1, "last": -1, "count": 0, "magic": 0}
        return {"first": first, "last": last, "count": count, "magic": magic}

    def _place(self, due: int) -> int:
        return due // self._config.timer_precision_ms % WHEEL_SLOTS * _SLOT.size

    def _append(self, unit: bytes) -> int:
        """Write a unit after the others; a file without room for it and a blank is ended."""
        left = self._log.file_size - self.end % self._log.file_size
        if left < UNIT_SIZE + BLANK_SIZE:
            self._log.write(self.end, _BLANK.pack(left, 0, BLANK_MAGIC))
            self.end += left
        at = self.end
        self._log.write(at, unit)
        self.end += len(unit)
        return at

    def _load_check(self) -> dict[str, int]:
        path = self._root / CHECK
        data = path.read_bytes() if path.exists() else b""
        values = _CHECK.packer.unpack(data[: _CHECK.packer.size].ljust(_CHECK.packer.size, b"\0"))
        return dict(zip(_CHECK.names, values, strict=True))

    def _recover(self) -> int:
        """Where the log ends, with each slot brought up to its last unit (TimerMessageStore.recoverAndRevise)."""
        end = self._log.min_offset
        first = self._state["last_timer_log_flush_pos"] - self._log.file_size
        for file in self._log.files:
            units = self._valid(file.base)
            if len(units):
                end = file.base + len(units) * UNIT_SIZE
                if file.base + self._log.file_size > first:
                    self._revise(units, file.base)
        return end

    def _valid(self, base: int) -> Any:
        """Return the units of a file, up to the first that cannot be one."""
        parts, at = [], 0
        while len(raw := self._log.read(base + at, _AT_ONCE * UNIT_SIZE)) >= UNIT_SIZE:
            units = np.frombuffer(raw, _UNITS, len(raw) // UNIT_SIZE)
            fine = (units["size"] == UNIT_SIZE) & ((units["magic"] & ~MAGIC_BITS) == 0)
            parts.append(units if fine.all() else units[: int(np.argmin(fine))])
            at += len(raw)
            if not fine.all() or at >= self._log.file_size:
                break
        return np.concatenate(parts) if parts else np.empty(0, _UNITS)

    def _revise(self, units: Any, base: int) -> None:
        """Let slots that a kill left unfinished point to their last unit."""
        precision = self._config.timer_precision_ms
        times = (units["write_time"].astype(np.int64) + units["delay"]) // precision
        unique, index = np.unique(times[::-1], return_index=True)
        for time, number in zip(unique.tolist(), (len(times) - 1 - index).tolist(), strict=True):
            at, due = base + number * UNIT_SIZE, time * precision
            held, slot = self._held(due), self._slot(due)
            if held > time or slot["last"] >= at:
                continue
            count = int(np.count_nonzero(times == time)) if slot["last"] < 0 else slot["count"] + 1
            first = at if slot["first"] < 0 else slot["first"]
            self._disk.write(self._wheel, _SLOT.pack(time, first, at, count, slot["magic"]), self._place(due))

    def _held(self, due: int) -> int:
        """Return the time, in units of the precision, that a time's slot is taken by."""
        return int.from_bytes(os.pread(self._wheel, 8, self._place(due)), "big", signed=True)
