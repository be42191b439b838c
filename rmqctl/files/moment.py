"""A directory as it was at one moment, while somebody goes on writing in it.

Logs and what is derived from them only grow, so one look after the other sees different states, and nothing of what it
sees fits together. A family says in which order it looks, what came too late and what small files held; from then on
names that are new are not there, and bytes that are new are zeros, as in a file that was made in advance. A file that
may go is kept open: an open file stays what it was, whatever its name leads to later.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rmqctl.files.local import opened
from rmqctl.files.lock import is_locked
from rmqctl.files.tree import Entry, ForgivingFile, ForgivingTree, Listing, LocalTree, Refusals, Tree, join, local_path

_MANY = 1 << 20


class Pin:
    """A file that is kept open. It can be opened again as long as this is there, from other processes, too.

    Args:
        path: of the file on this machine.

    Raises:
        OSError: it cannot be opened.
    """

    __slots__ = ("_descriptor", "_is_owner", "_process")
    alive = 0
    """How many files this process keeps open."""

    def __init__(self, path: str) -> None:
        self._is_owner = False
        self._descriptor, self._process = opened(path), os.getpid()
        self._is_owner = True
        Pin.alive += 1

    def size(self) -> int:
        """Bytes in the file now."""
        return os.fstat(self._descriptor).st_size

    def inode(self) -> int:
        return os.fstat(self._descriptor).st_ino

    def opened(self) -> int | None:
        """Return a descriptor of its own; None in another process where the system shows no open files, or where they
        are closed.
        """
        with suppress(OSError):
            if self._process == os.getpid():
                return os.dup(self._descriptor)
            return opened(f"/proc/{self._process}/fd/{self._descriptor}")
        return None

    def __del__(self) -> None:
        if self._is_owner and self._process == os.getpid():
            os.close(self._descriptor)
            Pin.alive -= 1

    def __getstate__(self) -> tuple[int, int]:
        return self._descriptor, self._process

    def __setstate__(self, state: tuple[int, int]) -> None:
        self._is_owner = False
        self._descriptor, self._process = state


def pinned(path: str) -> Pin | None:
    """Keep a file open; None where it cannot be opened, or where too few would be left for others."""
    if Pin.alive >= _most_pins():
        return None
    try:
        return Pin(path)
    except OSError:
        return None


@cache
def _most_pins() -> int:
    """Three quarters of the files that this process may have open, once it has asked for as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return _MANY if soft == resource.RLIM_INFINITY else soft * 3 // 4


@dataclass(frozen=True, slots=True)
class Held:
    """What of a file counts.

    Attributes:
        size: bytes of the file at the moment.
        end: bytes from here on are zeros.
        head: bytes of the file from its begin on that were read at the moment, and have changed since perhaps.
        pin: the file that had the name; None: whatever has it.
        inode: of that file, which no other has while it is there; None: any file counts that has the name.
    """

    size: int
    end: int
    head: bytes = b""
    pin: Pin | None = None
    inode: int | None = None


