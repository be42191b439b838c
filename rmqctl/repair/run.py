"""Carrying out: apply a plan, go on with what was broken off, take back what was done."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from rmqctl.errors import Refused, StoreInUse
from rmqctl.files.lock import LockHeldError, holding
from rmqctl.repair.carry import Advance, Applied, Start, Verify, begin_run, carry_out, take_back
from rmqctl.repair.confine import check_own_files
from rmqctl.repair.draft import draft
from rmqctl.repair.edits import Plan
from rmqctl.repair.history import lineage
from rmqctl.repair.journal import PENDING, Journal, default_directory, read_journal
from rmqctl.repair.layer import FileLayer
from rmqctl.repair.may import check_resume, check_undo, refuse_pending
from rmqctl.repair.reserve import NameTaken, next_name
from rmqctl.repair.room import check_directory

_TURN = re.compile(r"^(undo|redo) of \d+: ")


def apply(
    plan: Plan,
    *,
    journal_dir: Path | None = None,
    force: bool = False,
    outside: Sequence[str | Path] = (),
    verify: Verify | None = None,
    layer: FileLayer | None = None,
    lock: str = "lock",
    lock_is_held: bool = False,
    advance: Advance = lambda size: None,
) -> Applied:
    """Carry out a plan, so that it can be taken back, and gone on with after a kill at any instruction.

    Args:
        journal_dir: directory for journals; default: ``<store>.rmqctl-journal`` beside the store.
        force: try although too little room seems to be free, or a file has further names (hard links).
        outside: directories outside the store that may be changed, too, such as those of a commit log elsewhere.
        verify: called when all edits are on the disk.
        layer: what carries out requests.
        lock: name of the store's lock file: ``lock``, Kafka: ``.lock``.
        lock_is_held: the caller holds it already, as an engine does.
        advance: called with the bytes written to journal and store.

    Raises:
        StoreInUse: a broker runs on the store.
        Refused: the plan does not fit the store as it is; an earlier run was broken off; the medium is
            read-only; too little room is free. Nothing was changed.
        IOFailure: the system refused a request; the message says whether everything was taken back.
    """
    layer = layer or FileLayer()
    root = Path(os.path.realpath(plan.root))
    with nullcontext(enter_result=False) if lock_is_held else _held(root, lock) as is_new:
        refuse_pending(root)
        base = _base(root, journal_dir)
        while True:
            name = next_name(base)
            changes = draft(plan, name, lock=lock)
            if not changes.files and not changes.directories:
                return Applied(None, plan.title)
            start = Start(changes, base, name, force=force, lock_is_new=is_new, outside=_real(outside))
            with suppress(NameTaken):
                return begin_run(start, layer, verify, advance)


def resume(
    journal: Path,
    *,
    outside: Sequence[str | Path] = (),
    verify: Verify | None = None,
    layer: FileLayer | None = None,
    advance: Advance = lambda size: None,
) -> Applied:
    """Finish what was broken off, or carry out again what was taken back before it was done.

    Args:
        outside: as with :func:`apply`; what the journal itself says of it does not count.

    Raises:
        Refused: the journal is done, damaged or of another store, or somebody changed the files since.
        StoreInUse, IOFailure: as with :func:`apply`.
    """
    layer = layer or FileLayer()
    with _opened(journal) as found:
        check_resume(found, outside=outside)
        return carry_out(found, layer, verify, advance, is_new=False)


def undo(
    journal: Path,
    *,
    force: bool = False,
    outside: Sequence[str | Path] = (),
    verify: Verify | None = None,
    layer: FileLayer | None = None,
    advance: Advance = lambda size: None,
) -> Applied:
    """Take back what a journal did: broken off, or done.

    What is done is taken back by a new journal, which can be taken back in its turn.

    Args:
        force: go on although other files of the store changed since, or too little room seems free;
            never when a file that the journal itself changed is another now.
        outside: as with :func:`apply`; what the journal itself says of it does not count.

    Raises:
        Refused: files changed since (they are named); the journal was taken back already, is damaged, or
            belongs to another store. Nothing was changed.
        StoreInUse, IOFailure: as with :func:`apply`.
    """
    layer = layer or FileLayer()
    with _opened(journal) as found:
        check_undo(found, force=force, outside=outside)
        if found.state in PENDING:
            return take_back(found, layer, advance)
        changes = found.changes.reversed(_title(found))
        lock_is_new = bool(found.header.get("lock_is_new"))
        while True:
            start = Start(
                changes,
                found.base,
                next_name(found.base),
                force=force,
                reverses=found.path,
                lock_is_new=lock_is_new,
                outside=_real(outside),
            )
            with suppress(NameTaken):
                return begin_run(start, layer, verify, advance)


def _title(found: Journal) -> str:
    """What the journal is called that takes one back: by the run that it is all about."""
    subject, turns = lineage(found.path)
    own = _TURN.sub("", found.title) if turns else found.title
    return f"{'redo' if turns % 2 else 'undo'} of {subject}: {own}"


@contextmanager
def _held(root: Path, lock: str, *, is_left_over: bool = False) -> Iterator[bool]:
    """Hold the lock that a broker would hold; gives whether its file was missing."""
    check_directory(str(root))
    try:
        with holding(str(root / lock), is_left_over=is_left_over) as is_new:
            yield is_new
    except LockHeldError:
        raise StoreInUse(root) from None


@contextmanager
def _opened(path: Path) -> Iterator[Journal]:
    """A journal, read while nobody else can write to its store."""
    found = read_journal(path)
    check_own_files(found)
    root, lock = Path(found.changes.root), found.changes.lock
    with _held(root, lock, is_left_over=bool(found.header.get("lock_is_new"))):
        yield read_journal(path)


def _base(root: Path, journal_dir: Path | None) -> Path:
    """The directory of journals."""
    if journal_dir is None:
        return default_directory(root)
    base = Path(os.path.realpath(journal_dir))
    if base == root or root in base.parents:
        raise Refused(f"the journal cannot lie in the store: {base}; give a directory outside {root}")
    return base


def _real(paths: Sequence[str | Path]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path) for path in paths)


__all__ = ["Advance", "Applied", "Verify", "apply", "resume", "undo"]
