"""Plans, their edits and the changes of a journal as rows of JSON values, for people who want to know before they
type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmqctl.notices import PLACES, Notice
from rmqctl.repair.edits import (
    STORE,
    Create,
    Cut,
    Edit,
    Extend,
    FileChange,
    Overwrite,
    Plan,
    Quarantine,
    SetTimes,
    Step,
)
from rmqctl.repair.journal import Journal
from rmqctl.text import instant, number_of

if TYPE_CHECKING:
    from rmqctl.repair.books import Books


STEP_KEYS = ("kind", "id", "file", "what", "why", "loses", "gives_up", "edits")
"""Keys of the row of a step, in order."""


def step_row(step: Step) -> dict[str, Any]:
    """One step with its edits, without the bytes that they write."""
    return {
        "kind": "step",
        "id": step.id,
        "file": step.file,
        "what": step.what,
        "why": step.why,
        "loses": step.loses,
        "gives_up": list(step.gives_up),
        "edits": [edit_row(edit) for edit in step.edits],
    }


def plan_row(plan: Plan, books: Books | None = None) -> dict[str, Any]:
    """Return a whole plan as one document.

    Args:
        books: what it does to whole records, where that was asked.
    """
    return {
        "kind": "plan",
        "title": plan.title,
        "root": str(plan.root),
        "loses": sum(step.loses for step in plan.steps) if books is None else books.loses,
        **({"books": books.document()} if books is not None else {}),
        "steps": [step_row(step) for step in plan.steps],
    }


def edit_row(edit: Edit) -> dict[str, Any]:
    """One edit: what it does to which bytes; sizes in bytes, times in nanoseconds since the epoch."""
    match edit:
        case Overwrite(file, offset, before, _):
            return {"edit": "overwrite", "file": file, "offset": offset, "size": len(before)}
        case Extend(file, low, high):
            return {"edit": "extend", "file": file, "from": low, "to": high}
        case Cut(file, low, high):
            return {"edit": "cut", "file": file, "from": low, "to": high}
        case Create(file):
            return {"edit": "create", "file": file, "size": created_size(edit)}
        case Quarantine(file):
            return {"edit": "quarantine", "file": file}
        case SetTimes(file, mtime_ns):
            return {"edit": "set-times", "file": file, "mtime_ns": mtime_ns}


def edit_text(edit: Edit) -> str:
    """One edit in words."""
    match edit:
        case Overwrite(_, offset, before, after):
            change = f": {before.hex(' ')} -> {after.hex(' ')}" if len(before) <= _SHORT else ""
            return f"overwrite {number_of(len(before), 'byte')} at {offset:,}{change}"
        case Extend(_, low, high):
            return f"extend from {low:,} to {high:,} bytes"
        case Cut(_, low, high):
            return f"cut from {low:,} to {high:,} bytes"
        case Create():
            return f"create with {number_of(created_size(edit), 'byte')}"
        case Quarantine():
            return "move to quarantine"
        case SetTimes(_, mtime_ns):
            return f"set the modification time to {instant(mtime_ns // 1_000_000)}"


def created_size(edit: Create) -> int:
    """Length of a file that is to be made."""
    if edit.size is not None:
        return edit.size
    return len(edit.content) if edit.source is None else edit.source.stat().st_size


def edits_text(step: Step) -> str:
    """All edits of a step in a few words; those of a kind in one file are counted; "" where the step is named so."""
    groups: dict[tuple[type[Edit], str], list[Edit]] = {}
    for edit in step.edits:
        groups.setdefault((type(edit), edit.file), []).append(edit)
    text = "; ".join(_group_text(step, edits) for edits in groups.values())
    return "" if step.what.partition(":")[0] == text else text


def _group_text(step: Step, edits: list[Edit]) -> str:
    where = "" if edits[0].file == step.file else f"{edits[0].file}: "
    first = edits[0]
    if len(edits) == 1 or not isinstance(first, Overwrite):
        return where + ", ".join(edit_text(edit) for edit in edits)
    size = sum(len(edit.after) for edit in edits if isinstance(edit, Overwrite))
    return f"{where}overwrite {number_of(size, 'byte')} in {number_of(len(edits), 'place')} from {first.offset:,} on"


# --- plans as notices -------------------------------------------------------------------------------

_SHORT = 8
"""Bytes that are shown before and after."""


def plan_notices(plan: Plan, *, every: bool = False, verbose: bool = False) -> Iterator[Notice]:
    """Yield the steps of a plan as notices, in order; those of one id that do the same to other places are one.

    Args:
        every: a notice for each step.
        verbose: with every piece of evidence, not only the first.
    """
    alike: dict[object, list[tuple[int, Step]]] = {}
    for number, step in enumerate(plan.steps, 1):
        deed, is_loss = step.what.partition(" ")[0], bool(step.loses)
        kind = (step.id, bool(step.edits), deed, is_loss, *sorted({type(edit).__name__ for edit in step.edits}))
        alike.setdefault(number if every else kind, []).append((number, step))
    for steps in alike.values():
        yield _one_step(*steps[0], verbose) if len(steps) == 1 else _many_steps(steps, verbose)


def _one_step(number: int, step: Step, verbose: bool) -> Notice:
    what = f"{step.file}: {step.what}" if step.about else step.what
    lines = [what, *filter(None, [edits_text(step)]), *_evidence(step, verbose), *_given_up([step])]
    return Notice(f"step {number}" if step.edits else "left", step.id, step.about or step.file, lines)


def _many_steps(steps: Sequence[tuple[int, Step]], verbose: bool) -> Notice:
    shown = steps if len(steps) <= PLACES + 1 else steps[:PLACES]
    lines = ["; ".join(filter(None, (f"{step.file}: {step.what}", edits_text(step)))) for _, step in shown]
    if len(shown) < len(steps):
        lines.append(f"and {len(steps) - len(shown):,} more like it (--all)")
    lines += [*_evidence(steps[0][1], verbose), *_given_up([step for _, step in steps])]
    files = number_of(len({step.file for _, step in steps}), "file")
    level = "left" if not steps[0][1].edits else f"steps {_numbers([number for number, _ in steps])}"
    return Notice(level, steps[0][1].id, f"{number_of(len(steps), 'place')} in {files}", lines)


def _numbers(numbers: Sequence[int]) -> str:
    """``1-4`` where they follow each other, else the first ones: ``1, 3, 4 ...``."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(map(str, numbers[:PLACES])) + (" ..." if len(numbers) > PLACES else "")


