"""Plans and their edits as rows of JSON values."""

from __future__ import annotations

from typing import Any

from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Plan, Quarantine, SetTimes, Step
from rmqctl.text import number_of


def step_row(step: Step) -> dict[str, Any]:
    """One step with its edits, without the bytes that they write."""
    return {
        "kind": "step",
        "id": step.id,
        "file": step.file,
        "what": step.what,
        "why": step.why,
        "loses": step.loses,
        "edits": [edit_row(edit) for edit in step.edits],
    }


def plan_row(plan: Plan) -> dict[str, Any]:
    """A whole plan as one document."""
    return {
        "kind": "plan",
        "title": plan.title,
        "root": str(plan.root),
        "loses": sum(step.loses for step in plan.steps),
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
        case Overwrite(_, offset, before, _):
            return f"overwrite {number_of(len(before), 'byte')} at {offset:,}"
        case Extend(_, low, high):
            return f"extend from {low:,} to {high:,} bytes"
        case Cut(_, low, high):
            return f"cut from {low:,} to {high:,} bytes"
        case Create():
            return f"create with {number_of(created_size(edit), 'byte')}"
        case Quarantine():
            return "move to quarantine"
        case SetTimes(_, mtime_ns):
            return f"set the modification time to {mtime_ns // 1_000_000} ms"


def created_size(edit: Create) -> int:
    """Length of a file that is to be made."""
    if edit.size is not None:
        return edit.size
    return len(edit.content) if edit.source is None else edit.source.stat().st_size


def edits_text(step: Step) -> str:
    """All edits of a step in a few words; those of a kind in one file are counted."""
    groups: dict[tuple[type[Edit], str], list[Edit]] = {}
    for edit in step.edits:
        groups.setdefault((type(edit), edit.file), []).append(edit)
    return "; ".join(_group_text(step, edits) for edits in groups.values())


def _group_text(step: Step, edits: list[Edit]) -> str:
    where = "" if edits[0].file == step.file else f"{edits[0].file}: "
    first = edits[0]
    if len(edits) == 1 or not isinstance(first, Overwrite):
        return where + ", ".join(edit_text(edit) for edit in edits)
    size = sum(len(edit.after) for edit in edits if isinstance(edit, Overwrite))
    return f"{where}overwrite {number_of(size, 'byte')} in {number_of(len(edits), 'place')} from {first.offset:,} on"


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
