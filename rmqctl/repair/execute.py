"""Carrying out: apply a plan, go on with what was broken off, take back what was done.

A run goes from its journal to its end: forwards, checked, and reported; or, where a request fails, backwards.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmqctl.errors import IOFailure, Refused, RmqctlError, StoreInUse
from rmqctl.files.lock import LockHeldError, holding
from rmqctl.files.new_files import sync_tree
from rmqctl.files.writing import FileLayer
from rmqctl.repair.applying import Applier, differences
from rmqctl.repair.books import Books, Stretches, recounted, turned
from rmqctl.repair.changes import changes_of
from rmqctl.repair.edits import Changes, Plan
from rmqctl.repair.history import lineage
from rmqctl.repair.journal import Journal, note_reversed, read_journal
from rmqctl.repair.journal_directory import (
    APPLIED,
    BEGUN,
    DONE,
    PENDING,
    POINTER,
    TAKEN_BACK,
    NameTaken,
    Reserved,
    default_directory,
    discard,
    next_name,
    point,
    refuse_pending,
    reserved,
    state_of,
    undo_command,
    unpoint,
)
from rmqctl.repair.preconditions import (
    check_changes,
    check_own_files,
    check_resume,
    check_undo,
    keep_listing,
)
from rmqctl.repair.write_journal import check_directory, check_names, check_room, check_writable, write_journal

_FULL = {errno.ENOSPC, errno.EDQUOT}
Verify = Callable[[], Sequence[str]]
"""Looks at the changed store and says what is still wrong, a sentence each."""
CountWhole = Callable[[str, Stretches | None], int | None]
"""Counts the whole records of a file of the store that have a byte in some parts of it; None where it is unknown."""
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
        outside: directories outside the store that the user let it change.
        books: of what was taken back, as JSON has them; None where its journal keeps none.
    """

    journal: Path | None
    title: str
    files: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    is_undone: bool = False
    outside: tuple[str, ...] = ()
    books: Mapping[str, Any] | None = None

    @property
    def undo_command(self) -> str:
        """What to type to take this back."""
        return undo_command(self.journal, self.outside, resume=self.is_undone)


@dataclass(frozen=True, slots=True)
class NewRun:
    """Changes that are to be begun.

    Attributes:
        base: the directory of journals.
        name: of the journal that will carry them out.
        force: do not ask for free room, nor for hard links.
        reverses: the journal that they take back.
        lock_is_new: the store had no lock file.
        outside: directories outside the store that may be changed.
        books: what the journal keeps of them, see `rmqctl.repair.books.Books.for_journal`.
    """

    changes: Changes
    base: Path
    name: str
    force: bool = False
    reverses: Path | None = None
    lock_is_new: bool = False
    outside: tuple[str, ...] = ()
    books: Mapping[str, Any] | None = None


def begin_run(start: NewRun, layer: FileLayer, verify: Verify | None, advance: Advance) -> Applied:
    """Write the journal, then carry it out.

    Raises:
        NameTaken: another run has a journal of that name.
        Refused, IOFailure: as `rmqctl.repair.apply`.
    """
    changes, base = start.changes, start.base
    check_changes(changes, base, start.outside)
    check_writable(changes, base)
    if not start.force:
        check_names(changes)
        check_room(changes, base, layer)
    try:
        with reserved(base, start.name, layer) as place:
            journal = _written(start, place, layer, advance)
    except OSError as error:
        if error.errno in _FULL:  # somebody else filled the disk meanwhile
            check_room(changes, base, layer)
        raise IOFailure(
            f"cannot write the journal {base / start.name}",
            error,
            "nothing was changed; give another place with --journal DIR",
        ) from error
    return execute(journal, layer, verify, advance, is_new=True)


def _written(start: NewRun, place: Reserved, layer: FileLayer, advance: Advance) -> Journal:
    try:
        return write_journal(
            start.changes,
            place,
            layer,
            reverses=start.reverses,
            advance=advance,
            beside=start.base == default_directory(Path(start.changes.root)),
            lock_is_new=start.lock_is_new,
            outside=start.outside,
            **({"books": start.books} if start.books is not None else {}),
        )
    except (OSError, KeyboardInterrupt):
        place.give_up(layer)
        raise


def execute(journal: Journal, layer: FileLayer, verify: Verify | None, advance: Advance, *, is_new: bool) -> Applied:
    """Drive the store forwards, check it, and say that it is done."""
    is_untouched = journal.state not in PENDING
    try:
        _begin(journal, layer)
    except (OSError, KeyboardInterrupt) as error:
        if is_untouched:
            _never_begun(journal, error, layer, is_new=is_new)
            raise
        raise _failed(f"cannot finish {journal.path}", error, _go_on(journal)) from error
    try:
        Applier(journal, layer, advance).to(after=True)
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
    return Applied(journal.path, journal.title, _names(journal), complaints, outside=journal.outside)


