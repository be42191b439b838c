"""A link in the store's root while a repair is under way: it leads to the journal, wherever that lies.

Where the file system knows no links, a file of the same name holds the path.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.repair.journal import (
    JOURNAL,
    PENDING,
    STATE,
    Journal,
    default_directory,
    header_of,
    journals_in,
    root_of,
)
from rmqctl.repair.layer import FileLayer
from rmqctl.repair.lines import rows_of

POINTER = "rmqctl.pending"
"""Its name; one request makes it and one removes it. Brokers pay no heed to it."""
_PART = ".rmqctl-part"
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}
"""What file systems without symbolic links answer."""


def point(journal: Journal, layer: FileLayer) -> None:
    """Say in the store that a journal is under way.

    Raises:
        OSError: the system refuses.
    """
    path = Path(journal.changes.path(POINTER))
    led_to = _target(path)
    if led_to is not None and led_to != journal.path:  # of a journal that is done
        layer.unlink(str(path))
    if led_to != journal.path:
        try:
            layer.symlink(str(journal.path), str(path))
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _write(path, journal.path, layer)
        layer.sync_directory(journal.changes.root)


def _write(path: Path, target: Path, layer: FileLayer) -> None:
    """The path in a file, which is there whole or not at all."""
    part = str(path) + _PART
    if os.path.lexists(part):
        layer.unlink(part)
    with layer.create(part) as file:
        file.write(os.fsencode(target), 0)
        file.sync()
    layer.rename(part, str(path))


def unpoint(journal: Journal, layer: FileLayer) -> None:
    """Take the link away."""
    path = journal.changes.path(POINTER)
    found = [p for p in (path, path + _PART) if os.path.lexists(p)]
    for one in found:
        layer.unlink(one)
    if found:
        layer.sync_directory(journal.changes.root)


def pending(root: Path) -> Path | None:
    """The journal that was begun on a store and neither finished nor taken back, or None.

    As long as there is one, no command may write to the store: offer :func:`resume` or :func:`undo`.

    Raises:
        Refused: the link in the store leads to a journal that is gone, or to that of another store.
    """
    link = root / POINTER
    journal = _target(link)
    if journal is not None:
        if not (journal / JOURNAL).is_file():
            beside = default_directory(root) / journal.name
            if not (beside / JOURNAL).is_file():
                raise Refused(
                    f"{root} was being changed by a journal that is gone: {journal}; put it back, "
                    f"then type: rmqctl undo {journal}"
                )
            journal = beside
        if not _belongs(journal, root):
            raise Refused(
                f"{link} leads to {journal}, which is no journal of this store; "
                f"remove the link when you know that nothing was broken off"
            )
        if state_of(journal) in PENDING:
            return journal
    return _beside(root)


def _target(link: Path) -> Path | None:
    """Where a link leads, or the path that a file in its place holds."""
    if link.is_symlink():
        return link.readlink()
    try:
        return Path(os.fsdecode(link.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _beside(root: Path) -> Path | None:
    for path in reversed(journals_in(default_directory(root))):
        if state_of(path) in PENDING and _belongs(path, root):
            return path
    return None


def _belongs(path: Path, root: Path) -> bool:
    """Whether a journal is that of a store, by its first line; what is damaged there shows when it is opened."""
    header = header_of(path)
    with suppress(Refused, KeyError):
        return root_of(path, header) == os.path.realpath(root)
    return not header


def state_of(path: Path) -> str:
    """The last state of a journal, without reading the journal itself."""
    try:
        rows = list(rows_of((path / STATE).read_bytes()))
    except FileNotFoundError:
        return ""
    return next((str(row["state"]) for row in reversed(rows) if "state" in row), "")
