"""Damage on purpose, for tests, demos and trainings: kinds by name, each at a place, the same for the same seed.

A family gives the places that can be damaged (a :class:`Target` of its own) and enters its kinds into a table of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

from rmqctl.answer import Row
from rmqctl.errors import IOFailure, Refused
from rmqctl.files.writing import Disk
from rmqctl.text import number_of

T = TypeVar("T")
FILE, NOTHING = "file", "-"
_WHERE = re.compile(r"-?[0-9]{1,18}|[0-9]{1,3}(\.[0-9]+)?%")


class Target:
    """A store that is to be damaged.

    Args:
        where: a number, a place such as ``50%``, or "" for one that the seed chooses.
        content: what it holds, such as ``messages``.
    """

    def __init__(self, root: Path, where: str, random: Random, content: str) -> None:
        self.root, self.random = root, random
        self._where, self._content, self._disk = where, content, Disk()

    def chosen(self, found: Sequence[T], what: str, *, inner: bool = False) -> T:
        """Return the one of what was found that WHERE means, or that the seed chooses.

        Args:
            inner: by choice one inside, not at the ends.
        """
        found = self.some(found, what)
        text, count = self._where, len(found)
        try:
            if text.endswith("%"):
                return found[min(max(int(float(text[:-1]) / 100 * count), 0), count - 1)]
            if text:
                return found[int(text)]
        except (ValueError, IndexError):
            raise Refused(
                f"@{text} names no {what}: there are {count}; give 0 to {count - 1}, -1 for the last, or 50%"
            ) from None
        low, high = (count // 4, max(count * 3 // 4, count // 4 + 1)) if inner else (0, count)
        return found[self.random.randrange(low, high)]

    def some(self, found: Sequence[T], what: str) -> Sequence[T]:
        """Return what was found, if anything was."""
        if not found:
            raise Refused(f"{self.root} has no {what} to damage; produce more {self._content} first")
        return found

    def write(self, file: Path, at: int, data: bytes) -> str:
        """Overwrite bytes, or append them."""
        fd = self._disk.open(file)
        try:
            self._disk.write(fd, data, at)
        finally:
            os.close(fd)
        return f"{self.name(file)}, {number_of(len(data), 'byte')} at {at}"

    def append(self, file: Path, data: bytes) -> str:
        """Add bytes at the end."""
        return self.write(file, file.stat().st_size, data)

    def flip(self, file: Path, at: int, *, bits: int = 0) -> str:
        """Change a byte: a bit of it, or those given."""
        with file.open("rb") as source:
            source.seek(at)
            old = source.read(1)[0]
        return self.write(file, at, bytes([old ^ (bits or 1 << self.random.randrange(8))]))

    def cut(self, file: Path, size: int | None = None) -> str:
        """Make a file shorter; without a size, to between a third and two thirds."""
        before = file.stat().st_size
        if size is None:
            size = before // 3 + self.random.randrange(max(before // 3, 1))
        try:
            os.truncate(file, size)
        except OSError as error:
            raise IOFailure(f"cannot cut {file}", error) from error
        return f"{self.name(file)} cut from {before} to {size} bytes"

    def remove(self, file: Path) -> str:
        """Delete a file."""
        self._disk.remove(file)
        return f"{self.name(file)} removed"

    def fill(self, file: Path, data: bytes) -> str:
        """Give a file these bytes, whether it is there or not."""
        is_there = file.exists()
        self._disk.write_file(file, data)
        return f"{self.name(file)} {'written' if is_there else 'made'}"

    def name(self, file: Path) -> str:
        """Return the name of a file, relative to the store."""
        return str(file.relative_to(self.root))


T_Target = TypeVar("T_Target", bound=Target)


@dataclass(frozen=True, slots=True)
class DamageKind(Generic[T_Target]):
    """One kind of damage.

    Attributes:
        where: what WHERE counts, such as records of the log or files; :data:`NOTHING` where there is no choice.
        meaning: one line.
    """

    name: str
    where: str
    meaning: str
    change: Callable[[T_Target], str]


class DamageKinds(Generic[T_Target]):
    """The kinds of damage that a family knows.

    Args:
        of: what they are done to, such as ``store``.
        list_options: options of `produce` that show the list.
        hold: takes the lock of a store, so that nobody uses it.
        target: finds places in a store.
    """

    def __init__(
        self,
        of: str,
        list_options: str,
        hold: Callable[[Path], AbstractContextManager[object]],
        target: Callable[[Path, str, Random], T_Target],
    ) -> None:
        self._of, self._list_options, self._hold, self._target = of, list_options, hold, target
        self._kinds: dict[str, DamageKind[T_Target]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def enter(
        self, name: str, where: str, meaning: str
    ) -> Callable[[Callable[[T_Target], str]], Callable[[T_Target], str]]:
        """Return what enters a function as a kind."""

        def entered(change: Callable[[T_Target], str]) -> Callable[[T_Target], str]:
            self._kinds[name] = DamageKind(name, where, meaning, change)
            return change

        return entered

    def rows(self) -> list[Row]:
        """Return the list that `produce --damage list` shows."""
        return [{"kind": one.name, "where": one.where, "meaning": one.meaning} for one in self._kinds.values()]

    def parse(self, wish: str) -> tuple[DamageKind[T_Target], str]:
        """Return the kind and the place of ``KIND@WHERE``; whether there is such a place shows when it is done.

        Raises:
            Refused: there is no such kind, it takes no place, or WHERE is no place.
        """
        name, sign, where = wish.partition("@")
        if name not in self._kinds:
            hint = get_close_matches(name, self._kinds)
            meant = f" (did you mean {' or '.join(hint)}?)" if hint else ""
            raise Refused(f"no damage to a {self._of} is called {name!r}{meant}; {self._list_options} shows all")
        if sign and self._kinds[name].where == NOTHING:
            raise Refused(f"{name} is done to the whole {self._of}; leave @{where} out")
        if sign and not _WHERE.fullmatch(where):
            raise Refused(f"@{where} is no place; give a number such as 0, -1 for the last, or 50%")
        return self._kinds[name], where

    def do(self, root: Path, wish: str, seed: int = 0) -> str:
        """Do one kind of damage to a store that nobody uses; return what was done, where.

        Args:
            wish: ``KIND`` or ``KIND@WHERE``: WHERE is a number from 0 (negative: from the end) or a place such as
                ``50%``.

        Raises:
            Refused: there is no such kind, or the store has nothing of the sort.
            StoreInUse: an engine or a broker has the store open.
        """
        kind, where = self.parse(wish)
        with self._hold(root):
            target = self._target(root, where, Random(f"{seed} {wish}"))  # noqa: S311 - made-up data
            done = f"{kind.name}: {kind.change(target)}"
            Disk().sync_all(root)
            return done
