"""Driving a store to one side of a journal: every request may be repeated, so it can start from anywhere between."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from rmqctl.repair.changes import STORE, FileChange, load
from rmqctl.repair.journal import Journal
from rmqctl.repair.layer import FileLayer
from rmqctl.repair.write_journal import copy_file

_PART = ".rmqctl-part"


class Driver:
    """Carries out a journal, forwards or backwards.

    Files that leave the store leave it first; then directories go and come, bytes change, and files
    enter. So a file can make room for another of its name, on both ways.
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
        """A rename between file systems.

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
        self._layer.unlink(old)
        self._layer.rename(part, new)

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
                if os.path.lexists(old):
                    self._layer.unlink(old)
                self._layer.rename(new + _PART, new)
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
        """Times of directories, then all names safely on the disk."""
        changes = self._changes
        for name, mtime_ns in changes.times:
            path = changes.path(name)
            if name and os.path.isdir(path):
                self._layer.set_times(path, mtime_ns)
        moved = [f for f in changes.files if f.moves]
        names = {os.path.dirname(self._outside(f)) for f in moved}
        names |= {os.path.dirname(changes.path(f.name)) for f in moved}
        names |= {os.path.dirname(changes.path(d.name)) for d in changes.directories}
        names |= {changes.path(name) for name, _ in changes.times}
        for path in sorted(names):
            if os.path.isdir(path):
                self._layer.sync_directory(path)

    def _outside(self, file: FileChange) -> str:
        return outside(self._journal, file)


def outside(journal: Journal, file: FileChange) -> str:
    """The place of a moving file outside the store."""
    return os.path.join(journal.base, file.kept_at)


def where(journal: Journal, file: FileChange) -> str:
    """Where a file of a journal lies now."""
    if file.moves and os.path.lexists(outside(journal, file)):
        return outside(journal, file)
    return journal.changes.path(file.name)
