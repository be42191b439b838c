"""Rows as the user wants them: some keys, in an order, so many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import chain, islice
from typing import Any

from commands import _sink
from commands._app import Output
from commands._rows import Row, keys_of, take
from commands._types import refuse

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
    keys = keys_of(head)
    if out.columns == ("help",):
        _sink.write_text(keys)
        raise SystemExit(0)
    by = out.sort.removeprefix("-")
    if out.columns and not head:
        return
    for option, names in (("--columns", out.columns), ("--sort", (by,) if by else ())):
        for name in names:
            if head and name not in keys:
                near = get_close_matches(name, keys, n=3) or keys
                refuse(option, f"{name!r} is no column here; there are {', '.join(near)}.")
    found: Iterable[Row] = (row for row in chain(head, stream) if row is not None)
    if by:
        found = sorted(found, key=lambda row: _rank(row.get(by)), reverse=out.sort.startswith("-"))
    rest = iter(found)
    for row in islice(rest, out.limit):
        yield {key: row.get(key) for key in out.columns} if out.columns else row
    for _ in rest:  # the exit status is that of all rows
        pass


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers before text, nothing before both."""
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, (int, float)) else (2, str(value))
