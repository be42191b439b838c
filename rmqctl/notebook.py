"""Answers and tables in a notebook: as Arrow, as pandas, and the first rows as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from rmqctl.text import instant

if TYPE_CHECKING:
    import pyarrow as pa

HEAD = 20
"""Rows that a notebook shows of what is named in it."""
_TIME = "timestamp"


def keys_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return every key of some rows, in the order in which they are met."""
    return list(dict.fromkeys(key for row in rows for key in row))


def arrow_of(rows: Sequence[Mapping[str, Any]], header: Sequence[str] | None) -> pa.Table:
    """Return rows as a table: times as timestamps, a column whose values have no one type as JSON text.

    Args:
        header: the columns; None: every key.
    """
    import pyarrow as pa

    names = keys_of(rows) if header is None else list(header)
    return pa.table({name: _column(name, [row.get(name) for row in rows]) for name in names})


def _column(name: str, values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        if name.endswith(_TIME):
            return pa.array(values, pa.timestamp("ms", "UTC"))
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        from json import dumps

        return pa.array([None if value is None else dumps(value, default=str) for value in values], pa.string())


def html_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None, about: str, *, more: bool) -> str:
    """Return the first rows as an HTML table, with a line on what they are of.

    Args:
        rows: one more than :data:`HEAD` at most is looked at.
        columns: that are shown; None: every key.
        more: there are further rows.
    """
    names = keys_of(rows) if columns is None else columns
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_text(name, row.get(name)))}</td>" for name in names) + "</tr>" for row in rows
    )
    rest = "<p>... and more rows</p>" if more else ""
    return f"<p>{escape(about)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return instant(value) if name.endswith(_TIME) else f"{value:,}"
    return str(value)
