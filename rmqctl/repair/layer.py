"""The only way in which a repair touches a file: every change goes through one class.

Each method is one request to the system. Tests put a class of their own in its place that fails or stops
at a chosen request; nothing else in `rmqctl.repair` opens a file for writing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP}
"""What file systems answer that know no fsync of a directory; their names are safe without, or never."""


class FileLayer:
    """Changes to files, one request at a time; raises OSError as the system does."""

    def request(self, operation: str, path: str, act: Callable[[], T]) -> T:
        """Carry out one request; the place where a test lets it fail.

        Args:
            operation: ``open``, ``create``, ``write``, ``truncate``, ``times``, ``owner``, ``mode``, ``fsync``,
                ``rename``, ``link``, ``symlink``, ``unlink``, ``mkdir`` or ``rmdir``.
        """
        return act()

    def put(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Write some bytes at an offset; returns how many, as the system does."""
        return os.pwrite(fd, data, offset)

    def free_bytes(self, path: str) -> int:
        """Bytes that may still be written to the file system of a directory."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    @contextmanager
    def edit(self, path: str) -> Iterator[OpenFile]:
        """A file that is there, open for writing."""
        fd = self.request("open", path, lambda: os.open(path, os.O_RDWR | os.O_CLOEXEC))
        try:
            yield OpenFile(self, fd, path)
        finally:
            os.close(fd)

    @contextmanager
    def create(self, path: str, mode: int = 0o666) -> Iterator[OpenFile]:
        """A new file, open for writing; it must not be there."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = self.request("create", path, lambda: os.open(path, flags, mode))
        try:
            yield OpenFile(self, fd, path)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name on the same file system; never over an existing file."""
        if os.path.lexists(new):
            raise FileExistsError(errno.EEXIST, "a file of that name is there", new)
        self.request("rename", new, lambda: Path(old).rename(new))

    def link(self, old: str, new: str) -> None:
        """A second name for a file."""
        self.request("link", new, lambda: os.link(old, new))

    def symlink(self, target: str, path: str) -> None:
        self.request("symlink", path, lambda: Path(path).symlink_to(target))

    def unlink(self, path: str) -> None:
        self.request("unlink", path, Path(path).unlink)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self.request("mkdir", path, lambda: Path(path).mkdir(mode))

    def rmdir(self, path: str) -> None:
        self.request("rmdir", path, Path(path).rmdir)

    def set_times(self, path: str, mtime_ns: int) -> None:
        """Set the modification time of a directory or a link; the access time stays."""
        atime = os.lstat(path).st_atime_ns
        self.request("times", path, lambda: os.utime(path, ns=(atime, mtime_ns), follow_symlinks=False))

    def set_owner(self, path: str, uid: int, gid: int) -> None:
        """Give a file or directory an owner and a group, where they are others."""
        found = os.lstat(path)
        if (found.st_uid, found.st_gid) != (uid, gid):
            with suppress(PermissionError):  # only root may give files away
                self.request("owner", path, lambda: os.lchown(path, uid, gid))

    def set_mode(self, path: str, mode: int) -> None:
        """Set the permissions of a file or directory, where they are others."""
        if stat.S_IMODE(os.stat(path).st_mode) != mode:
            self.request("mode", path, lambda: Path(path).chmod(mode))

    def sync_directory(self, path: str) -> None:
        """Make new, gone and renamed names in a directory survive a power cut."""

        def act() -> None:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            except OSError as error:
                if error.errno not in _CANNOT_SYNC:
                    raise
            finally:
                os.close(fd)

        self.request("fsync", path, act)


class OpenFile:
    """One file that is open for writing."""

    def __init__(self, layer: FileLayer, fd: int, path: str) -> None:
        self._layer, self._fd, self._path = layer, fd, path

    def write(self, data: bytes, offset: int) -> None:
        """Write all bytes at an offset."""
        rest = memoryview(data)
        while rest:
            done = self._put(rest, offset)
            rest, offset = rest[done:], offset + done

    def _put(self, data: memoryview, offset: int) -> int:
        return self._layer.request("write", self._path, lambda: self._layer.put(self._fd, data, offset))

    def truncate(self, size: int) -> None:
        """Make the file so long; new bytes are zeros that take no room."""
        self._layer.request("truncate", self._path, lambda: os.ftruncate(self._fd, size))

    def set_times(self, mtime_ns: int) -> None:
        """Set the modification time; the access time stays."""
        atime = os.fstat(self._fd).st_atime_ns
        self._layer.request("times", self._path, lambda: os.utime(self._fd, ns=(atime, mtime_ns)))

    def sync(self) -> None:
        """Wait until bytes, size and time are on the disk."""
        self._layer.request("fsync", self._path, lambda: os.fsync(self._fd))

    def size(self) -> int:
        return os.fstat(self._fd).st_size
