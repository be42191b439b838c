"""What a broker does by its own schedule: delivering what is due, deleting what is older than its reserved time
(spec 7, 2.13, 3.9, 4.7).

Log files expire first, then what only points to them. Sources: DefaultMessageStore.CleanCommitLogService (every
10 s), CleanConsumeQueueService, UtilAll.isItTimeToDo, ScheduleMessageService, TimerMessageStore;
MappedFileQueue.deleteExpiredFileByTime, deleteExpiredFileByOffset; IndexService.deleteExpiredFile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.files.writing import Disk
from rmqctl.rocketmq.engine.flush import Service
from rmqctl.rocketmq.engine.mapped_files import MappedFiles
from rmqctl.rocketmq.engine.message import MessageRefused, PutStatus
from rmqctl.rocketmq.engine.reput import UNIT_SIZES, IndexWriter, UnitFiles
from rmqctl.rocketmq.index import HEADER_SIZE, IndexHead
from rmqctl.rocketmq.store.files import BATCH_QUEUES, COMMIT_LOG, QUEUES

if TYPE_CHECKING:
    from rmqctl.rocketmq.engine.config import StoreConfig
    from rmqctl.rocketmq.engine.engine import StoreEngine
    from rmqctl.rocketmq.engine.reput import Reput


FILES_AT_ONCE = 10
"""Log files that one run deletes at most (deleteFilesBatchMax)."""
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Expired:
    """What one run deleted: paths.

    Attributes:
        min_offset: physical offset of the first byte that is left.
    """

    log: tuple[Path, ...]
    queues: tuple[Path, ...]
    index: tuple[Path, ...]
    timer: tuple[Path, ...]
    min_offset: int


def expire_log(files: MappedFiles, end: int, now_ms: int, reserved_ms: int, *, at_once: bool = False) -> list[Path]:
    """Delete log files from the oldest on whose last change is longer ago than the reserved time.

    The first that is younger ends it, and at most ten go at once. The file that is written to always stays; a
    broker would delete it when one is made ahead of it.

    Args:
        end: where the next record goes.
        at_once: whatever their age.
    """
    gone = []
    for file in files.files[:FILES_AT_ONCE]:
        is_young = file.path.stat().st_mtime_ns // 1_000_000 + reserved_ms > now_ms
        if file.base + files.file_size > end or (is_young and not at_once):
            break
        files.remove(file)
        gone.append(file.path)
    return gone


def expire_queues(reput: Reput, min_offset: int) -> list[Path]:
    """Delete queue files from the oldest on whose last unit points in front of the log; the last one stays."""
    gone = []
    names = [(QUEUES, key) for key in reput.queues.simple] + [(BATCH_QUEUES, key) for key in reput.queues.batch]
    for name in names:
        gone += _expire_units(reput.files_of(name), UNIT_SIZES[name[0]], min_offset)
    return gone


def _expire_units(units: UnitFiles, unit_size: int, min_offset: int) -> list[Path]:
    gone, files = [], units.files
    for file in files.files[:-1]:
        last = files.read(file.base + files.file_size // unit_size * unit_size - unit_size, 8)
        if int.from_bytes(last, "big", signed=True) >= min_offset:
            break
        files.remove(file)
        gone.append(file.path)
    return gone


def expire_index(index: IndexWriter, min_offset: int, disk: Disk) -> list[Path]:
    """Delete index files from the oldest on that end in front of the log; the newest stays."""
    gone = []
    for name in index.names[:-1]:
        path = index.directory / name
        with path.open("rb") as file:
            head = IndexHead.parse(file.read(HEADER_SIZE))
        if head.end_phy_offset >= min_offset:
            break
        disk.remove(path)
        gone.append(path)
    index.names = index.names[len(gone) :]
    return gone


# --- what a broker does by its own schedule ---------------------------------------------------------


DELIVER_MS, CLEAN_MS = 500, 10_000


@dataclass(frozen=True, slots=True)
class Usage:
    """How full the disks of a store are.

    Attributes:
        exceeds: old files are deleted at any hour.
        at_once: and whatever their age.
        full: messages are refused.
    """

    exceeds: bool
    at_once: bool
    full: bool


class Housekeeping:
    """The schedule of one open engine; :meth:`services` starts it.

    Attributes:
        full: the disk is so full that messages are refused; looked at every 10 s.
    """

    def __init__(self, engine: StoreEngine) -> None:
        self._engine = engine
        self.full = False

    def services(self) -> list[Service]:
        """Threads that deliver and delete."""
        return [Service("deliver", DELIVER_MS, self.deliver), Service("clean", CLEAN_MS, self.clean)]

    def deliver(self) -> None:
        """One turn: deliver what is due, unless the disk is too full for it."""
        try:
            if not self.full:
                self._engine.deliver_due()
        except MessageRefused as error:
            if error.status is not PutStatus.SERVICE_NOT_AVAILABLE:
                raise

    def clean(self) -> None:
        """One turn: delete old files in the hours for it, or when a disk fills up."""
        config = self._engine.config
        usage = self._usage()
        self.full = usage.full
        if usage.exceeds or is_time(config.delete_when, config.clock.now()):
            self._engine.expire(at_once=usage.at_once)

    def check(self) -> None:
        """Refuse messages where the disk is too full for them.

        Raises:
            MessageRefused: the disk is too full for more messages.
        """
        if self.full:
            percent = round(100 * self._engine.config.disk_warning)
            raise MessageRefused(
                PutStatus.SERVICE_NOT_AVAILABLE,
                f"the disk of {self._engine.root} is more than {percent} % full; free space, or let old files expire",
            )

    def _usage(self) -> Usage:
        """Return the emptiest disk of the log, and that of the queues (CleanCommitLogService.isSpaceToDelete)."""
        engine, config = self._engine, self._engine.config
        logs = [engine.root / path for path in config.commit_log_paths or (COMMIT_LOG,)]
        used = max(min(map(engine.disk.used, logs)), engine.disk.used(engine.root / QUEUES))
        return usage_of(used, config)


def usage_of(used: float, config: StoreConfig) -> Usage:
    """Return what a used part of the disk means."""
    forcibly = used > config.disk_clean_forcibly
    return Usage(used > config.disk_max_used, forcibly and config.clean_forcibly, used > config.disk_warning)


def is_time(hours: str, now_ms: int) -> bool:
    """Whether the local hour is one of ``04;16``."""
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    return f"{now.hour:02d}" in [hour.strip() for hour in hours.split(";")]
