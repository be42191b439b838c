"""Is a broker using this store, and keeping one out of it: the lock that a broker holds (spec 12)."""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BUSY = (errno.EACCES, errno.EAGAIN)
_ON_LINUX = sys.platform.startswith("linux")
_held: set[tuple[int, int]] = set()
"""Device and inode of the lock files that this process holds."""


class LockHeldError(OSError):
    """Another process holds the lock."""


def is_locked(path: str) -> bool:
    """Whether another process holds the POSIX record lock on byte 0 of the lock file.

    Only asks (``F_GETLK``), so it takes no lock, works on a read-only file, and cannot drop a lock
    that this process holds. A file that is missing or cannot be opened is not locked.
    Source: DefaultMessageStore.start, ``tryLock(0, 1, false)``.
    """
    try:
        import fcntl  # noqa: F401
    except ImportError:  # no POSIX record locks on this platform
        return False
    try:
        if _identity(os.stat(path)) in _held:  # closing a second descriptor would drop a lock of our own
            return False
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return _asks_locked(fd)
    finally:
        os.close(fd)


@contextmanager
def holding(path: str, *, is_left_over: bool = False) -> Iterator[bool]:
    """Hold the lock that a running broker would hold, for as long as the block runs.

    The lock file is made where it is missing, and gone again afterwards; its bytes and its
    modification time are never touched. A broker that starts meanwhile fails to get the lock and stops.

    Args:
        is_left_over: an empty lock file was made by an earlier run that was killed; it goes too.

    Yields:
        Whether the file was missing.

    Raises:
        LockHeldError: another process holds it, or this one does.
        OSError: the file cannot be opened for writing, which a lock needs.
    """
    fd, is_new = _open(path)
    who = _identity(os.fstat(fd))
    try:
        if who in _held or not _take(fd):
            raise LockHeldError(errno.EAGAIN, "another process holds the lock", path)
        _held.add(who)
        try:
            yield is_new
        finally:
            if is_new or (is_left_over and os.fstat(fd).st_size == 0):
                Path(path).unlink()
            _held.discard(who)
    finally:
        os.close(fd)


def _open(path: str) -> tuple[int, bool]:
    """A descriptor of the lock file, and whether it was made now."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC), False
    except FileNotFoundError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), True


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _take(fd: int) -> bool:
    """Lock byte 0, with a lock of the open file where the system has them.

    Such a lock is not lost when another descriptor of the file is closed, and stands in the way of a
    broker's just the same.
    """
    import fcntl as f

    command = getattr(f, "F_OFD_SETLK", f.F_SETLK)
    try:
        f.fcntl(fd, command, struct.pack(*_fields(f.F_WRLCK)))
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True


def _fields(kind: int) -> tuple[str, int, int, int, int, int]:
    """Layout and values of ``struct flock`` for byte 0."""
    if _ON_LINUX:
        return "hhqqi4x", kind, os.SEEK_SET, 0, 1, 0
    return "qqihh", 0, 1, 0, kind, os.SEEK_SET


def _asks_locked(fd: int) -> bool:
    """Ask the kernel who would stand in the way of a write lock on byte 0."""
    import fcntl as f

    layout, *fields = _fields(f.F_WRLCK)
    try:
        answer = f.fcntl(fd, f.F_GETLK, struct.pack(layout, *fields))
    except OSError as error:
        return error.errno in _BUSY
    kind: int = struct.unpack(layout, answer)[0 if _ON_LINUX else 3]
    return kind != f.F_UNLCK
