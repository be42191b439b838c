"""From a plan to its changes: every edit is held to the store as it is, and what each file becomes is added up.

Nothing is written. The bytes of a store as a plan finds them and as it would leave them can be read.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from rmqctl.errors import Refused
from rmqctl.files.local import Reader, data_extents
from rmqctl.files.remote import unpacked
from rmqctl.repair.edited_file import EditedFile
from rmqctl.repair.edits import (
    PIECE,
    STORE,
    ChangedBytes,
    Changes,
    Create,
    Cut,
    DirectoryChange,
    Edit,
    Extend,
    FileChange,
    Overwrite,
    Payload,
    Plan,
    Quarantine,
    Region,
    SetTimes,
    Side,
    Step,
)
from rmqctl.repair.rendering import step_row
from rmqctl.text import shell_line


class PlannedFile(EditedFile):
    """A file that a plan edits, moves or makes.

    Attributes:
        base: the file whose bytes it starts from, or its first bytes themselves.
        was_at, is_at: place before and place now, see `Side`.
    """

    def __init__(
        self, name: str, base: str | bytes, base_size: int, size: int, mtime_ns: int, was_at: str, reader: Reader
    ) -> None:
        super().__init__(base_size, size)
        self.name, self.base, self.first_size = name, base, size
        self.was_at = self.is_at = was_at
        self.first_mtime = self.mtime_ns = mtime_ns
        self.is_link = was_at == STORE and isinstance(base, str) and Path(base).is_symlink()
        self._reader = reader

    def now(self, offset: int, size: int) -> bytes:
        """Bytes as they are after the edits so far."""
        return self.read(offset, size, self.base_bytes)

    def move_link(self) -> bool:
        """From now on the link itself is meant, not the file that it leads to; False if that was changed."""
        if self.written or self.size != self.first_size or self.mtime_ns != self.first_mtime:
            return False
        found = os.lstat(str(self.base))
        self.first_size = self.size = self.floor = self.base_size = found.st_size
        self.first_mtime = self.mtime_ns = found.st_mtime_ns
        return True

    def touched(self) -> list[tuple[int, int]]:
        """Begin and end of the stretches whose bytes change or come or go, ascending."""
        ranges = self.written.spans()
        if self.floor < max(self.first_size, self.size):
            ranges = [r for r in ranges if r[0] < self.floor]
            ranges.append((self.floor, max(self.first_size, self.size)))
        return ranges

    def change(self) -> FileChange:
        """Return what has become of it."""
        before = Side(self.was_at, self.first_size, self.first_mtime)
        after = Side(self.is_at, self.size, self.mtime_ns)
        pieces = tuple(sorted(self._pieces(), key=lambda p: p.offset))
        return FileChange(self.name, before, after, self.floor, pieces, self._content())

    def _content(self) -> Payload | None:
        if self.was_at == STORE:
            return None
        return self.base if isinstance(self.base, bytes) else Region(self.base, 0, self.base_size)

    def _pieces(self) -> Iterator[ChangedBytes]:
        for start, run in self.written:
            for at in range(start, start + len(run), PIECE):
                data = run[at - start : at - start + PIECE]
                kept = max(min(len(data), self.floor - at), 0)
                if kept:
                    yield ChangedBytes(at, kept, self.base_bytes(at, kept), data[:kept])
                if kept < len(data):
                    yield ChangedBytes(at + kept, len(data) - kept, None, data[kept:])
        yield from self._lost()

    def _lost(self) -> Iterator[ChangedBytes]:
        """Yield what the file held after the shortest that it was."""
        end = min(self.first_size, self.base_size)
        if isinstance(self.base, bytes):
            for at in range(self.floor, end, PIECE):
                data = self.base[at : min(at + PIECE, end)]
                yield ChangedBytes(at, len(data), data, None)
        elif self.floor < end:
            with open(self.base, "rb", buffering=0) as file:
                for at, size in data_extents(file.fileno(), self.floor, end):
                    yield ChangedBytes(at, size, Region(self.base, at, size), None)

    def base_bytes(self, offset: int, size: int) -> bytes:
        """Bytes before every edit; zeros after them."""
        wanted = max(min(size, self.base_size - offset), 0)
        if isinstance(self.base, bytes):
            data = self.base[offset : offset + wanted]
        elif wanted:
            data = self._reader.read(self.base, offset, wanted)
        else:
            data = b""
        return data.ljust(size, b"\0")


# --- from a plan to its changes ---------------------------------------------------------------------


_SHOWN = 5


def changes_of(plan: Plan, journal: str, *, lock: str = "lock") -> Changes:
    """Add up the edits of a plan, each checked against the state that those before it lead to.

    Args:
        journal: name of the journal that will carry it out, in which moved and new files have their place.
        lock: name of the store's lock file.

    Raises:
        Refused: an edit does not fit what is on disk; the message names every such file.
    """
    return _added_up(plan, journal).changes(plan, lock)


def planned_files(plan: Plan) -> list[PlannedFile]:
    """Every file that a plan touches, readable as it is and as it would be.

    Raises:
        Refused, OSError: as with :func:`changes_of`.
    """
    return _added_up(plan, "0000").files


def _added_up(plan: Plan, journal: str) -> _PlannedChanges:
    maker = _PlannedChanges(os.path.realpath(unpacked(str(plan.root))), journal)
    for edit in plan.edits:
        maker.take(edit)
    if maker.problems:
        raise Refused(
            f"the plan was made for another state of {plan.root}: {named(maker.problems)}; "
            "nothing was written; make the plan again"
        )
    if maker.in_the_way:
        first = os.path.join(maker.root, min(maker.in_the_way))
        raise Refused(
            f"{named(sorted(maker.in_the_way))}: no directory, and one is to be made there; nothing was written; "
            f"move it away and try again: {shell_line('mv', first, 'ELSEWHERE')}"
        )
    return maker


def named(problems: list[str]) -> str:
    """Return the first few of a list of sentences."""
    more = len(problems) - _SHOWN
    return "; ".join(problems[:_SHOWN]) + (f"; and {more:,} more" if more > 0 else "")


class _PlannedChanges:
    """The store as the edits so far would leave it."""

    def __init__(self, root: str, journal: str) -> None:
        self.root, self.journal = root, journal
        self.problems: list[str] = []
        self.in_the_way: set[str] = set()
        self._reader = Reader()
        self.files: list[PlannedFile] = []
        self._now: dict[str, PlannedFile | None] = {}
        self._directories: dict[str, bool] = {}
        self._take: dict[type, Callable[[Any], None]] = {
            Overwrite: self._overwrite,
            Extend: self._extend,
            Cut: self._cut,
            Create: self._create,
            Quarantine: self._quarantine,
            SetTimes: self._set_times,
        }

    def take(self, edit: Edit) -> None:
        """Go one edit further, or note why it does not fit."""
        self._take[type(edit)](edit)

    def changes(self, plan: Plan, lock: str) -> Changes:
        """Return what all edits come to; files that end as they began are left out."""
        files = [f.change() for f in self.files if not (f.was_at != STORE and f.is_at == f.was_at)]
        kept = tuple(f for f in files if f.moves or f.is_edited)
        directories = tuple(self._directory_changes())
        steps = tuple(step_row(step) for step in plan.steps)
        return Changes(self.root, lock, plan.title, steps, kept, directories, tuple(self._times(kept, directories)))

    def _overwrite(self, edit: Overwrite) -> None:
        file = self._content(edit.file)
        if file is None:
            return
        if len(edit.before) != len(edit.after):
            self.problems.append(f"{edit.file}: before and after of an overwrite differ in length")
        elif file.now(edit.offset, len(edit.before)) != edit.before:
            self.problems.append(f"{edit.file}: other bytes at {edit.offset:,} than the plan knows")
        else:
            file.write(edit.offset, edit.after)

    def _extend(self, edit: Extend) -> None:
        self._resize(edit, edit.to_size >= edit.from_size)

    def _cut(self, edit: Cut) -> None:
        self._resize(edit, 0 <= edit.to_size <= edit.from_size)

    def _resize(self, edit: Extend | Cut, makes_sense: bool) -> None:
        file = self._content(edit.file)
        if file is None:
            return
        if file.size != edit.from_size or not makes_sense:
            self.problems.append(
                f"{edit.file}: {file.size:,} bytes long, and not {edit.from_size:,} to be made {edit.to_size:,}"
            )
        else:
            file.resize(edit.to_size)

    def _set_times(self, edit: SetTimes) -> None:
        file = self._content(edit.file)
        if file is not None:
            file.mtime_ns = edit.mtime_ns

    def _create(self, edit: Create) -> None:
        if self._is_there(edit.file):
            self.problems.append(f"{edit.file}: is there and was to be made")
            return
        base: str | bytes = edit.content if edit.source is None else os.path.realpath(edit.source)
        length = len(edit.content) if isinstance(base, bytes) else os.stat(base).st_size
        size = length if edit.size is None else edit.size
        if size < length:
            self.problems.append(f"{edit.file}: {length:,} bytes of content do not fit into {size:,}")
            return
        file = PlannedFile(edit.file, base, length, size, time.time_ns(), self._kept("new", edit.file), self._reader)
        file.is_at = STORE
        self._make_parents(edit.file)
        self.files.append(file)
        self._now[edit.file] = file

    def _quarantine(self, edit: Quarantine) -> None:
        if self._is_directory(edit.file):
            self._quarantine_directory(edit.file)
        elif self._is_there(edit.file):
            self._move_out(edit.file)
        else:
            self.problems.append(f"{edit.file}: is not there")

    def _quarantine_directory(self, name: str) -> None:
        """Every file in it goes, then the directories from the innermost out."""
        below = f"{name}/"
        on_disk = list(_walk(self.root, name)) if os.path.isdir(os.path.join(self.root, name)) else []
        names = {n for n, is_directory in on_disk if not is_directory}
        names |= {n for n in self._now if n.startswith(below)}
        for file in sorted(names):
            if self._is_there(file):
                self._move_out(file)
        directories = {n for n, is_directory in on_disk if is_directory} | set(self._directories)
        for directory in directories:
            if directory == name or directory.startswith(below):
                self._directories[directory] = False

    def _move_out(self, name: str) -> None:
        file = self._file(name)
        assert file is not None
        if file.is_link and not file.move_link():
            self.problems.append(f"{name}: is a link whose file the plan changes too")
        file.is_at = self._kept("quarantine", name) if file.was_at == STORE else file.was_at
        self._now[name] = None

    def _content(self, name: str) -> PlannedFile | None:
        """Return a regular file whose bytes, size or time are to change, or None with a problem noted."""
        file = self._file(name) if self._is_there(name) else None
        if file is None:
            self.problems.append(f"{name}: is not there")
        elif isinstance(file.base, str) and not os.path.isfile(file.base):
            self.problems.append(f"{name}: is no regular file")
            return None
        return file

    def _file(self, name: str) -> PlannedFile | None:
        if name not in self._now:
            path = os.path.join(self.root, name)
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode) and os.path.isfile(path):
                found = os.stat(path)
            file = PlannedFile(name, path, found.st_size, found.st_size, found.st_mtime_ns, STORE, self._reader)
            self.files.append(file)
            self._now[name] = file
        return self._now[name]

    def _is_there(self, name: str) -> bool:
        if name in self._now:
            return self._now[name] is not None
        if self._is_gone(name) or self._is_gone(os.path.dirname(name)):
            return False
        return os.path.lexists(os.path.join(self.root, name))

    def _is_gone(self, directory: str) -> bool:
        return self._directories.get(directory) is False

    def _is_directory(self, name: str) -> bool:
        path = os.path.join(self.root, name)
        known = self._directories.get(name)
        return (os.path.isdir(path) and not Path(path).is_symlink()) if known is None else known

    def _make_parents(self, name: str) -> None:
        parent = os.path.dirname(name)
        while parent and not self._is_directory(parent) and not os.path.isdir(os.path.join(self.root, parent)):
            self._directories[parent] = True
            if self._is_there(parent):
                self.in_the_way.add(parent)
            parent = os.path.dirname(parent)
        while parent and self._is_gone(parent):
            self._directories[parent] = True
            parent = os.path.dirname(parent)

    def _kept(self, kind: str, name: str) -> str:
        """Return a place in the journal whose name says where the file belongs."""
        parts = ["up" if part == ".." else part for part in PurePosixPath(name).parts if part != "/"]
        return "/".join([self.journal, kind, *parts])

    def _directory_changes(self) -> Iterator[DirectoryChange]:
        for name, after in sorted(self._directories.items()):
            path = os.path.join(self.root, name)
            before = os.path.isdir(path)
            if before != after:
                found = os.stat(path if before else _nearest(path))
                yield DirectoryChange(name, before, after, stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))

    def _times(
        self, files: tuple[FileChange, ...], directories: tuple[DirectoryChange, ...]
    ) -> Iterator[tuple[str, int]]:
        """Directories that get or lose a name, or are new, with their times; the root always."""
        now = time.time_ns()
        names = {""} | {os.path.dirname(f.name) for f in files if f.moves}
        names |= {d.name for d in directories} | {os.path.dirname(d.name) for d in directories}
        for name in sorted(names):
            path = os.path.join(self.root, name)
            yield name, os.stat(path).st_mtime_ns if os.path.isdir(path) else now


def _nearest(path: str) -> str:
    """Return the closest directory above a path that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _walk(root: str, name: str) -> Iterator[tuple[str, bool]]:
    """Names below a directory and itself, and whether each is a directory."""
    yield name, True
    with os.scandir(os.path.join(root, name)) as found:
        for entry in sorted(found, key=lambda e: e.name):
            inner = f"{name}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(root, inner)
            else:
                yield inner, False


