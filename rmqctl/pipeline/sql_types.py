"""The types of the parts of a query, and which of them a function or an operator may have for the local engine.

Spark and DuckDB differ most where a value is not of the type that a place asks for: one casts it, the other casts it
otherwise, makes it null, or refuses. So each part gets its type from the schemas of the tables, and what is not of one
kind on all sides is left to Spark, which says what it makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

TEXT, NUMBER, TRUTH, TIME, DATE, BINARY, ARRAY, MAP, STRUCT, NULL, UNKNOWN = (
    "text", "number", "truth", "time", "date", "binary", "array", "map", "struct", "null", "unknown",
)  # fmt: skip
_ISO_TIME = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-([0-2]\d|3[01])"
    r"([ T]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?)?"
)
_ISO_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-([0-2]\d|3[01])")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (TEXT, ("varchar", "text", "char", "string")),
    (NUMBER, (*_WHOLE, "float", "double", "decimal")),
    (TRUTH, ("boolean",)),
    (TIME, ("timestamp", "timestamptz", "timestampltz", "timestampntz")),
    (DATE, ("date",)),
    (BINARY, ("binary", "varbinary", "blob")),
    (ARRAY, ("array", "list")),
    (MAP, ("map",)),
    (STRUCT, ("struct",)),
    (NULL, ("null",)),
)
_LARGEST = (1 << 31) - 1
"""A larger number is a BIGINT or a DECIMAL to Spark, and of yet another width to DuckDB."""


class UnknownColumn(Exception):
    """A column that no table of the query has; the message names it."""


def typed(tree: exp.Expr, tables: Mapping[str, pa.Schema]) -> exp.Expr:
    """Return a query with every column qualified and every part with its type, for looking at only.

    Raises:
        UnknownColumn: a column is not there, or is there twice.
    """
    schema: dict[str, object] = {name: {f.name: _sql_type(f.type) for f in columns} for name, columns in tables.items()}
    try:
        found = qualify(tree.copy(), schema=schema, dialect="spark", quote_identifiers=False)
        return annotate_types(found, schema=schema, dialect="spark")
    except OptimizeError as error:
        raise UnknownColumn(str(error).partition(". Line")[0]) from None


def _sql_type(kind: pa.DataType) -> str:
    """Return what Spark calls a type of Arrow."""
    if pa.types.is_list(kind):
        name = f"array<{_sql_type(kind.value_type)}>"
    elif pa.types.is_map(kind):
        name = f"map<{_sql_type(kind.key_type)}, {_sql_type(kind.item_type)}>"
    elif pa.types.is_struct(kind):
        name = f"struct<{', '.join(f'{f.name}: {_sql_type(f.type)}' for f in kind)}>"
    elif pa.types.is_timestamp(kind):
        name = "timestamp"
    else:
        name = _NAMES.get(kind, "string")
    return name


_NAMES = {
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.float64(): "double",
    pa.bool_(): "boolean", pa.binary(): "binary", pa.date32(): "date",
}  # fmt: skip


def kind_of(one: exp.Expr) -> str:
    """Return the kind of a part of a typed query."""
    if isinstance(one, (exp.Paren, exp.Alias)):
        return kind_of(one.this)
    if isinstance(one, exp.TimestampTrunc):
        return TIME
    if isinstance(one, (exp.Bracket, exp.Explode)):
        inner = one.this.type
        parts = inner.expressions if inner is not None else []
        return _kind_of_type(parts[-1]) if parts else UNKNOWN
    if isinstance(one, (exp.StartsWith, exp.EndsWith, exp.Contains, exp.ArrayContains, exp.Predicate, exp.Connector)):
        return TRUTH
    if isinstance(one, exp.Not):
        return TRUTH
    return _kind_of_type(one.type)


def _kind_of_type(found: exp.Expr | None) -> str:
    if isinstance(found, exp.DataType):
        for kind, types in _KINDS:
            if found.is_type(*types):
                return kind
    return UNKNOWN


def doubtful(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a typed query whose types leave room for two answers."""
    for one in tree.walk():
        for kind, is_sure in _RULES.items():
            if isinstance(one, kind) and not is_sure(one):
                yield one
    for select in tree.find_all(exp.Select):
        yield from _odd_truths(select)


