"""The annotated bytes of a file: a window on them that grows at both ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from commands._browse import reading
from commands._browse.columns import Styled
from commands._browse.reading import ByteLine, Chunk
from commands._browse.site import Site
from commands._browse.views import View

CHUNK = 4096
"""Bytes of a file that are annotated together."""
_KEPT_LINES = 6000


class BytesView(View):
    """The bytes of a file with their meaning, piece by piece, from a place on, and back.

    Args:
        file: as the store names it.
        begin, size: what is looked for; it is marked.
        place: its path, where that is known.
    """

    needs_room = True
    follows = True

    def __init__(self, site: Site, file: str, begin: int = 0, size: int = 0, place: str = "") -> None:
        super().__init__(site, file)
        self._file, self._place = file, place or site.place_of(file)
        self._marked = range(begin, begin + size)
        self._lines: list[ByteLine] = []
        self._chosen: list[ByteLine] | None = None
        self._from = self._to = self._aim = begin
        self._size: int | None = None
        self._fold = 0

    @property
    def command(self) -> str:
        at = self._offset
        return self.site.command("dump", "-o", "hex", "--bytes", f"{at}-{at + 256}", path=self._place)

    @property
    def _shown(self) -> list[ByteLine]:
        return self._lines if self._chosen is None else self._chosen

    @property
    def _offset(self) -> int:
        return self._shown[self.cursor].offset if self.cursor < self.count else self._from

    @property
    def count(self) -> int:
        return len(self._shown)

    def line(self, number: int) -> Styled:
        shown = self._shown[number]
        if self._marked and shown.offset in self._marked:
            return [(text, f"{style} bold" if style else "bold") for text, style in shown.styled]
        return shown.styled

    def start(self) -> None:
        self.go_to(self._marked.start)

    def renew(self) -> None:
        self.go_to(self._offset)

    def go_to(self, place: int) -> None:
        """Show the bytes from a place on."""
        self._from = self._to = self._aim = place
        self.filter, self._chosen = "", None
        self._read(place, place + CHUNK, self._began, CHUNK)

    def resized(self, width: int) -> None:
        if width != self._fold:
            is_first, self._fold = not self._fold, width
            if not is_first:
                self.go_to(self._offset if self._lines else self._aim)

    def choose(self, text: str) -> None:
        wanted = text.casefold()
        self._chosen = [line for line in self._lines if wanted in line.text] if wanted else None
        super().choose(text)

    def need(self, first: int, end: int) -> None:
        if self.job is not None or self.failed or self.filter or self._size is None:
            return
        if end >= len(self._lines) and self._to < self._size:
            self._read(self._to, self._to + CHUNK, self._went_on)

    def before(self) -> None:
        if self.job is None and not self.filter and self._from > 0 and self._lines:
            self._read(max(self._from - CHUNK, 0), self._from, self._went_back)

    def _read(self, begin: int, end: int, took: Callable[[Chunk], object], reach: int = 0) -> None:
        def counted(chunk: Chunk) -> None:
            self._size = chunk.size
            took(chunk)
            self.width = max((len(line.text) for line in self._lines), default=0)
            self.changed()

        self.read(partial(reading.annotated, self._place, begin, end, self._fold, reach), counted)

    def _began(self, chunk: Chunk) -> None:
        self._lines, self._from, self._to = list(chunk.lines), chunk.begin, chunk.end
        self.cursor = next((n for n, line in enumerate(chunk.lines) if line.offset >= self._aim), 0)

    def _went_on(self, chunk: Chunk) -> None:
        self._lines += chunk.lines
        self._to = max(chunk.end, self._to + 1)
        if (over := len(self._lines) - _KEPT_LINES) > 0:
            self._from, self.cursor = self._lines[over].offset, max(self.cursor - over, 0)
            del self._lines[:over]

    def _went_back(self, chunk: Chunk) -> None:
        before = [line for line in chunk.lines if line.offset < self._from]
        self._lines = [*before, *self._lines]
        self._from, self.cursor = min(chunk.begin, self._from - 1), max(self.cursor + len(before) - 1, 0)
        if len(self._lines) > _KEPT_LINES:
            self._to = self._lines[_KEPT_LINES].offset
            del self._lines[_KEPT_LINES:]

    def said(self) -> str:
        if not self._size:
            return "the file is empty"
        return f"bytes {self._from:,} to {min(self._to, self._size) - 1:,} of {self._size:,}"

    def copies(self) -> Mapping[str, str]:
        return {"path": self._place, "offset": str(self._offset)}
