"""May a journal be gone on with, or be taken back? Every reason why not, before anything is written.

Sizes and times of all files of a store show whether anybody wrote to it since.

A run writes in the store, in its journals, and where the user said; no name or link leads elsewhere. A plan is made
from a store that may hold anything, and a journal may have been written by anybody. So every name is looked at with
all its links followed, before the first write.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from rmqctl.errors import Refused
from rmqctl.files.writing import FileLayer
from rmqctl.repair.applying import differences, strange
from rmqctl.repair.changes import named
from rmqctl.repair.edits import STORE, Changes, load
from rmqctl.repair.journal import Journal, read_journal
from rmqctl.repair.journal_directory import (
    AFTER,
    DATA,
    DONE,
    JOURNAL,
    PENDING,
    POINTER,
    READY,
    STATE,
    TAKEN_BACK,
    UNDONE,
    line_of,
    refuse_pending,
    rows_of,
    undo_command,
)

# --- every file of a store with size and time -------------------------------------------------------


Seen = dict[str, tuple[int, int]]
"""Name -> size in bytes and modification time in nanoseconds."""


def files_of(root: str, *, but: set[str]) -> Seen:
    """Files below a root, apart from some names."""
    return {name: (size, mtime_ns) for name, size, mtime_ns in _walk(root, "") if name not in but}


def keep_listing(journal: Journal, layer: FileLayer) -> None:
    """Write the files of the store, as they are now, into the journal."""
    data = bytearray()
    for number, (name, (size, mtime_ns)) in enumerate(files_of(journal.changes.root, but=_not_meant(journal)).items()):
        data += line_of({"file": os.fsencode(name).decode(errors="replace"), "size": size, "t": mtime_ns}, number)
    path = str(journal.path / AFTER)
    if os.path.exists(path):
        layer.unlink(path)
    with layer.create(path) as file:
        file.write(bytes(data), 0)
        file.sync()
    layer.sync_directory(str(journal.path))


def changed_since(journal: Journal) -> list[str]:
    """Files that the journal does not touch and that somebody made, changed or removed after it was done."""
    try:
        rows = list(rows_of((journal.path / AFTER).read_bytes()))
    except FileNotFoundError:
        return []
    then: Seen = {row["file"]: (row["size"], row["t"]) for row in rows}
    now = {
        os.fsencode(name).decode(errors="replace"): seen
        for name, seen in files_of(journal.changes.root, but=_not_meant(journal)).items()
    }
    return list(_listed(then, now))


def _listed(then: Seen, now: Seen) -> Iterator[str]:
    for name in sorted(then.keys() | now.keys()):
        if name not in now:
            yield f"{name}: is gone"
        elif name not in then:
            yield f"{name}: is new"
        elif then[name] != now[name]:
            yield f"{name}: was written to"


def _not_meant(journal: Journal) -> set[str]:
    """Names that are checked byte by byte, or that come and go."""
    changes = journal.changes
    return {POINTER, changes.lock} | {f.name for f in changes.files}


def _walk(root: str, inner: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(Path(root, inner)) as found:
        for entry in found:
            name = f"{inner}/{entry.name}" if inner else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(root, name)
            else:
                stat = entry.stat(follow_symlinks=False)
                yield name, stat.st_size, stat.st_mtime_ns


# --- where a run may write --------------------------------------------------------------------------


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
    """Return a name in its directory, with all links followed but the last."""
    head, tail = os.path.split(path.rstrip("/"))
    return os.path.realpath(path) if tail in ("", ".", "..") else os.path.join(os.path.realpath(head), tail)


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


# --- may a journal be gone on with ------------------------------------------------------------------


Outside = Sequence[str | Path]
_REASONS = {READY: "it was written and never begun", TAKEN_BACK: "it was taken back before it was done"}


def check_journal(path: Path, *, forwards: bool = False, force: bool = False, outside: Outside = ()) -> Journal:
    """Read a journal that is to be taken back, or finished if `forwards`, and hold the store to it.

    Args:
        outside: directories outside the store that the user lets it change.

    Raises:
        Refused: why it cannot be done; files that changed since are named.
    """
    found = read_journal(path)
    if forwards:
        check_resume(found, outside=outside)
    else:
        check_undo(found, force=force, outside=outside)
    return found


def check_resume(found: Journal, *, outside: Outside = ()) -> None:
    """Say why a journal cannot be finished.

    Raises:
        Refused: the reason.
    """
    _refuse_astray(found, outside)
    _refuse_damaged(found)
    if found.state in {DONE, UNDONE}:
        raise Refused(f"{found.path} is finished: nothing is left to do; to take it back: {undo_command(found.path)}")
    if found.state in PENDING:
        _refuse_changed(found, strange(found), "go on")
    else:
        refuse_pending(Path(found.changes.root))
        _refuse_changed(found, differences(found, after=False), "carry it out")


def check_undo(found: Journal, *, force: bool = False, outside: Outside = ()) -> None:
    """Say why a journal cannot be taken back.

    Raises:
        Refused: the reason, with the names of files that changed since.
    """
    _refuse_astray(found, outside)
    _refuse_damaged(found)
    if found.state in PENDING:
        _refuse_changed(found, strange(found), "go back")
        return
    refuse_pending(Path(found.changes.root))
    if found.state == UNDONE:
        by = found.base / found.undone_by
        raise Refused(f"{found.path} was taken back already, by {by}; to take that back in turn: {undo_command(by)}")
    if found.state in _REASONS:
        raise Refused(
            f"{found.path} has changed nothing: {_REASONS[found.state]}; "
            f"to carry it out after all: {undo_command(found.path, resume=True)}"
        )
    _refuse_changed(found, differences(found, after=True), "go back")
    others = [] if force else changed_since(found)
    if others:
        raise Refused(
            f"the store changed after {found.path} was done: {named(others)}; nothing was changed; "
            "take later journals back first, or give --force to leave those files as they are"
        )


def _refuse_astray(journal: Journal, outside: Outside) -> None:
    """Hold every name in the journal to the store, the journals and what the user named."""
    check_own_files(journal)
    check_changes(journal.changes, journal.base, outside)
    moving = journal.last.get("copied")
    if moving is not None and not (isinstance(moving, int) and 0 <= moving < len(journal.changes.files)):
        raise Refused(f"{journal.path} is damaged: its state names a file that it does not have")


def _refuse_damaged(journal: Journal) -> None:
    """Hold every byte that the journal keeps to its CRC, so that nothing stops the run half way."""
    try:
        for file in journal.changes.files:
            for after in (False, True):
                for _, _, payload in file.payloads(after=after):
                    load(payload)
    except ValueError as error:
        raise Refused(
            f"{journal.path} is damaged: {error}; nothing was changed; "
            "restore it from a copy, or keep the store as it is"
        ) from None


def _refuse_changed(journal: Journal, names: list[str], purpose: str) -> None:
    if names:
        raise Refused(f"cannot {purpose} with {journal.path}, files changed since: {named(names)}; nothing was changed")
