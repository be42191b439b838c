"""Text as commands print it, folded to the width of the pane."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from commands._browse import reading
from commands._browse.columns import Styled
from commands._browse.site import Site
from commands._browse.views import View
from commands._rows import Row
from commands._screen import SEVERITY_STYLES, cells_of

if TYPE_CHECKING:
    from commands._browse.reading import Make, Passage


class TextView(View):
    """Lines of text.

    Args:
        make: reads what is shown.
        about: the row that it is about, for bytes and copies; None: none.
    """

    def __init__(self, site: Site, title: str, command: str, make: Make, about: Row | None = None) -> None:
        super().__init__(site, title)
        self._command, self._make, self._about = command, make, about
        self._parts: list[Passage] = []
        self._fold = 0
        self._all: list[str] = []
        self._lines: list[str] = []

    @property
    def command(self) -> str:
        return self._command

    @property
    def count(self) -> int:
        return len(self._lines)

    def line(self, number: int) -> Styled:
        text = self._lines[number]
        first = text.partition("  ")[0]
        if first in SEVERITY_STYLES:
            return [(first, SEVERITY_STYLES[first]), (text[len(first) :], "")]
        return [(text, "bold" if text.lstrip().startswith("rmqctl ") else "")]

    def start(self) -> None:
        self.read(partial(reading.text, self._make, self._fold), self._took)

    def _took(self, read: tuple[list[Passage], int, list[str]]) -> None:
        self._parts, width, self._all = read
        self._select()
        if width != self._fold:
            self._fold_again()

    def resized(self, width: int) -> None:
        if width != self._fold:
            self._fold = width
            self._fold_again()

    def _fold_again(self) -> None:
        if self._parts:
            self.read(partial(reading.fold, self._parts, self._fold), self._took)

    def _select(self) -> None:
        wanted = self.filter.casefold()
        self._lines = [line for line in self._all if wanted in line.casefold()] if wanted else self._all
        self.width = max(map(cells_of, self._lines), default=0)
        self.changed()

    def choose(self, text: str) -> None:
        self.filter, self.cursor = text, 0
        self._select()

    @property
    def current(self) -> Row | None:
        return self._about

    def copies(self) -> Mapping[str, str]:
        return {"line": self._lines[self.cursor].strip()} if self.cursor < self.count else {}

    @property
    def topic(self) -> str | None:
        return None if self._about is None else self._about.get("topic")
