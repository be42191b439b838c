"""The system calls that write a store, all in one place, so that each of them can be made to fail.

Everything the engine writes goes through a :class:`Disk`. Writes are positioned and complete: a
short write is continued, and what the system refuses comes back as `IOFailure` with the path.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqctl.errors import IOFailure
from rmqctl.files.ownership import inherit, make_directories

Buffer = bytes | bytearray | memoryview
_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
_MODE = 0o644
_DSYNC = getattr(os, "RWF_DSYNC", 0)
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


class Disk:
    """Creating, writing, syncing and deleting files.

    Every method raises `IOFailure` where the system refuses; the file is then as the system left it.
    """

    def open(self, path: Path, size: int | None = None) -> int:
        """A descriptor for reading and writing; a file that is missing or shorter is extended to ``size``, sparse.

        A new file gets owner, group and permissions of its directory: a broker must be able to open what root made.
        """
        with _told(f"cannot create {path}" if size is not None else f"cannot open {path}"):
            try:
                fd, is_new = os.open(path, _FLAGS), False
            except FileNotFoundError:
                make_directories(path.parent)
                fd, is_new = self._new(path, size or 0), True
            try:
                if is_new:
                    inherit(path)
                if size is not None and os.fstat(fd).st_size < size:
                    self.resize(fd, size)
            except OSError:
                os.close(fd)
                if is_new:  # a file of another length would stop a broker
                    path.unlink()
                raise
            return fd

    def _new(self, path: Path, size: int) -> int:
        """A new file that is there at its full length or not at all, whenever the process is killed.

        No broker starts on a queue or log file of another length. Where the system cannot make a file without a
        name, it is made by its name and extended by the caller.
        """
        try:
            nameless = os.open(path.parent, _FLAGS | os.O_TMPFILE, _MODE)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_NAMELESS:
                raise
            return os.open(path, _FLAGS | os.O_CREAT, _MODE)
        try:
            self.resize(nameless, size)
            # with a directory, though an absolute path needs none, Python makes the call that follows links
            os.link(f"/proc/self/fd/{nameless}", path, src_dir_fd=nameless)
        except FileNotFoundError:  # no /proc
            return os.open(path, _FLAGS | os.O_CREAT, _MODE)
        finally:
            os.close(nameless)
        return os.open(path, _FLAGS)

    def resize(self, fd: int, size: int) -> None:
        """Set a file's length."""
        os.ftruncate(fd, size)

    def write(self, fd: int, data: Buffer, position: int) -> None:
        """Write all bytes from ``position`` on."""
        try:
            done = self.write_some(fd, data, position)
            if done != len(data):
                self._rest(fd, memoryview(data), position, done)
        except OSError as error:
            raise IOFailure(f"cannot write {_name(fd)}", error, _ADVICE.get(error.errno or 0, "")) from error

    def write_through(self, fd: int, data: Buffer, position: int) -> bool:
        """Write all bytes and make them survive a power failure with one system call; False where that did not work.

        Nobody knows then how far it came: the caller has to write all of them again, and to sync.
        """
        try:
            return _DSYNC != 0 and os.pwritev(fd, [data], position, _DSYNC) == len(data)
        except OSError:
            return False

    def write_some(self, fd: int, data: Buffer, position: int) -> int:
        """One system call; may write less than asked."""
        return os.pwrite(fd, data, position)

    def _rest(self, fd: int, data: memoryview, position: int, done: int) -> None:
        while done < len(data):
            step = self.write_some(fd, data[done:], position + done)
            if step <= 0:
                raise OSError(errno.EIO, "the system wrote nothing")
            done += step

    def read(self, fd: int, size: int, position: int) -> bytes:
        """Bytes from ``position`` on; fewer at the end of the file."""
        with _told(f"cannot read {_name(fd)}"):
            return os.pread(fd, size, position)

    def sync(self, fd: int) -> None:
        """Make what was written to a file survive a power failure."""
        with _told("cannot flush to disk"):
            os.fdatasync(fd)

    def forget(self, fd: int, begin: int, end: int) -> None:
        """Tell the system that nobody will read these bytes soon, so that it need not keep them in memory."""
        if hasattr(os, "posix_fadvise"):  # a hint: what is not on the disk yet stays, and no answer matters
            with suppress(OSError):
                os.posix_fadvise(fd, begin, end - begin, os.POSIX_FADV_DONTNEED)

    def sync_directory(self, path: Path) -> None:
        """Make files created in or removed from a directory stay so; nothing where the system cannot."""
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def used(self, path: Path) -> float:
        """The used part of the file system that a path lies or will lie on, in whole percent rounded up.

        What is kept for root counts as neither used nor free (UtilAll.getDiskPartitionSpaceUsedPercent).
        """
        parent = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
        with _told(f"cannot look at {parent}"):
            found = os.statvfs(parent)
        used = found.f_blocks - found.f_bfree
        return -(-100 * used // max(used + found.f_bavail, 1)) / 100

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it, owned like the one they are made in; one that is there is fine."""
        with _told(f"cannot create {path}"):
            make_directories(path)

    def remove(self, path: Path) -> None:
        """Delete a file; one that is missing is fine."""
        with _told(f"cannot delete {path}"):
            path.unlink(missing_ok=True)

    def write_file(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        """Make or overwrite a small file in place."""
        fd = self.open(path, 0)
        try:
            with _told(f"cannot write {path}"):
                self.resize(fd, len(data))
            self.write(fd, data, 0)
            if sync:
                self.sync(fd)
        finally:
            os.close(fd)

    def replace(self, source: Path, target: Path) -> None:
        """Give a file another name, over what lies there."""
        with _told(f"cannot replace {target}"):
            source.replace(target)


def _name(fd: int) -> str:
    """The path of an open file, where the system tells it."""
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return "a file of the store"


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise IOFailure(what, error, _ADVICE.get(error.errno or 0, "")) from error


_ADVICE = {
    errno.ENOSPC: "free space and run again; messages written before are complete",
    errno.EDQUOT: "the quota is used up; free space and run again",
    errno.EACCES: "run as a user that may write there",
    errno.EROFS: "the file system is read-only; give another directory",
}
