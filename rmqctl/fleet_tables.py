"""The tables of several stores as one: rows of all of them with ``cluster`` and ``store`` before their columns.

What a store is to :mod:`rmqctl.tables`, several stores of one family are here: the same tables, divided into the parts
of all stores, so that SQL, statistics, exports, streams and Spark need nothing of their own for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from rmqctl.answer import Row
from rmqctl.errors import NotAStore, RmqctlError, WrongUsage
from rmqctl.families import FORMATS
from rmqctl.inventory import Member, is_several, members_of, opened_together
from rmqctl.parallel import Share
from rmqctl.tables import (
    LARGEST_SPLIT,
    BadOption,
    Change,
    Condition,
    Figures,
    Log,
    Marks,
    Places,
    Table,
    Tables,
    fold,
    names,
)
from rmqctl.tables import tables_of as tables_of_one

HEAD = ("cluster", "store")
"""Columns before those of each store; the cluster is null where nobody says it."""
STORES = "stores"
STORES_SCHEMA = pa.schema(
    [(name, pa.string()) for name in (*HEAD, "path", "role", "host", "replica_of")]
    + [("log_bytes", pa.int64()), ("error", pa.string())]
)
"""Columns of the table ``stores``: one row a store; ``error``: why it cannot be read."""
_SEPARATOR = "#"  # in no name of a place
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed:
    """One store of several.

    Attributes:
        tables: those of the store; None where it could not be opened.
        error: why.
    """

    member: Member
    tables: Tables | None
    error: str = ""

    @property
    def name(self) -> str:
        """What rows call it."""
        return self.member.name

    @property
    def head(self) -> tuple[str | None, str]:
        """What stands in the columns :data:`HEAD`."""
        return self.member.cluster, self.member.name


def tables_of(format: str, given: Mapping[str, str]) -> Tables:
    """Return the tables of a store, or of several, by the options of the data source.

    Several stores are named by the option ``paths``, a list in JSON, as ``load([...])`` of Spark makes it: paths,
    patterns, inventories, or tables as an inventory has them. A ``path`` may be a pattern or an inventory, too.
    Directories of one Kafka broker are one store, and alone the tables of it.

    Raises:
        BadOption: an option is not known, or its value is no such thing.
        NotAStore: a pattern matches nothing.
        WrongUsage: an inventory is none.
    """
    options = {fold(name): (name, text) for name, text in given.items()}
    _, path = options.get("path", ("", ""))
    if "paths" not in options and not is_several(path):
        return tables_of_one(format, given)
    strict = options.get("unreadable", ("", "fail"))[1].lower()
    if strict not in {"fail", "skip"}:
        raise BadOption(f"option unreadable of the {format} source cannot be {strict!r}: give fail or skip")
    rest = dict(text for name, text in options.items() if name not in {"path", "paths", "unreadable", "columns"})
    places: list[Any] = orjson.loads(options["paths"][1]) if "paths" in options else [path]
    members = _members(format, places)
    columns = names(options["columns"][1]) if "columns" in options else None
    if len(members) == 1 and not any(isinstance(place, dict) or is_several(place) for place in places):
        one = tables_of_one(format, {**rest, **_options(format, members[0])})
        return one if columns is None else one.asked(columns)
    found = [
        Listed(member, tables_of_one(format, {**rest, **_options(format, member)}))
        for member in members
        if member.family in {None, "auto", FORMATS[format].name}
    ]
    if not found:
        raise BadOption(f"none of the stores is one for the {format} source")
    made = FleetTables(tuple(found), is_strict=strict == "fail")
    return made if columns is None else made.asked(columns)


def _members(format: str, places: Sequence[Any]) -> list[Member]:
    """Return the stores that are named; of Kafka they are opened: directories of one broker are one store."""
    if format == "kafkalog" and not any(isinstance(place, dict) for place in places):
        return [member for member, _ in opened_together(members_of(places))[0]]
    return members_of(places)


def _options(format: str, member: Member) -> dict[str, str]:
    settings = {"commitLog": ",".join(member.commit_log), "brokerConf": member.broker_conf or ""}
    own = {name: text for name, text in settings.items() if text}
    return {"path": member.path, **(own if format == "rocketmq" else {})}


def entry(member: Member, path: str) -> Row:
    """Return a store as a table of an inventory, an item of the option ``paths``.

    Args:
        path: instead of its own.
    """
    made: dict[str, Any] = {
        "path": path,
        "name": member.name,
        "cluster": member.cluster,
        "broker_conf": member.broker_conf,
    }
    made |= {"commit_log": list(member.commit_log) or None, "family": member.family, **member.facts}
    return {name: value for name, value in made.items() if value is not None}


@dataclass(frozen=True, slots=True)
class FleetTables:
    """The tables of several stores of one family (:class:`rmqctl.tables.Tables`).

    Attributes:
        listed: the stores.
        columns: of the main table that are asked for; None: all.
        is_strict: a store that cannot be read is an error; else it is left out and noted.
        failed: why stores could not be read, by name; complete once the parts of a table were made.
        share: opens, measures and divides the logs of the stores, one to an item of work.
    """

    listed: tuple[Listed, ...]
    columns: tuple[str, ...] | None = None
    is_strict: bool = False
    failed: dict[str, str] = field(default_factory=dict, compare=False)
    share: Share = field(default=map, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.failed.update({one.name: one.error for one in self.listed if one.tables is None})

    @property
    def _first(self) -> Tables:
        for one in self.listed:
            if one.tables is not None:
                return one.tables
        raise self.unreadable()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._first.names, STORES)

    @property
    def path(self) -> str:
        return ", ".join(one.member.path for one in self.listed)

    def table(self, name: str) -> FleetTable | StoreTable:
        if name == STORES:
            return StoreTable(self.listed)
        columns = self.columns if name == self.names[0] else None
        return FleetTable(self, _tables_named(self, name), columns)

    def asked(self, columns: tuple[str, ...] | None, conditions: Sequence[Condition] = ()) -> FleetTables:
        kept = [one for one in self.listed if all(_passes(one, condition) for condition in conditions)]
        if all(one.tables is None for one in kept):  # no row passes, but there are columns
            kept += [one for one in self.listed if one.tables is not None][:1]
        own = None if columns is None else tuple(name for name in columns if name not in HEAD)
        rest = [condition for condition in conditions if condition.column not in HEAD]
        return self._changed(lambda tables: tables.asked(own, rest), tuple(kept), columns=columns or None)

    def for_cores(self, cores: int | None) -> FleetTables:
        return self._changed(lambda tables: tables.for_cores(cores), self.listed, columns=self.columns)

    def anew(self) -> FleetTables:
        return self._changed(lambda tables: tables.anew(), self.listed, columns=self.columns)

    def _changed(
        self, change: Callable[[Tables], Tables], listed: Sequence[Listed], *, columns: tuple[str, ...] | None
    ) -> FleetTables:
        made = tuple(one if one.tables is None else replace(one, tables=change(one.tables)) for one in listed)
        return replace(self, listed=made, columns=columns)

    def findings(self, share: Share) -> Iterator[pa.RecordBatch]:
        """Yield the findings of all stores: a small one is looked at by one item of work, and the log of a large one is
        divided here, so that it does not keep all waiting; where only those who work can read it, it is one item, too.
        """
        left = {one.name: one.tables for one, size in self.shared(share, _log_size) if size <= LARGEST_SPLIT}
        for one in self.listed:
            if one.tables is None or one.name in left or one.name in self.failed:
                continue
            try:
                found = list(one.tables.findings(share))
            except (RmqctlError, OSError):
                left[one.name] = one.tables
            else:
                yield from map(_Headed(one.head).batch, found)
        for one, found in self.shared(share, _findings, left):
            yield from map(_Headed(one.head).batch, found)

    def log(self) -> FleetLog:
        return FleetLog(self)

    def figures(self, *, keys: bool = True, share: Share = map) -> Figures:
        """Return what figures are made of.

        Args:
            keys: unique keys and keys as well.
            share: opens the stores.
        """
        found = {one.name: figures for one, figures in self.shared(share, partial(_figures, keys=keys))}
        first = next(iter(found.values()), None)
        if first is None:
            raise self.unreadable()
        queue = ("store", *first.groups["queue"])  # queues of one number on two brokers are two
        clusters = {"cluster": ("cluster",)} if any(one.member.cluster for one in self.listed) else {}
        groups = {**first.groups, "queue": queue, "store": ("store",), **clusters}
        rows = {name: figures.rows for name, figures in found.items()}
        spans = [figures.span for figures in found.values() if figures.span is not None]
        return Figures(groups, FleetTable(self, rows), max(spans, default=None))

    def shared(
        self, share: Share, work: Callable[[Any], T], of: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[Listed, T]]:
        """Yield what is made of each store, one to an item of work; what cannot be read is noted.

        Args:
            of: what the work is given, by the name of the store, and only of those; None: the tables of each.
        """
        given = {one.name: one.tables for one in self.listed} if of is None else of
        left = [one for one in self.listed if self.tried(one, bool) is not None and one.name in given]
        made = share(_Tried(work, self.is_strict), [given[one.name] for one in left])
        for one, (found, error) in zip(left, made, strict=True):
            if error:
                self.failed[one.name] = error
            else:
                yield one, found

    def described(self) -> dict[str, Any]:
        return self._first.described()

    def unreadable(self) -> NotAStore:
        """Return the error that no store can be read."""
        name, why = next(iter(self.failed.items()))
        return NotAStore(self.path, f"none of them can be read; {name}: {why}", "look at one of them alone")

    def tried(self, one: Listed, work: Callable[[Tables], T]) -> T | None:
        """Return what is done with the tables of a store; None where it cannot be read, which is noted.

        Raises:
            RmqctlError, OSError: it cannot be read, and that is an error here.
        """
        if one.tables is None or one.name in self.failed:
            if self.is_strict:
                raise RmqctlError(f"{one.name}: {self.failed[one.name]}")
            return None
        try:
            return work(one.tables)
        except BadOption:
            raise
        except (RmqctlError, OSError) as error:
            if self.is_strict:
                raise
            self.failed[one.name] = str(error)
            return None


@dataclass(frozen=True, slots=True)
class _Tried:
    """Work on the tables of one store, or one of them: what comes of it, or None and why it cannot be read."""

    work: Callable[[Any], Any]
    is_strict: bool

    def __call__(self, tables: Any) -> tuple[Any, str]:
        try:
            return self.work(tables), ""
        except BadOption:
            raise
        except (RmqctlError, OSError) as error:
            if self.is_strict:
                raise
            return None, str(error)


def _log_size(tables: Tables) -> int:
    return tables.log().size


def _findings(tables: Tables) -> list[pa.RecordBatch]:
    return list(tables.findings(map))


def _parts(table: Table) -> list[Any]:
    return list(table.parts())


def _figures(tables: Tables, *, keys: bool) -> Figures:
    return tables.figures(keys=keys)


def _tables_named(tables: FleetTables, name: str) -> dict[str, Table]:
    return {one.name: one.tables.table(name) for one in tables.listed if one.tables is not None}


def _passes(one: Listed, condition: Condition) -> bool:
    """Whether rows of a store can pass a condition."""
    if condition.column not in HEAD or condition.operation not in {"=", "in"}:
        return True
    values = condition.value if condition.operation == "in" else (condition.value,)
    return dict(zip(HEAD, one.head, strict=True))[condition.column] in values


@dataclass(frozen=True, slots=True)
class _Headed:
    """Puts what is known of a store before the columns of its rows."""

    head: tuple[str | None, str]

    def batch(self, batch: pa.RecordBatch, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return rows with :data:`HEAD`.

        Args:
            names: columns of the result; None: all.
        """
        columns: dict[str, Any] = {
            name: pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
            for name, value in zip(HEAD, self.head, strict=True)
        }
        columns |= dict(zip(batch.schema.names, batch.columns, strict=True))
        chosen = list(columns) if names is None else names
        fields = [pa.field(name, columns[name].type) for name in chosen]
        return pa.RecordBatch.from_arrays([columns[name] for name in chosen], schema=pa.schema(fields))


