"""Carrying out: apply a plan, go on with what was broken off, take back what was done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rmqctl.errors import IOFailure, Refused, RmqctlError, StoreInUse
from rmqctl.files.lock import LockHeldError, holding
from rmqctl.repair.changes import Changes
from rmqctl.repair.check import differences
from rmqctl.repair.draft import draft
from rmqctl.repair.drive import Driver
from rmqctl.repair.edits import Plan
from rmqctl.repair.journal import (
    APPLIED,
    BEGUN,
    DONE,
    JOURNAL,
    PENDING,
    TAKEN_BACK,
    Journal,
    default_directory,
    read_journal,
    tell_reversed,
)
from rmqctl.repair.layer import FileLayer
from rmqctl.repair.listing import keep_listing
from rmqctl.repair.may import check_resume, check_undo, refuse_pending
from rmqctl.repair.pointer import point, unpoint
from rmqctl.repair.room import check_directory, check_room, check_writable
from rmqctl.repair.write_journal import discard, next_name, write_journal

Verify = Callable[[], Sequence[str]]
"""Looks at the changed store and says what is still wrong, a sentence each."""
Advance = Callable[[int], None]
"""Called with the bytes written since its last call."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What was carried out.

    Attributes:
        journal: where it can be taken back from; None when there was nothing to change.
        files: names of the files that were changed, made or moved.
        complaints: what the check afterwards still found, a sentence each.
        is_undone: the store is as it was before this journal.
    """

    journal: Path | None
    title: str
    files: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    is_undone: bool = False

    @property
    def undo_command(self) -> str:
        """What to type to take this back."""
        return f"rmqctl undo {self.journal}" + (" --resume" if self.is_undone else "")


def apply(
    plan: Plan,
    *,
    journal_dir: Path | None = None,
    force: bool = False,
    verify: Verify | None = None,
    layer: FileLayer | None = None,
    lock: str = "lock",
    advance: Advance = lambda size: None,
) -> Applied:
    """Carry out a plan, so that it can be taken back, and gone on with after a kill at any instruction.

    Args:
        journal_dir: directory for journals; default: ``<store>.rmqctl-journal`` beside the store.
        force: try although too little room seems to be free.
        verify: called when all edits are on the disk.
        layer: what carries out requests.
        lock: name of the store's lock file: ``lock``, Kafka: ``.lock``.
        advance: called with the bytes written to journal and store.

    Raises:
        StoreInUse: a broker runs on the store.
        Refused: the plan does not fit the store as it is; an earlier run was broken off; the medium is
            read-only; too little room is free. Nothing was changed.
        IOFailure: the system refused a request; the message says whether everything was taken back.
    """
    layer = layer or FileLayer()
    root = Path(os.path.realpath(plan.root))
    with _held(root, lock) as is_new:
        refuse_pending(root)
        base = _base(root, journal_dir)
        changes = draft(plan, next_name(base), lock=lock)
        if not changes.files and not changes.directories:
            return Applied(None, plan.title)
        return _start(_Start(changes, base, force=force, lock_is_new=is_new), layer, verify, advance)


def resume(
    journal: Path, *, verify: Verify | None = None, layer: FileLayer | None = None, advance: Advance = lambda size: None
) -> Applied:
    """Finish what was broken off, or carry out again what was taken back before it was done.

    Raises:
        Refused: the journal is done, damaged or of another store, or somebody changed the files since.
        StoreInUse, IOFailure: as with :func:`apply`.
    """
    layer = layer or FileLayer()
    with _opened(journal) as found:
        check_resume(found)
        return _carry_out(found, layer, verify, advance, is_new=False)


def undo(
    journal: Path,
    *,
    force: bool = False,
    verify: Verify | None = None,
    layer: FileLayer | None = None,
    advance: Advance = lambda size: None,
) -> Applied:
    """Take back what a journal did: broken off, or done.

    What is done is taken back by a new journal, which can be taken back in its turn.

    Args:
        force: go on although other files of the store changed since, or too little room seems free;
            never when a file that the journal itself changed is another now.

    Raises:
        Refused: files changed since (they are named); the journal was taken back already, is damaged, or
            belongs to another store. Nothing was changed.
        StoreInUse, IOFailure: as with :func:`apply`.
    """
    layer = layer or FileLayer()
    with _opened(journal) as found:
        check_undo(found, force=force)
        if found.state in PENDING:
            return _take_back(found, layer, advance)
        changes = found.changes.reversed(f"undo of {found.name}: {found.title}")
        start = _Start(
            changes, found.base, force=force, reverses=found.path, lock_is_new=bool(found.header["lock_is_new"])
        )
        return _start(start, layer, verify, advance)


@dataclass(frozen=True, slots=True)
class _Start:
    """Changes that are to be begun."""

    changes: Changes
    base: Path
    force: bool = False
    reverses: Path | None = None
    lock_is_new: bool = False


def _start(start: _Start, layer: FileLayer, verify: Verify | None, advance: Advance) -> Applied:
    """Write the journal, then carry it out."""
    changes, base = start.changes, start.base
    check_writable(changes, base)
    if not start.force:
        check_room(changes, base, layer)
    path = base / next_name(base)
    try:
        journal = write_journal(
            changes,
            path,
            layer,
            reverses=start.reverses,
            advance=advance,
            beside=base == default_directory(Path(changes.root)),
            lock_is_new=start.lock_is_new,
        )
    except (OSError, KeyboardInterrupt) as error:
        _forget(path, layer)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise IOFailure(
            f"cannot write the journal {path}", error, "nothing was changed; give another place with --journal DIR"
        ) from error
    return _carry_out(journal, layer, verify, advance, is_new=True)


def _carry_out(journal: Journal, layer: FileLayer, verify: Verify | None, advance: Advance, *, is_new: bool) -> Applied:
    """Drive the store forwards, check it, and say that it is done."""
    try:
        _begin(journal, layer)
        Driver(journal, layer, advance).to(after=True)
        journal.say(layer, state=APPLIED)
    except (OSError, ValueError, KeyboardInterrupt) as error:
        if not is_new:
            raise _failed(f"cannot finish {journal.path}", error, _go_on(journal)) from error
        _give_up(journal, error, layer)
        raise
    complaints = _look(journal, verify)
    try:
        _finish(journal, layer)
    except OSError as error:
        raise IOFailure(
            f"the store is changed, but {journal.path} cannot be written", error, _go_on(journal)
        ) from error
    return Applied(journal.path, journal.title, _names(journal), complaints)


def _begin(journal: Journal, layer: FileLayer) -> None:
    if journal.state != BEGUN:
        journal.say(layer, state=BEGUN)
    point(journal, layer)


def _finish(journal: Journal, layer: FileLayer) -> None:
    """What follows when the store is as it should be: the journals' states, the listing, no link any more."""
    keep_listing(journal, layer)
    tell_reversed(journal.path, layer, in_force=True)
    _leave(journal, layer)
    journal.say(layer, state=DONE)


