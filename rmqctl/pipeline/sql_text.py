"""What a query in Spark's SQL needs of the tables of a store: columns, and which messages can count at all.

Read from the text of the query and from nothing else, so it is the same for every engine, and holds for this query
alone. Where the text leaves room for doubt, everything is needed. What is left out changes no result: an engine
applies every condition itself.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from rmqctl.pipeline.mounted import BadQuery
from rmqctl.tables import Condition

DIALECT = "spark"
_INNER = re.compile(r"(?<![`'\"\w])inner(?![`'\"\w]|\s+join\b)", re.IGNORECASE)
"""A column of messages; to Spark no reserved word."""
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # what it cannot read is for the engine to judge


@dataclass(frozen=True, slots=True)
class Use:
    """What a query needs of one table.

    Attributes:
        columns: names in the order of the table; None for all.
        conditions: of the only place that names the table; none where there are several.
    """

    columns: tuple[str, ...] | None = None
    conditions: tuple[Condition, ...] = ()


def parsed(text: str) -> exp.Expr | None:
    """The syntax tree of a single query, None where this is something else.

    Raises:
        BadQuery: it is not understood.
    """
    try:
        found = [one for one in sqlglot.parse(_INNER.sub("`inner`", text), read=DIALECT) if one is not None]
    except ParseError as error:
        place = error.errors[0] if error.errors else {}
        near = f"{place.get('start_context', '')}{place.get('highlight', '')}"[-40:]
        where = f"line {place.get('line')}, column {place.get('col')}, at the end of {near!r}"
        raise BadQuery(f"{place.get('description', 'not SQL').rstrip('.')}: {where}") from None
    except SqlglotError as error:
        raise BadQuery(str(error).partition("\n")[0]) from None
    return found[0] if len(found) == 1 and isinstance(found[0], exp.Query) else None


def uses(text: str, tables: Mapping[str, Collection[str]]) -> dict[str, Use]:
    """What a query needs of each table that it names; all of every table where the text is not understood.

    Args:
        tables: the columns of each table.
    """
    try:
        tree = parsed(text)
    except BadQuery:
        tree = None
    if tree is None:
        return {name: Use() for name in tables}
    places: dict[str, list[exp.Table]] = {}
    for place in tree.find_all(exp.Table):
        places.setdefault(place.name.lower(), []).append(place)
    named = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    whole = _takes_all(tree)
    shadowed = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found = {}
    for name in (name for name in tables if name.lower() in places):
        own = places[name.lower()]
        columns = tuple(column for column in tables[name] if column.lower() in named)
        everything = whole or name.lower() in shadowed or _names_a_row(tree, own)
        conditions = tuple(_conditions(own[0])) if len(own) == 1 and name.lower() not in shadowed else ()
        found[name] = Use(None if everything else columns, conditions)
    return found


def _takes_all(tree: exp.Expr) -> bool:
    """Whether columns count that are not named: by ``*`` outside of ``count(*)``, by a natural join, by a pivot."""
    stars = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    natural = any(str(join.args.get("method") or "").upper() == "NATURAL" for join in tree.find_all(exp.Join))
    odd = any(tree.find(kind) is not None for kind in (exp.Pivot, exp.Command, exp.QueryTransform))
    return stars or natural or odd


def _names_a_row(tree: exp.Expr, places: list[exp.Table]) -> bool:
    """Whether a table stands where a column stands: its whole row is meant then."""
    names = {place.alias_or_name.lower() for place in places}
    return any(column.name.lower() in names for column in tree.find_all(exp.Column))


# --- conditions -----------------------------------------------------------------------------------


def _conditions(place: exp.Table) -> Iterator[Condition]:
    """The comparisons that every row of a table has to pass before anything else becomes of it."""
    select = place.parent.parent if isinstance(place.parent, exp.From) else None
    if not isinstance(select, exp.Select) or select.args.get("joins") or select.args.get("laterals"):
        return
    if place.args.get("sample") or place.args.get("joins") or place.args.get("laterals") or select.args.get("sample"):
        return
    where = select.args.get("where")
    if where is None:
        return
    for one in where.this.flatten() if isinstance(where.this, exp.And) else (where.this,):
        yield from _comparisons(one.unnest(), place.alias_or_name.lower())


_OPERATIONS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
"""Each comparison, and what it is with its sides exchanged."""


def _comparisons(one: exp.Expr, table: str) -> Iterator[Condition]:
    if isinstance(one, exp.And):
        for part in one.flatten():
            yield from _comparisons(part.unnest(), table)
    elif isinstance(one, exp.In) and not one.args.get("query") and not one.args.get("unnest"):
        values = [_literal(value) for value in one.expressions]
        column = _column(one.this, table)
        if column and all(value is not None for value in values):
            yield Condition(column, "in", tuple(values))
    elif isinstance(one, exp.Between) and not one.args.get("symmetric"):
        for side, operation in (("low", ">="), ("high", "<=")):
            yield from _comparison(one.this, operation, one.args[side], table)
    elif type(one) in _OPERATIONS:
        plain, exchanged = _OPERATIONS[type(one)]
        yield from _comparison(one.this, plain, one.expression, table)
        yield from _comparison(one.expression, exchanged, one.this, table)


def _comparison(column: exp.Expr, operation: str, value: exp.Expr, table: str) -> Iterator[Condition]:
    name, found = _column(column, table), _literal(value)
    if name and found is not None:
        yield Condition(name, operation, found)


def _column(one: exp.Expr, table: str) -> str:
    """The name of a plain column of the table, "" for anything else."""
    if not isinstance(one, exp.Column) or one.args.get("db") or (one.table and one.table.lower() != table):
        return ""
    return str(one.name).lower()


def _literal(one: exp.Expr) -> str | int | None:
    """A text or a whole number; the text of a time as well. None for anything else."""
    if isinstance(one, exp.Cast) and one.to.is_type("timestamptz", "timestamp", "timestampltz", "date"):
        one = one.this
        return str(one.this) if isinstance(one, exp.Literal) and one.is_string else None
    if not isinstance(one, exp.Literal):
        return None
    if one.is_string:
        return str(one.this)
    return int(one.this) if str(one.this).isdigit() else None
