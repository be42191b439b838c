"""`-o hex`: the annotated bytes of what a dump would show."""

from __future__ import annotations

from collections.abc import Iterator

from commands import _sink
from commands._answer import say
from commands._cells import printable
from commands._screen import Screen
from rmqctl.answer import HexAnswer


def write_hex(answer: HexAnswer) -> None:
    """Write the stretches of an answer, each file under its name and size."""
    say(answer)
    _sink.write_text(_lines(answer))


def _lines(answer: HexAnswer) -> Iterator[str]:
    from rmqctl.hexview.rendering import render

    screen, file = Screen.here(), ""
    for stretch in answer.stretches:
        if stretch.file != file:
            file = stretch.file
            yield screen.style(f"{printable(file)}, {stretch.file_size} bytes", "bold")
        yield from render(stretch.notes, width=screen.width, colour=screen.colour)
