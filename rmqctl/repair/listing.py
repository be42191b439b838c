"""Every file of a store with size and time: what tells whether anybody wrote to it since."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rmqctl.repair.journal import AFTER, Journal
from rmqctl.repair.layer import FileLayer
from rmqctl.repair.lines import line_of, rows_of
from rmqctl.repair.pointer import POINTER

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
    return list(_told(then, now))


def _told(then: Seen, now: Seen) -> Iterator[str]:
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
