"""Writing a journal: everything that going on or going back will need is on the disk before the first edit.

Whether everything may be written, and whether there is room for it, is asked before the first write.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rmqctl.errors import Refused
from rmqctl.files.local import data_extents
from rmqctl.files.new_files import Ownership
from rmqctl.files.writing import FileLayer, OpenFile
from rmqctl.repair.edits import STORE, Changes, FileChange, Payload, Region, load
from rmqctl.repair.journal import (
    INLINE,
    Journal,
    inline_or_kept,
    read_journal,
    rows_for,
)
from rmqctl.repair.journal_directory import DATA, JOURNAL, STATE, Reserved, line_of

_LINE = 200
"""Bytes of a line of a journal, about."""
_SPARE = 64 * 1024
"""Room for what a file system needs for itself."""
_READ_ONLY = getattr(os, "ST_RDONLY", 1)


def check_writable(changes: Changes, base: Path) -> None:
    """Hold every file and directory that will be written to what the system allows.

    Raises:
        Refused: the first that may not be written, with the reason.
    """
    check_directory(changes.root)
    check_directory(str(_there(base)), "give a directory for the journal with --journal DIR")
    for file in changes.files:
        path = changes.path(file.name)
        if file.moves:
            check_directory(str(_there(Path(path).parent)))
        if file.is_edited and file.before.place == STORE and not os.access(path, os.W_OK):
            raise Refused(f"{path} may not be written; nothing was changed; {_ADVICE}")


_COPY = "mount it for writing, or copy the store and work on the copy"
_ADVICE = "run as the user that owns the store"


def check_directory(path: str, advice: str = _ADVICE) -> None:
    """Hold one directory to what the system allows.

    Raises:
        Refused: it lies on a read-only medium, or this user may not write in it.
    """
    if os.statvfs(path).f_flag & _READ_ONLY:
        raise Refused(
            f"{path} is on a read-only medium; nothing was changed; " + (_COPY if advice == _ADVICE else advice)
        )
    if not os.access(path, os.W_OK | os.X_OK):
        raise Refused(f"{path} may not be written; nothing was changed; {advice}")


def check_names(changes: Changes) -> None:
    """Hold files whose bytes change in their place to having one name: a snapshot of hard links would change along.

    Raises:
        Refused: the first that has more.
    """
    shared = [
        file.name
        for file in changes.files
        if file.is_edited and file.before.place == STORE and os.stat(changes.path(file.name)).st_nlink > 1
    ]
    if shared:
        others = (
            f" and {len(shared) - 1:,} more files of {changes.root} have"
            if len(shared) > 1
            else f" of {changes.root} has"
        )
        raise Refused(
            f"{shared[0]}{others} further names (hard links, as `cp -al` makes them), and what "
            "they name would change along; nothing was changed; copy the store with `cp -a` and work on the copy, "
            "or give --force to change all of them"
        )


def check_room(changes: Changes, base: Path, layer: FileLayer) -> None:
    """Hold what journal, new files and moves between file systems need to what is free.

    Raises:
        Refused: too little is free; the message has both numbers.
    """
    here, known = os.stat(_there(base)).st_dev, _devices(changes, base)
    for device, needed in room_needed(changes, base).items():
        path = known[device]
        free = layer.free_bytes(path)
        if needed > free:
            elsewhere = ", or give a directory on another disk with --journal DIR" if device == here else ""
            raise Refused(
                f"too little room in {path}: {needed:,} bytes are needed and {free:,} are free "
                f"({needed - free:,} are missing); nothing was changed; free some{elsewhere}; "
                "--force tries all the same"
            )


def _devices(changes: Changes, base: Path) -> dict[int, str]:
    """Return a directory on each device that is written to."""
    places = [str(_there(Path(changes.path(file.name)).parent)) for file in changes.files]
    return {os.stat(path).st_dev: path for path in (*places, changes.root, str(_there(base)))}


def room_needed(changes: Changes, base: Path) -> Counter[int]:
    """Bytes needed on each device."""
    here = os.stat(_there(base)).st_dev
    needed: Counter[int] = Counter({here: _SPARE + _LINE * (len(changes.files) + len(changes.steps) + 8)})
    for file in changes.files:
        there = os.stat(_there(Path(changes.path(file.name)).parent)).st_dev
        for piece in file.pieces:
            needed[here] += _LINE + _kept(piece.before) + _kept(piece.after)
            if piece.offset >= file.before.size and piece.after is not None:
                needed[there] += piece.size
        if file.content is not None:
            needed[here] += _filled(file.content)
        if file.moves and there != here:
            target = here if file.after.place != STORE else there
            needed[target] += _moved(file, changes)
    return needed


def _kept(payload: Payload | None) -> int:
    size = 0 if payload is None else payload.size if isinstance(payload, Region) else len(payload)
    return 2 * size if size <= INLINE else size


def _filled(content: Payload) -> int:
    """Bytes of a new file that are not holes."""
    if isinstance(content, bytes):
        return len(content)
    with open(content.path, "rb", buffering=0) as file:
        return sum(size for _, size in data_extents(file.fileno(), 0, content.size))


def _moved(file: FileChange, changes: Changes) -> int:
    if file.content is not None:
        return _filled(file.content)
    path = changes.path(file.name)
    return os.stat(path).st_blocks * 512 if os.path.isfile(path) else file.after.size


def _there(path: Path) -> Path:
    """Return a directory, or the nearest above it that is there."""
    while not path.is_dir():
        path = path.parent
    return path


# --- writing a journal ------------------------------------------------------------------------------


_BUFFER = 1 << 20


def write_journal(
    changes: Changes,
    place: Reserved,
    layer: FileLayer,
    *,
    reverses: Path | None = None,
    advance: Callable[[int], None] = lambda size: None,
    **facts: Any,
) -> Journal:
    """Write the journal of some changes, with the new files that they need, and read it back.

    Args:
        place: the directory that was taken for it.
        reverses: the journal whose changes these take back; its data serve both.
        facts: further keys of the header: ``beside``, whether its place says which store is meant;
            ``lock_is_new``, whether the store had no lock file; ``outside``, directories elsewhere that may be changed;
            ``books``, see `rmqctl.repair.books.Books.for_journal`.

    Raises:
        OSError: it could not be written; nothing of the store has changed.
    """
    made = [place.part, *_make_places(changes, place, layer)]
    header = {
        "kind": "rmqctl-journal",
        "version": 1,
        "title": changes.title,
        "root": changes.root,
        "lock": changes.lock,
        "base": str(place.base),
        "base_is_new": bool(place.made),
        "time": time.time_ns() // 1_000_000,
        "reverses": reverses.name if reverses else None,
        **facts,
    }
    _write_rows(header, changes, place.part, layer, reverses, advance)
    for file in changes.files:
        if file.content is not None:
            _stage(file, file.content, changes, place.inside(file.before.place), layer, advance)
    with layer.create(str(place.part / STATE)) as state:
        state.sync()
    for directory in reversed(made):
        layer.sync_directory(str(directory))
    return read_journal(place.finish(layer))


def _make_places(changes: Changes, place: Reserved, layer: FileLayer) -> list[Path]:
    """Directories for new and for moved files, outermost first."""
    wanted = {place.inside(f.kept_at).parent for f in changes.files if f.moves}
    wanted |= {p for w in list(wanted) for p in w.parents if place.part in p.parents}
    made = [p for p in sorted(wanted) if not p.is_dir()]
    for directory in made:
        layer.mkdir(str(directory))
    return made


def _write_rows(
    header: dict[str, Any],
    changes: Changes,
    path: Path,
    layer: FileLayer,
    reverses: Path | None,
    advance: Callable[[int], None],
) -> None:
    """Write the lines and the data."""
    with ExitStack() as stack:
        data = _Data(stack, path / DATA, layer, reverses, advance)
        lines = _Appender(stack.enter_context(layer.create(str(path / JOURNAL))))
        number = 0
        for number, row in enumerate(_all_rows(header, changes, data)):
            lines.add(line_of(row, number))
        lines.add(line_of({"kind": "end", "data_size": data.size()}, number + 1))
        lines.finish()
        data.finish()


def _all_rows(header: dict[str, Any], changes: Changes, data: _Data) -> Iterator[dict[str, Any]]:
    yield header
    yield from rows_for(changes, data.keep)


class _Appender:
    """Writes a file from its start in large pieces."""

    def __init__(self, file: OpenFile) -> None:
        self.file, self.end = file, 0
        self._buffer = bytearray()

    def add(self, data: bytes) -> int:
        """Add bytes; returns where they lie."""
        at = self.end + len(self._buffer)
        self._buffer += data
        if len(self._buffer) >= _BUFFER:
            self._flush()
        return at

    def finish(self) -> None:
        self._flush()
        self.file.sync()

    def _flush(self) -> None:
        self.file.write(bytes(self._buffer), self.end)
        self.end += len(self._buffer)
        self._buffer.clear()


class _Data:
    """The data of a journal: its own, or a second name for those of the journal that it takes back."""

    def __init__(
        self, stack: ExitStack, path: Path, layer: FileLayer, reverses: Path | None, advance: Callable[[int], None]
    ) -> None:
        self._shared = str(reverses / DATA) if reverses else ""
        self._path, self._advance = path, advance
        self._own = None
        if self._shared:
            _link_or_copy(self._shared, str(path), layer)
        else:
            self._own = _Appender(stack.enter_context(layer.create(str(path))))

    def keep(self, payload: Payload) -> dict[str, Any]:
        """Return what a line says of a payload."""
        if isinstance(payload, Region) and payload.path == self._shared:
            return {"at": payload.offset, "crc": payload.crc}
        data = load(payload)
        self._advance(len(data))
        return inline_or_kept(data, self._store)

    def size(self) -> int:
        if self._own is None:
            return os.path.getsize(self._path)
        return self._own.add(b"")

    def finish(self) -> None:
        if self._own is not None:
            self._own.finish()

    def _store(self, data: bytes) -> int:
        assert self._own is not None, "what a reversed journal needs is short or in the data that it shares"
        return self._own.add(data)


def _link_or_copy(old: str, new: str, layer: FileLayer) -> None:
    try:
        layer.link(old, new)
    except OSError:  # a file system without hard links
        copy_file(old, new, layer)


def copy_file(
    old: str, new: str, layer: FileLayer, advance: Callable[[int], None] = lambda size: None, size: int | None = None
) -> None:
    """Make a copy with the same holes, mode, owner and time, safely on the disk.

    Args:
        size: length of the copy; default: that of the file.
    """
    found = os.stat(old)
    with open(old, "rb", buffering=0) as source, layer.create(new, found.st_mode & 0o7777) as file:
        for at, length in data_extents(source.fileno(), 0, found.st_size):
            file.write(os.pread(source.fileno(), length, at), at)
            advance(length)
        file.truncate(found.st_size if size is None else size)
        layer.set_mode(new, found.st_mode & 0o7777)
        layer.set_owner(new, found.st_uid, found.st_gid)
        file.set_times(found.st_mtime_ns)
        file.sync()


def _stage(
    change: FileChange,
    content: Payload,
    changes: Changes,
    place: Path,
    layer: FileLayer,
    advance: Callable[[int], None],
) -> None:
    """Make a new file in the journal, whole and on the disk, owned like the directory that it will enter."""
    path, owner = str(place), Ownership.of(os.path.dirname(changes.path(change.name)))
    if isinstance(content, Region):
        copy_file(content.path, path, layer, advance, change.before.size)
    else:
        with layer.create(path) as file:
            file.write(content, 0)
            file.truncate(change.before.size)
    layer.set_owner(path, owner.uid, owner.gid)
    layer.set_mode(path, owner.mode_for(is_directory=False))
    with layer.edit(path) as file:
        file.set_times(change.before.mtime_ns)
        file.sync()
