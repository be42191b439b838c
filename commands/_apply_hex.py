"""`-o hex` of a plan: the annotated bytes before and after, stretch by stretch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from commands._cells import printable
from commands._screen import Screen
from rmqctl.text import number_of

if TYPE_CHECKING:
    from rmqctl.answer import Annotate
    from rmqctl.files.local import ByteSource
    from rmqctl.hexview.annotation import Annotation
    from rmqctl.repair.changes import FilePreview, PlannedSource
    from rmqctl.repair.edits import Plan

SHOWN = 4096
"""Bytes of a stretch that are shown."""
_LINES = 16
"""Lines of hex of one field."""
_WHOLE = 32
"""Bytes up to which a field is shown whole, although only some of it changes."""


def plan_lines(plan: Plan, annotate: Annotate | None = None) -> Iterator[str]:
    """Lines of text: per file its name and sizes, then each stretch as it is and as it would be.

    Args:
        annotate: gives the meaning of the bytes; None: they are shown as they are.
    """
    from rmqctl.repair.changes import preview

    return preview_lines(preview(plan), annotate)


def preview_lines(
    files: Iterable[FilePreview], annotate: Annotate | None = None, *, most: int = _LINES
) -> Iterator[str]:
    """Lines as of :func:`plan_lines` of some files.

    Args:
        most: lines of hex of one field.
    """
    screen = Screen.here()
    for file in files:
        yield screen.style(f"{printable(file.name)}, {_sizes(file)}", "bold")
        for begin, end in file.stretches:
            for side, source in (("before", file.before), ("after", file.after)):
                yield from _side(file.name, source, side, (begin, end), screen, annotate or _unannotated, most)


def _unannotated(source: ByteSource, name: str, begin: int, end: int) -> Iterator[Annotation]:
    from rmqctl.hexview.annotation import View, gap

    return gap(View(source, name, source.size()), begin, end)


def _side(
    name: str,
    source: PlannedSource | None,
    side: str,
    stretch: tuple[int, int],
    screen: Screen,
    annotate: Annotate,
    most: int,
) -> Iterator[str]:
    from rmqctl.hexview.rendering import render

    begin, end = stretch
    if source is None or begin >= source.size():
        return
    end = min(end, source.size())
    yield screen.style(f"--- {side}, bytes {begin:,} to {end - 1:,}", "bold")
    stop = min(end, begin + SHOWN)
    shown = (_clipped(note, source, begin, stop) for note in annotate(source, name, begin, stop))
    yield from render(shown, width=screen.width, colour=screen.colour, lines=most)
    if stop < end:
        yield f"... {number_of(end - stop, 'byte')} more"


def _clipped(note: Annotation, source: PlannedSource, begin: int, end: int) -> Annotation:
    """Return a long field or gap, as far as it changes."""
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