def _begin(journal: Journal, layer: FileLayer) -> None:
    if journal.state != BEGUN:
        journal.say(layer, state=BEGUN)
    point(journal, layer)


def _never_begun(journal: Journal, error: BaseException, layer: FileLayer, *, is_new: bool) -> None:
    """Nothing of the store has changed yet: the journal must not say that it may have.

    Raises:
        IOFailure: always, unless it was Ctrl-C and no trace is left.
    """
    what = f"cannot carry out {journal.title!r}"
    with suppress(OSError):
        _leave(journal, layer)
        if is_new:
            forget(journal, layer)
    if state_of(journal.path) in PENDING:
        with suppress(OSError):
            read_journal(journal.path).say(layer, state=TAKEN_BACK)
    if state_of(journal.path) in PENDING or os.path.lexists(journal.changes.path(POINTER)):
        advice = f"nothing of the store was changed; to say so to later runs, type: {_undo(journal)}"
        raise _failed(what, error, advice) from error
    if not isinstance(error, KeyboardInterrupt):
        raise _failed(what, error, "nothing of the store was changed") from error


def _finish(journal: Journal, layer: FileLayer) -> None:
    """Close the journals of a store that is as it should be: their states, the listing, the link."""
    keep_listing(journal, layer)
    note_reversed(journal.path, layer, in_force=True)
    _leave(journal, layer)
    journal.say(layer, state=DONE)


def _leave(journal: Journal, layer: FileLayer) -> None:
    unpoint(journal, layer)
    times = dict(journal.changes.times)
    if "" in times:
        layer.set_times(journal.changes.root, times[""])
    layer.sync_directory(journal.changes.root)


def _look(journal: Journal, verify: Verify | None) -> tuple[str, ...]:
    """Return what is wrong with the store afterwards."""
    complaints = [f"not as planned: {what}" for what in differences(journal, after=True)]
    if verify is not None:
        try:
            complaints += verify()
        except (RmqctlError, OSError) as error:
            complaints.append(f"the check afterwards failed: {error}")
    return tuple(complaints)


def take_back(journal: Journal, layer: FileLayer, advance: Advance) -> Applied:
    """Drive the store backwards to where a broken-off run began."""
    try:
        _begin(journal, layer)
        Applier(journal, layer, advance).to(after=False)
        note_reversed(journal.path, layer, in_force=False)
        _leave(journal, layer)
        journal.say(layer, state=TAKEN_BACK)
    except (OSError, ValueError) as error:
        raise _failed(f"cannot take back {journal.path}", error, _go_on(journal)) from error
    complaints = tuple(f"not as before: {what}" for what in differences(journal, after=False))
    return Applied(journal.path, journal.title, _names(journal), complaints, is_undone=True, outside=journal.outside)


def _give_up(journal: Journal, error: BaseException, layer: FileLayer) -> None:
    """After a failed request: take everything back, and say what became of it.

    Raises:
        IOFailure: always, unless it was Ctrl-C and everything could be taken back.
    """
    what = f"cannot carry out {journal.title!r}"
    try:
        take_back(journal, layer, lambda size: None)
    except IOFailure as second:
        raise _failed(what, error, _go_on(journal)) from second
    forget(journal, layer)
    if not isinstance(error, KeyboardInterrupt):
        raise _failed(what, error, "everything was taken back, the store is as it was") from error


def _failed(what: str, error: BaseException, next_step: str) -> IOFailure:
    return IOFailure(what, error if isinstance(error, OSError) else str(error), next_step)


def _go_on(journal: Journal) -> str:
    how = "whole and not checked" if journal.state == APPLIED else "half changed; keep brokers off it"
    return f"the store is {how}, and type: {_undo(journal)} (to go back) or {_undo(journal, resume=True)} (to finish)"


def _undo(journal: Journal, *, resume: bool = False) -> str:
    return undo_command(journal.path, journal.outside, resume=resume)


def forget(journal: Journal, layer: FileLayer) -> None:
    """Remove a journal of this run that has changed nothing; what cannot be removed does no harm."""
    own = f"{journal.name}/"
    places = {side.place for file in journal.changes.files for side in (file.before, file.after)}
    with suppress(OSError):
        discard(journal.path, layer, {place.removeprefix(own) for place in places if place.startswith(own)})
        if journal.header.get("base_is_new") and not os.listdir(journal.base):
            layer.rmdir(str(journal.base))


