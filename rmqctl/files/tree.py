"""A directory tree, local or remote, with one small interface, and one in which nothing stops a reader.

Paths inside a tree are relative, with ``/``; the root itself is ``""``. Listing a directory that is
not there gives nothing, because half of a store's directories are optional. In a forgiving tree what cannot be read
counts as zeros or as absent, and is remembered.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from rmqctl.errors import NotAStore
from rmqctl.files.local import ByteSource, LocalFile, opened, pread

_KIND, _DIRECTORY, _FILE = 0o170000, 0o040000, 0o100000
Listing = tuple[tuple[str, int], ...]
"""Names of files with their sizes in bytes, by name."""
BUNDLE_MANIFEST = "bundle.json"
"""The first file of a bundle: what is in it, what was left out, and how it is opened."""


_NOTHING = (FileNotFoundError, NotADirectoryError, ValueError)
"""Nothing is there; ValueError: a path with a zero byte, as a damaged topic may ask for."""


class Entry(NamedTuple):
    """One name in a directory.

    Attributes:
        path: relative to the tree's root.
        size: bytes; -1 where it was not asked for.
        mtime_ms: last modification in epoch milliseconds; 0 where unknown.
        is_dangling: a link that leads nowhere or in a circle; known where sizes were asked for.
    """

    name: str
    path: str
    is_directory: bool
    size: int = -1
    mtime_ms: int = 0
    is_dangling: bool = False


class Tree(Protocol):
    """What a reader needs of a file system."""

    @property
    def root(self) -> str:
        """The root as the user gave it, for messages."""
        ...

    def entries(self, path: str, *, sizes: bool = True) -> list[Entry]:
        """Names in a directory, sorted; empty when there is no such directory."""
        ...

    def stat(self, path: str) -> Entry | None:
        """Return what is known of one path; None when nothing is there."""
        ...

    def open(self, path: str) -> ByteSource:
        """Return the bytes of one file; opened when first read."""
        ...

    def child(self, path: str) -> Tree:
        """Return the tree below a directory of this one."""
        ...


def join(path: str, name: str) -> str:
    """Return a path inside a tree."""
    return f"{path}/{name}" if path else name


def _is_no_name(error: ValueError | OSError) -> bool:
    """Whether no file can have such a name: a zero byte, half a surrogate pair, too long. Damaged texts hold such."""
    return isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG


class LocalTree:
    """A directory of this machine.

    Attributes:
        place: where it lies; the root itself but in a bundle, whose files lie where it was unpacked.
    """

    def __init__(self, root: str | Path, place: str | None = None) -> None:
        self.root = os.fspath(root)
        self.place = self.root if place is None else place

    def __getstate__(self) -> dict[str, object]:
        """For another process, which may have another working directory."""
        return {**self.__dict__, "root": os.path.abspath(self.root), "place": os.path.abspath(self.place)}

    def entries(self, path: str, *, sizes: bool = True) -> list[Entry]:
        try:
            return self._listed(path, sizes)
        except OSError as error:
            if _is_circle(error, path):
                return []
            raise

    def _listed(self, path: str, sizes: bool) -> list[Entry]:
        try:
            with os.scandir(self.full(path)) as found:
                return sorted((_entry(e, path, sizes) for e in found), key=lambda e: e.name)
        except _NOTHING:
            return []
        except (ValueError, OSError) as error:
            if _is_no_name(error):
                return []
            raise

    def plain_files(self, path: str) -> Listing | None:
        """Names and sizes of a directory that holds nothing but files, sorted; None of any other.

        A third of what :meth:`entries` costs, for directories there are hundreds of thousands of.
        """
        full, found = self.full(path), []
        try:
            for name in os.listdir(full):
                status = os.stat(f"{full}/{name}")
                if status.st_mode & _KIND != _FILE:
                    return None
                found.append((name, status.st_size))
        except (OSError, ValueError):
            return None
        found.sort()
        return tuple(found)

    def read_head(self, path: str, size: int) -> bytes:
        """Up to ``size`` bytes from the start of a file, in as few calls as it takes.

        Raises:
            OSError: the file cannot be opened or read.
        """
        descriptor = opened(self.full(path))
        try:
            return pread(descriptor, size, 0)
        finally:
            os.close(descriptor)

    def plain_directories(self, path: str) -> list[str] | None:
        """Names in a directory that holds nothing but directories, sorted; None of any other."""
        try:
            with os.scandir(self.full(path)) as found:
                names = [entry.name if entry.is_dir() else "" for entry in found]
        except (OSError, ValueError):
            return None
        return sorted(names) if "" not in names else None

    def stat(self, path: str) -> Entry | None:
        try:
            return self._found(path)
        except OSError as error:
            if _is_circle(error, path):
                return None
            raise

    def _found(self, path: str) -> Entry | None:
        try:
            status = os.stat(self.full(path))
        except _NOTHING:
            return None
        except (ValueError, OSError) as error:
            if _is_no_name(error):
                return None
            raise
        directory = status.st_mode & _KIND == _DIRECTORY
        return Entry(os.path.basename(path), path, directory, status.st_size, status.st_mtime_ns // 1_000_000)

    def open(self, path: str) -> ByteSource:
        return LocalFile(self.full(path), path)

    def child(self, path: str) -> LocalTree:
        return LocalTree(join(self.root, path) if path else self.root, self.full(path))

    def full(self, path: str) -> str:
        """Return the path on this machine."""
        return f"{self.place}/{path}" if path else self.place


def _is_circle(error: OSError, path: str) -> bool:
    """Whether a name inside a store is a link in a circle, which leads nowhere as one to a name that is not there."""
    return bool(path) and error.errno == errno.ELOOP


def _entry(found: os.DirEntry[str], path: str, sizes: bool) -> Entry:
    """Return a directory entry; a link that leads nowhere or in a circle counts as a file of unknown size."""
    try:
        directory = found.is_dir()
        status = found.stat() if sizes else None
    except OSError:
        return Entry(found.name, join(path, found.name), is_directory=False, is_dangling=found.is_symlink())
    if status is None:
        return Entry(found.name, join(path, found.name), directory)
    return Entry(found.name, join(path, found.name), directory, status.st_size, status.st_mtime_ns // 1_000_000)


def read_head(tree: Tree, path: str, size: int) -> bytes:
    """Up to ``size`` bytes from the start of a file, quick for small files; errors are those of the tree."""
    if isinstance(tree, LocalTree):
        with suppress(OSError):
            return tree.read_head(path, size)
    source = tree.open(path)
    try:
        return source.read_at(0, size)
    finally:
        source.close()


def plain_files(tree: Tree, path: str) -> Listing | None:
    """Like :meth:`LocalTree.plain_files`, None for a tree that is not local."""
    return tree.plain_files(path) if isinstance(tree, LocalTree) else None


def plain_directories(tree: Tree, path: str) -> list[str] | None:
    """Like :meth:`LocalTree.plain_directories`, None for a tree that is not local."""
    return tree.plain_directories(path) if isinstance(tree, LocalTree) else None


def is_directory(tree: Tree, path: str) -> bool:
    """Whether the root of a tree is a directory; ``path`` is what the user typed.

    Raises:
        NotAStore: nothing is there.
    """
    entry = tree.stat("")
    if entry is None:
        raise NotAStore(path or "''", "nothing is there", "check the spelling of the path")
    if entry.is_directory:
        tree.entries("", sizes=False)  # says now if it may not be read
    return entry.is_directory


def read_all(tree: Tree, path: str, limit: int = 64 << 20) -> bytes | None:
    """Return a small file whole, at most ``limit`` bytes; None when it is not there."""
    entry = tree.stat(path)
    if entry is None or entry.is_directory:
        return None
    source = tree.open(path)
    try:
        return source.read_at(0, min(source.size(), limit))
    except FileNotFoundError:
        return None
    finally:
        source.close()


def local_path(tree: Tree, path: str) -> str | None:
    """Where a path of a tree lies on this machine; None for a remote tree."""
    full = getattr(tree, "full", None)
    found: str | None = full(path) if full is not None else None
    return found


# --- a tree in which nothing stops a reader --------------------------------------------------------


PAGE = 4096

Refusals = dict[str, tuple[OSError, int]]
"""What could not be read, by the name that findings show: the system's answer, and where in the file, in bytes."""


