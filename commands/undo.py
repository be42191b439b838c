"""`rmqctl undo`: take back what a command wrote, or finish what was broken off."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands._app import Output, message, progress
from commands._apply import ask, close
from commands._options import output_option
from commands._types import LocalPath

if TYPE_CHECKING:
    from rmqctl.repair import Applied
    from rmqctl.repair.journal import Journal

_COLUMNS = ("file", "does", "size", "to_size", "bytes")


@click.command("undo")
@click.argument("journal", type=LocalPath())
@click.option("--dry-run", is_flag=True, help="Show what would be changed, and write nothing.")
@click.option("--resume", "forwards", is_flag=True, help="Finish what was broken off instead of taking it back.")
@click.option(
    "--force",
    is_flag=True,
    help="Go on although other files of the store changed since, or too little room seems to be free.",
)
@click.option(
    "--outside",
    type=LocalPath(file_okay=False),
    multiple=True,
    metavar="DIR",
    help="A directory outside the store that the journal may change, too; repeatable.",
)
@click.option("--yes", is_flag=True, help="Do not ask at a terminal.")
@output_option()
def command(
    journal: Path, dry_run: bool, forwards: bool, force: bool, outside: tuple[Path, ...], yes: bool, out: Output
) -> None:
    """Take an applied plan back, byte for byte, modification times included.

    JOURNAL is the directory that the command named in its last line. For a store, or the directory of its
    journals, it is the run that was broken off, else the last one that was not taken back. What is taken
    back can be brought again: this command too writes a journal. Refused when files changed since; they are named.

    \b
    Examples:
      rmqctl undo /data/rocketmq/store.rmqctl-journal/0001 --dry-run
      rmqctl undo /data/rocketmq/store.rmqctl-journal/0001
      rmqctl undo /data/rocketmq/store.rmqctl-journal/0002 --resume
    """
    from rmqctl.repair import check_journal, choose_journal

    path = choose_journal(journal)
    found = check_journal(path, forwards=forwards, force=force, outside=outside)
    if dry_run:
        _show(found, forwards, out, None)
        message("nothing was written")
        return
    message(f"writing to {found.changes.root}: {'finishing' if forwards else 'taking back'} {found.title!r} ({path})")
    ask("Carry this out?", yes)
    applied = _run(path, forwards, force, outside)
    _show(found, forwards, out, applied)
    close(applied)
    if applied.complaints:
        raise SystemExit(1)


def _run(path: Path, forwards: bool, force: bool, outside: tuple[Path, ...]) -> Applied:
    from rmqctl.repair import resume, undo

    with progress("finishing" if forwards else "taking back", None) as advance:
        if forwards:
            return resume(path, outside=outside, advance=advance)
        return undo(path, force=force, outside=outside, advance=advance)


def _show(found: Journal, forwards: bool, out: Output, applied: Applied | None) -> None:
    from rmqctl.repair.change_rows import change_rows

    rows = change_rows(found, after=forwards)
    if out.kind != "json":
        out.show(rows, columns=_COLUMNS, title=f"{'finish' if forwards else 'undo'}: {found.title}")
        return
    document: dict[str, Any] = {
        "kind": "resume" if forwards else "undo",
        "journal": str(found.path),
        "title": found.title,
        "root": found.changes.root,
        "state": found.state,
        "dry_run": applied is None,
        "changes": list(rows),
    }
    if applied is not None:
        document |= {
            "undo_journal": str(applied.journal) if applied.journal else None,
            "complaints": list(applied.complaints),
        }
    out.document(document)
