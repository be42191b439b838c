"""A repair plan as annotated bytes: every overwritten field as it is and as it will be."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from commands._screen import Screen

if TYPE_CHECKING:
    from rmqctl.repair.edits import Overwrite, Step
    from rmqctl.rocketmq.mend.plan import Repair
    from rmqctl.rocketmq.store import RocketMQStore

_SHOWN = 16
"""Overwritten places of a step that are shown."""


def hex_lines(found: RocketMQStore, repair: Repair) -> Iterator[str]:
    """Lines for every step: what and why, then its bytes before and after with their fields."""
    from rmqctl.rocketmq.mend.plan import overlaid

    after = overlaid(found, repair.plan.edits)
    for step in (*repair.plan.steps, *repair.left):
        yield from _step(step, found, after)


def _step(step: Step, before: RocketMQStore, after: RocketMQStore) -> Iterator[str]:
    from rmqctl.repair.edits import Overwrite
    from rmqctl.repair.show import edit_text

    screen = Screen.here()
    yield screen.style(f"{step.id} {step.file}: {step.what}", "bold")
    yield f"  {step.why}"
    places = [edit for edit in step.edits if isinstance(edit, Overwrite)]
    yield from (f"  {edit_text(edit)}" for edit in step.edits if not isinstance(edit, Overwrite))
    for _, edits in groupby(places[:_SHOWN], key=lambda e: e.file):
        yield from _places(list(edits), before, after, screen)
    if len(places) > _SHOWN:
        yield f"  and {len(places) - _SHOWN:,} more places"
    yield ""


def _places(edits: list[Overwrite], before: RocketMQStore, after: RocketMQStore, screen: Screen) -> Iterator[str]:
    low, high = edits[0].offset, edits[-1].offset + len(edits[-1].before)
    for word, store in (("before", before), ("after", after)):
        yield screen.style(f"  {word}:", "bold")
        yield from _annotated(store, edits[0].file, low, high, screen)


def _annotated(store: RocketMQStore, name: str, low: int, high: int, screen: Screen) -> Iterator[str]:
    """The fields of a file that overlap ``[low, high)``."""
    from rmqctl.hexview import annotate, kind_of, render
    from rmqctl.rocketmq.store import is_offset

    file = next((f for f in store.log_files if f.name == name), None)
    source = file.open() if file is not None else store.tree.open(name)
    last = name.rpartition("/")[2]
    try:
        base = int(last) if is_offset(last) else 0
        notes = annotate(source, kind_of(name), base=base, start=low, stop=high, name=name)
        yield from render(notes, width=screen.width, colour=screen.colour)
    finally:
        source.close()
