"""What commands that change a store have in common: options, the plan on screen, the run, the closing line.

A command asks a store for a proposal and hands it to :func:`propose`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from commands._answer import finish, folded, prepare, say, write, write_notices
from commands._app import Output, message
from commands._guard import TYPED
from commands._progress import progress
from commands._types import LocalPath
from rmqctl.answer import Intent, Proposal
from rmqctl.text import number_of, typed

if TYPE_CHECKING:
    from rmqctl.answer import Annotate
    from rmqctl.repair import Applied, Plan
    from rmqctl.repair.books import Books

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
        help="Go on although too little room on the disk seems to be free, files have further names (hard links), or "
        "nothing shows how long queue files are.",
    ),
    click.option("--yes", is_flag=True, help="Do not ask at a terminal."),
    click.option("-v", "--verbose", is_flag=True, help="Every piece of evidence of a step, not only the first."),
)


@dataclass(frozen=True, slots=True)
class Manner(Intent):
    """How a plan is to be carried out at a terminal.

    Attributes:
        yes: do not ask.
        verbose: show every piece of evidence of a step.
    """

    yes: bool = False
    verbose: bool = False


def apply_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :class:`Manner`, which the command gets as ``manner``."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        values = {field.name: kwargs.pop(field.name) for field in fields(Manner)}
        return function(*args, **kwargs, manner=Manner(**values))

    decorated: Callable[..., Any] = wrapper
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def propose(proposal: Proposal, manner: Manner, out: Output) -> None:
    """Show a proposal and carry it out if that is wanted.

    Raises:
        SystemExit: the answer is "no": something is lost, or wrong, or left to do.
        RmqctlError: what the plan was refused for, or what could not be done.
    """
    with proposal:
        prepare(proposal)
        if proposal.refusal is not None and manner.is_real:
            raise proposal.refusal
        _write(proposal, out, verbose=manner.verbose)
        settle(proposal, manner)


def settle(proposal: Proposal, manner: Manner) -> None:
    """Carry a proposal out that was shown, if that is wanted, and end with its exit status.

    Raises:
        SystemExit, RmqctlError: as of :func:`propose`.
    """
    applied = None if proposal.plan is None else execute(proposal, manner)
    if applied is None:
        finish(proposal)
    elif proposal.is_no_after or applied.complaints:
        raise SystemExit(1)


def _write(proposal: Proposal, out: Output, *, verbose: bool) -> None:
    """Write a proposal: its plan with what is said around it, else its rows."""
    if proposal.shown is None:
        write(out, proposal)
    elif out.kind == "json" and proposal.document is not None:
        out.document(proposal.document())
    else:
        if out.kind == "hex" and proposal.preface:
            out.text([*proposal.preface, ""])
        if proposal.shown.steps or not proposal.closing or out.kind == "csv":
            show_plan(proposal.shown, out, proposal.annotate, proposal.books, verbose=verbose)
        if out.kind == "jsonl" and proposal.summary is not None:
            out.show([proposal.summary()])
        elif out.kind in {"table", "hex"}:
            out.text(folded(proposal.closing))
    say(proposal)
    for sentence in proposal.hints:
        message(sentence)


def show_plan(
    plan: Plan,
    out: Output,
    annotate: Annotate | None = None,
    books: Books | None = None,
    *,
    verbose: bool = False,
) -> None:
    """Write a plan: notices, or a row a step; ``json`` one document; ``hex`` the annotated bytes before and after.

    Args:
        verbose: every piece of evidence of a step, not only the first.
    """
    from rmqctl.repair.rendering import STEP_KEYS, plan_notices, plan_row, step_row

    if out.kind == "hex":
        from commands._apply_hex import plan_lines

        out.text(plan_lines(plan, annotate))
    elif out.kind == "json":
        out.document(plan_row(plan, books))
    elif out.kind in {"jsonl", "csv"}:
        out.show([step_row(step) for step in plan.steps], csv_columns=STEP_KEYS)
    else:
        write_notices(out, plan_notices(plan, every=out.every, verbose=verbose))


def execute(proposal: Proposal, manner: Manner) -> Applied | None:
    """Apply the plan of a proposal if that is wanted, with what a user should know on stderr around it.

    Returns:
        None for a dry run. The exit status should be 1 where there are complaints.

    Raises:
        Refused, StoreInUse, IOFailure: see `rmqctl.repair.apply`.
    """
    from rmqctl.repair.rendering import weight

    plan = proposal.plan
    assert plan is not None
    if not manner.is_real:
        if not plan.edits:
            message("nothing to do")
        elif proposal.refusal is not None:
            message(f"nothing was written, and --apply is refused: {proposal.refusal}")
        else:
            message(f"nothing was written; add --apply to carry this out{_typed('--apply')}")
        return None
    message(_announced(plan, manner))
    ask("Carry this out?", manner.yes)
    with progress("repairing", weight(plan)) as advance:
        applied = proposal.apply(advance)
    close(applied)
    return applied


def _typed(*more: str) -> str:
    """Return the command line of the user with more words, as it is typed, after a colon; "" where nobody knows it."""
    words: list[str] = click.get_current_context().meta.get(TYPED, [])
    return f": {typed(*(word for word in words if word != '--dry-run'), *more)}" if words else ""


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
    """Say at the end what is still wrong, and how to take it back."""
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
    return f"about to write to {plan.root}: {edits}; journal in {where}"
