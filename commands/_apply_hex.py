"""`-o hex` of a plan: the annotated bytes before and after, stretch by stretch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from commands._screen import Screen
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.hexview.annotation import Annotation
    from rmqctl.repair.edited_file import DraftSource, FilePreview
    from rmqctl.repair.edits import Plan

SHOWN = 4096
"""Bytes of a stretch that are shown."""
_LINES = 16
"""Lines of hex of one field."""
_WHOLE = 32
"""Bytes up to which a field is shown whole, although only some of it changes."""


def plan_lines(plan: Plan) -> Iterator[str]:
    """Lines of text: per file its name and sizes, then each stretch as it is and as it would be."""
    from rmqctl.repair.edited_file import preview

    screen = Screen.here()
    for file in preview(plan):
        yield screen.style(f"{file.name}, {_sizes(file)}", "bold")
        for begin, end in file.stretches:
            yield from _side(file.name, file.before, "before", begin, end, screen)
            yield from _side(file.name, file.after, "after", begin, end, screen)


def _side(name: str, source: DraftSource | None, side: str, begin: int, end: int, screen: Screen) -> Iterator[str]:
    from rmqctl.hexview.rendering import render
    from rmqctl.rocketmq.hexview.annotate import annotate, kind_of

    if source is None or begin >= source.size():
        return
    end = min(end, source.size())
    yield screen.style(f"--- {side}, bytes {begin:,} to {end - 1:,}", "bold")
    last = name.rpartition("/")[2]
    base = int(last) if last.isdigit() else 0
    stop = min(end, begin + SHOWN)
    notes = annotate(source, kind_of(name), base=base, start=begin, stop=stop, name=name)
    shown = (_clipped(note, source, begin, stop) for note in notes)
    yield from render(shown, width=screen.width, colour=screen.colour, lines=_LINES)
    if stop < end:
        yield f"... {number_of(end - stop, 'byte')} more"


def _clipped(note: Annotation, source: DraftSource, begin: int, end: int) -> Annotation:
    """A long field or gap, as far as it changes."""
    low, high = max(note.offset, begin), min(note.end, end)
    if note.size <= _WHOLE or (low, high) == (note.offset, note.end) or low >= high:
        return note
    return replace(note, offset=low, size=high - low, raw=source.read_at(low, min(high - low, SHOWN)))


def _sizes(file: FilePreview) -> str:
    if file.before is None:
        return f"new, {file.after.size() if file.after else 0:,} bytes"
    if file.after is None:
        return f"{file.before.size():,} bytes, into quarantine"
    if file.before.size() == file.after.size():
        return f"{file.before.size():,} bytes"
    return f"{file.before.size():,} bytes, then {file.after.size():,}"
