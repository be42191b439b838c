"""New files and directories: whose they are, and when a directory for something new is whole.

A broker must be able to open what root made in its store, so a new file or directory gets owner, group and
permissions of the directory that it is made in. Only root can give files away; for everybody else the owner stays
what the system made it. A directory for something new is empty at first, apart from what is only read, and marked
until all of it is there.

What was written survives a power cut only after a sync: that of a file for its bytes, that of the directory for its
name, and so on for the names of new directories above it.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rmqctl.errors import Refused, Unbalanced
from rmqctl.files.tree import LocalTree, Tree

_FOLLOWED = stat.S_ISGID | 0o775
"""Permissions of a directory that new ones in it get; never writing for everybody, as in /tmp."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Owner, group and permissions for what is made.

    Attributes:
        mode: permissions of directories; files get the same without the right to search.
        must: giving away was asked for, so a refusal of the system is an error.
    """

    uid: int
    gid: int
    mode: int
    must: bool = False

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Ownership:
        """Those of a directory, or of the nearest above it that is there."""
        directory = nearest_directory(path)
        found = os.stat(directory)
        return cls(found.st_uid, found.st_gid, found.st_mode & _FOLLOWED)

    @classmethod
    def named(cls, text: str, like: Ownership) -> Ownership:
        """Return what ``USER``, ``USER:GROUP`` or ``:GROUP`` means, by name or number, with the permissions of another.

        Raises:
            Refused: nobody has that name, or this user may not give files to others.
        """
        user, _, group = text.partition(":")
        uid, gid = _user(user) if user else (like.uid, like.gid)
        asked = cls(uid, _group(group) if group else gid, like.mode, must=True)
        if os.geteuid() and (asked.uid != os.geteuid() or asked.gid not in {os.getegid(), *os.getgroups()}):
            raise Refused(f"only root may give files to {text}; nothing was written; run the command with sudo")
        return asked

    @classmethod
    def like(cls, tree: Tree, wanted: str | None) -> Ownership | None:
        """For what is made of a store: who was asked for, else the owner of the store; None for one elsewhere.

        Args:
            wanted: ``USER``, ``USER:GROUP`` or ``:GROUP``.

        Raises:
            Refused: as :meth:`named`.
        """
        own = cls.of(tree.place) if isinstance(tree, LocalTree) else None
        return own if wanted is None else cls.named(wanted, own or cls.of("."))

    def give(self, path: str | os.PathLike[str]) -> None:
        """Give a file or directory that was just made to its owner; nothing is done where it is right already.

        Raises:
            OSError: the system refuses; never merely because this user is not root.
        """
        found = os.lstat(path)
        if (found.st_uid, found.st_gid) != (self.uid, self.gid):
            with suppress(*self._may_fail()):
                os.lchown(path, self.uid, self.gid)
        if stat.S_ISLNK(found.st_mode):
            return
        wanted = self.mode_for(is_directory=stat.S_ISDIR(found.st_mode))
        if stat.S_IMODE(os.lstat(path).st_mode) != wanted:
            with suppress(*self._may_fail()):
                Path(path).chmod(wanted)

    def give_all(self, root: str | os.PathLike[str]) -> None:
        """Give a directory and everything in it to its owner; links are not followed."""
        self.give(root)
        for directory, directories, files in os.walk(root):
            for name in (*directories, *files):
                self.give(os.path.join(directory, name))

    def _may_fail(self) -> tuple[type[OSError], ...]:
        return () if self.must else (PermissionError,)

    def mode_for(self, *, is_directory: bool) -> int:
        """Permissions of a new directory or file; its owner may always write."""
        return self.mode | 0o700 if is_directory else (self.mode & 0o664) | 0o600


def inherit(path: str | os.PathLike[str]) -> None:
    """Give a file or directory that was just made owner, group and permissions of the directory it lies in.

    Raises:
        OSError: the system refuses; never merely because this user is not root.
    """
    Ownership.of(os.path.dirname(os.path.abspath(path))).give(path)


def make_directories(path: str | os.PathLike[str]) -> list[str]:
    """Make a directory and those above it that are missing, each owned like the one that it is made in.

    Returns those that were missing, the outermost first; their names are not on the disk yet.
    """
    path = os.path.abspath(path)
    above = nearest_directory(path)
    owner = Ownership.of(above)
    missing = []
    while path != above:
        missing.append(path)
        path = os.path.dirname(path)
    missing.reverse()
    for directory in missing:
        with suppress(FileExistsError):
            Path(directory).mkdir()
            owner.give(directory)
    return missing


def nearest_directory(path: str | os.PathLike[str]) -> str:
    """Return a directory, or the nearest above it that is there, absolute."""
    found = os.path.abspath(path)
    while not os.path.isdir(found):
        found = os.path.dirname(found)
    return found


def _user(text: str) -> tuple[int, int]:
    """Return the number of a user, and of the group that is the user's own."""
    try:
        entry = pwd.getpwuid(int(text)) if text.isdigit() else pwd.getpwnam(text)
    except KeyError:
        if text.isdigit():
            return int(text), int(text)
        raise Refused(f"this machine knows no user {text}; give a name of /etc/passwd or a number") from None
    return entry.pw_uid, entry.pw_gid


def _group(text: str) -> int:
    if text.isdigit():
        return int(text)
    try:
        return grp.getgrnam(text).gr_gid
    except KeyError:
        raise Refused(f"this machine knows no group {text}; give a name of /etc/group or a number") from None


# --- a new file ---------------------------------------------------------------------------------------


