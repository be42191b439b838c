"""Queries in Spark's SQL as DuckDB has them, where both mean the same.

The list of what is known to mean the same is short on purpose: what is not in it is refused, so that an answer of the
local engine is the one that Spark would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from sqlglot import exp

from rmqctl.pipeline.local_sql import NotForLocalEngine
from rmqctl.pipeline.mounted import BadQuery
from rmqctl.pipeline.sql_text import parsed

_SAME: tuple[type[exp.Expr], ...] = (
    exp.Select, exp.From, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.With,
    exp.CTE, exp.Subquery, exp.Union, exp.Except, exp.Intersect, exp.Join, exp.Table, exp.TableAlias, exp.Alias,
    exp.Column, exp.Identifier, exp.Literal, exp.Star, exp.Null, exp.Boolean, exp.Paren, exp.Distinct, exp.Tuple,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Is, exp.In,
    exp.Between, exp.Like, exp.Exists, exp.Case, exp.If, exp.Coalesce, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg,
    exp.Count, exp.Sum, exp.Min, exp.Max, exp.Avg, exp.Filter, exp.Window, exp.WindowSpec, exp.RowNumber, exp.Rank,
    exp.DenseRank, exp.Lag, exp.Lead, exp.Abs, exp.Length, exp.Lower, exp.Upper, exp.Substring, exp.StartsWith,
    exp.EndsWith, exp.Contains, exp.ArrayContains, exp.Bracket, exp.Explode, exp.TimestampTrunc, exp.Year, exp.Month,
    exp.Day, exp.Hour, exp.TsOrDsToDate, exp.Cast, exp.DataType, exp.Var,
)  # fmt: skip
_TEXTS, _TIMES = ("varchar", "text", "string"), ("timestamptz", "timestamp", "timestampltz", "date")
_NUMBERS = ("int", "bigint", "smallint", "double")
_BINARY = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.And, exp.Or)
_TRUNCATED = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"}


def translated(text: str, tables: Mapping[str, pa.Schema]) -> str:
    """A query as DuckDB has it, with the names of columns that Spark gives.

    Args:
        tables: what a query can name.

    Raises:
        NotForLocalEngine: it is no query, or some of it may mean something else to DuckDB.
        BadQuery: it is not understood.
    """
    try:
        tree = parsed(text)
    except BadQuery as error:
        raise BadQuery(f"{error}; if Spark has such SQL, add --engine spark") from None
    if tree is None:
        raise NotForLocalEngine("it is not a query alone")
    _check(tree, tables)
    for select in _outer(tree):
        select.set("expressions", [_named(one) for one in select.expressions])
    for quotient in list(tree.find_all(exp.Div)):
        quotient.set("expression", _nonzero(quotient.expression))
    for length in list(tree.find_all(exp.Length)):
        if isinstance(length.this, exp.Column) and length.this.name.lower() == "body":
            length.replace(exp.Anonymous(this="octet_length", expressions=[length.this.copy()]))
    return tree.sql(dialect="duckdb")


def _check(tree: exp.Expr, tables: Mapping[str, pa.Schema]) -> None:
    """
    Raises:
        NotForLocalEngine: part of the query is not known to mean the same.
    """
    for one in tree.walk():
        if not isinstance(one, _SAME) or type(one) is exp.Func:
            raise NotForLocalEngine(f"it has {_shown(one)}")
        reason = _REASONS.get(type(one), _none)(one)
        if reason is not None:
            raise NotForLocalEngine(reason)
    names = {place.name.lower() for place in tree.find_all(exp.Table)}
    columns = {column.lower() for name, schema in tables.items() if name.lower() in names for column in schema.names}
    for alias in tree.find_all(exp.Alias):
        is_itself = isinstance(alias.this, exp.Column) and alias.this.name.lower() == alias.alias.lower()
        if alias.alias.lower() in columns and not is_itself:  # which of the two is meant elsewhere, each engine decides
            raise NotForLocalEngine(f"{alias.alias} names a column of a table and another one of the result")
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)) and tree.find(exp.Join):
        raise NotForLocalEngine("it has * over joined tables")


def _none(_: exp.Expr) -> str | None:
    return None


def _shown(one: exp.Expr) -> str:
    text = one.sql(dialect="spark", normalize_functions="lower")
    return text if len(text) <= 60 else f"{text[:57]}..."


def _cast(one: exp.Expr) -> str | None:
    assert isinstance(one, exp.Cast)
    numeric = isinstance(one.this, (exp.Column, exp.Literal, exp.Count, exp.Sum)) and not _is_text(one.this)
    if one.to.is_type(*_TIMES) and isinstance(one.this, (exp.Literal, exp.Column)):
        return None
    return None if one.to.is_type(*_NUMBERS) and numeric else f"it has {_shown(one)}"


def _is_text(one: exp.Expr) -> bool:
    return isinstance(one, exp.Literal) and one.is_string


def _like(one: exp.Expr) -> str | None:
    pattern = one.expression
    return None if _is_text(pattern) and "\\" not in pattern.name else f"it has {_shown(one)}"


def _bracket(one: exp.Expr) -> str | None:
    """Only a value of a map by its name: what lies outside of an array is an error to one engine, null to the other."""
    assert isinstance(one, exp.Bracket)
    is_name = len(one.expressions) == 1 and _is_text(one.expressions[0])
    return None if is_name and isinstance(one.this, exp.Column) else f"it has {_shown(one)}"


def _distinct(one: exp.Expr) -> str | None:
    return f"it has {_shown(one)}" if isinstance(one.parent, exp.Count) and len(one.expressions) > 1 else None


def _truncation(one: exp.Expr) -> str | None:
    unit = one.args.get("unit")
    return None if unit is not None and unit.name.upper() in _TRUNCATED else f"it has {_shown(one)}"


def _explosion(one: exp.Expr) -> str | None:
    parent = one.parent.parent if isinstance(one.parent, exp.Alias) else one.parent
    plain = isinstance(parent, exp.Select) and isinstance(one.this, exp.Column) and not parent.args.get("group")
    return None if plain and type(one) is exp.Explode else f"it has {_shown(one)}"


def _number(one: exp.Expr) -> str | None:
    """Numbers with a point are decimals to both, but of another width: their quotients differ in the last digits."""
    return None if _is_text(one) or str(one.this).isdigit() else f"it has {one.this}"


def _limit(one: exp.Expr) -> str | None:
    return None if isinstance(one.expression, exp.Literal) else f"it has {_shown(one)}"


_REASONS: dict[type[exp.Expr], Callable[[exp.Expr], str | None]] = {
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Like: _like,
    exp.Bracket: _bracket,
    exp.Distinct: _distinct,
    exp.TimestampTrunc: _truncation,
    exp.Explode: _explosion,
    exp.Literal: _number,
    exp.Limit: _limit,
    exp.Offset: _limit,
}


def _outer(tree: exp.Expr) -> Iterator[exp.Select]:
    """The select that gives the result its names; of a union the first."""
    while isinstance(tree, (exp.SetOperation, exp.Subquery)):
        tree = tree.this
    if isinstance(tree, exp.Select):
        yield tree


def _named(one: exp.Expr) -> exp.Expr:
    if isinstance(one, (exp.Alias, exp.Star)) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star)):
        return one
    return exp.alias_(one, _name(one), quoted=True)


def _name(one: exp.Expr) -> str:
    """What Spark calls a column that has no name of its own."""
    if isinstance(one, exp.Column):
        return str(one.name)
    if isinstance(one, exp.Explode):
        return "col"
    if isinstance(one, exp.Subquery):
        return "scalarsubquery()"
    copy = exp.paren(one.copy(), copy=False)  # so that every part of it has a parent
    for wrapped in reversed(list(copy.this.find_all(exp.Paren))):
        wrapped.replace(wrapped.this.copy())
    for star in list(copy.find_all(exp.Star)):
        star.replace(exp.Literal.number(1))
    for inner in reversed([node for node in copy.walk() if isinstance(node, _BINARY)]):
        inner.replace(exp.paren(inner.copy(), copy=False))
    for negative in reversed(list(copy.find_all(exp.Neg))):
        negative.replace(exp.paren(negative.copy(), copy=False))
    text: str = copy.this.sql(dialect="spark", normalize_functions="lower").replace("'", "")
    return text.replace("(-", "(- ")


def _nonzero(divisor: exp.Expr) -> exp.Expr:
    """A divisor that is an error where it is zero, as it is to Spark."""
    if isinstance(divisor, exp.Literal) and str(divisor.this).strip("0"):
        return divisor
    zero = exp.EQ(this=exp.paren(divisor.copy()), expression=exp.Literal.number(0))
    error = exp.Anonymous(this="error", expressions=[exp.Literal.string("division by zero")])
    return exp.paren(exp.Case(ifs=[exp.If(this=zero, true=error)], default=exp.paren(divisor.copy())))
