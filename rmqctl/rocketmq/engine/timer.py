"""The timer wheel and its log: where timer messages wait for their time (spec 11; TimerMessageStore.doEnqueue)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.layout import plan_of
from formats.rocketmq.index import java_hash
from formats.rocketmq.timer import (
    BLANK_MAGIC,
    BLANK_SIZE,
    UNIT_SIZE,
    WHEEL_SLOTS,
    TimerCheck,
    TimerLogBlank,
    TimerLogUnit,
    TimerMagic,
    TimerWheelSlot,
)
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.engine.mapped_files import MappedFiles
from rmqctl.rocketmq.engine.routing import DELETE_KEY, OUT_MS, REAL_TOPIC

WHEEL, LOG, CHECK = "timerwheel", "timerlog", "config/timercheck"
CHECK_SIZE = 4096
_SLOT = plan_of(TimerWheelSlot).runs[0].packer
_UNIT = plan_of(TimerLogUnit).runs[0].packer
_BLANK = plan_of(TimerLogBlank).runs[0].packer
_CHECK = plan_of(TimerCheck).runs[0]


@dataclass(slots=True)
class Waiting:
    """A record of the timer topic, as the wheel needs it."""

    physical_offset: int
    size: int
    queue_offset: int
    properties: dict[str, str]


class TimerWheel:
    """The wheel, its log and the file that says how far both are."""

    def __init__(self, root: Path, config: StoreConfig, disk: Disk) -> None:
        """
        Raises:
            IOFailure: a file cannot be made.
            OSError: timercheck cannot be read.
        """
        self._root, self._config, self._disk = root, config, disk
        self._log = MappedFiles.load(disk, [root / LOG], config.timer_log_file_size)
        self._wheel = disk.open(root / WHEEL, WHEEL_SLOTS * _SLOT.size)
        self._state = self._load_check()
        self.end = self._log_end()

    @property
    def queue_offset(self) -> int:
        """Queue offset of the timer topic that comes next."""
        return self._state["last_timer_queue_offset"]

    def enqueue(self, waiting: Waiting, now_ms: int) -> None:
        """Put a message into the slot of its time, or with a roll mark into one on the way.

        Raises:
            IOFailure: a file cannot be written.
        """
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
        self._disk.write(self._wheel, [raw], self._place(due))
        self._state["last_timer_queue_offset"] = waiting.queue_offset + 1

    def save(self, now_ms: int) -> None:
        """Write all down and say how far it is (timercheck).

        Raises:
            IOFailure: the system refuses.
        """
        precision = self._config.timer_precision_ms
        self._log.sync(0, self.end)
        self._disk.sync(self._wheel)
        self._state |= {
            "last_read_time": max(self._state["last_read_time"], now_ms // precision * precision),
            "last_timer_log_flush_pos": self.end,
            "master_timer_queue_offset": self._state["last_timer_queue_offset"],
            "version_timestamp": now_ms,
            "version_counter": self._state["version_counter"] + 1,
        }
        fd = self._disk.open(self._root / CHECK, CHECK_SIZE)
        try:
            self._disk.write(fd, [_CHECK.packer.pack(*(self._state[name] for name in _CHECK.names))], 0)
            self._disk.sync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        os.close(self._wheel)

    def _slot(self, due: int) -> dict[str, Any]:
        """What the slot of a time holds; a slot of another time is empty."""
        raw = os.pread(self._wheel, _SLOT.size, self._place(due))
        time, first, last, count, magic = _SLOT.unpack(raw)
        if time != due // self._config.timer_precision_ms:
            return {"first": -1, "last": -1, "count": 0, "magic": 0}
        return {"first": first, "last": last, "count": count, "magic": magic}

    def _place(self, due: int) -> int:
        return due // self._config.timer_precision_ms % WHEEL_SLOTS * _SLOT.size

    def _append(self, unit: bytes) -> int:
        """Write a unit behind the others; a file without room for it and a blank is ended."""
        left = self._log.file_size - self.end % self._log.file_size
        if left < UNIT_SIZE + BLANK_SIZE:
            self._log.write(self.end, [_BLANK.pack(left, 0, BLANK_MAGIC)])
            self.end += left
        at = self.end
        self._log.write(at, [unit])
        self.end += len(unit)
        return at

    def _load_check(self) -> dict[str, int]:
        path = self._root / CHECK
        data = path.read_bytes() if path.exists() else b""
        values = _CHECK.packer.unpack(data[: _CHECK.packer.size].ljust(_CHECK.packer.size, b"\0"))
        return dict(zip(_CHECK.names, values, strict=True))

    def _log_end(self) -> int:
        """Behind the last valid unit (TimerMessageStore.recover, spec 11.4)."""
        for file in reversed(self._log.files):
            data = self._log.read(file.base, self._log.file_size)
            at = 0
            while data[at : at + 4] == UNIT_SIZE.to_bytes(4, "big"):
                at += UNIT_SIZE
            if at:
                return file.base + at
        return self._log.min_offset
