"""Queries in Spark's SQL: what they need of the tables of a store, and how DuckDB has them where both mean the same.

What a query needs (columns, and which messages can count at all) is read from its text and from nothing else, so it is
the same for every engine, and holds for this query alone. Where the text leaves room for doubt, everything is needed.
What is left out changes no result: an engine applies every condition itself.

The list of what is known to mean the same is short on purpose: what is not in it is refused, so that an answer of the
local engine is the one that Spark would give.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from rmqctl.pipeline.mounted import BadQuery, NotForLocalEngine
from rmqctl.pipeline.sql_types import BINARY, UnknownColumn, doubtful, kind_of, typed
from rmqctl.tables import Condition

DIALECT = "spark"
_INNER = re.compile(r"(?<![`'\"\w])inner(?![`'\"\w]|\s+join\b)", re.IGNORECASE)
"""A column of messages; to Spark no reserved word."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d(?!\d)")
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
    """Return the syntax tree of a single query, None where this is something else.

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
    """Return what a query needs of each table that it names; all of every table where the text is not understood.

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
    """Yield the comparisons that every row of a table has to pass before anything else becomes of it."""
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
    """Return the name of a plain column of the table, "" for anything else."""
    if not isinstance(one, exp.Column) or one.args.get("db") or (one.table and one.table.lower() != table):
        return ""
    return str(one.name).lower()


def _literal(one: exp.Expr) -> str | int | None:
    """Return a text or a whole number; the text of a time as well. None for anything else."""
    if isinstance(one, exp.Cast) and one.to.is_type("timestamptz", "timestamp", "timestampltz", "date"):
        text = str(one.this.this) if isinstance(one.this, exp.Literal) and one.this.is_string else None
        if text is None or not one.to.is_type("date"):
            return text
        return text[:10] if _DAY.match(text) else None  # a date has no time of day, whatever its text says
    if not isinstance(one, exp.Literal):
        return None
    if one.is_string:
        return str(one.this)
    return int(one.this) if str(one.this).isdigit() else None


# --- as DuckDB has them -----------------------------------------------------------------------------


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
FULL_CASE = "full_"
"""What stands before the names of functions that a database gets for letters beyond ASCII: ``upper`` and ``lower``."""
_TRY_CAST = re.compile(r"\btry_cast\b", re.IGNORECASE)
_BINARY = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.And, exp.Or)
_NAMED = (
    exp.Column, exp.Identifier, exp.Literal, exp.Star, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.EQ,
    exp.LT, exp.LTE, exp.GT, exp.GTE, exp.And, exp.Or, exp.Count, exp.Sum, exp.Min, exp.Max, exp.Avg, exp.Distinct,
    exp.Length, exp.Upper, exp.Lower, exp.Substring, exp.Abs, exp.Coalesce, exp.Hour, exp.Explode, exp.Bracket,
)  # fmt: skip
"""Parts of columns without a name for which it is known what Spark calls them."""
_OTHER_NAMES = re.compile(r"\b(substr|mid|char_length|character_length|len|lcase|ucase|nvl|ifnull)\s*\(", re.IGNORECASE)
"""Functions that Spark calls as they are written, and the tree by another name."""
_TRUNCATED = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"}


def translated(text: str, tables: Mapping[str, pa.Schema]) -> str:
    """Return a query as DuckDB has it, with the names of columns that Spark gives.

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
    binary = _check_types(text, tree, tables)
    for select in _outer(tree):
        select.set("expressions", [_named(one, text) for one in select.expressions])
    for quotient in list(tree.find_all(exp.Div)):
        quotient.set("expression", _nonzero(quotient.expression))
    for length in list(tree.find_all(exp.Length)):
        if isinstance(length.this, exp.Column) and length.this.name.lower() in binary:
            length.replace(exp.Anonymous(this="octet_length", expressions=[length.this.copy()]))
    for cast in list(tree.find_all(exp.TryCast)):  # what cannot be cast is an error to Spark, and no null
        cast.replace(exp.Cast(this=cast.this.copy(), to=cast.to.copy()))
    for letters in [*tree.find_all(exp.Upper), *tree.find_all(exp.Lower)]:
        letters.replace(_full_case(letters))
    return tree.sql(dialect="duckdb")


def _check(tree: exp.Expr, tables: Mapping[str, pa.Schema]) -> None:
    """Hold every part of a query to what is known to mean the same.

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


