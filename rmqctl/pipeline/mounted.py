"""Stores as `sql` knows them, and the rows of results as JSON has them; the same for both engines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from rmqctl.errors import RmqctlError
from rmqctl.fleet_tables import FleetTables, tables_of
from rmqctl.tables import Tables

Row = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BadQuery(RmqctlError):
    """SQL that is not understood, that names what is not there, or that fails on its values."""

    exit_code = 2
    meaning = "wrong usage"


class NotForLocalEngine(RmqctlError):
    """A query that the local engine would not answer as Spark does, or not at all."""

    exit_code = 2
    meaning = "wrong usage"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the local engine does not run this query: {reason}; add --engine spark")


@dataclass(frozen=True, slots=True)
class Mounted:
    """One store whose tables can be queried.

    Attributes:
        prefix: what stands before the names of its views, such as ``old_``; "" for the only store.
        options: of the data source, ``path`` among them.
        format: its name for Spark.
    """

    prefix: str
    options: Mapping[str, str] = field(default_factory=dict)
    format: str = "rocketmq"

    def tables(self) -> Tables:
        """Its tables."""
        return tables_of(self.format, self.options)


def unreadable(tables: Iterable[Tables]) -> dict[str, str]:
    """Return why stores could not be read that are among several, by name."""
    found: dict[str, str] = {}
    for one in tables:
        found |= one.failed if isinstance(one, FleetTables) else {}
    return found


def prefix_of(name: str) -> str:
    """Return the prefix of a store called ``name``: its views are ``name_messages`` and so on.

    Raises:
        ValueError: the name cannot be part of a view's.
    """
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise ValueError(f"{name!r} cannot name a store in SQL; use letters, digits and _, a letter first")
    return f"{name}_"


def plain(value: Any, *, readable: bool = False) -> Any:
    """Return a value of a row as JSON has it; bytes stay bytes."""
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
