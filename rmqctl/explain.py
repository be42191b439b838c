"""Steps and reasons of an explained answer, as lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def step_lines(steps: Iterable[Mapping[str, Any]], *, title: str = "", apart: bool = False) -> Iterator[str]:
    """Number the steps, a line each; the last one says why, with its id. Nothing without steps.

    Args:
        steps: rows of the kind ``step``.
        title: a line above them.
        apart: leave a line free before them.
    """
    for number, step in enumerate(steps, 1):
        if number == 1:
            yield from [""] * apart + [title] * bool(title)
        place = f"{step['file']}: " if step["file"] else ""
        if "id" in step:
            yield f"=> {step['result']} [{step['id']}]"
        else:
            yield f"{number:>3}. {place}{step['what']}: {step['result']}"