def joined(listed: Sequence[Listed], families: Collection[str]) -> FleetTables:
    """Return the tables of stores that were opened as one.

    Args:
        families: of those that could be.

    Raises:
        WrongUsage: there are two; NotAStore: there is none.
    """
    if len(families) > 1:
        raise WrongUsage("PATH", "stores of RocketMQ and of Kafka have no columns in common; ask for one family.")
    found = FleetTables(tuple(listed))
    if not families:
        raise found.unreadable()
    return found


_StorePart = tuple[str, Any]
"""The name of a store, and a part of its table."""


@dataclass(frozen=True, slots=True)
class FleetTable:
    """One table of several stores."""

    tables: FleetTables
    of: Mapping[str, Table]
    columns: tuple[str, ...] | None = None

    def schema(self) -> pa.Schema:
        own = next(iter(self.of.values())).schema()
        whole = pa.schema([*((name, pa.string()) for name in HEAD), *own])
        return whole if self.columns is None else pa.schema([whole.field(name) for name in self.columns])

    def parts(self) -> list[_StorePart]:
        """Return the parts of all stores; one that cannot be read has none, and is noted."""
        return self.planned(map)

    def planned(self, share: Share) -> list[_StorePart]:
        """Return :meth:`parts`, with the stores opened and divided elsewhere, one to an item of work."""
        return [(one.name, part) for one, parts in self.tables.shared(share, _parts, self.of) for part in parts]

    def read(self, part: _StorePart) -> Iterator[pa.RecordBatch]:
        name, inner = part
        head = next(one.head for one in self.tables.listed if one.name == name)
        for batch in self.of[name].read(inner):
            yield _Headed(head).batch(batch, self.columns)


