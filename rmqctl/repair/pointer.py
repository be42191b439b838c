"""A link in the store's root while a repair is under way: it leads to the journal, wherever that lies."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.repair.journal import DONE, JOURNAL, PENDING, STATE, Journal, default_directory, read_journal
from rmqctl.repair.layer import FileLayer
from rmqctl.repair.lines import rows_of

POINTER = "rmqctl.pending"
"""Its name; one request makes it and one removes it. Brokers pay no heed to it."""


_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}
"""What file systems without symbolic links answer."""


def point(journal: Journal, layer: FileLayer) -> None:
    """Say in the store that a journal is under way."""
    path = Path(journal.changes.path(POINTER))
    if path.is_symlink() and path.readlink() != journal.path:  # of a journal that is done
        layer.unlink(str(path))
    if not path.is_symlink():
        try:
            layer.symlink(str(journal.path), str(path))
        except OSError as error:
            if error.errno not in _NO_LINKS or not journal.header.get("beside"):
                raise
            return  # a journal beside the store is found without
        layer.sync_directory(journal.changes.root)


def unpoint(journal: Journal, layer: FileLayer) -> None:
    """Take the link away, and give the root the time that it had."""
    path = journal.changes.path(POINTER)
    if os.path.lexists(path):
        layer.unlink(path)
        layer.sync_directory(journal.changes.root)


def pending(root: Path) -> Path | None:
    """The journal that was begun on a store and neither finished nor taken back, or None.

    As long as there is one, no command may write to the store: offer :func:`resume` or :func:`undo`.

    Raises:
        Refused: the link in the store leads to a journal that is gone.
    """
    link = root / POINTER
    if link.is_symlink():
        journal = link.readlink()
        if not (journal / JOURNAL).is_file():
            beside = default_directory(root) / journal.name
            if not (beside / JOURNAL).is_file():
                raise Refused(
                    f"{root} was being changed by a journal that is gone: {journal}; put it back, "
                    f"then type: rmqctl undo {journal}"
                )
            journal = beside
        if state_of(journal) in PENDING:
            return journal
    return _beside(root)


def _beside(root: Path) -> Path | None:
    base = default_directory(root)
    for path in sorted(base.glob("[0-9]*"), reverse=True) if base.is_dir() else []:
        if (path / JOURNAL).is_file() and state_of(path) in PENDING and _belongs(path, root):
            return path
    return None


def _belongs(path: Path, root: Path) -> bool:
    try:
        return read_journal(path).changes.root == os.path.realpath(root)
    except Refused:  # another store's, or damaged: whoever opens it is told
        return False


def state_of(path: Path) -> str:
    """The last state of a journal, without reading the journal itself."""
    try:
        rows = list(rows_of((path / STATE).read_bytes()))
    except FileNotFoundError:
        return ""
    return next((str(row["state"]) for row in reversed(rows) if "state" in row), "")


def choose_journal(path: Path) -> Path:
    """The journal that is meant by a path: itself, or the one of a store or in a directory of journals.

    Of several it is one that was broken off, else the last that is done and not taken back.

    Raises:
        Refused: there is none.
    """
    if (path / JOURNAL).exists() or not path.is_dir():
        return path
    if (found_pending := pending(path)) is not None:
        return found_pending
    path = default_directory(path) if default_directory(path).is_dir() else path
    found = {p: state_of(p) for p in sorted(path.glob("[0-9]*"), reverse=True) if (p / JOURNAL).exists()}
    chosen = [p for p, state in found.items() if state in PENDING] or [p for p, state in found.items() if state == DONE]
    if not found or not chosen:
        raise Refused(
            f"{path} holds no journal that can be taken back"
            + (
                f"; of {len(found):,} all were taken back"
                if found
                else "; give a directory such as store.rmqctl-journal/0001"
            )
        )
    return chosen[0]
