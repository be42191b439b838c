"""How far long work has come: a bar with rate and time left on stderr, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


class Advance(Protocol):
    """Moves a bar."""

    def __call__(self, amount: int, note: str = "") -> None:
        """So much was done since the last call; ``note`` stands after the bar from now on."""
        ...


_shown: list[Progress] = []
_wanted = {"bars": True, "remarks": True}
_colour = {"when": "auto"}


def start_again() -> None:
    """Show bars and remarks, as a command does without --quiet."""
    _wanted.update(bars=True, remarks=True)
    want_colour("auto")


def want_colour(when: str) -> None:
    """Show colour ``always``, ``never``, or on terminals that take it (``auto``)."""
    _colour["when"] = when


def colour_is_wanted() -> str:
    """Return when colour is wanted: ``always``, ``never`` or ``auto``."""
    return _colour["when"]


def show_no_bar() -> None:
    _wanted["bars"] = False


def be_quiet() -> None:
    """Show no bars, and no remarks beside the results."""
    _wanted.update(bars=False, remarks=False)


def remarks_are_wanted() -> bool:
    return _wanted["remarks"]


@contextmanager
def progress(description: str, total: int | None, *, unit: str = "bytes") -> Iterator[Advance]:
    """Show a bar while the block runs; nothing at all where stderr is no terminal.

    Args:
        total: how much there is to do; None when nobody knows.
        unit: ``bytes`` (shown in binary units), or what is counted, as a plural: ``files``.

    Yields:
        A function to call with the amount done since its last call.
    """
    if not _wanted["bars"] or sys.stderr is None or not sys.stderr.isatty():
        yield lambda amount, note="": None
        return
    bar = _bar(unit)
    task = bar.add_task(description, total=total, note="")
    _shown.append(bar)
    with bar:
        try:
            yield lambda amount, note="": bar.update(task, advance=amount, note=note)
        finally:
            _shown.remove(bar)


def make_way() -> None:
    """Take the bar away for good when rows are about to be written to the same terminal."""
    if _shown and sys.stdout is not None and sys.stdout.isatty():
        for bar in _shown:
            bar.stop()


def _bar(unit: str) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(), *_amounts(unit)]
    columns += [TimeRemainingColumn(), TextColumn("{task.fields[note]}")]
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _amounts(unit: str) -> list[ProgressColumn]:
    from rich.progress import DownloadColumn, MofNCompleteColumn, TextColumn, TransferSpeedColumn

    if unit == "bytes":
        return [DownloadColumn(binary_units=True), TransferSpeedColumn()]
    return [MofNCompleteColumn(), TextColumn(unit)]