@dataclass(slots=True)
class Moment:
    """What was seen of a directory.

    Attributes:
        listed: entries of each directory below it, by its path and their names, in order.
        held: files of which not all counts, by path.
        is_last: whoever writes counts as killed then.
    """

    listed: dict[str, dict[str, Entry]] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    is_last: bool = False

    def list(self, tree: LocalTree, path: str = "", *, below: bool = True) -> None:
        """Note the names in a directory with the sizes of files, and of all below it."""
        try:
            found = tree.entries(path)
        except OSError:  # whoever asks for it learns why
            return
        self.listed[path] = {entry.name: entry for entry in found}
        for entry in found:
            if below and entry.is_directory and not Path(tree.full(entry.path)).is_symlink():
                self.list(tree, entry.path)

    def is_new(self, path: str) -> bool:
        """Whether a directory was not there: it is in none that was listed, and what leads to it is no link."""
        above, _, name = path.rpartition("/")
        found = self.listed.get(above)
        return name not in found if found is not None else self.is_new(above)

    def hold(
        self,
        path: str,
        end: int,
        head: bytes = b"",
        size: int | None = None,
        pin: Pin | None = None,
        inode: int | None = None,
    ) -> None:
        """Note what counts of a file.

        Args:
            end: bytes from here on are zeros.
            head: bytes from its begin on, as they were at the moment.
            size: of the file at the moment; None: as it was listed.
            pin, inode: the file itself, see `Held`; None: as it was noted before.
        """
        before = self.held.get(path)
        if before is not None and pin is None and inode is None:
            pin, inode = before.pin, before.inode
        directory, _, name = path.rpartition("/")
        found = self.listed[directory]
        entry = found.get(name)
        if entry is None:
            found[name] = entry = Entry(name, path, is_directory=False, size=size or 0)
            self.listed[directory] = dict(sorted(found.items()))
        elif size is not None:
            found[name] = entry = entry._replace(size=size)
        self.held[path] = Held(entry.size, end, head, pin, inode)

    def hide(self, path: str) -> None:
        """Note that a file or directory is not there."""
        directory, _, name = path.rpartition("/")
        self.listed[directory].pop(name, None)


SMALL = 4 << 20
"""Bytes of a file that is kept whole, at most."""


def keep_small(tree: LocalTree, paths: Iterable[str]) -> dict[str, bytes]:
    """Read small files whole, by path; what is not there, or larger, is left out."""
    kept = {}
    for path in paths:
        try:
            data = tree.read_head(path, SMALL + 1)
        except OSError:
            continue
        if len(data) <= SMALL:
            kept[path] = data
    return kept


class MomentTree(ForgivingTree):
    """A directory of this machine as it was at a moment; what cannot be read is kept in ``refusals``.

    Args:
        above: path of this directory in the one that was looked at.
    """

    def __init__(
        self, tree: LocalTree, moment: Moment, shown: str = "", refusals: Refusals | None = None, above: str = ""
    ) -> None:
        super().__init__(tree, shown, refusals)
        self.moment, self.above = moment, above

    def _listed(self, path: str, sizes: bool) -> list[Entry]:
        found = self.moment.listed.get(self._key(path))
        if found is None:
            return super()._listed(path, sizes) if self._stat(path) is not None else []
        return [entry._replace(path=join(path, name)) for name, entry in found.items()]

    def _found(self, path: str) -> Entry | None:
        found = self._stat(path)
        return None if found is None else found._replace(path=path)

    def _stat(self, path: str) -> Entry | None:
        directory, _, name = self._key(path).rpartition("/")
        found = self.moment.listed.get(directory)
        if name and found is not None:
            return found.get(name)
        if directory and self.moment.is_new(directory):
            return None
        return super()._found(path)

    def plain_files(self, path: str) -> Listing | None:
        found = self._listed(path, sizes=True)
        if any(entry.is_directory or entry.size < 0 for entry in found):
            return None
        return tuple((entry.name, entry.size) for entry in found) if self.moment.listed.get(self._key(path)) else None

    def plain_directories(self, path: str) -> list[str] | None:
        found = self._listed(path, sizes=False)
        return [entry.name for entry in found] if all(entry.is_directory for entry in found) else None

    def read_head(self, path: str, size: int) -> bytes:
        if self._key(path) not in self.moment.held:
            return super().read_head(path, size)
        source = self.open(path)
        try:
            return source.read_at(0, size)
        finally:
            source.close()

    def open(self, path: str) -> ForgivingFile:
        held = self.moment.held.get(self._key(path))
        if held is not None:
            return HeldFile(self.full(path), self._name(path), self.refusals, held)
        return super().open(path)

    def hold(self, path: str, end: int, head: bytes = b"") -> None:
        """Note what counts of a file that was listed (`Moment.hold`)."""
        self.moment.hold(self._key(path), end, head)

    def hide(self, path: str) -> None:
        """Note that a file is not there."""
        self.moment.hide(self._key(path))

    def alone(self, path: str) -> MomentTree:
        """Return a tree that knows only of one file what was held, to be taken to other processes with little."""
        key = self._key(path)
        directory, _, name = key.rpartition("/")
        listed = self.moment.listed.get(directory, {})
        moment = Moment({directory: {name: listed[name]}} if name in listed else {})
        if key in self.moment.held:
            moment.held[key] = self.moment.held[key]
        return MomentTree(self, moment, self.shown, {}, self.above)

    def inode(self, path: str) -> int | None:
        """Return the inode of the file that was held; None where that was not looked at."""
        held = self.moment.held.get(self._key(path))
        return None if held is None else held.inode

    def child(self, path: str) -> MomentTree:
        return MomentTree(LocalTree.child(self, path), self.moment, self._name(path), self.refusals, self._key(path))

    def _key(self, path: str) -> str:
        return join(self.above, path) if path else self.above


