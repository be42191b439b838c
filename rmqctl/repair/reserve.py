"""A directory for a new journal: its name is taken exclusively, and only what is ours is ever cleaned up.

A journal is written under the name ``0001.rmqctl-part`` and gets its own name when it is whole. The directory of
journals is locked while names are taken and given, a journal in the making as long as somebody works on it; what a
kill leaves is known by its name, and by nobody holding its lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.files.writing import FileLayer
from rmqctl.repair.journal import DATA, JOURNAL, PART, STATE

_BUSY = {errno.EWOULDBLOCK, errno.EACCES}
_PATIENCE = 60.0
"""Seconds to wait for another run that takes a name; it needs a few milliseconds."""
_LEFT = re.compile(r"\d{4,}" + re.escape(PART))


class NameTaken(Exception):
    """Another run took the name of the journal first."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The directory of a journal that is being written.

    Attributes:
        base: the directory of journals.
        name: that of the journal.
        made: directories that had to be made for it, the outermost first.
    """

    base: Path
    name: str
    made: tuple[Path, ...] = ()

    @property
    def path(self) -> Path:
        """Where the journal will be when it is whole."""
        return self.base / self.name

    @property
    def part(self) -> Path:
        """Where it is until then."""
        return self.base / (self.name + PART)

    def inside(self, place: str) -> Path:
        """Where a place of the journal is while the journal is written; places of other journals stay."""
        own, _, rest = place.partition("/")
        return self.part / rest if own == self.name else self.base / place

    def finish(self, layer: FileLayer) -> Path:
        """Give the journal its name, safely on the disk."""
        with _locked(self.base):
            layer.rename(str(self.part), str(self.path))
        layer.sync_directory(str(self.base))
        return self.path

    def give_up(self, layer: FileLayer) -> None:
        """Remove what was written; what cannot be removed does no harm."""
        with suppress(OSError):
            discard(self.path if self.path.is_dir() and not self.part.is_dir() else self.part, layer)
        for directory in reversed(self.made):
            with suppress(OSError):
                layer.rmdir(str(directory))


def next_name(base: Path) -> str:
    """Return the name of the next journal in a directory: 0001, 0002, ..."""
    names = [p.name.removesuffix(PART) for p in base.iterdir()] if base.is_dir() else []
    return f"{max((int(n) for n in names if n.isascii() and n.isdigit()), default=0) + 1:04}"


@contextmanager
def reserved(base: Path, name: str, layer: FileLayer) -> Iterator[Reserved]:
    """Take a name for a journal; nobody else gets it, and nobody clears it away, as long as the block runs.

    Raises:
        NameTaken: somebody else has it.
        Refused: another run holds the directory, and does not let it go.
    """
    made: list[Path] = []
    place = Reserved(base, name)
    try:
        while True:
            made += _make(base, layer)
            with _locked(base) as is_there:
                if is_there:
                    place = Reserved(base, name, tuple(made))
                    _clean(base, layer)
                    if os.path.lexists(place.path) or os.path.lexists(place.part):
                        raise NameTaken
                    layer.mkdir(str(place.part))
                    held = _open(place.part)
                    _lock(held)
                    break
    except (OSError, NameTaken, KeyboardInterrupt):
        for directory in reversed(made):
            with suppress(OSError):
                layer.rmdir(str(directory))
        raise
    try:
        yield place
    finally:
        os.close(held)


def discard(path: Path, layer: FileLayer, new: Collection[str] | None = None) -> None:
    """Remove a journal that changed nothing, or whose store is as it was; never anything in quarantine.

    Args:
        new: the files in it that were made for the store, relative to it; default: all below ``new``.
    """
    for name in (JOURNAL, DATA, STATE):
        if (path / name).is_file() and not (path / name).is_symlink():
            layer.unlink(str(path / name))
    for directory, _, files in os.walk(path, topdown=False):
        inner = Path(directory).relative_to(path)
        for name in files if inner.parts[:1] == ("new",) else ():
            if new is None or str(inner / name) in new:
                layer.unlink(os.path.join(directory, name))
        if (not inner.parts or inner.parts[0] in ("new", "quarantine")) and not os.listdir(directory):
            layer.rmdir(directory)


def _clean(base: Path, layer: FileLayer) -> None:
    """Remove what a kill left of journals that were not whole; those that somebody works on stay."""
    for path in base.iterdir():
        if not _LEFT.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
            continue
        with suppress(OSError):
            held = _open(path)
            try:
                if _lock(held):
                    discard(path, layer)
            finally:
                os.close(held)


def _make(base: Path, layer: FileLayer) -> list[Path]:
    """Make a directory and those above it that are missing; those made, the outermost first."""
    made = []
    for directory in reversed([d for d in (base, *base.parents) if not d.is_dir()]):
        with suppress(FileExistsError):
            layer.mkdir(str(directory))
            made.append(directory)
            layer.sync_directory(str(directory.parent))
    return made


@contextmanager
def _locked(base: Path) -> Iterator[bool]:
    """Hold the lock of a directory of journals; gives whether the directory is still there."""
    try:
        held = _open(base)
    except FileNotFoundError:
        yield False
        return
    try:
        until = time.monotonic() + _PATIENCE
        while _lock(held) is False:
            if time.monotonic() > until:
                raise Refused(f"another run holds {base}; nothing was written; wait for it, or give --journal DIR")
            time.sleep(0.005)
        yield _is_same(base, held)
    finally:
        os.close(held)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock(fd: int) -> bool | None:
    """Lock a directory if nobody else does; None on a file system that locks none."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _BUSY else None
    return True


def _is_same(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
