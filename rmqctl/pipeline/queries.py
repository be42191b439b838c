"""SQL over stores: the tables as views, and only the columns read that a query uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rmqctl.pipeline.data_source import NAME, register
from rmqctl.pipeline.message_batches import MESSAGE_SCHEMA
from rmqctl.pipeline.options import table_options
from rmqctl.pipeline.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
VIEW_OPTION = "view"
"""Option of the data source that only says which view reads it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Mounted:
    """One store whose tables can be queried.

    Attributes:
        prefix: what stands before the names of its views, such as ``old_``; "" for the only store.
        options: of the data source, ``path`` among them.
    """

    prefix: str
    options: Mapping[str, str] = field(default_factory=dict)


def prefix_of(name: str) -> str:
    """The prefix of a store called ``name``: its views are ``name_messages`` and so on.

    Raises:
        ValueError: the name cannot be part of a view's.
    """
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise ValueError(f"{name!r} cannot name a store in SQL; use letters, digits and _, a letter first")
    return f"{name}_"


def mount(spark: SparkSession, stores: Iterable[Mounted]) -> list[str]:
    """Make the tables of the stores temporary views; returns the views' names."""
    register(spark)
    names = []
    for store in stores:
        for table in TABLES:
            _view(spark, store, table, {})
            names.append(store.prefix + table)
    return names


def query(spark: SparkSession, stores: Iterable[Mounted], text: str) -> DataFrame:
    """The result of a query over :func:`mount`-ed stores.

    Of a store's messages only the columns that it uses are read, and where it names them once, only what its
    conditions on topic, queue, store time and physical offset leave. Its findings come from
    checks by executors, made once a session.

    Raises:
        AnalysisException, ParseException: Spark does not take the query.
    """
    found = spark.sql(text)
    used = used_columns(found)
    narrowed = False
    for store in stores:
        use = used.get(f"{store.prefix}messages")
        if use is not None:
            _view(spark, store, "messages", {"columns": ",".join(use.columns), "pushdown": str(use.times == 1)})
            narrowed = True
        if f"{store.prefix}findings" in used:
            from rmqctl.pipeline.verify import findings

            findings(spark, table_options(store.options)).createOrReplaceTempView(f"{store.prefix}findings")
            narrowed = True
    return spark.sql(text) if narrowed else found


@dataclass(slots=True)
class Use:
    """What a query needs of a view: columns in the order of the table, and how often it names the view."""

    columns: list[str]
    times: int = 0


def used_columns(found: DataFrame) -> dict[str, Use]:
    """What a query needs of each view, by the view's name; nothing with Spark Connect.

    Spark prunes no column of a source in Python itself, but its optimizer puts what is used above the scan.
    """
    try:
        plan = found._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - no public way leads there
    except Exception:  # noqa: BLE001 - Connect has no such plan, and a bad query fails where it is run
        return {}
    plans = [plan, *_items(plan.subqueriesAll())]
    needed: set[int] = set()
    leaves: list[Any] = []
    for one in plans:
        needed |= _ids(one.output())
        _visit(one, needed, leaves)
    uses: dict[str, Use] = {}
    for leaf in leaves:
        if leaf.getClass().getSimpleName() == "DataSourceV2ScanRelation":
            use = uses.setdefault(leaf.relation().options().get(VIEW_OPTION), Use([]))
            names = {a.name() for a in _items(leaf.output()) if a.exprId().id() in needed} | set(use.columns)
            use.columns = [name for name in MESSAGE_SCHEMA.names if name in names] or ["position"]
            use.times += 1
    return uses


def _visit(node: Any, needed: set[int], leaves: list[Any]) -> None:
    """Collect the leaves below a node of a plan, and the attributes that its other nodes refer to."""
    children = _items(node.children())
    if not children:
        leaves.append(node)
        return
    needed |= _ids(node.references().toSeq())
    for child in children:
        _visit(child, needed, leaves)


def _ids(attributes: Any) -> set[int]:
    return {attribute.exprId().id() for attribute in _items(attributes)}


def _items(sequence: Any) -> list[Any]:
    """A sequence of Scala as a list."""
    return [sequence.apply(i) for i in range(sequence.size())]


def _view(spark: SparkSession, store: Mounted, table: str, more: Mapping[str, str]) -> None:
    name = store.prefix + table
    reader = spark.read.format(NAME).options(**store.options, **more).option("table", table)
    reader.option(VIEW_OPTION, name).load().createOrReplaceTempView(name)


def plan_of(found: DataFrame) -> str:
    """How Spark would run a query."""
    from contextlib import redirect_stdout
    from io import StringIO

    text = StringIO()
    with redirect_stdout(text):
        found.explain("formatted")
    return text.getvalue()


def rows(found: DataFrame, *, readable: bool = False) -> Iterator[Row]:
    """The rows of a result as JSON-ready objects, one partition after the other.

    Args:
        readable: times as ISO 8601 in UTC, for people, instead of epoch milliseconds.
    """
    for row in found.toLocalIterator(prefetchPartitions=True):
        yield {key: plain(value, readable=readable) for key, value in zip(row.__fields__, row, strict=True)}


def plain(value: Any, *, readable: bool = False) -> Any:
    """A value of a row as JSON has it; bytes stay bytes."""
    for kind, convert in _PLAIN.items():
        if isinstance(value, kind):
            return convert(value, readable)
    return value


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _moment(value: datetime, readable: bool) -> int | str:
    utc = value.astimezone(UTC)  # Spark hands out local times without a zone
    if readable:
        return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return (utc - _EPOCH) // timedelta(milliseconds=1)


def _object(value: dict[Any, Any], readable: bool) -> Row:
    return {str(key): plain(item, readable=readable) for key, item in value.items()}


def _list(value: Any, readable: bool) -> Any:
    if hasattr(value, "asDict"):  # a Row of Spark is a tuple too
        return _object(value.asDict(), readable)
    return [plain(item, readable=readable) for item in value]


_PLAIN: dict[Any, Any] = {
    (bytearray, memoryview): lambda value, _: bytes(value),
    datetime: _moment,
    (date, timedelta): lambda value, _: str(value),
    Decimal: lambda value, _: _number(value),
    dict: _object,
    (list, tuple): _list,
}