def alone(tree: Tree, path: str) -> Tree:
    """Return a tree as `MomentTree.alone` does; any other as it is."""
    return tree.alone(path) if isinstance(tree, MomentTree) else tree


def is_used(tree: Tree, lock: str) -> bool:
    """Whether somebody holds the lock file of a directory now; False for a remote one, where nobody can tell."""
    if isinstance(tree, MomentTree) and tree.moment.is_last:
        return False
    path = local_path(tree, lock)
    return path is not None and is_locked(path)


def raise_refused(tree: Tree, name: str) -> None:
    """Refuse to go on with a file that could not be read, of which zeros stand for the rest.

    Raises:
        OSError: what the system said.
    """
    if isinstance(tree, MomentTree) and name in tree.refusals:
        raise tree.refusals[name][0]


class HeldFile(ForgivingFile):
    """A file of which not all counts."""

    def __init__(self, path: str, name: str, refusals: Refusals, held: Held) -> None:
        super().__init__(path, name, refusals)
        self.held = held

    def size(self) -> int:
        return self.held.size

    def _descriptor(self) -> int:
        if self._fd is not None:
            return self._fd
        if self.held.pin is not None:
            self._fd = self.held.pin.opened()
        if not self._is_it():  # who kept it open has ended: another process, or one of another machine, has its number
            self.close()
            super()._descriptor()
        if not self._is_it():
            self.close()
            raise FileNotFoundError(errno.ENOENT, "another file has its name", self.path)
        return super()._descriptor()

    def _is_it(self) -> bool:
        """Whether the open file is the one that was held."""
        return self._fd is not None and self.held.inode in {None, os.fstat(self._fd).st_ino}

    def read_at(self, offset: int, size: int) -> bytes:
        held, size = self.held, max(min(size, self.held.size - offset), 0)
        stop = offset + size
        parts = [held.head[offset:stop]]
        begin = max(offset, len(held.head))
        if begin < min(stop, held.end):
            parts.append(super().read_at(begin, min(stop, held.end) - begin))
        return b"".join(parts).ljust(size, b"\0")

    def read_into(self, offset: int, buffer: memoryview) -> int:
        if len(self.held.head) <= offset and offset + len(buffer) <= min(self.held.end, self.held.size):
            return super().read_into(offset, buffer)
        data = self.read_at(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        held = self.held
        stop = min(end, held.end, held.size)
        if start < min(len(held.head), stop):
            yield start, min(len(held.head), stop)
        yield from super().data_ranges(max(start, len(held.head)), stop)

    def __getstate__(self) -> tuple[str, str, Refusals, Held]:  # type: ignore[override]
        return (*super().__getstate__(), self.held)

    def __setstate__(self, state: tuple[str, str, Refusals, Held]) -> None:  # type: ignore[override]
        super().__setstate__(state[:3])
        self.held = state[3]