def _check_types(text: str, tree: exp.Expr, tables: Mapping[str, pa.Schema]) -> set[str]:
    """Hold the types of all parts of a query to what is known to mean the same; the names of its binary columns.

    Raises:
        NotForLocalEngine: an engine may cast something otherwise.
        BadQuery: there is no such column.
    """
    if _TRY_CAST.search(text) or "\\" in text:
        raise NotForLocalEngine("it has try_cast or a backslash")
    names = {place.name.lower() for place in tree.find_all(exp.Table)}
    inner = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    if not names <= inner | {name.lower() for name in tables}:
        return set()  # which table is missing is said by the engine
    try:
        known = typed(tree, tables)
    except UnknownColumn as error:
        raise BadQuery(str(error)) from None
    for one in doubtful(known):
        raise NotForLocalEngine(f"the types in {_shown(one)} may mean something else to it")
    return {column.name.lower() for column in known.find_all(exp.Column) if kind_of(column) == BINARY}


def _full_case(one: exp.Expr) -> exp.Expr:
    """Return letters in the other case as Unicode has them, one for one or not; DuckDB knows those that are one."""
    name, value = type(one).__name__.lower(), one.this
    plain = exp.EQ(
        this=exp.Anonymous(this="strlen", expressions=[value.copy()]),
        expression=exp.Anonymous(this="length", expressions=[value.copy()]),
    )
    quick = exp.Anonymous(this=name, expressions=[value.copy()])
    return exp.Case(
        ifs=[exp.If(this=plain, true=quick)],
        default=exp.Anonymous(this=f"{FULL_CASE}{name}", expressions=[value.copy()]),
    )


def _none(_: exp.Expr) -> str | None:
    return None


def _shown(one: exp.Expr) -> str:
    text = one.sql(dialect="spark", normalize_functions="lower")
    return text if len(text) <= 60 else f"{text[:57]}..."


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


def _places(one: exp.Expr) -> str | None:
    """Numbers name columns of the result; what comes to a number, such as ``-(-1)``, does so to DuckDB alone."""
    if isinstance(one, exp.Window):
        parts = one.args.get("partition_by") or []
    else:
        parts = one.expressions if isinstance(one, exp.Group) else [one.this]
    for part in parts:
        bare = part.unnest()
        is_plain = isinstance(bare, exp.Literal) and not bare.is_string and not isinstance(one, exp.Window)
        if not is_plain and bare.find(exp.Column, exp.AggFunc, exp.Window, exp.Subquery) is None:
            return f"it brings rows together, or into order, by {_shown(part)}"
    return None


def _limit(one: exp.Expr) -> str | None:
    return None if isinstance(one.expression, exp.Literal) else f"it has {_shown(one)}"


_REASONS: dict[type[exp.Expr], Callable[[exp.Expr], str | None]] = {
    exp.Like: _like,
    exp.Bracket: _bracket,
    exp.Distinct: _distinct,
    exp.TimestampTrunc: _truncation,
    exp.Explode: _explosion,
    exp.Literal: _number,
    exp.Group: _places,
    exp.Ordered: _places,
    exp.Window: _places,
    exp.Limit: _limit,
    exp.Offset: _limit,
}


def _outer(tree: exp.Expr) -> Iterator[exp.Select]:
    """Yield the select that gives the result its names; of a union the first."""
    while isinstance(tree, (exp.SetOperation, exp.Subquery)):
        tree = tree.this
    if isinstance(tree, exp.Select):
        yield tree


def _has_known_name(one: exp.Expr, text: str) -> bool:
    """Whether a column of the result has a name, or it is known what Spark calls it."""
    if isinstance(one, (exp.Alias, exp.Star)):
        return True
    for part in one.walk():
        odd = isinstance(part, exp.Neg) and isinstance(part.this, exp.Literal)
        odd = odd or (isinstance(part, exp.Substring) and part.args.get("length") is None)
        if odd or not isinstance(part, _NAMED):
            return False
    return isinstance(one, exp.Column) or _OTHER_NAMES.search(text) is None


def _named(one: exp.Expr, text: str) -> exp.Expr:
    """Return a column of the result with the name that Spark gives it.

    Raises:
        NotForLocalEngine: it is not known.
    """
    if not _has_known_name(one, text):
        raise NotForLocalEngine(f"it gives {_shown(one)} no name; write {_shown(one)} AS name")
    if isinstance(one, (exp.Alias, exp.Star)) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star)):
        return one
    return exp.alias_(one, _name(one), quoted=True)


def _name(one: exp.Expr) -> str:
    """Return what Spark calls a column that has no name of its own."""
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
    """Return a divisor that is an error where it is zero, as it is to Spark."""
    if isinstance(divisor, exp.Literal) and str(divisor.this).strip("0"):
        return divisor
    zero = exp.EQ(this=exp.paren(divisor.copy()), expression=exp.Literal.number(0))
    error = exp.Anonymous(this="error", expressions=[exp.Literal.string("division by zero")])
    return exp.paren(exp.Case(ifs=[exp.If(this=zero, true=error)], default=exp.paren(divisor.copy())))
