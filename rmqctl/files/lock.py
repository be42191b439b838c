"""Is a broker using this store, and keeping one out of it: the lock that a broker holds (spec 12)."""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqctl.files.new_files import inherit

_BUSY = (errno.EACCES, errno.EAGAIN)
_ON_LINUX = sys.platform.startswith("linux")
_held: dict[tuple[int, int], FileLock] = {}
"""The locks that this process holds, by device and inode of their files."""


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


class FileLock:
    """The lock that a running broker would hold, taken for as long as the object is not released.

    The lock file is made where it is missing. It counts only while the path leads to the very file that is locked:
    another holder may have deleted or replaced the file between its opening and its locking, so the two are compared
    after locking, and it is tried again where they differ.

    Attributes:
        path: the lock file.
        is_new: the file was missing and was made now.

    Raises:
        LockHeldError: another process holds it, or this one does.
        OSError: the file cannot be opened for writing, which a lock needs.
    """

    def __init__(self, path: str) -> None:
        self.path, self.is_new = path, False
        while True:
            self._fd, is_new = _open(path)
            self.is_new = is_new
            try:
                if self._locks_the_path():
                    break
            except BaseException:
                os.close(self._fd)
                raise
            os.close(self._fd)
        _held[self._who] = self

    def _locks_the_path(self) -> bool:
        self._who = _identity(os.fstat(self._fd))
        if self._who in _held or not _take(self._fd):
            raise LockHeldError(errno.EAGAIN, "another process holds the lock", self.path)
        try:
            return _identity(os.stat(self.path)) == self._who
        except FileNotFoundError:
            return False

    def fill(self, text: bytes) -> None:
        """Give an empty lock file the text that a broker writes into it."""
        if os.fstat(self._fd).st_size == 0:
            os.pwrite(self._fd, text, 0)
            os.fsync(self._fd)

    def is_empty(self) -> bool:
        """Whether the lock file has no bytes, as one that was made only to be locked."""
        return os.fstat(self._fd).st_size == 0

    def release(self, *, remove: bool = False) -> None:
        """Let go; the file goes first if `remove`, so that nobody finds it free and loses it."""
        if self._fd < 0:
            return
        try:
            if remove:
                Path(self.path).unlink(missing_ok=True)
        finally:
            _held.pop(self._who)
            self.forget()

    def forget(self) -> None:
        """Close the descriptor; the lock is gone with the last one that was forked from it."""
        os.close(self._fd)
        self._fd = -1


@contextmanager
def holding(path: str, *, is_left_over: bool = False) -> Iterator[bool]:
    """Hold the lock that a running broker would hold, for as long as the block runs.

    The lock file is made where it is missing, and gone again afterwards, without a trace in the times of its
    directory; its bytes and its modification time are never touched. A broker that starts meanwhile fails to get
    the lock and stops.

    Args:
        is_left_over: an empty lock file was made by an earlier run that was killed; it goes too.

    Yields:
        Whether the file was missing.

    Raises:
        LockHeldError: another process holds it, or this one does.
        OSError: the file cannot be opened for writing, which a lock needs.
    """
    with _keeping_times(path):
        lock = FileLock(path)
    try:
        yield lock.is_new
    finally:
        with _keeping_times(path):
            lock.release(remove=lock.is_new or (is_left_over and lock.is_empty()))


@contextmanager
def _keeping_times(path: str) -> Iterator[None]:
    """Give the directory of a file that is made or removed the times that it had.

    One of another user, or on a file system that cannot do so, keeps those that it has; one that is gone stops nothing.
    """
    directory, found, was_there = os.path.dirname(path) or ".", None, os.path.lexists(path)
    with suppress(OSError):
        found = os.stat(directory)
    yield
    if found is not None and os.path.lexists(path) != was_there:
        with suppress(OSError):
            os.utime(directory, ns=(found.st_atime_ns, found.st_mtime_ns))


def _open(path: str) -> tuple[int, bool]:
    """Return a descriptor of the lock file, and whether it was made now."""
    while True:
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC), False
        except FileNotFoundError:
            pass
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with suppress(OSError):  # gone again, or on a file system without owners
                inherit(path)
            return fd, True
        except FileExistsError:
            if Path(path).is_symlink():  # a dangling one: it is neither there nor can it be made
                raise


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


def _forget_all() -> None:
    """Leave the locks of the parent to the parent: a child that outlives it must not hold them on."""
    while _held:
        _held.popitem()[1].forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
