"""Lock and abort file: who may write a store, and whether the last writer ended well (spec 12)."""

from __future__ import annotations

import os
from pathlib import Path

from formats.rocketmq.abort_lock import LOCK_TEXT
from rmqctl.errors import IOFailure, StoreInUse
from rmqctl.files.lock import FileLock, LockHeldError
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.disk import Disk

_FIRST_WITH_DATABASE = Release(5, 4, 0)
ABORT, ABORT_BACKUP, LOCK = "abort", "abort.bak", "lock"


class StoreLock:
    """The lock a broker holds while it runs: an exclusive record lock on byte 0 of ``lock``.

    The root is made where it is missing.

    Raises:
        StoreInUse: another process, or another engine of this one, holds it.
        IOFailure: the file cannot be made.
    """

    def __init__(self, root: Path, disk: Disk) -> None:
        disk.make_directory(root)
        try:
            self._lock = FileLock(str(root / LOCK))
        except LockHeldError as error:
            raise StoreInUse(root) from error
        except OSError as error:
            raise IOFailure.of(error) from error

    def release(self) -> None:
        """Let go; the file stays, as a broker leaves it."""
        self._lock.release()

    def give_up(self) -> None:
        """Let go before anything was written; a file that was missing is gone again."""
        self._lock.release(remove=self._lock.is_new)

    def fill(self) -> None:
        """Write what a broker writes into the file, which it does once it has the lock.

        Raises:
            IOFailure: the system refuses.
        """
        try:
            self._lock.fill(LOCK_TEXT)
        except OSError as error:
            raise IOFailure.of(error) from error


def write_abort(root: Path, disk: Disk, process_id: int | None) -> None:
    """Say that a writer is at work: an empty file in 4.x (None); the process id, and a side file, in 5.x.

    Raises:
        IOFailure: it cannot be written.
    """
    if process_id is not None and not (root / ABORT_BACKUP).exists():
        disk.write_file(root / ABORT_BACKUP, b"")
    disk.write_file(root / ABORT, b"" if process_id is None else str(process_id).encode())
    disk.sync_directory(root)


def make_database_directory(root: Path, disk: Disk, release: Release) -> None:
    """Make the directory of a database that every broker from 5.4.0 on has; it fills it at its own start (spec 10.7).

    Without it the store would look like one of an earlier release, whose index has other entries.

    Raises:
        IOFailure: it cannot be made.
    """
    if release >= _FIRST_WITH_DATABASE:
        disk.make_directory(root / "rocksdbstore")


def remove_abort(root: Path, disk: Disk) -> None:
    """Say that the writer ended well.

    Raises:
        IOFailure: it cannot be deleted.
    """
    disk.remove(root / ABORT)
    disk.sync_directory(root)


def process_id_of(config: StoreConfig) -> int | None:
    """What the abort file of the release says."""
    if not config.is_5:
        return None
    return os.getpid() if config.process_id is None else config.process_id
