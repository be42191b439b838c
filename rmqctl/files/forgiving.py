"""A directory in which nothing stops a reader: what cannot be read counts as zeros or as absent, and is remembered."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rmqctl.files.local import LocalFile
from rmqctl.files.tree import Entry, LocalTree, join

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
        shown: what findings call the directory, "" for the root of a store.
    """

    def __init__(self, root: str | os.PathLike[str], shown: str = "", refusals: Refusals | None = None) -> None:
        super().__init__(os.fspath(root))
        self.shown = shown
        self.refusals: Refusals = {} if refusals is None else refusals

    def entries(self, path: str, *, sizes: bool = True) -> list[Entry]:
        try:
            found = super().entries(path, sizes=sizes)
        except OSError as error:
            self._refuse(path, error)
            return []
        for entry in found if sizes else ():
            if entry.size < 0:
                self._look_again(entry.path)
        return found

    def stat(self, path: str) -> Entry | None:
        try:
            return super().stat(path)
        except OSError as error:
            self._refuse(path, error)
            return None

    def open(self, path: str) -> ForgivingFile:
        return ForgivingFile(self.full(path), self._name(path), self.refusals)

    def child(self, path: str) -> ForgivingTree:
        return ForgivingTree(self.full(path), self._name(path), self.refusals)

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