# --- the bytes of a store as a plan finds them and as it would leave them ---------------------------


class PlannedSource:
    """One side of a file as a `rmqctl.files.local.ByteSource`."""

    def __init__(self, file: PlannedFile, *, after: bool) -> None:
        self.name = file.name
        self._file, self._after = file, after

    def size(self) -> int:
        return self._file.size if self._after else self._file.first_size

    def read_at(self, offset: int, size: int) -> bytes:
        if self._after:
            return self._file.now(offset, size)
        return self._file.base_bytes(offset, max(min(size, self.size() - offset), 0))

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read_at(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        end = min(end, self.size())
        if start < end:
            yield start, end

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class FilePreview:
    """One file of a plan.

    Attributes:
        before, after: its bytes; None on the side where it is not in the store.
        stretches: begin and end of what changes, ascending.
    """

    name: str
    before: PlannedSource | None
    after: PlannedSource | None
    stretches: tuple[tuple[int, int], ...]


def preview_step(plan: Plan, number: int) -> Iterator[FilePreview]:
    """Every file that one step changes, makes or moves: as the steps before it leave it, and as it does.

    Args:
        number: of the step in the plan, from 0 on.

    Raises:
        Refused: the plan does not fit the store as it is.
    """
    step = plan.steps[number]
    names = {edit.file for edit in step.edits}
    earlier = [edit for one in plan.steps[:number] for edit in one.edits if _touches(edit.file, names)]
    was = {file.name: file for file in planned_files(_of_edits(plan, earlier)) if file.is_at == STORE}
    for file in planned_files(_of_edits(plan, [*earlier, *step.edits])):
        if not _touches(file.name, names):
            continue
        before = PlannedSource(was[file.name], after=True) if file.name in was else None
        if before is None and file.was_at == STORE and not any(edit.file == file.name for edit in earlier):
            before = PlannedSource(file, after=False)
        after = PlannedSource(file, after=True) if file.is_at == STORE else None
        most = max(side.size() if side is not None else 0 for side in (before, after))
        spans = [span for edit in step.edits if _touches(edit.file, {file.name}) for span in _span_of(edit, most)]
        if before is not None or after is not None:
            yield FilePreview(file.name, before, after, tuple(sorted(spans)))


def _of_edits(plan: Plan, edits: list[Edit]) -> Plan:
    return Plan(plan.root, plan.title, (Step("", "", "", "", tuple(edits)),))


def _touches(name: str, names: set[str]) -> bool:
    """Whether a file or directory is one of those named, or holds or lies in one."""
    return any(name == one or name.startswith(f"{one}/") or one.startswith(f"{name}/") for one in names)


def _span_of(edit: Edit, most: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the bytes that an edit changes, of a file of ``most`` bytes."""
    match edit:
        case Overwrite(_, offset, before, _):
            yield offset, offset + len(before)
        case Extend(_, low, high) | Cut(_, high, low):
            yield low, high
        case Create() | Quarantine():
            yield 0, most


def preview(plan: Plan) -> Iterator[FilePreview]:
    """Every file that a plan changes, makes or moves, in the order in which the plan comes to them.

    Raises:
        Refused: the plan does not fit the store as it is.
    """
    for file in planned_files(plan):
        was_in, is_in = file.was_at == STORE, file.is_at == STORE
        if not was_in and not is_in:
            continue
        stretches = file.touched() if was_in == is_in else [(0, max(file.first_size, file.size))]
        if stretches or not (was_in and is_in):
            before = PlannedSource(file, after=False) if was_in else None
            after = PlannedSource(file, after=True) if is_in else None
            yield FilePreview(file.name, before, after, tuple(stretches))