class ForgivingFile(LocalFile):
    """A file of a :class:`ForgivingTree`. A page that cannot be read is zeros, a file that cannot be opened empty."""

    def __init__(self, path: str, name: str, refusals: Refusals) -> None:
        super().__init__(path, name)
        self.refusals = refusals

    def size(self) -> int:
        try:
            return super().size()
        except OSError as error:
            self._refuse(error, 0)
            return 0

    def read_at(self, offset: int, size: int) -> bytes:
        try:
            return super().read_at(offset, size)
        except OSError as error:
            return self._pages(error, offset, size)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        try:
            return super().read_into(offset, buffer)
        except OSError as error:
            data = self._pages(error, offset, len(buffer))
            buffer[: len(data)] = data
            return len(data)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        try:
            yield from super().data_ranges(start, end)
        except OSError as error:
            self._refuse(error, start)

    def _pages(self, error: OSError, offset: int, size: int) -> bytes:
        """Return the range page by page, zeros where it cannot be read; nothing of a file that cannot be opened."""
        if self._fd is None:
            self._refuse(error, 0)
            return b""
        parts, end = [], min(offset + size, self.size())
        if offset >= end:
            self._refuse(error, 0)
        while offset < end:
            room = min(PAGE - offset % PAGE, end - offset)
            try:
                parts.append(super().read_at(offset, room).ljust(room, b"\0"))
            except OSError as again:
                self._refuse(again, offset)
                parts.append(bytes(room))
            offset += room
        return b"".join(parts)

    def _refuse(self, error: OSError, offset: int) -> None:
        self.refusals.setdefault(self.name, (error, offset))

    def __getstate__(self) -> tuple[str, str, Refusals]:  # type: ignore[override]
        return self.path, self.name, self.refusals

    def __setstate__(self, state: tuple[str, str, Refusals]) -> None:  # type: ignore[override]
        path, name, self.refusals = state
        super().__setstate__((path, name))


