"""May a journal be gone on with, or be taken back? Every reason why not, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.repair.changes import load
from rmqctl.repair.check import differences, strange
from rmqctl.repair.confine import check_changes, check_own_files
from rmqctl.repair.draft import told
from rmqctl.repair.journal import (
    DONE,
    PENDING,
    READY,
    TAKEN_BACK,
    UNDONE,
    Journal,
    header_of,
    read_journal,
    undo_command,
)
from rmqctl.repair.listing import changed_since
from rmqctl.repair.pointer import pending

Outside = Sequence[str | Path]
_REASONS = {READY: "it was written and never begun", TAKEN_BACK: "it was taken back before it was done"}


def refuse_pending(root: Path) -> None:
    """Hold every command that writes off a store that an earlier run left half changed.

    Raises:
        Refused: the message says how to finish that run, and how to take it back.
    """
    path = pending(root)
    if path is not None:
        outside = header_of(path).get("outside") or ()
        raise Refused(
            f"an earlier run on {root} was broken off; first type: {undo_command(path, outside, resume=True)} "
            f"(to finish it) or {undo_command(path, outside)} (to take it back)"
        )


def check_journal(path: Path, *, forwards: bool = False, force: bool = False, outside: Outside = ()) -> Journal:
    """Read a journal that is to be taken back, or finished if `forwards`, and hold the store to it.

    Args:
        outside: directories outside the store that the user lets it change.

    Raises:
        Refused: why it cannot be done; files that changed since are named.
        OSError: a file cannot be read.
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
        raise Refused(f"{found.path} is finished: nothing is left to do; to take it back: rmqctl undo {found.path}")
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
        raise Refused(f"{found.path} was taken back already, by {by}; to take that back in turn: rmqctl undo {by}")
    if found.state in _REASONS:
        raise Refused(
            f"{found.path} has changed nothing: {_REASONS[found.state]}; "
            f"to carry it out after all: rmqctl undo {found.path} --resume"
        )
    _refuse_changed(found, differences(found, after=True), "go back")
    others = [] if force else changed_since(found)
    if others:
        raise Refused(
            f"the store changed after {found.path} was done: {told(others)}; nothing was changed; "
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
        raise Refused(f"cannot {purpose} with {journal.path}, files changed since: {told(names)}; nothing was changed")