def _names(journal: Journal) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f.name for f in journal.changes.files))


# --- carrying out -----------------------------------------------------------------------------------


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
    books: Books | None = None,
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
        books: of the plan; the journal keeps them, and what takes it back is held to them.
        advance: called with the bytes written to journal and store.

    Raises:
        StoreInUse: a broker runs on the store.
        Refused: the plan does not fit the store as it is; an earlier run was broken off; the medium is
            read-only; too little room is free. Nothing was changed.
        IOFailure: the system refused a request; the message says whether everything was taken back.
    """
    layer = layer or FileLayer()
    root, kept = Path(os.path.realpath(plan.root)), None if books is None else books.for_journal()
    with nullcontext(enter_result=False) if lock_is_held else _held(root, lock) as is_new:
        refuse_pending(root)
        base = _base(root, journal_dir)
        while True:
            name = next_name(base)
            changes = changes_of(plan, name, lock=lock)
            if not changes.files and not changes.directories:
                return Applied(None, plan.title)
            _settle(root, outside, layer)
            start = NewRun(changes, base, name, force, None, is_new, _real(outside), kept)
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
        return execute(found, layer, verify, advance, is_new=False)


def undo(
    journal: Path,
    *,
    force: bool = False,
    outside: Sequence[str | Path] = (),
    verify: Verify | None = None,
    count: CountWhole | None = None,
    layer: FileLayer | None = None,
    advance: Advance = lambda size: None,
) -> Applied:
    """Take back what a journal did: broken off, or done.

    What is done is taken back by a new journal, which can be taken back in its turn.

    Args:
        force: go on although other files of the store changed since, or too little room seems free;
            never when a file that the journal itself changed is another now.
        outside: as with :func:`apply`; what the journal itself says of it does not count.
        count: by it the whole records in what was changed are counted once more, and held to the books of the journal.

    Raises:
        Refused: files changed since (they are named); the journal was taken back already, is damaged, or
            belongs to another store. Nothing was changed.
        StoreInUse, IOFailure: as with :func:`apply`.
    """
    layer = layer or FileLayer()
    with _opened(journal) as found:
        check_undo(found, force=force, outside=outside)
        books = turned(found.header.get("books"))
        if found.state in PENDING:
            return _recounted(take_back(found, layer, advance), books, count)
        changes = found.changes.reversed(_title(found))
        lock_is_new = bool(found.header.get("lock_is_new"))
        while True:
            start = NewRun(
                changes,
                found.base,
                next_name(found.base),
                force=force,
                reverses=found.path,
                lock_is_new=lock_is_new,
                outside=_real(outside),
                books=books,
            )
            with suppress(NameTaken):
                return _recounted(begin_run(start, layer, verify, advance), books, count)


def _recounted(applied: Applied, books: Mapping[str, Any] | None, count: CountWhole | None) -> Applied:
    """Hold what was taken back to the books."""
    if books is None or count is None:
        return applied
    document, problems = recounted(books, count)
    return replace(applied, books=document, complaints=(*applied.complaints, *problems))


def _title(found: Journal) -> str:
    """Return what the journal is called that takes one back: by the run that it is all about."""
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
    """Yield a journal, read while nobody else can write to its store."""
    found = read_journal(path)
    check_own_files(found)
    root, lock = Path(found.changes.root), found.changes.lock
    with _held(root, lock, is_left_over=bool(found.header.get("lock_is_new"))):
        yield read_journal(path)


def _settle(root: Path, outside: Sequence[str | Path], layer: FileLayer) -> None:
    """Put the store on the disk as it is: a plan goes by what a killed writer may have left in memory only."""
    linked = [entry for entry in root.iterdir() if entry.is_symlink() and entry.is_dir()]
    try:
        for place in (root, *linked, *map(Path, outside)):
            layer.request("fsync", str(place), lambda place=place: sync_tree(place))  # type: ignore[misc]
        layer.sync_directory(str(root.parent))
    except OSError as error:
        raise IOFailure(f"cannot flush {root} to disk", error, "nothing was changed") from error


def _base(root: Path, journal_dir: Path | None) -> Path:
    """Return the directory of journals."""
    if journal_dir is None:
        return default_directory(root)
    base = Path(os.path.realpath(journal_dir))
    if base == root or root in base.parents:
        raise Refused(f"the journal cannot lie in the store: {base}; give a directory outside {root}")
    return base


def _real(paths: Sequence[str | Path]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path) for path in paths)