@dataclass(frozen=True, slots=True)
class StoreTable:
    """The stores themselves, also those that cannot be read."""

    listed: tuple[Listed, ...]

    def schema(self) -> pa.Schema:
        return STORES_SCHEMA

    def parts(self) -> list[int]:
        return list(range(len(self.listed)))

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        one = self.listed[part]
        row: dict[str, Any] = {**dict(zip(HEAD, one.head, strict=True)), "path": one.member.path, **one.member.facts}
        try:
            if one.tables is None:
                raise RmqctlError(one.error)
            row["log_bytes"] = one.tables.log().size
        except (RmqctlError, OSError) as error:
            row["error"] = str(error)
        yield pa.RecordBatch.from_pylist([row], schema=STORES_SCHEMA)


# --- the logs of all stores -----------------------------------------------------------------------------


class FleetLog:
    """The main table of several stores bit by bit (:class:`rmqctl.tables.Log`): places have the name of their store."""

    def __init__(self, tables: FleetTables) -> None:
        self.tables, self._share = replace(tables, share=map), tables.share
        self._logs: dict[str, tuple[Listed, Log]] = {
            one.name: (one, log) for one, log in tables.shared(tables.share, _opened_log)
        }
        if not self._logs:
            raise tables.unreadable()
        first = next(iter(self._logs.values()))[1]
        self.row_place, self.row_time = first.row_place, first.row_time
        self.partitions = (*first.partitions, *HEAD)

    @property
    def size(self) -> int:
        return sum(log.size for _, log in self._logs.values())

    @property
    def is_running(self) -> bool:
        return any(log.is_running for _, log in self._logs.values())

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels to those who read: they have nobody to share with."""
        return {**self.__dict__, "_share": map}

    def begin(self) -> Places:
        return self._joined("begin", dict.fromkeys(self._logs, ()))

    def end(self, known: Places | None = None, most_bytes: int | None = None, *, growing: bool = True) -> Places:
        share = None if most_bytes is None else max(most_bytes // len(self._logs), 1)
        known = known or {}  # some stores are new
        return self._joined("end", {name: (_of(known, name) or None, share) for name in self._logs}, growing=growing)

    def marks(self, places: Places) -> Marks:
        return self._joined("marks", {name: (own,) for name in self._logs if (own := _of(places, name))})

    def changes(self, places: Places, marks: Marks) -> list[Change]:
        given = {name: (own, _of(marks, name)) for name in self._logs if (own := _of(places, name))}
        return [
            replace(change, name=f"{name}{_SEPARATOR}{change.name}", what=f"{name}: {change.what}")
            for name, found in self._asked("changes", given)
            for change in found
        ]

    def parts(self, start: Places, end: Places, size: int | None = None) -> list[_StorePart]:
        given = {name: (_of(start, name) or None, own, size) for name in self._logs if (own := _of(end, name))}
        return [(name, part) for name, found in self._asked("parts", given) for part in found]

    def name_of(self, part: _StorePart) -> str:
        name, inner = part
        plain = re.sub(r"[^\w.-]+", "_", name).strip("_")
        unique = "" if plain == name else f"-{sha256(name.encode()).hexdigest()[:8]}"
        return f"{plain}{unique}-{self._logs[name][1].name_of(inner)}"

    def size_of(self, part: _StorePart) -> int:
        return self._logs[part[0]][1].size_of(part[1])

    def read(self, part: _StorePart) -> Iterator[pa.RecordBatch]:
        one, log = self._logs[part[0]]
        for batch in log.read(part[1]):
            yield _Headed(one.head).batch(batch, self.tables.columns)

    def _asked(self, what: str, given: Mapping[str, tuple[Any, ...]], **more: Any) -> Iterator[tuple[str, Any]]:
        """Yield what the logs of some stores answer.

        Args:
            what: the method.
            given: its arguments, by the name of the store.
        """
        items = [(self._logs[name][1], arguments) for name, arguments in given.items()]
        return zip(given, self._share(partial(_answer, what, more), items), strict=True)

    def _joined(self, what: str, given: Mapping[str, tuple[Any, ...]], **more: Any) -> dict[str, Any]:
        found = ((name, own.items()) for name, own in self._asked(what, given, **more))
        return {f"{name}{_SEPARATOR}{key}": value for name, items in found for key, value in items}


def _answer(what: str, more: Mapping[str, Any], item: tuple[Log, tuple[Any, ...]]) -> Any:
    log, arguments = item
    if what == "parts" and arguments[0] is None:  # a store that the last export did not know
        arguments = (log.begin(), *arguments[1:])
    return getattr(log, what)(*arguments, **more)


def _opened_log(tables: Tables) -> Log:
    log = tables.log()
    log.begin()  # whether it can be read shows here
    return log


def _of(values: Mapping[str, T], name: str) -> dict[str, T]:
    """Return those that belong to a store, by their names in it."""
    parts = ((key.rpartition(_SEPARATOR), value) for key, value in values.items())
    return {place: value for (store, _, place), value in parts if store == name}


__all__ = ["FleetLog", "FleetTables", "Listed", "entry", "joined", "tables_of"]