class ForgivingTree(LocalTree):
    """A directory of this machine that keeps in ``refusals`` what it could not list, stat or open.

    Args:
        tree: the directory.
        shown: what findings call the directory, "" for the root of a store.
    """

    def __init__(self, tree: LocalTree, shown: str = "", refusals: Refusals | None = None) -> None:
        super().__init__(tree.root, tree.place)
        self.shown = shown
        self.refusals: Refusals = {} if refusals is None else refusals

    def entries(self, path: str, *, sizes: bool = True) -> list[Entry]:
        try:
            found = self._listed(path, sizes)
        except OSError as error:
            self._refuse(path, error)
            return []
        for entry in found if sizes else ():
            if entry.size < 0:
                self._look_again(entry.path)
        return found

    def stat(self, path: str) -> Entry | None:
        try:
            return self._found(path)
        except OSError as error:
            self._refuse(path, error)
            return None

    def open(self, path: str) -> ForgivingFile:
        return ForgivingFile(self.full(path), self._name(path), self.refusals)

    def child(self, path: str) -> ForgivingTree:
        return ForgivingTree(super().child(path), self._name(path), self.refusals)

    def _look_again(self, path: str) -> None:
        """Why a name that is there has no size: a link to nowhere or in a circle."""
        try:
            os.stat(self.full(path))
        except OSError as error:
            self._refuse(path, error)

    def _refuse(self, path: str, error: OSError) -> None:
        self.refusals.setdefault(self._name(path), (error, 0))

    def _name(self, path: str) -> str:
        return join(self.shown, path) if path else self.shown
