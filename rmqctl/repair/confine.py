"""Where a run may write: in the store, in its journals, and where the user said; no name or link leads elsewhere.

A plan is made from a store that may hold anything, and a journal may have been written by anybody. So every
name is looked at with all its links followed, before the first write.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from rmqctl.errors import Refused
from rmqctl.repair.changes import STORE, Changes
from rmqctl.repair.journal import DATA, JOURNAL, STATE, Journal

_PLACE = re.compile(r"\d{4,}/(new|quarantine)/.+")
_LOCKS = ("lock", ".lock")


class Confines:
    """The directories in which a run may change files.

    Args:
        root: of the store.
        outside: directories elsewhere that the user named, such as those of a commit log on another disk.
    """

    def __init__(self, root: str | os.PathLike[str], outside: Iterable[str | os.PathLike[str]] = ()) -> None:
        self.root = os.path.realpath(root)
        self._allowed = [self.root, *(os.path.realpath(path) for path in outside)]

    def problem(self, name: str, *, follows: bool = False) -> str:
        """Why a file of the store may not be changed, or "".

        Args:
            name: relative to the root, or absolute.
            follows: the file that a link leads to is meant, and not the link.
        """
        if "\0" in name:
            return f"{name!r} is no name of a file"
        path = os.path.join(self.root, name)
        real = os.path.realpath(path) if follows else _entry(path)
        if any(_is_in(real, allowed) for allowed in self._allowed):
            return ""
        pure = PurePosixPath(name)
        stays = not pure.is_absolute() and ".." not in pure.parts
        how = f"is reached by a link that leads out of the store, to {real}" if stays else "lies outside the store"
        return f"{name} {how} (where that belongs to the store, name it: --outside {os.path.dirname(real)})"


def check_changes(changes: Changes, base: str | os.PathLike[str], outside: Iterable[str | os.PathLike[str]]) -> None:
    """Hold every name and place of some changes to where they may lead.

    Args:
        base: the directory of journals.

    Raises:
        Refused: one leads elsewhere.
    """
    problems = list(_problems(changes, os.path.realpath(base), Confines(changes.root, outside)))
    if problems:
        more = f"; and {len(problems) - 3:,} more" if len(problems) > 3 else ""
        raise Refused(f"nothing was written: {'; '.join(problems[:3])}{more}")


def check_own_files(journal: Journal) -> None:
    """Hold the journal's own files to being files of its own; what is said of its state is written to one of them.

    Raises:
        Refused: one is a link, or the journal names another one by a path.
    """
    for name in (JOURNAL, DATA, STATE):
        if (journal.path / name).is_symlink():
            raise Refused(f"{journal.path / name} is a link, and rmqctl makes none there; nothing was written")
    reverses = journal.header.get("reverses")
    if reverses is not None and not (str(reverses).isascii() and str(reverses).isdigit()):
        raise Refused(f"{journal.path} takes back a journal of an impossible name: {reverses}; nothing was written")
    if journal.changes.lock not in _LOCKS:
        raise Refused(f"{journal.path} names a lock file of an impossible name: {journal.changes.lock!r}")


def _problems(changes: Changes, base: str, confines: Confines) -> Iterator[str]:
    for file in changes.files:
        places = [side.place for side in (file.before, file.after) if side.place != STORE]
        for place in places:
            if not _is_place(place, base, follows=file.is_edited):
                yield f"{place!r} is no place of a journal"
        is_outside = file.content is not None or any(os.path.lexists(os.path.join(base, place)) for place in places)
        if problem := confines.problem(file.name, follows=file.is_edited and not is_outside):
            yield problem
        elif places and _entry(os.path.join(confines.root, file.name)) == confines.root:
            yield f"{file.name or 'the root'} cannot be moved"
    for name in (*(d.name for d in changes.directories), *(name for name, _ in changes.times if name)):
        if problem := confines.problem(name):
            yield problem


def _is_place(place: str, base: str, *, follows: bool) -> bool:
    if not _PLACE.fullmatch(place) or ".." in PurePosixPath(place).parts or "\0" in place:
        return False
    path = os.path.join(base, place)
    return _is_in(os.path.realpath(path) if follows else _entry(path), base)


def _entry(path: str) -> str:
    """A name in its directory, with all links followed but the last."""
    head, tail = os.path.split(path.rstrip("/"))
    return os.path.realpath(path) if tail in ("", ".", "..") else os.path.join(os.path.realpath(head), tail)


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
