"""What commands that change a store have in common: options, the plan on screen, the run, the closing line.

A command makes a plan, shows it with :func:`show_plan`, and hands it to :func:`carry_out`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands._app import Output, message
from commands._progress import progress
from commands._types import LocalPath
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.repair import Applied, Plan

_COLUMNS = ("step", "id", "file", "what", "does", "why", "loses")
_OPTIONS = (
    click.option(
        "--apply/--dry-run",
        "is_real",
        default=False,
        help="Carry the plan out; default: only show it.  [default: dry run]",
    ),
    click.option(
        "--journal",
        type=LocalPath(file_okay=False),
        metavar="DIR",
        help="Directory for the journal that can take everything back; default: STORE.rmqctl-journal beside the store.",
    ),
    click.option(
        "--outside",
        type=LocalPath(file_okay=False),
        multiple=True,
        metavar="DIR",
        help="A directory outside the store that links in it lead to, and that may be changed, too; repeatable.",
    ),
    click.option(
        "--force",
        is_flag=True,
        help="Go on although too little room on the disk seems to be free, or files have further names (hard links).",
    ),
    click.option("--yes", is_flag=True, help="Do not ask at a terminal."),
)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a plan is to be carried out.

    Attributes:
        is_real: really, not only shown.
        journal: directory for journals, None for the usual place.
        outside: directories outside the store that may be changed, too.
        force: try although room seems short, or files have hard links.
        yes: do not ask.
    """

    is_real: bool = False
    journal: Path | None = None
    outside: tuple[Path, ...] = ()
    force: bool = False
    yes: bool = False


def apply_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :class:`Manner`, which the command gets as ``manner``."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        values = {key: kwargs.pop(key) for key in Manner.__slots__}
        return function(*args, **kwargs, manner=Manner(**values))

    decorated: Callable[..., Any] = wrapper
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


@contextmanager
def staged(root: str, manner: Manner) -> Iterator[Path]:
    """A directory to build files in, removed afterwards: on the disk of the journal, or of a store that is changed."""
    place: Path | None = None
    if manner.is_real:
        wanted = Path(os.path.realpath(manner.journal or Path(os.path.realpath(root)).parent))
        place = next(p for p in (wanted, *wanted.parents) if p.is_dir())
        place = place if os.access(place, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".rmqctl-plan-", dir=place) as directory:
        yield Path(directory)


def stop_if_pending(root: str | Path) -> None:
    """Refuse to go on with a store that an earlier run left half changed.

    Raises:
        Refused: the message says how to finish that run, and how to take it back.
    """
    from rmqctl.repair import refuse_pending

    refuse_pending(Path(root))


def say_if_pending(root: str | Path) -> None:
    """Remark on a store that an earlier run left half changed; reading goes on."""
    from rmqctl.errors import Refused
    from rmqctl.repair import refuse_pending

    try:
        refuse_pending(Path(root))
    except Refused as reason:
        message(str(reason))


def show_plan(plan: Plan, out: Output) -> None:
    """Write a plan: a row a step; ``json`` one document; ``hex`` the annotated bytes before and after."""
    from rmqctl.repair.rendering import plan_row, step_row

    if out.kind == "hex":
        from commands._apply_hex import plan_lines

        out.text(plan_lines(plan))
    elif out.kind == "json":
        out.document(plan_row(plan))
    elif out.kind == "jsonl":
        out.show([step_row(step) for step in plan.steps])
    else:
        out.show(_rows(plan), columns=_COLUMNS, title=plan.title)


def carry_out(
    plan: Plan,
    manner: Manner,
    *,
    verify: Callable[[], Sequence[str]] | None = None,
    lock: str = "lock",
    outside: Iterable[str] = (),
) -> Applied | None:
    """Apply a plan if that is wanted, with what a user should know on stderr before, during and after it.

    Args:
        verify: looks at the changed store and says what is still wrong, a sentence each.
        lock: name of the store's lock file.
        outside: directories outside the store that the user named already, such as those of ``--commitlog``.

    Returns:
        None for a dry run. The exit status should be 1 where there are complaints.

    Raises:
        Refused, StoreInUse, IOFailure: see `rmqctl.repair.apply`.
    """
    from rmqctl.repair import apply
    from rmqctl.repair.rendering import weight

    if not manner.is_real:
        message("nothing was written; add --apply to carry this out" if plan.edits else "nothing to do")
        return None
    message(_announced(plan, manner))
    ask("Carry this out?", manner.yes)
    with progress("repairing", weight(plan)) as advance:
        applied = apply(
            plan,
            journal_dir=manner.journal,
            force=manner.force,
            outside=(*outside, *manner.outside),
            verify=verify,
            lock=lock,
            advance=advance,
        )
    close(applied)
    return applied


def ask(question: str, yes: bool) -> None:
    """Ask at a terminal, once; scripts are not asked, they typed what they mean.

    Raises:
        SystemExit: the answer was no: nothing was written, exit 1.
        click.Abort: Ctrl-C, or the terminal is gone.
    """
    if will_ask(yes) and not click.confirm(question, err=True):
        message("nothing was written")
        raise SystemExit(1)


def will_ask(yes: bool) -> bool:
    """Whether :func:`ask` waits for an answer."""
    return not yes and _is_at_terminal()


def _is_at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def close(applied: Applied) -> None:
    """The last lines: what is still wrong, and how to take it back."""
    for complaint in applied.complaints:
        message(complaint)
    if applied.journal is None:
        message("nothing to do: the store is already as planned")
        return
    count = f"{len(applied.files):,} {'file' if len(applied.files) == 1 else 'files'}"
    if applied.is_undone:
        message(f"taken back, {count} as before; to carry it out after all, type: {applied.undo_command}")
    else:
        message(f"done, {count} changed; to take it back, type: {applied.undo_command}")


def _announced(plan: Plan, manner: Manner) -> str:
    from rmqctl.repair import default_directory

    files = {edit.file for edit in plan.edits}
    where = manner.journal or default_directory(plan.root)
    edits = f"{number_of(len(plan.edits), 'edit')} in {number_of(len(files), 'file')}"
    return f"writing to {plan.root}: {edits}; journal in {where}"


def _rows(plan: Plan) -> list[dict[str, Any]]:
    from rmqctl.repair.rendering import edits_text

    return [
        {
            "step": number,
            "id": step.id,
            "file": step.file,
            "what": step.what,
            "does": edits_text(step),
            "why": step.why,
            "loses": step.loses,
        }
        for number, step in enumerate(plan.steps, 1)
    ]