def _leave(journal: Journal, layer: FileLayer) -> None:
    unpoint(journal, layer)
    times = dict(journal.changes.times)
    if "" in times:
        layer.set_times(journal.changes.root, times[""])


def _look(journal: Journal, verify: Verify | None) -> tuple[str, ...]:
    """What is wrong with the store afterwards."""
    complaints = [f"not as planned: {what}" for what in differences(journal, after=True)]
    if verify is not None:
        try:
            complaints += verify()
        except (RmqctlError, OSError) as error:
            complaints.append(f"the check afterwards failed: {error}")
    return tuple(complaints)


def _take_back(journal: Journal, layer: FileLayer, advance: Advance) -> Applied:
    """Drive the store backwards to where a broken-off run began."""
    try:
        _begin(journal, layer)
        Driver(journal, layer, advance).to(after=False)
        tell_reversed(journal.path, layer, in_force=False)
        _leave(journal, layer)
        journal.say(layer, state=TAKEN_BACK)
    except (OSError, ValueError) as error:
        raise _failed(f"cannot take back {journal.path}", error, _go_on(journal)) from error
    complaints = tuple(f"not as before: {what}" for what in differences(journal, after=False))
    return Applied(journal.path, journal.title, _names(journal), complaints, is_undone=True)


def _give_up(journal: Journal, error: BaseException, layer: FileLayer) -> None:
    """After a failed request: take everything back, and say what became of it.

    Raises:
        IOFailure: always, unless it was Ctrl-C and everything could be taken back.
    """
    what = f"cannot carry out {journal.title!r}"
    try:
        _take_back(journal, layer, lambda size: None)
    except IOFailure as second:
        raise _failed(what, error, _go_on(journal)) from second
    _forget(journal.path, layer)
    if not isinstance(error, KeyboardInterrupt):
        raise _failed(what, error, "everything was taken back, the store is as it was") from error


def _failed(what: str, error: BaseException, next_step: str) -> IOFailure:
    return IOFailure(what, error if isinstance(error, OSError) else str(error), next_step)


def _go_on(journal: Journal) -> str:
    how = "whole and not checked" if journal.state == APPLIED else "half changed; keep brokers off it"
    return (
        f"the store is {how}, and type: rmqctl undo {journal.path} (to go back) "
        f"or rmqctl undo {journal.path} --resume (to finish)"
    )


def _forget(path: Path, layer: FileLayer) -> None:
    """Remove a journal that has changed nothing; what cannot be removed does no harm."""
    try:
        discard(path, layer)
        if not os.listdir(path.parent):
            layer.rmdir(str(path.parent))
    except OSError:
        pass


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
    root, lock = Path(found.changes.root), found.changes.lock
    with _held(root, lock, is_left_over=bool(found.header.get("lock_is_new"))):
        yield read_journal(path)


def _base(root: Path, journal_dir: Path | None) -> Path:
    """The directory of journals; what a kill left there before it was begun goes."""
    if journal_dir is None:
        base = default_directory(root)
    else:
        base = Path(os.path.realpath(journal_dir))
        if base == root or root in base.parents:
            raise Refused(f"the journal cannot lie in the store: {base}; give a directory outside {root}")
    for path in base.glob("[0-9]*") if base.is_dir() else []:
        if not (path / JOURNAL).exists():
            _forget(path, FileLayer())
    return base


def _names(journal: Journal) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f.name for f in journal.changes.files))
