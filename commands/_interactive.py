"""`repair --interactive`: the steps of the plan one by one, each accepted, left out or done in another way.

What is answered only chooses among the steps of the one plan. The plan is made again without those that were left out,
and is held to its books as any other; steps that are new in it, or do something else than before, are asked about, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

import click

from commands._answer import folded, prepare, say, write_notices
from commands._app import Output, message
from commands._apply import Manner, settle
from commands._cells import printable
from commands._types import refuse
from rmqctl.answer import Proposal
from rmqctl.errors import RmqctlError
from rmqctl.text import listed_names

if TYPE_CHECKING:
    from rmqctl.answer import Annotate
    from rmqctl.repair.edits import Plan, Step, StepName

_LINES, _OF_A_FIELD = 40, 4
"""Lines of bytes that are shown at first: of a step, and of one field in it."""
_LEGEND = {
    "y": "do this step",
    "s": "leave it out; what it would mend stays as it is",
    "b": "keep the damaged body as it is, under a new CRC",
    "f": "take what is destroyed from a replica, and plan again",
    "x": "show all bytes before and after",
    "a": "do this step and all that follow",
    "d": "leave this step and all that follow out",
    "q": "end; nothing is written",
}


@dataclass(slots=True)
class Choices:
    """What was answered so far.

    Attributes:
        agreed: names of steps that are wanted, with what they were to do (:func:`_doing`); None: the plan does not say
            it before it is made again.
        without: names of steps that are not.
        accept: names of steps in whose place the damaged body is kept.
        replicas: paths of stores to take bytes from.
        rest: what becomes of all that was not asked about, ``y`` or ``s``; "": it is asked about.
    """

    agreed: dict[StepName, int | None] = field(default_factory=dict)
    without: set[StepName] = field(default_factory=set)
    accept: set[StepName] = field(default_factory=set)
    replicas: list[str] = field(default_factory=list)
    rest: str = ""


def check_terminal(out: Output) -> None:
    """Refuse to ask where nobody answers, or where the answer is for programs."""
    if out.kind != "table":
        refuse("--interactive", f"shows and asks at a terminal and does not go with -o {out.kind}.")
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        refuse("--interactive", "asks at a terminal, and there is none; choose with --only, --skip and --from.")


def propose_step_by_step(make: Callable[[Choices], Proposal], manner: Manner, out: Output) -> None:
    """Make the plan, ask about each step, make it again as was answered, and carry it out if that is wanted.

    Args:
        make: plans with what was chosen.

    Raises:
        SystemExit: the answer is "no": something is lost, or wrong, or left to do.
        RmqctlError: what the plan was refused for, or what could not be done.
    """
    choices, is_first = Choices(), True
    while True:
        with _made(make, choices) as proposal:
            prepare(proposal)
            if is_first and proposal.plan is not None:
                dry = "" if manner.is_real else ", and only with --apply"
                message(f"nothing is written before the last step has been answered{dry}")
            is_first = False
            if proposal.plan is None or not _asked_again(proposal, proposal.plan, choices, out):
                _end(proposal, choices, out)
                settle(proposal, manner)
                return


def _made(make: Callable[[Choices], Proposal], choices: Choices) -> Proposal:
    """Return a plan, without the last replica that was named where that is none."""
    try:
        return make(choices)
    except RmqctlError as error:
        if not choices.replicas:
            raise
        message(f"{choices.replicas.pop()}: {error}")
        return make(choices)


def _asked_again(proposal: Proposal, plan: Plan, choices: Choices, out: Output) -> bool:
    """Ask about the steps that were not asked about; whether the plan has to be made again."""
    from rmqctl.repair.rendering import plan_notices

    assert proposal.shown is not None
    notices = list(plan_notices(proposal.shown, every=True, verbose=True))
    changed = False
    for number, step in enumerate(plan.steps):
        if choices.agreed.get(step.name, 0) in {None, _doing(step)}:
            continue
        answer = choices.rest
        if not answer:
            write_notices(out, [notices[number]])
            _show_bytes(plan, number, proposal.annotate, out, whole=False)
            out.text([_total(plan, number, choices)])
            answer = _answer(plan, number, proposal.annotate, out, choices)
        if answer == "f":
            return True
        if answer in "ad":
            choices.rest = answer = "y" if answer == "a" else "s"
        changed |= answer != "y"
        _take(choices, step, answer)
    return changed


def _take(choices: Choices, step: Step, answer: str) -> None:
    if answer == "y":
        choices.agreed[step.name] = _doing(step)
    elif answer == "s":
        choices.without.add(step.name)
    else:
        choices.accept.add(step.name)
        choices.agreed[step.id, step.file, step.instead] = None


def _doing(step: Step) -> int:
    """Return a number for what a step changes and gives up; files that are built beside the store count by their size,
    as their bytes follow from the log.
    """
    from rmqctl.repair.edits import Create

    edits = [
        replace(edit, source=None, size=edit.source.stat().st_size)
        if isinstance(edit, Create) and edit.source is not None
        else edit
        for edit in step.edits
    ]
    return hash((step.loses, step.gives_up, tuple(edits)))


def _answer(plan: Plan, number: int, annotate: Annotate | None, out: Output, choices: Choices) -> str:
    """Ask until the answer decides: one of ``y``, ``s``, ``b``, ``f``, ``a``, ``d``."""
    step = plan.steps[number]
    offered = [letter for letter in _LEGEND if letter != "b" or step.instead]
    question = f"Do this, step {number + 1:,} of {len(plan.steps):,}? [{','.join(offered)},?]"
    while True:
        given = click.prompt(question, default="?", show_default=False, err=True).strip().lower()
        if given == "q":
            message("nothing was written")
            raise SystemExit(1)
        if given == "x":
            _show_bytes(plan, number, annotate, out, whole=True)
        elif given == "f" and given in offered:
            if _takes_replica(choices):
                return "f"
        elif given in offered:
            return given
        else:
            out.text(f"{letter}  {_LEGEND[letter]}" for letter in offered)


def _takes_replica(choices: Choices) -> bool:
    """Ask for a replica; whether one was named."""
    path = click.prompt("Path of a replica (empty: none)", default="", show_default=False, err=True).strip()
    if path:
        choices.replicas.append(path)
    return bool(path)


def _show_bytes(plan: Plan, number: int, annotate: Annotate | None, out: Output, *, whole: bool) -> None:
    """Write the bytes before a step, which are those that earlier steps leave, and after it."""
    from commands._apply_hex import preview_lines
    from rmqctl.repair.changes import preview_step

    files = preview_step(plan, number)
    lines = preview_lines(files, annotate) if whole else preview_lines(files, annotate, most=_OF_A_FIELD)

    def shown() -> Iterator[str]:
        yield from islice(lines, None if whole else _LINES)
        if next(lines, None) is not None:
            yield "... x shows all"
        yield ""

    out.text(shown())


def _total(plan: Plan, number: int, choices: Choices) -> str:
    """Say what is given up by the steps that were accepted, and by this one in addition."""
    before = [step for step in plan.steps[:number] if step.name in choices.agreed]
    so_far, more = sum(step.loses for step in before), plan.steps[number].loses
    names = [name for step in (*before, plan.steps[number]) for name in step.gives_up]
    which = f": {printable(listed_names(names))}" if names else ""
    return f"given up so far {so_far:,}, with this step {so_far + more:,}{which}"


def _end(proposal: Proposal, choices: Choices, out: Output) -> None:
    """Say what was chosen and what it comes to."""
    if choices.without:
        names = [f"{kind} in {file}" for kind, file, _ in sorted(choices.without)]
        out.text(folded([f"Left out: {listed_names(names)}."]))
    out.text(folded(proposal.closing))
    say(proposal)
    for sentence in proposal.hints:
        message(sentence)