def _evidence(step: Step, verbose: bool) -> list[str]:
    pieces = step.why.split("; ")
    if verbose or len(pieces) == 1 or not step.edits:
        return [f"because {step.why}"] if step.edits else [step.why]
    return [f"because {pieces[0]}; and {len(pieces) - 1} more (--verbose)"]


def _given_up(steps: Sequence[Step]) -> list[str]:
    lost, names = sum(step.loses for step in steps), [name for step in steps for name in step.gives_up]
    if not lost:
        return []
    more = f", and {len(names) - PLACES:,} more" if len(names) > PLACES else ""
    return [f"gives up {lost:,}" + (f": {', '.join(names[:PLACES])}{more}" if names else "")]


def weight(plan: Plan) -> int:
    """About how many bytes carrying out a plan writes, to journal and store."""
    return sum(_weight(edit) for edit in plan.edits)


def _weight(edit: Edit) -> int:
    match edit:
        case Overwrite():
            return 3 * len(edit.after)
        case Create():
            return created_size(edit)
        case Cut(_, low, high):
            return low - high
        case _:
            return 0


# --- the changes of a journal as rows ---------------------------------------------------------------


def change_rows(journal: Journal, *, after: bool) -> Iterator[dict[str, Any]]:
    """One row a file or directory that is driven to one side; sizes in bytes.

    Args:
        after: to the state after the plan, else to the one before it.
    """
    for file in journal.changes.files:
        target, origin = file.side(after=after), file.side(after=not after)
        yield {
            "file": file.name,
            "does": ", ".join(_does(file, after=after)),
            "size": origin.size if origin.place == STORE else None,
            "to_size": target.size if target.place == STORE else None,
            "bytes": sum(size for _, size, _ in file.payloads(after=after)),
            "mtime_ns": target.mtime_ns,
        }
    for directory in journal.changes.directories:
        does = "make the directory" if directory.side(after=after) else "remove the empty directory"
        yield {"file": f"{directory.name}/", "does": does, "size": None, "to_size": None, "bytes": 0}


def change_notice(journal: Journal, verb: str, *, after: bool, every: bool = False) -> Notice:
    """Return what is driven to one side as a notice: the first files, and how many more there are.

    Args:
        verb: what is done with the journal.
        after: as of :func:`change_rows`.
        every: each file.
    """
    lines = [
        f"{row['file']}: {row['does']}" + (f", {number_of(row['bytes'], 'byte')}" if row["bytes"] else "")
        for row in change_rows(journal, after=after)
    ]
    if not every and len(lines) > PLACES + 1:
        lines[PLACES:] = [f"and {len(lines) - PLACES:,} more (--all)"]
    return Notice(verb, journal.path.name, journal.title, lines)


def _does(file: FileChange, *, after: bool) -> Iterator[str]:
    target, origin = file.side(after=after), file.side(after=not after)
    if file.moves:
        yield f"bring in from {origin.place}" if target.place == STORE else f"move out to {target.place}"
    if target.size != origin.size:
        yield f"{'extend' if target.size > origin.size else 'cut'} to {target.size:,} bytes"
    places = sum(1 for _ in file.payloads(after=after))
    if places:
        yield f"write {places:,} {'piece' if places == 1 else 'pieces'}"
    if target.mtime_ns != origin.mtime_ns:
        yield "set the modification time"
