"""`rmqctl undo`: take back what a command wrote, or finish what was broken off."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import Command
from commands._answer import write_notices
from commands._app import Output, message
from commands._apply import ask, close, will_ask
from commands._options import output_option
from commands._progress import progress
from commands._types import LocalPath, refuse

if TYPE_CHECKING:
    from rmqctl.repair import Applied
    from rmqctl.repair.execute import CountWhole
    from rmqctl.repair.journal import Journal

_DOING = {"undo": "taking back", "redo": "making the changes again, by taking back", "resume": "finishing"}
_LIST = ("journal", "time", "kind", "title", "state", "next")
_HEADER = ("file", "does", "size", "to_size", "bytes", "mtime_ns")


@click.command("undo", cls=Command, usual="list redo dry-run resume output")
@click.argument("journal", type=LocalPath())
@click.option("--list", "lists", is_flag=True, help="List the journals: what was done, and what comes next.")
@click.option("--redo", is_flag=True, help="Make the changes again that were taken back last.")
@click.option("--dry-run", is_flag=True, help="Show what would be changed, and write nothing.")
@click.option("--resume", "forwards", is_flag=True, help="Finish what was broken off instead of taking it back.")
@click.option(
    "--force",
    is_flag=True,
    help="Go on although other files of the store changed since, too little room seems to be free, or files have "
    "further names (hard links).",
)
@click.option(
    "--outside",
    type=LocalPath(file_okay=False),
    multiple=True,
    metavar="DIR",
    help="A directory outside the store that the journal may change, too; repeatable.",
)
@click.option("--yes", is_flag=True, help="Do not ask at a terminal.")
@output_option(folds="each file, not the first ones and a count")
def command(
    journal: Path,
    lists: bool,
    redo: bool,
    dry_run: bool,
    forwards: bool,
    force: bool,
    outside: tuple[Path, ...],
    yes: bool,
    out: Output,
) -> None:
    """Take an applied plan back, byte for byte, modification times included.

    JOURNAL is the directory that the command named in its last line. For a store, or the directory of its
    journals, it is the run that was broken off, else the last one that is in force: given again it goes back
    run by run, and --redo goes forward. Refused when files changed since; they are named.

    \b
    Examples:
      rmqctl undo /data/rocketmq/store.rmqctl-journal/0001 --dry-run
      rmqctl undo /data/rocketmq/store
      rmqctl undo /data/rocketmq/store --list
      rmqctl undo /data/rocketmq/store --redo
      rmqctl undo /data/rocketmq/store.rmqctl-journal/0002 --resume
    """
    from rmqctl.errors import NotAStore
    from rmqctl.repair import History, check_journal, choose_journal

    if redo and forwards:
        refuse("--redo", "brings a run again that was done and taken back; --resume finishes one that was broken off.")
    if lists:
        place = _directory(journal)
        if not place.is_dir():
            raise NotAStore(journal, "nothing of that name is there", "give a store, or a directory of journals")
        if not out.show(History.at(place).rows(), columns=_LIST):
            message(f"no journal of {journal} is there; journals elsewhere are listed by the directory of --journal")
            raise SystemExit(1)
        return
    path = choose_journal(journal, redo=redo)
    found = check_journal(path, forwards=forwards, force=force, outside=outside)
    verb = "resume" if forwards else "redo" if redo else "undo"
    if dry_run:
        _show(found, verb, out)
        message("nothing was written")
        return
    message(f"about to write to {found.changes.root}: {_DOING[verb]} {found.title!r} ({path})")
    shown_before = out.kind != "json" or will_ask(yes)
    if shown_before:
        _show(found, verb, out, dry_run=False)
    ask("Carry this out?", yes)
    applied = _run(path, found.changes.root, forwards, force, outside)
    if not shown_before:
        _show(found, verb, out, applied, dry_run=False)
    close(applied)
    if applied.complaints:
        raise SystemExit(1)


def _directory(path: Path) -> Path:
    """Return the directory of journals that a journal lies in; a store stays."""
    from rmqctl.repair.journal_directory import JOURNAL

    return path.absolute().parent if (path / JOURNAL).exists() else path


def _run(path: Path, root: str, forwards: bool, force: bool, outside: tuple[Path, ...]) -> Applied:
    from rmqctl.repair import resume, undo

    with progress("finishing" if forwards else "taking back", None) as advance:
        if forwards:
            return resume(path, outside=outside, advance=advance)
        return undo(path, force=force, outside=outside, count=_counter(root), advance=advance)


def _counter(root: str) -> CountWhole | None:
    """Return what counts the whole records of a store; None where nothing shows of which family it is."""
    import rmqctl
    from rmqctl.errors import RmqctlError
    from rmqctl.store import Store

    try:
        store = rmqctl.open(root)
    except RmqctlError:
        return None
    return store.whole_records if isinstance(store, Store) else None


def _show(found: Journal, verb: str, out: Output, applied: Applied | None = None, *, dry_run: bool = True) -> None:
    """Write what is changed; a JSON document that nobody is asked about also says what came of it."""
    from rmqctl.repair.rendering import change_notice, change_rows

    forwards = verb == "resume"
    rows = change_rows(found, after=forwards)
    if out.kind == "table":
        write_notices(out, [change_notice(found, "finish" if forwards else verb, after=forwards, every=out.every)])
        return
    if out.kind != "json":
        out.show(rows, csv_columns=_HEADER)
        return
    document: dict[str, Any] = {
        "kind": verb,
        "journal": str(found.path),
        "title": found.title,
        "root": found.changes.root,
        "state": found.state,
        "dry_run": dry_run,
        "changes": list(rows),
    }
    if applied is not None:
        document |= {
            "undo_journal": str(applied.journal) if applied.journal else None,
            "complaints": list(applied.complaints),
            "books": applied.books,
        }
    out.document(document)
