"""Lock and abort file: who may write a store, and whether the last writer ended well (spec 12)."""

from __future__ import annotations

import os
from pathlib import Path

from formats.rocketmq.abort_lock import LOCK_TEXT
from rmqctl.errors import StoreInUse
from rmqctl.rocketmq.engine.disk import Disk

ABORT, ABORT_BACKUP, LOCK = "abort", "abort.bak", "lock"
_HELD: set[tuple[int, int]] = set()
"""Device and inode of the lock files this process holds: its own record locks would not stop it."""


class StoreLock:
    """The lock a broker holds while it runs: an exclusive POSIX record lock on byte 0 of ``lock``.

    Raises:
        StoreInUse: another process, or another engine of this one, holds it.
        IOFailure: the file cannot be made.
    """

    def __init__(self, root: Path, disk: Disk) -> None:
        import fcntl

        path = root / LOCK
        self._key = _identity(path)
        if self._key in _HELD:  # opening and closing the file again would drop the lock that is held
            raise StoreInUse(root, "an engine of this program has it open; close that one first")
        self._fd = disk.open(path, 0)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            disk.write(self._fd, [LOCK_TEXT], 0)
        except OSError as error:
            os.close(self._fd)
            raise StoreInUse(root) from error
        except BaseException:
            os.close(self._fd)
            raise
        self._key = _identity(path)
        _HELD.add(self._key)

    def release(self) -> None:
        """Let go; the file stays, as a broker leaves it."""
        _HELD.discard(self._key)
        os.close(self._fd)


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_dev, status.st_ino


def write_abort(root: Path, disk: Disk, process_id: int | None) -> None:
    """Say that a writer is at work: an empty file in 4.x (None); the process id, and a side file, in 5.x.

    Raises:
        IOFailure: it cannot be written.
    """
    path = root / ABORT
    if process_id is not None and not (root / ABORT_BACKUP).exists():
        disk.write_file(root / ABORT_BACKUP, b"")
    disk.write_file(path, b"" if process_id is None else str(process_id).encode())
    disk.sync_directory(root)


def remove_abort(root: Path, disk: Disk) -> None:
    """Say that the writer ended well.

    Raises:
        IOFailure: it cannot be deleted.
    """
    disk.remove(root / ABORT)
    disk.sync_directory(root)
