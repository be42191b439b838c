"""Driving a store to one side of a journal: every request may be repeated, so it can start from anywhere between.

Is the store as a journal left it, as it was before, or between the two?
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rmqctl.files.writing import FileLayer
from rmqctl.repair.edits import PIECE, STORE, ChangedBytes, FileChange, load
from rmqctl.repair.journal import Journal
from rmqctl.repair.write_journal import copy_file

_PART = ".rmqctl-part"


class Applier:
    """Carries out a journal, forwards or backwards.

    Files that leave the store leave it first; then directories go and come, bytes change, and files
    enter. So a file can make room for another of its name, on both ways. The names of each of these stages are on the
    disk before the next one, so that no file is ever in a directory that a power cut takes.
    """

    def __init__(self, journal: Journal, layer: FileLayer, advance: Callable[[int], None] = lambda size: None) -> None:
        self._journal, self._layer, self._advance = journal, layer, advance
        self._changes = journal.changes

    def to(self, *, after: bool) -> None:
        """Bring the store to the state after the changes, or before them.

        Raises:
            OSError: a request failed; the store is between the states and may be driven to either.
        """
        self._end_copies()
        files = self._changes.files
        for index, file in enumerate(files):
            if file.moves and file.side(after=after).place != STORE:
                self._move_out(index, file)
        self._sync_places([file for file in files if file.moves])
        self._directories(after=after)
        for file in files:
            if file.is_edited:
                self._edit(file, after=after)
        for index, file in enumerate(files):
            if file.moves and file.side(after=after).place == STORE:
                self._move_in(index, file)
        self._settle()

    def where(self, file: FileChange) -> str:
        """Where a file lies now; a file is never in both of its places."""
        return where(self._journal, file)

    def _move_out(self, index: int, file: FileChange) -> None:
        inside, outside = self._changes.path(file.name), self._outside(file)
        if not os.path.lexists(outside):
            self._move(index, inside, outside, is_out=True)

    def _move_in(self, index: int, file: FileChange) -> None:
        inside, outside = self._changes.path(file.name), self._outside(file)
        if os.path.lexists(outside):
            self._move(index, outside, inside, is_out=False)

    def _move(self, index: int, old: str, new: str, *, is_out: bool) -> None:
        try:
            self._layer.rename(old, new)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._copy_across(index, old, new, is_out=is_out)

    def _copy_across(self, index: int, old: str, new: str, *, is_out: bool) -> None:
        """Rename between file systems.

        The copy gets its name only when the original is gone, so that a file is never in both places; the
        journal says before that the copy is whole.
        """
        part = new + _PART
        if Path(old).is_symlink():
            self._layer.symlink(str(Path(old).readlink()), part)
        else:
            copy_file(old, part, self._layer, self._advance)
        self._sync_up(os.path.dirname(part))
        self._journal.say(self._layer, copied=index, out=is_out)
        self._end_copy(old, new)

    def _end_copy(self, old: str, new: str) -> None:
        """Give a whole copy its name when the original is gone, each for good: the next copy is the one to be found."""
        if os.path.lexists(old):
            self._layer.unlink(old)
            self._layer.sync_directory(os.path.dirname(old))
        self._layer.rename(new + _PART, new)
        self._layer.sync_directory(os.path.dirname(new))

    def _sync_up(self, directory: str) -> None:
        """Make the names of a directory safe, and its own name, and so on up to what was there before the run."""
        tops = {self._changes.root, str(self._journal.base)}
        while True:
            self._layer.sync_directory(directory)
            if directory in tops or directory == os.path.dirname(directory):
                return
            directory = os.path.dirname(directory)

    def _end_copies(self) -> None:
        """Finish the move between file systems that a kill broke off, or drop what it left."""
        last = self._journal.last
        if "copied" in last:
            file = self._changes.files[last["copied"]]
            old, new = self._changes.path(file.name), self._outside(file)
            old, new = (old, new) if last["out"] else (new, old)
            if os.path.lexists(new + _PART):
                self._end_copy(old, new)
        for file in self._changes.files:
            if file.moves:
                for place in (self._changes.path(file.name), self._outside(file)):
                    if os.path.lexists(place + _PART):
                        self._layer.unlink(place + _PART)

    def _directories(self, *, after: bool) -> None:
        changed = self._changes.directories
        for directory in sorted(changed, key=lambda d: d.name, reverse=True):
            path = self._changes.path(directory.name)
            if not directory.side(after=after) and os.path.isdir(path):
                self._layer.rmdir(path)
        for directory in sorted(changed, key=lambda d: d.name):
            path = self._changes.path(directory.name)
            if directory.side(after=after) and not os.path.isdir(path):
                self._layer.mkdir(path, directory.mode)
                self._layer.set_mode(path, directory.mode)
                self._layer.set_owner(path, *directory.owner)
        self._sync(os.path.dirname(self._changes.path(directory.name)) for directory in changed)

    def _edit(self, file: FileChange, *, after: bool) -> None:
        side = file.side(after=after)
        with self._layer.edit(self.where(file)) as opened:
            if file.floor < max(file.before.size, file.after.size):
                opened.truncate(file.floor)
                opened.truncate(side.size)
            for offset, size, payload in file.payloads(after=after):
                opened.write(load(payload), offset)
                self._advance(size)
            opened.set_times(side.mtime_ns)
            opened.sync()

    def _settle(self) -> None:
        """Set the times of directories, then put all names safely on the disk."""
        changes = self._changes
        for name, mtime_ns in changes.times:
            path = changes.path(name)
            if name and os.path.isdir(path):
                self._layer.set_times(path, mtime_ns)
        self._sync_places([file for file in changes.files if file.moves])
        self._sync(changes.path(name) for name, _ in changes.times)

    def _sync_places(self, moved: list[FileChange]) -> None:
        """Put the names of files that move, where they were and where they are, safely on the disk."""
        self._sync(os.path.dirname(self._outside(file)) for file in moved)
        self._sync(os.path.dirname(self._changes.path(file.name)) for file in moved)

    def _sync(self, directories: Iterable[str]) -> None:
        for path in sorted(set(directories)):
            if os.path.isdir(path):
                self._layer.sync_directory(path)

    def _outside(self, file: FileChange) -> str:
        return outside(self._journal, file)


def outside(journal: Journal, file: FileChange) -> str:
    """Return the place of a moving file outside the store."""
    return os.path.join(journal.base, file.kept_at)


def where(journal: Journal, file: FileChange) -> str:
    """Where a file of a journal lies now."""
    if file.moves and os.path.lexists(outside(journal, file)):
        return outside(journal, file)
    return journal.changes.path(file.name)


# --- is the store as a journal left it --------------------------------------------------------------


def differences(journal: Journal, *, after: bool) -> list[str]:
    """Files and directories that are not as the journal has them on one side, a sentence each.

    Held against it: place, size, modification time and every byte that the journal changes.
    """
    return list(_differences(journal, after=after))


def strange(journal: Journal) -> list[str]:
    """Files that are neither before, nor after, nor anywhere between: somebody else changed them."""
    return [f"{file.name}: {why}" for file in journal.changes.files for why in _strange(journal, file)]


def _differences(journal: Journal, *, after: bool) -> Iterator[str]:
    changes = journal.changes
    inside = {f.name for f in changes.files if f.side(after=after).place == STORE}
    inside |= {d.name for d in changes.directories if d.side(after=after)}  # a name that a directory takes over
    for file in changes.files:
        for why in _differs(journal, file, after=after):
            yield f"{file.name}: {why}"
            break
        if file.name not in inside and os.path.lexists(changes.path(file.name)):
            yield f"{file.name}: is there again"
            inside.add(file.name)
    for directory in changes.directories:
        if os.path.isdir(changes.path(directory.name)) != directory.side(after=after):
            yield f"{directory.name}/: is {'gone' if directory.side(after=after) else 'there again'}"


def _differs(journal: Journal, file: FileChange, *, after: bool) -> Iterator[str]:
    side = file.side(after=after)
    path = journal.changes.path(file.name) if side.place == STORE else outside(journal, file)
    if not os.path.lexists(path):
        yield "is gone" if side.place == STORE else f"is gone from {path}"
        return
    found = os.lstat(path) if file.moves else os.stat(path)
    if found.st_size != side.size:
        yield f"has {found.st_size:,} bytes, not {side.size:,}"
        return
    yield from _other_bytes(path, file, after=after)
    if found.st_mtime_ns != side.mtime_ns:
        yield "was written to since (its modification time is another)"


def _other_bytes(path: str, file: FileChange, *, after: bool) -> Iterator[str]:
    if not file.pieces:
        return
    with open(path, "rb", buffering=0) as opened:
        for offset, size, payload in file.payloads(after=after):
            if os.pread(opened.fileno(), size, offset) != load(payload):
                yield f"other bytes at {offset:,} than the journal knows"


def _strange(journal: Journal, file: FileChange) -> Iterator[str]:
    path = where(journal, file)
    if not os.path.lexists(path):
        if not any(os.path.lexists(p + ".rmqctl-part") for p in (path, outside(journal, file))):
            yield "is gone"
        return
    size = (os.lstat(path) if file.moves else os.stat(path)).st_size
    if size not in {file.before.size, file.after.size, file.floor}:
        yield f"has {size:,} bytes, neither {file.before.size:,} nor {file.after.size:,}"
        return
    if not file.pieces:
        return
    with open(path, "rb", buffering=0) as opened:
        for piece in file.pieces:
            data = os.pread(opened.fileno(), piece.size, piece.offset)
            if not is_between(data, _known(file, piece)):
                yield f"bytes at {piece.offset:,} that the journal does not know"
                return


def _known(file: FileChange, piece: ChangedBytes) -> list[bytes]:
    """Return what may lie at the place of a piece."""
    if piece.offset < file.floor:
        return [load(p) for p in (piece.before, piece.after) if p is not None]
    sides = [bytearray(piece.size), bytearray(piece.size)]  # after the floor pieces of one side overlap the other's
    low = bisect_left(file.pieces, piece.offset - PIECE, key=lambda p: p.offset)
    high = bisect_left(file.pieces, piece.offset + piece.size, key=lambda p: p.offset)
    for other in file.pieces[low:high]:
        for side, payload in zip(sides, (other.before, other.after), strict=True):
            if payload is not None and other.offset >= file.floor:
                _lay(side, piece.offset, other.offset, load(payload))
    return [bytes(sides[0]), bytes(sides[1]), bytes(piece.size)]


def _lay(buffer: bytearray, start: int, offset: int, data: bytes) -> None:
    """Put bytes that lie at `offset` over a buffer that begins at `start`, where they overlap."""
    low, high = max(start, offset), min(start + len(buffer), offset + len(data))
    if low < high:
        buffer[low - start : high - start] = data[low - offset : high - offset]


def is_between(data: bytes, known: list[bytes]) -> bool:
    """Whether each byte is that of one of the known ones at its place: a write may have been broken off anywhere."""
    if any(data == one[: len(data)] for one in known):
        return True
    return all(byte in choices for byte, *choices in zip(data, *known, strict=False))
