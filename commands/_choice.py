"""Rows as the user wants them: some keys, in an order, so many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from commands import _sink
from commands._rows import Row, keys_of, take
from commands._types import refuse

if TYPE_CHECKING:
    from commands._app import Output

_HEAD = 500
"""Rows whose keys are the columns that there are."""


def chosen(rows: Iterable[Row | None], out: Output) -> Iterator[Row]:
    """Yield rows as ``--columns``, ``--sort`` and ``--limit`` say.

    Raises:
        SystemExit: only the names of columns were wanted; they are written.
        BadParameter: no row has such a column.
    """
    stream = iter(rows)
    head, _ = take(stream, _HEAD)
    by = out.sort.removeprefix("-")
    check(out, keys_of(head))
    if out.columns and not head:
        return
    found: Iterable[Row] = (row for row in chain(head, stream) if row is not None)
    if by:
        found = sorted(found, key=lambda row: _rank(row.get(by)), reverse=out.sort.startswith("-"))
    rest = iter(found)
    for row in islice(rest, out.limit):
        yield {key: row.get(key) for key in out.columns} if out.columns else row
    for _ in rest:  # the exit status is that of all rows
        pass


def check(out: Output, keys: Sequence[str]) -> None:
    """Hold what is asked for to the columns that there are; without any, nothing is known of them.

    Raises:
        SystemExit: only the names of columns were wanted; they are written.
        BadParameter: a wanted column is none of them.
    """
    if out.columns == ("help",):
        _sink.write_text(keys)
        raise SystemExit(0)
    by = out.sort.removeprefix("-")
    for option, names in (("--columns", out.columns), ("--sort", (by,) if by else ())):
        for name in names:
            if keys and name not in keys:
                near = get_close_matches(name, keys, n=3) or keys
                refuse(option, f"{name!r} is no column here; there are {', '.join(near)}.")


def started(rows: Iterator[Row]) -> Iterator[Row]:
    """Return the same rows; the first one is made now, and whatever is refused is refused now."""
    first = next(rows, None)
    return iter(()) if first is None else chain([first], rows)


def of_part(out: Output, keys: Sequence[str]) -> Output | None:
    """Return what is asked for as far as one of several tables has it; None where it has no wanted column.

    Args:
        keys: the columns of this table.
    """
    columns = tuple(name for name in out.columns if name in keys)
    if out.columns and not columns:
        return None
    return replace(out, columns=columns, sort=out.sort if out.sort.removeprefix("-") in keys else "")


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers before text, nothing before both."""
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, (int, float)) else (2, str(value))
