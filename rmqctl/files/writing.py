"""The system calls that write a store, all in one place, so that each of them can be made to fail.

Everything the engine writes goes through a :class:`Disk`. Writes are positioned and complete: a short write is
continued, and what the system refuses comes back as `IOFailure` with the path.

Every change of a repair goes through a :class:`FileLayer`: each method is one request to the system. Tests put a
class of their own in its place that fails or stops at a chosen request; nothing else in `rmqctl.repair` opens a file
for writing.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from rmqctl.errors import IOFailure
from rmqctl.files.new_files import inherit, make_directories, sync_names, sync_path, sync_tree

T = TypeVar("T")


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
        """Give a file that is there, open for writing."""
        fd = self.request("open", path, lambda: os.open(path, os.O_RDWR | os.O_CLOEXEC))
        try:
            yield OpenFile(self, fd, path)
        finally:
            os.close(fd)

    @contextmanager
    def create(self, path: str, mode: int = 0o666) -> Iterator[OpenFile]:
        """Give a new file, open for writing; it must not be there."""
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
        """Give a file a second name."""
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
        self.request("fsync", path, lambda: sync_path(path))


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


# --- the system calls that write a store ------------------------------------------------------------


Buffer = bytes | bytearray | memoryview
_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
_MODE = 0o644
_DSYNC = getattr(os, "RWF_DSYNC", 0)
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


class Disk:
    """Creating, writing, syncing and deleting files.

    A file is only as safe as its name. So directories in which names came, went or changed are kept in mind, and a
    :meth:`sync` of any file, on which an answer to a writer rests, is one of these directories too. Where nothing was
    made or removed since the last one, that costs nothing.

    Every method raises `IOFailure` where the system refuses; the file is then as the system left it.
    """

    def __init__(self) -> None:
        self._named: dict[str, int] = {}
        self._changes, self._noting, self._settling = 0, threading.Lock(), threading.Lock()

    def _note(self, *directories: str | os.PathLike[str]) -> None:
        """Keep directories in mind whose names changed."""
        with self._noting:
            self._changes += 1
            self._named |= {os.fspath(directory): self._changes for directory in directories}

    def settle(self) -> None:
        """Make all names that came, went or changed so far survive a power failure.

        Raises:
            IOFailure: the disk fails.
        """
        if not self._named:
            return
        with self._settling:  # what another thread is at stays in mind until it is down
            with self._noting:
                named = dict(self._named)
            for directory in reversed(named):  # a name in a directory that has none yet is worth nothing
                with _explained(f"cannot flush {directory} to disk"), suppress(FileNotFoundError):
                    sync_path(directory)
            with self._noting:
                for directory, change in named.items():
                    if self._named[directory] == change:
                        del self._named[directory]

    def open(self, path: Path, size: int | None = None) -> int:
        """Return a descriptor for reading and writing; a file that is missing or shorter is extended to ``size``,
        sparse.

        A new file gets owner, group and permissions of its directory: a broker must be able to open what root made.
        """
        with _explained(f"cannot create {path}" if size is not None else f"cannot open {path}"):
            try:
                fd, is_new = os.open(path, _FLAGS), False
            except FileNotFoundError:
                self._make_directory(path.parent)
                fd, is_new = self._new(path, size or 0), True
                self._note(path.parent)
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
        """Return a new file that is there at its full length or not at all, whenever process or power are cut.

        No broker starts on a queue or log file of another length, so the length is on the disk before the name. Where
        the system cannot make a file without a name, it is made by its name and extended by the caller.
        """
        try:
            nameless = os.open(path.parent, _FLAGS | os.O_TMPFILE, _MODE)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_NAMELESS:
                raise
            return os.open(path, _FLAGS | os.O_CREAT, _MODE)
        try:
            self.resize(nameless, size)
            if size:
                os.fsync(nameless)
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

        Nobody knows then how far it came: the caller has to write all of them again, and to sync. Names that changed
        go down with them, as with :meth:`sync`.
        """
        try:
            if _DSYNC == 0 or os.pwritev(fd, [data], position, _DSYNC) != len(data):
                return False
        except OSError:
            return False
        self.settle()
        return True

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
        with _explained(f"cannot read {_name(fd)}"):
            return os.pread(fd, size, position)

    def sync(self, fd: int) -> None:
        """Make what was written to a file survive a power failure, and the names of all files so far."""
        self.sync_data(fd)
        self.settle()

    def sync_data(self, fd: int) -> None:
        """Make what was written to a file survive a power failure; its name does after :meth:`settle`."""
        with _explained("cannot flush to disk"):
            os.fdatasync(fd)

    def sync_file(self, path: Path) -> None:
        """Do so with a file that is not open."""
        with _explained(f"cannot flush {path} to disk"):
            sync_path(path)

    def sync_all(self, *roots: str | os.PathLike[str]) -> None:
        """Do so with all files of some directories, which a killed writer may have left in memory only."""
        for root in dict.fromkeys(map(os.path.abspath, roots)):
            with _explained(f"cannot flush {root} to disk"):
                sync_tree(root)
                sync_names([root])

    def forget(self, fd: int, begin: int, end: int) -> None:
        """Tell the system that nobody will read these bytes soon, so that it need not keep them in memory."""
        if hasattr(os, "posix_fadvise"):  # a hint: what is not on the disk yet stays, and no answer matters
            with suppress(OSError):
                os.posix_fadvise(fd, begin, end - begin, os.POSIX_FADV_DONTNEED)

    def used(self, path: Path) -> float:
        """Return the used part of the file system that a path lies or will lie on, in whole percent rounded up.

        What is kept for root counts as neither used nor free (UtilAll.getDiskPartitionSpaceUsedPercent).
        """
        parent = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
        with _explained(f"cannot look at {parent}"):
            found = os.statvfs(parent)
        used = found.f_blocks - found.f_bfree
        return -(-100 * used // max(used + found.f_bavail, 1)) / 100

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it, owned like the one they are made in; one that is there is fine."""
        with _explained(f"cannot create {path}"):
            self._make_directory(path)

    def _make_directory(self, path: Path) -> None:
        self._note(*(os.path.dirname(made) for made in make_directories(path)))

    def remove(self, path: Path) -> None:
        """Delete a file; one that is missing is fine."""
        with _explained(f"cannot delete {path}"), suppress(FileNotFoundError):
            path.unlink()
            self._note(path.parent)

    def write_file(self, path: Path, data: bytes) -> None:
        """Make or overwrite a small file in place; its bytes are on the disk then, its name after :meth:`settle`."""
        fd = self.open(path, 0)
        try:
            with _explained(f"cannot write {path}"):
                self.resize(fd, len(data))
            self.write(fd, data, 0)
            self.sync_data(fd)
        finally:
            os.close(fd)

    def replace(self, source: Path, target: Path) -> None:
        """Give a file another name in its directory, over what lies there."""
        with _explained(f"cannot replace {target}"):
            source.replace(target)
            self._note(target.parent)


def _name(fd: int) -> str:
    """Return the path of an open file, where the system knows it."""
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return "a file of the store"


@contextmanager
def _explained(what: str) -> Iterator[None]:
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