@contextmanager
def at_once(out: Path) -> Iterator[Path]:
    """Give a path beside a file to write to; when the block ends that is the file, and on the disk.

    Whoever looks finds what was there before or all of the new one, also after a kill or a power cut.
    """
    out = Path(os.path.realpath(out))
    written = out.parent / f"{out.name}.part"
    try:
        yield written
        inherit(written)
        sync_path(written)
        written.replace(out)
    finally:
        written.unlink(missing_ok=True)
    sync_names([out])


# --- a directory for something new ------------------------------------------------------------------


MARK = "UNFINISHED"
"""A file in a directory whose making was broken off; brokers ignore it."""
_TEXT = "rmqctl was ended before it had written all of this directory. Delete it and run the command again.\n"
_UNBALANCED = "This does not have all that it was made from: {}\nKeep what it was made from.\n"


def check_new_directory(into: Path, only_read: Iterable[str]) -> None:
    """Hold a directory to be written to what is there.

    Args:
        only_read: roots on this machine that it must not lie in.

    Raises:
        Refused: it lies in one of them, is no directory, or has something in it.
    """
    refuse_inside(into, only_read)
    refuse_unfinished(into)
    if into.exists() and not into.is_dir():
        raise Refused(f"{into} is a file, and a directory is to be made; give a new or empty directory")
    if into.exists() and any(into.iterdir()):
        raise Refused(f"{into} is there already and not empty; give a new or empty directory")


def check_free(into: Path, needed: int) -> None:
    """Refuse to write so many bytes, about, where fewer are free on the disk.

    Raises:
        Refused: they are.
    """
    parent = next(p for p in (into, *into.resolve().parents) if p.exists())
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise Refused(f"{into} needs about {needed:,} bytes, but {free:,} are free on that disk; give another place")


def refuse_inside(into: Path, only_read: Iterable[str]) -> None:
    """Hold what is to be written to the roots on this machine that are only read.

    Raises:
        Refused: it is one of them, or lies in one.
    """
    for root in only_read:
        if into.resolve() == Path(root).resolve():
            raise Refused(f"the target {into} is the source, which is only read; give a directory outside of it")
        if into.resolve().is_relative_to(Path(root).resolve()):
            raise Refused(f"{into} lies in {root}, which is only read; give a directory outside of it")


def refuse_unfinished(path: Path) -> None:
    """Hold commands that write off what a command that was broken off has left.

    Raises:
        Refused: it is unfinished.
    """
    if os.path.lexists(path / MARK):
        raise Refused(
            f"{path} was left unfinished by an earlier run; delete it and run that command again, "
            "or give a new directory"
        )


@contextmanager
def making(into: Path, owner: Ownership | None) -> Iterator[None]:
    """Make a directory and what the block puts into it, marked as unfinished until the block ends.

    Where it fails or is interrupted everything is removed; what a kill or a power cut leaves keeps its mark, and what
    does not balance as well. When it ends all of it is on the disk.

    Args:
        into: not there yet, or empty.
        owner: to whom all of it is given; None: as the directory above.
    """
    is_new = not into.exists()
    made = make_directories(into)
    mark = into / MARK
    try:
        mark.write_text(_TEXT, encoding="utf-8")
        sync_names([mark, *made])
        yield
        if owner is not None:
            owner.give_all(into)
        sync_tree(into)
    except Unbalanced as error:
        mark.write_text(_UNBALANCED.format(error), encoding="utf-8")
        sync_path(mark)
        raise
    except BaseException:
        _clear(into, is_new=is_new)
        raise
    mark.unlink()
    sync_path(into)


def _clear(into: Path, *, is_new: bool) -> None:
    """Remove what was made, the mark last."""
    with suppress(OSError):
        for path in into.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != MARK:
                path.unlink()
        (into / MARK).unlink(missing_ok=True)
        if is_new:
            into.rmdir()


# --- what survives a power cut ------------------------------------------------------------------------


_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP}
"""What file systems answer that know no fsync of a directory; their names are safe without, or never."""


def exchange_paths(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Give each of two files or directories the name of the other, at once; whether the system can do that here."""
    import ctypes  # takes a while to load, and only exports need it

    library = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(one), os.fsencode(other))
    if hasattr(library, "renameat2"):  # Linux, with glibc 2.28 or musl 1.2.6
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)
    elif hasattr(library, "renamex_np"):  # macOS
        failed = library.renamex_np(*names, _EXCHANGE)
    else:
        return False
    code = ctypes.get_errno()
    if failed and code not in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV, errno.EPERM}:
        raise OSError(code, os.strerror(code), os.fspath(one))
    return not failed


_AT_FDCWD, _EXCHANGE = -100, 2


def sync_path(path: str | os.PathLike[str]) -> None:
    """Wait until the bytes of a file, or the names in a directory, are on the disk.

    Raises:
        OSError: the disk fails, or the path is gone.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC or not os.path.isdir(path):
            raise
    finally:
        os.close(fd)


def sync_names(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Wait until the names of some files and directories are on the disk."""
    for directory in dict.fromkeys(os.path.dirname(os.path.abspath(path)) for path in paths):
        sync_path(directory)


def sync_tree(root: str | os.PathLike[str]) -> None:
    """Wait until a directory and everything in it is on the disk; its own name is that of the directory above.

    Links are not followed, and what this user may not read is left to the system.
    """
    for directory, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                with suppress(PermissionError):
                    sync_path(path)
        with suppress(PermissionError):
            sync_path(directory)
