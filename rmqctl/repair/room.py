"""May everything be written, and is there room for it? Asked before the first write."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.repair.changes import STORE, Changes, FileChange, Payload, Region
from rmqctl.repair.extents import data_extents
from rmqctl.repair.journal_rows import INLINE
from rmqctl.repair.layer import FileLayer

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
        others = f" and {len(shared) - 1:,} more files" if len(shared) > 1 else ""
        raise Refused(
            f"{shared[0]}{others} of {changes.root} have further names (hard links, as `cp -al` makes them), and what "
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
    """A directory on each device that is written to."""
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
    """A directory, or the nearest above it that is there."""
    while not path.is_dir():
        path = path.parent
    return path
