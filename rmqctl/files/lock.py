"""Is a broker using this store? The lock a broker holds, seen from outside (spec 12)."""

from __future__ import annotations

import errno
import os
import struct
import sys

_BUSY = (errno.EACCES, errno.EAGAIN)


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
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return _asks_locked(fd)
    finally:
        os.close(fd)


def _asks_locked(fd: int) -> bool:
    """Ask the kernel who would stand in the way of a write lock on byte 0."""
    import fcntl as f

    layout = "hhqqi4x" if sys.platform.startswith("linux") else "qqihh"
    kind_at = 0 if sys.platform.startswith("linux") else 3
    fields = [f.F_WRLCK, os.SEEK_SET, 0, 1, 0] if kind_at == 0 else [0, 1, 0, f.F_WRLCK, os.SEEK_SET]
    try:
        answer = f.fcntl(fd, f.F_GETLK, struct.pack(layout, *fields))
    except OSError as error:
        return error.errno in _BUSY
    kind: int = struct.unpack(layout, answer)[kind_at]
    return kind != f.F_UNLCK
