"""The terminal that tables are made for: how wide it is, whether it takes colour, how text fills it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache

DEFAULT_WIDTH = 100
SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


@dataclass(frozen=True, slots=True)
class Screen:
    """Cells across, and whether stdout shows colour."""

    width: int
    colour: bool

    @classmethod
    def here(cls) -> Screen:
        """Return the screen in front of the user.

        The width is that of COLUMNS, or of whichever of stdout, stderr and stdin is a terminal, so
        that a pipe into `less` changes nothing.
        """
        return cls(_width(), _takes_colour())

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


def fold(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells: broken after spaces, else after one of ``_-/``, else anywhere."""
    if cells_of(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cells_of(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        while cells_of(word) > width:
            fitting = _fitting(word, width)
            cut = max(fitting.rfind(mark) for mark in "_-/") + 1
            lines.append(word[: cut if 2 * cut > width else len(fitting)])
            word = word[len(lines[-1]) :]
        line = word
    return [*lines, line]


def _fitting(word: str, width: int) -> str:
    """Return the begin of a word that fills at most ``width`` cells, one character at least."""
    if word.isascii():
        return word[: max(width, 1)]
    from rich.cells import chop_cells

    return chop_cells(word[: 2 * width], width)[0] or word[0]


def _width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    for stream in (1, 2, 0):
        try:
            return os.get_terminal_size(stream).columns or DEFAULT_WIDTH
        except OSError:
            continue
    return DEFAULT_WIDTH


def _takes_colour() -> bool:
    if sys.stdout is None:
        return False
    if not (sys.stdout.isatty() or os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE")):
        return False  # what Console finds too, but its import takes longer than a lookup
    from rich.console import Console

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