def _odd_truths(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield conditions that are no truth values."""
    wheres = [select.args.get(name) for name in ("where", "having", "qualify")]
    joins = [join.args.get("on") for join in select.args.get("joins") or ()]
    for one in [*(where.this for where in wheres if where is not None), *(on for on in joins if on is not None)]:
        if kind_of(one) not in {TRUTH, NULL}:
            yield one


def _all_of(*kinds: str) -> Callable[[exp.Expr], bool]:
    """Return a test whether the operands of a part are of these kinds."""
    return lambda one: all(kind_of(part) in {*kinds, NULL} for part in (one.this, one.args.get("expression")) if part)


def _alike(parts: list[exp.Expr]) -> bool:
    """Whether values can be compared, or stand in one column, without a cast that engines make differently."""
    kinds = {kind_of(part) for part in parts} - {NULL}
    if kinds == {TIME, TEXT}:
        return all(kind_of(part) != TEXT or _is_iso(part, _ISO_TIME) for part in parts)
    return (len(kinds) <= 1 or kinds == {TIME, DATE}) and UNKNOWN not in kinds and all(map(_is_grouped, parts))


def _is_grouped(one: exp.Expr) -> bool:
    """Whether rows can be brought together, or into order, by a value: Spark takes none in which a map is."""
    is_mapped = one.type is not None and any(inner.is_type("map") for inner in one.type.find_all(exp.DataType))
    return kind_of(one) not in {MAP, STRUCT} and not is_mapped


def _is_iso(one: exp.Expr, form: re.Pattern[str]) -> bool:
    return isinstance(one, exp.Literal) and one.is_string and form.fullmatch(str(one.this)) is not None


def _same_kinds(one: exp.Expr) -> bool:
    return _alike([one.this, one.expression])


def _in(one: exp.Expr) -> bool:
    query = one.args.get("query")
    inner = query.unnest().selects if query is not None else one.expressions
    return _alike([one.this, *inner])


def _between(one: exp.Expr) -> bool:
    return _alike([one.this, one.args["low"], one.args["high"]])


def _case(one: exp.Expr) -> bool:
    branches = one.args.get("ifs") or []
    results = [branch.args["true"] for branch in branches]
    default = one.args.get("default")
    tests = [one.this, *(branch.this for branch in branches)] if one.this else []
    truths = [] if one.this else [branch.this for branch in branches]
    return (
        _alike([*results, *([default] if default is not None else [])])
        and (not tests or _alike(tests))
        and all(kind_of(test) == TRUTH for test in truths)
    )


def _cast(one: exp.Expr) -> bool:
    """Whole numbers of more bits or fewer, times as days, and literals of times written as ISO 8601 has them."""
    assert isinstance(one, exp.Cast)
    given, wanted = kind_of(one.this), _kind_of_type(one.to)
    if wanted in {TIME, DATE} and given == TEXT:
        return _is_iso(one.this, _ISO_TIME if wanted == TIME else _ISO_DATE)
    if wanted == NUMBER:
        is_whole = one.this.type is not None and one.this.type.is_type(*_WHOLE)
        return is_whole and one.to.is_type(*_WHOLE, "double")
    return wanted in {TIME, DATE} and given in {TIME, DATE}


def _substring(one: exp.Expr) -> bool:
    """From the first character on, by numbers: from 0 and from the end engines count differently."""
    start, length = one.args.get("start"), one.args.get("length")
    numbers = [part for part in (start, length) if part is not None]
    plain = all(isinstance(part, exp.Literal) and str(part.this).isdigit() for part in numbers)
    return kind_of(one.this) == TEXT and start is not None and plain and int(str(start.this)) >= 1


def _if(one: exp.Expr) -> bool:
    if isinstance(one.parent, exp.Case):
        return True
    results = [one.args["true"], *([one.args["false"]] if one.args.get("false") is not None else [])]
    return kind_of(one.this) == TRUTH and _alike(results)


def _literal(one: exp.Expr) -> bool:
    return one.is_string or not str(one.this).isdigit() or int(str(one.this)) <= _LARGEST


def _one_table(one: exp.Expr) -> bool:
    """A column of a set operation has one kind in all its parts."""
    sides = [side.unnest() for side in (one.this, one.expression)]
    columns = [side.selects for side in sides]
    return len(columns[0]) == len(columns[1]) and all(_alike([a, b]) for a, b in zip(*columns, strict=True))


_ANY_ORDERED = _all_of(TEXT, NUMBER, TRUTH, TIME, DATE, BINARY)
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_RULES: dict[type[exp.Expr] | tuple[type[exp.Expr], ...], Callable[[exp.Expr], bool]] = {
    _COMPARED: _same_kinds,
    (exp.Add, exp.Sub, exp.Mul, exp.Div): _all_of(NUMBER),
    (exp.Neg, exp.Abs, exp.Sum, exp.Avg): lambda one: kind_of(one.this) in {NUMBER, NULL},
    (exp.And, exp.Or, exp.Not): _all_of(TRUTH),
    (exp.Like, exp.StartsWith, exp.EndsWith, exp.Contains): _all_of(TEXT),
    (exp.Upper, exp.Lower): lambda one: kind_of(one.this) in {TEXT, NULL},
    exp.Length: lambda one: kind_of(one.this) in {TEXT, BINARY, NULL},
    (exp.Min, exp.Max): lambda one: _ANY_ORDERED(one) and not one.expressions,
    exp.ArrayContains: lambda one: kind_of(one.this) == ARRAY and kind_of(one.expression) == TEXT,
    exp.Bracket: lambda one: kind_of(one.this) == MAP,
    exp.Explode: lambda one: kind_of(one.this) == ARRAY,
    (exp.TimestampTrunc, exp.Hour): lambda one: kind_of(one.this) == TIME,
    (exp.Year, exp.Month, exp.Day, exp.TsOrDsToDate): lambda one: kind_of(one.this) in {TIME, DATE},
    exp.Substring: _substring,
    (exp.Cast, exp.TryCast): _cast,
    exp.In: _in,
    exp.Between: _between,
    exp.Case: _case,
    exp.Coalesce: lambda one: _alike([one.this, *one.expressions]),
    exp.If: _if,
    exp.Filter: lambda one: kind_of(one.expression.this) == TRUTH,
    exp.Is: lambda one: isinstance(one.expression, exp.Null) or kind_of(one.this) == TRUTH,
    (exp.Lag, exp.Lead): lambda one: one.args.get("default") is None or _alike([one.this, one.args["default"]]),
    exp.Distinct: lambda one: all(map(_is_grouped, one.expressions)),
    exp.Select: lambda one: not one.args.get("distinct") or all(map(_is_grouped, one.expressions)),
    exp.Literal: _literal,
    exp.SetOperation: _one_table,
    exp.Dot: lambda _: False,
    exp.Ordered: lambda one: _is_grouped(one.this),
    exp.Group: lambda one: all(map(_is_grouped, one.expressions)),
    exp.Window: lambda one: all(map(_is_grouped, one.args.get("partition_by") or ())),
}


__all__ = ["BINARY", "UnknownColumn", "doubtful", "kind_of", "typed"]
