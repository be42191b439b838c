"""How far long work has come: a bar with rate and time left on stderr; lines now and then where that is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from commands._cells import want_colour
from commands._guard import complain

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

STAGES = "stages"
"""The unit of work of which only the name of its part is known."""
_EVERY = 30.0
"""Seconds between two lines where there is no bar."""


class Advance(Protocol):
    """Moves a bar."""

    def __call__(self, amount: int, note: str = "") -> None:
        """So much was done since the last call; ``note`` stands beside the bar from now on."""
        ...


_shown: list[Progress] = []
_wanted = {"bars": True, "remarks": True}


def start_again() -> None:
    """Show bars and remarks, as a command does without --quiet."""
    _wanted.update(bars=True, remarks=True)
    want_colour("auto")


def show_no_bar() -> None:
    _wanted["bars"] = False


def be_quiet() -> None:
    """Show no bars, and no remarks beside the results."""
    _wanted.update(bars=False, remarks=False)


def remarks_are_wanted() -> bool:
    return _wanted["remarks"]


@contextmanager
def progress(description: str, total: int | None, *, unit: str = "bytes") -> Iterator[Advance]:
    """Show a bar while the block runs; where stderr is no terminal, a line every half a minute.

    Args:
        total: how much there is to do; None when nobody knows.
        unit: ``bytes`` (shown in binary units), or what is counted, as a plural: ``files``; :data:`STAGES`.

    Yields:
        A function to call with the amount done since its last call.
    """
    if not _wanted["bars"] or sys.stderr is None:
        yield lambda amount, note="": None
        return
    if not sys.stderr.isatty():
        yield _Lines(description, total, unit)
        return
    bar = _bar(unit)
    task = bar.add_task(description, total=total, note="")
    _shown.append(bar)
    with bar:
        try:
            yield lambda amount, note="": bar.update(task, advance=amount, **({"note": note} if note else {}))
        finally:
            _shown.remove(bar)


class _Lines:
    """Says on stderr how far work is that takes long; nothing of what nobody knows the end of, but stages."""

    def __init__(self, description: str, total: int | None, unit: str) -> None:
        self.description, self.total, self.unit = description, total, unit
        self.done, self.note = 0, ""
        self.began = self.said = time.monotonic()

    def __call__(self, amount: int, note: str = "") -> None:
        self.done, self.note, now = self.done + amount, note or self.note, time.monotonic()
        if now - self.said >= _EVERY and (self.total or self.unit == STAGES):
            self.said = now
            complain(f"{self.description}: {', '.join(self._parts(now - self.began))}")

    def _parts(self, seconds: float) -> Iterator[str]:
        from commands._cells import size, span

        if self.total:
            is_bytes = self.unit == "bytes"
            done, total = (size(n) if is_bytes else f"{n:,}" for n in (self.done, self.total))
            yield f"{done} of {total}" + ("" if is_bytes else f" {self.unit}")
            if is_bytes:
                yield f"{size(round(self.done / seconds))}/s"
        if self.note:
            yield self.note
        yield f"{span(round(seconds) * 1000)} so far"
        if self.total and self.done:
            yield f"about {span(round(seconds * max(self.total - self.done, 0) / self.done) * 1000)} left"


def make_way() -> None:
    """Take the bar away for good when rows are about to be written to the same terminal."""
    if _shown and sys.stdout is not None and sys.stdout.isatty():
        for bar in _shown:
            bar.stop()


def _bar(unit: str) -> Progress:
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    from commands._cells import said, span

    class Left(ProgressColumn):
        """The time left; where nobody knows it, the time gone."""

        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            left, gone = task.time_remaining, task.elapsed
            if task.total is None:
                return Text("" if gone is None else span(round(gone) * 1000))
            return Text("" if left is None else f"{span(round(left) * 1000)} left")

    class Bar(Progress):
        """A bar with the note below it, where figures leave no room beside it."""

        def get_renderables(self) -> Iterator[RenderableType]:
            yield from super().get_renderables()
            for task in self.tasks:
                if task.fields["note"]:
                    yield Text(said(task.fields["note"]), no_wrap=True, overflow="ellipsis")

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(), *_amounts(unit), Left()]
    if unit == STAGES:
        return Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True), transient=True)
    return Bar(*columns, console=Console(stderr=True), transient=True)


def _amounts(unit: str) -> list[ProgressColumn]:
    from rich.progress import DownloadColumn, MofNCompleteColumn, TextColumn, TransferSpeedColumn

    if unit == STAGES:
        return []
    if unit == "bytes":
        return [DownloadColumn(binary_units=True), TransferSpeedColumn()]
    return [MofNCompleteColumn(), TextColumn(unit)]
