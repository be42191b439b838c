"""The terminal that tables are made for: how wide it is, whether it takes colour, how text fills it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from commands._cells import colour_is_wanted

DEFAULT_WIDTH = 100
SEVERITY_STYLES = {"error": "bold red", "warning": "bold magenta", "note": "bold"}
"""Colours that can be read on dark and on light grounds: yellow and cyan cannot on white."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Cells across, whether stdout shows colour, and whether lines end at the width.

    Attributes:
        folds: False where stdout is no terminal: a row, or a sentence, is one line, however long.
    """

    width: int
    colour: bool
    folds: bool = True

    @classmethod
    def here(cls) -> Screen:
        """Return the screen in front of the user: as wide as COLUMNS says where it is set, else as the terminal."""
        width = _width()
        return cls(width or DEFAULT_WIDTH, _takes_colour(), folds=bool(width))

    def fold(self, text: str, width: int | None = None, *, hang: int = 0, anywhere: bool = False) -> list[str]:
        """Lines of a text on this screen, see :func:`fold`; one where nothing folds."""
        room = max(self.width if width is None else width, 1)
        return fold(text, room, hang=hang, anywhere=anywhere) if self.folds else [text]

    def style(self, text: str, style: str) -> str:
        """``text`` in a rich style where colour is shown."""
        return _style(style, text) if self.colour and style else text


def cells_of(text: str) -> int:
    """Cells that a text fills; wide characters count two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """``text`` filled with spaces to ``width`` cells; wide characters count two."""
    space = " " * (width - cells_of(text))
    return space + text if right else text + space


def fold(text: str, width: int, *, hang: int = 0, anywhere: bool = False) -> list[str]:
    """Lines of at most ``width`` cells, broken at spaces only: a word may be an identifier, and stays whole.

    Args:
        hang: so many cells less have the lines after the first, which are indented.
        anywhere: break words that are too long, too: for bytes of messages.
    """
    if cells_of(text) <= width:
        return [text]
    words = text.split(" ")
    if anywhere:
        words = [piece for word in words for piece in _pieces(word, width)]
    return list(flow(words, " ", width, hang))


def flow(items: Iterable[str], between: str, width: int, hang: int = 0) -> Iterator[str]:
    """Yield items side by side on lines of at most ``width`` cells, an item never broken; 0: one line.

    Args:
        hang: so many cells less have the lines after the first.
    """
    line = ""
    for item in items:
        longer = f"{line}{between}{item}" if line else item
        if line and width and cells_of(longer) + len(between.rstrip(" ")) > width:
            yield (line + between).rstrip(" ")
            line, width, hang = item, max(width - hang, 1), 0
        else:
            line = longer
    if line:
        yield line


def _pieces(word: str, width: int) -> Iterator[str]:
    while cells_of(word) > width:
        yield (piece := _fitting(word, width))
        word = word[len(piece) :]
    yield word


def _fitting(word: str, width: int) -> str:
    """Return the begin of a word that fills at most ``width`` cells, one character at least."""
    if word.isascii():
        return word[: max(width, 1)]
    from rich.cells import chop_cells

    return chop_cells(word[: 2 * width], width)[0] or word[0]


def _width() -> int:
    """Cells of a line; 0 where stdout is no terminal and COLUMNS is not set."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    if sys.stdout is None or not sys.stdout.isatty():
        return 0
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or DEFAULT_WIDTH
    except (OSError, ValueError):
        return DEFAULT_WIDTH


def _takes_colour() -> bool:
    when = colour_is_wanted()
    if sys.stdout is None or when != "auto":
        return when == "always"
    forced = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE")
    if not (sys.stdout.isatty() or any(os.environ.get(name, "0") not in {"", "0"} for name in forced)):
        return False  # what Console finds too, but its import takes longer than a lookup
    from rich.console import Console

    if os.environ.get("CLICOLOR_FORCE", "0") not in {"", "0"} and not os.environ.get("NO_COLOR"):
        return True
    console = Console(file=sys.stdout)
    return console.color_system is not None and not console.no_color


@cache
def _styles(style: str) -> tuple[str, str]:
    from rich.color import ColorSystem
    from rich.style import Style

    before, after = Style.parse(style).render("\0", color_system=ColorSystem.STANDARD).split("\0")
    return before, after


def _style(style: str, text: str) -> str:
    before, after = _styles(style)
    return f"{before}{text}{after}"
