"""What was done to a store, run by run: which run is taken back next, and which is made again.

A journal that takes another one back has its number in the header. A run, what took it back, what brought it again and
so on are one line; the last of them says whether the run is in force.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqctl.errors import NotAStore, Refused
from rmqctl.repair.journal_directory import (
    DONE,
    JOURNAL,
    PENDING,
    READY,
    TAKEN_BACK,
    default_directory,
    header_of,
    journals_in,
    pending,
    root_of,
    state_of,
    undo_command,
)
from rmqctl.text import typed

_CHANGED_NOTHING = (READY, "", TAKEN_BACK)


@dataclass(frozen=True, slots=True)
class Run:
    """One journal in the history of a store.

    Attributes:
        subject: name of the journal that it carries out, takes back or makes again.
        turns: 0 for a run of a command, 1 for what takes it back, 2 for what brings it again, and so on.
    """

    path: Path
    header: dict[str, Any]
    state: str
    subject: str
    turns: int

    @property
    def number(self) -> int:
        return int(self.path.name)

    @property
    def kind(self) -> str:
        """``run``, ``undo`` or ``redo``."""
        return "run" if not self.turns else "redo" if self.turns % 2 == 0 else "undo"


class History:
    """The journals of one store in one directory."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs

    @classmethod
    def at(cls, path: Path) -> History:
        """Return the history of a store, or in a directory of journals.

        Raises:
            Refused: the directory has journals of several stores.
        """
        beside = default_directory(path)
        base = beside if beside.is_dir() else path
        runs = list(_read(base))
        if base == beside:
            return cls([r for r in runs if _root(r) in (os.path.realpath(path), "")])
        if len(roots := sorted({_root(r) for r in runs} - {""})) > 1:
            raise Refused(
                f"{path} has journals of {len(roots)} stores ({', '.join(roots)}); give one of its journals, "
                f"such as {runs[-1].path}"
            )
        return cls(runs)

    def last_of(self, subject: str) -> Run | None:
        """Return the last journal of a line that changed the store: it says whether the run is in force."""
        line = [r for r in self.runs if r.subject == subject and r.state not in _CHANGED_NOTHING]
        return line[-1] if line else None

    def next_undo(self) -> Run | None:
        """Return what to take back next: the last run in force."""
        return max(self._last(is_in_force=True), key=lambda run: run.number, default=None)

    def next_redo(self) -> Run | None:
        """Return what to take back to bring a run again: the last undo, unless a command has written since."""
        newest = max((r.number for r in self.runs if not r.turns and r.state not in _CHANGED_NOTHING), default=0)
        undone = (run for run in self._last(is_in_force=False) if run.number > newest)
        return max(undone, key=lambda run: run.number, default=None)

    def _last(self, *, is_in_force: bool) -> Iterator[Run]:
        for subject in dict.fromkeys(run.subject for run in self.runs):
            last = self.last_of(subject)
            if last is not None and last.state == DONE and (last.turns % 2 == 0) == is_in_force:
                yield last

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row a journal, the oldest first; ``next`` is what `undo` or `undo --redo` would do with it."""
        marks = {run.path: word for word, run in (("redo", self.next_redo()), ("undo", self.next_undo())) if run}
        for run in self.runs:
            yield {
                "journal": str(run.path),
                "time": run.header.get("time"),
                "kind": run.kind,
                "title": run.header.get("title"),
                "state": run.state or "damaged",
                "next": "undo" if run.state in PENDING else marks.get(run.path),
            }


def choose_journal(path: Path, *, redo: bool = False) -> Path:
    """Return the journal to take back: the one at a path, or the next of a store or of a directory of journals.

    Of several it is one that was broken off, else the last run in force, so that repeating walks back.

    Args:
        redo: the journal whose undo brings a run again that was taken back.

    Raises:
        NotAStore: nothing is at the path.
        Refused: there is none.
    """
    if not path.exists():
        raise NotAStore(str(path), "nothing of that name is there", "give a store, or a directory of journals")
    if (path / JOURNAL).exists() or not path.is_dir():
        return _of_journal(path, redo=redo)
    if (broken_off := pending(path)) is not None and not redo:
        return broken_off
    history = History.at(path)
    for run in history.runs if not redo else ():
        if run.state in PENDING:
            return run.path
    chosen = history.next_redo() if redo else history.next_undo()
    if chosen is not None:
        return chosen.path
    known = f"of {len(history.runs):,} journals " if history.runs else ""
    if redo:
        raise Refused(f"{path}: {known}none was taken back last, so there is nothing to redo")
    raise Refused(
        f"{path} holds no journal that can be taken back; "
        + (
            f"{known}all were taken back or changed nothing; {typed('undo', '--list', path)} shows them"
            if history.runs
            else "give a directory such as store.rmqctl-journal/0001"
        )
    )


def lineage(path: Path) -> tuple[str, int]:
    """Return the name of the run that a journal carries out, takes back or makes again, and how often that turned."""
    turns, names = 0, {path.name}
    while (path / JOURNAL).is_file() and (earlier := header_of(path).get("reverses")):
        if str(earlier) in names or not str(earlier).isdigit():  # nothing that rmqctl wrote
            break
        path, turns = path.with_name(str(earlier)), turns + 1
        names.add(path.name)
    return path.name, turns


def _of_journal(path: Path, *, redo: bool) -> Path:
    """Return the last journal of a named one's line, where it says the same as the one that was named."""
    if not (path / JOURNAL).exists():
        return path
    real = Path(os.path.realpath(path))
    subject, turns = lineage(real)
    last = History(list(_read(real.parent))).last_of(subject)
    if redo:
        if last is None or last.turns % 2 == turns % 2:
            raise Refused(f"{path} was not taken back; to take it back: {undo_command(path)}")
        return last.path
    is_same = last is not None and last.state == DONE and last.turns % 2 == turns % 2 and state_of(real) == DONE
    return last.path if is_same and last is not None else path


def _read(base: Path) -> Iterator[Run]:
    for path in journals_in(base):
        yield Run(path, header_of(path), state_of(path) or READY, *lineage(path))


def _root(run: Run) -> str:
    """Return the store of a journal, "" where nothing names it."""
    try:
        return root_of(run.path, run.header)
    except (Refused, KeyError):
        return str(run.header.get("root", ""))
