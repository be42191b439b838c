"""The messages of a queue or partition, by offset: a window on as many as there are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from commands._browse import reading
from commands._browse.columns import Columns, Shown, Styled
from commands._browse.reading import offset_of
from commands._browse.site import Site
from commands._browse.views import View
from commands._rows import Row
from rmqctl.text import number_of

_BLOCK, _BLOCKS = 64, 64
"""Offsets that are read together, and how many such blocks are held."""
_FOUND = 500
"""Messages that a search shows before it waits to be asked for more."""


class QueueView(View):
    """The messages of a queue or partition by offset, of which only those in sight are read."""

    follows = True
    opens_rows = True

    def __init__(self, site: Site, topic: str, queue: int, offset: int | None = None) -> None:
        super().__init__(site, f"{topic}/{queue}")
        self._topic, self.queue, self._wanted = topic, queue, offset
        self._begin = self._end = 0
        self._is_known = False
        self._blocks: OrderedDict[int, dict[int, Shown]] = OrderedDict()
        self._columns = Columns()
        self._found: list[Shown] = []
        self._searched_to = self._search_end = 0

    @property
    def topic(self) -> str | None:
        return self._topic

    @property
    def offset(self) -> int:
        """The offset that is chosen."""
        row = self.current
        return self._begin + self.cursor if row is None else offset_of(row)

    @property
    def command(self) -> str:
        found = ["--as-found"] if self.site.is_rocketmq else []
        return self.site.command("query-offset", f"{self._topic}/{self.queue}", str(self.offset), "-n", "20", *found)

    @property
    def count(self) -> int:
        return len(self._found) if self.filter else max(self._end - self._begin, 0)

    @property
    def current(self) -> Row | None:
        """The message that is chosen; None where none is there, or has been read."""
        shown = self._at(self.cursor)
        return None if shown is None else shown.row

    def _at(self, number: int) -> Shown | None:
        if self.filter:
            return self._found[number] if number < len(self._found) else None
        offset = self._begin + number
        return self._blocks.get(offset // _BLOCK, {}).get(offset)

    def head(self) -> Sequence[Styled]:
        return [self._columns.head()] if self._columns.keys else []

    def line(self, number: int) -> Styled:
        shown = self._at(number)
        if shown is not None:
            return self._columns.line(shown)
        offset = self._begin + number
        return [(f"{offset}  {'no message here' if offset // _BLOCK in self._blocks else '...'}", "dim")]

    def start(self) -> None:
        """Ask where the queue begins and ends."""
        self.read(partial(reading.bounds, self._topic, self.queue), self._bounded)

    def _bounded(self, ends: tuple[int, int]) -> None:
        begin, end = ends
        at_end = self._is_known and self.cursor == self.count - 1 and not self.filter
        for old in (self._end // _BLOCK, begin // _BLOCK):
            self._blocks.pop(old, None)
        moved = begin - self._begin if self._is_known else 0
        self._begin, self._end, self._is_known = begin, max(end, begin), True
        self.width = max(self._columns.width, 20)
        if self._wanted is not None:
            self.cursor, self._wanted = max(self._wanted - begin, 0), None
        elif at_end:
            self.cursor = max(end - begin - 1, 0)
        elif not self.filter:
            self.cursor = max(self.cursor - moved, 0)
        self.changed()

    def said(self) -> str:
        if not self._is_known:
            return "the store has no such queue"
        if self.filter:
            more = "" if self._searched_to >= self._search_end else f", searched to offset {self._searched_to - 1}"
            return f"{number_of(len(self._found), 'message')} found{more}"
        return f"offsets {self._begin} to {self._end - 1}" if self._end > self._begin else "no message"

    def go_to(self, offset: int) -> None:
        """Choose an offset."""
        self.filter = ""
        if not self._is_known:
            self._wanted = offset
        self.cursor = max(min(offset - self._begin, self.count - 1), 0)
        self.changed()

    def seek(self, moment: int) -> None:
        """Choose the offset that a broker answers for a time, epoch milliseconds."""
        self.choose("")
        self.read(partial(reading.seek, self._topic, self.queue, moment), self._sought)

    def _sought(self, offset: int) -> None:
        self.go_to(self._end - 1 if offset < 0 else offset)

    # --- windows ----------------------------------------------------------------------------------------

    def need(self, first: int, end: int) -> None:
        if self.filter:
            if end >= len(self._found) and self.job is None and self._searched_to < self._search_end:
                self._search(_FOUND)
            return
        if self.job is not None or self.failed:
            return
        low, high = (self._begin + first) // _BLOCK, (self._begin + max(end - 1, first)) // _BLOCK
        missing = [block for block in range(low, high + 1) if block not in self._blocks]
        if missing:
            first, end = max(missing[0] * _BLOCK, self._begin), min((missing[-1] + 1) * _BLOCK, self._end)

            def took(read: tuple[Columns, list[Shown]]) -> None:
                self._took(missing[0], missing[-1] + 1, *read)

            self.read(partial(reading.window, self._topic, self.queue, first, end), took)

    def _took(self, low: int, high: int, columns: Columns, rows: list[Shown]) -> None:
        blocks: dict[int, dict[int, Shown]] = {block: {} for block in range(low, high)}
        for shown in rows:
            offset = offset_of(shown.row)
            blocks[offset // _BLOCK][offset] = shown
        self._blocks.update(blocks)
        while len(self._blocks) > _BLOCKS:
            self._blocks.popitem(last=False)
        self._fitted(columns, rows)
        self.changed()

    def _fitted(self, columns: Columns, rows: list[Shown]) -> None:
        if not self._columns.keys:
            self._columns = columns
        self._columns.fit(rows)
        self.width = max(self._columns.width, 20)

    # --- filtering ----------------------------------------------------------------------------------------

    def choose(self, text: str) -> None:
        self.close()
        offset = self.offset
        self._found, self._searched_to, self._search_end = [], self._begin, self._end
        super().choose(text)
        if text:
            self._search(_FOUND)
        else:
            self.go_to(offset)

    def _search(self, most: int) -> None:
        """Look for messages with the text from where the last search ended."""
        wanted = self.filter.casefold()

        def matched(read: tuple[Columns, list[Shown], int]) -> None:
            if wanted != self.filter.casefold():
                return
            columns, found, self._searched_to = read
            self._fitted(columns, found)
            self._found += found
            self.state = f"searching ... offset {self._searched_to}"
            self.changed()

        place = self._topic, self.queue, wanted, self._searched_to, self._search_end, most
        self.read(partial(reading.search, *place), matched)
