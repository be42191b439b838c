"""Deleting what is older than its reserved time: log files, then what only points to them (spec 7, 3.9, 4.7).

Sources: DefaultMessageStore.CleanCommitLogService, CleanConsumeQueueService; MappedFileQueue.deleteExpiredFileByTime,
deleteExpiredFileByOffset; IndexService.deleteExpiredFile.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.rocketmq.dispatch.index_put import HEADER_SIZE, IndexHead
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.engine.index_writer import IndexWriter
from rmqctl.rocketmq.engine.mapped_files import MappedFiles
from rmqctl.rocketmq.engine.queue_writer import UNIT_SIZES, UnitFiles
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES

if TYPE_CHECKING:
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

    Raises:
        IOFailure: a file cannot be deleted.
        OSError: its time cannot be read.
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
    """Delete queue files from the oldest on whose last unit points in front of the log; the last one stays.

    Raises:
        IOFailure: a file cannot be deleted.
    """
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
    """Delete index files from the oldest on that end in front of the log; the newest stays.

    Raises:
        IOFailure: a file cannot be deleted.
        OSError: it cannot be read.
    """
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
