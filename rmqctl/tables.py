"""A store as tables: what a family brings for SQL, statistics, exports and Spark, and what these ask of it.

A table is divided into parts that can be read anywhere: a part and the table travel to executors as they are. Nothing
here knows a family, or Spark.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from importlib import import_module
from itertools import chain
from threading import Lock
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import pyarrow as pa

from rmqctl.arrow import TIME, ArrowTable, batched, in_calendar
from rmqctl.errors import IOFailure, RmqctlError, WrongUsage
from rmqctl.families import FORMATS
from rmqctl.files.tree import LocalTree, Tree
from rmqctl.filters import nearest
from rmqctl.parallel import Share, noted

EARLIEST, LATEST = "earliest", "latest"
MARKS = "marks"
"""The key of an offset of a stream, beside its places, with their marks."""
SMALLEST_SPLIT, LARGEST_SPLIT = 32 << 20, 256 << 20
_SPLITS_PER_CORE, _FEW_CORES = 2, 2
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_LEAST_SIZE = 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS = 86_400_000
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]|$)")

Places = dict[str, int]
"""How far a log is read: offsets, by the name of what they count in. JSON has them as they are."""

Marks = dict[str, str]
"""What lies in front of places, by the names of the places: text that nothing else in front of them has."""


class BadOption(RmqctlError, ValueError):
    """An option of a table that is not known, or has no such value."""

    exit_code = 2
    meaning = "wrong usage"


class LostMessages(RmqctlError):
    """The log no longer holds what was to be read next."""


@dataclass(frozen=True, slots=True)
class Change:
    """A log that is no longer the one that was read up to a place.

    Attributes:
        name, place: up to where it was read.
        what: became of it, a sentence without its end.
        go_on: the first place from which on it was not read, as nearly as that can be known.
        is_gone: no log of this name is left.
    """

    name: str
    place: int
    what: str
    go_on: int
    is_gone: bool = False


# --- what a family brings -----------------------------------------------------------------------------


class Table(Protocol):
    """One table of a store."""

    def schema(self) -> pa.Schema:
        """Its columns.

        Raises:
            BadOption: one was asked for that it has not.
        """
        ...

    def parts(self) -> Sequence[Any]:
        """Return what the tasks read, in order; each can be pickled."""
        ...

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Return the rows of one part."""
        ...


class Log(Protocol):
    """The main table of a store bit by bit, for exports and for who follows a log that grows.

    What lies between two places never changes, so that what is read again is the same.

    Attributes:
        row_place: the column that says where a row lies; rows of a file of an export ascend by it.
        row_time: the column with the time of a row.
        partitions: columns by which an export may divide files, beside day and hour.
    """

    row_place: str
    row_time: str

    @property
    def partitions(self) -> tuple[str, ...]: ...

    @property
    def size(self) -> int:
        """Bytes of log."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether a broker writes it."""
        ...

    def begin(self) -> Places:
        """Where the log begins now."""
        ...

    def end(self, known: Places | None = None, most_bytes: int | None = None, *, growing: bool = True) -> Places:
        """After the last row that has arrived in full.

        Args:
            known: places that this function gave before; what lies before them is not looked at again.
            most_bytes: of log from ``known`` on; at least one row is given where one is there.
            growing: somebody may be writing.
        """
        ...

    def marks(self, places: Places) -> Marks:
        """Return what lies in front of places now; nothing for those where nothing does, or nothing readable."""
        ...

    def changes(self, places: Places, marks: Marks) -> list[Change]:
        """Return where the log is no longer the one that was read up to some places: it ends before them, or something
        else lies in front of them. A place up to which all was deleted since is none.

        Args:
            marks: what :meth:`marks` gave for the places when they were read; a place without one is taken as it is.
        """
        ...

    def parts(self, start: Places, end: Places, size: int | None = None) -> list[Any]:
        """Return the parts between two places, in order, less those in which nothing wanted can lie.

        Args:
            size: bytes of log in one part.
        """
        ...

    def name_of(self, part: Any) -> str:
        """Return a name for a part, that no other part between any two places has."""
        ...

    def size_of(self, part: Any) -> int:
        """Bytes of log of a part."""
        ...

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Return the wanted rows of one part, in log order."""
        ...


@dataclass(frozen=True, slots=True)
class Figures:
    """What the figures of `stats` are made of.

    Attributes:
        groups: what rows are grouped by, by the name of the group; ``all`` is the empty one.
        rows: the table of rows: the columns of the groups but ``hour_timestamp``, ``time``, ``waited_ms`` (null where
            it has no meaning), ``size``, ``bytes``, ``body_bytes``, ``body_bytes_decompressed``, ``bad_crc``,
            ``messages``, how many a row stands for, where that is not always one, and where keys are wanted
            ``unique_key`` and ``keys``, a list.
        span: ms between the first row and the last, as nearly as can be said at once; None where there is none.
    """

    groups: Mapping[str, tuple[str, ...]]
    rows: Table
    span: int | None


class Tables(Protocol):
    """The tables of one store, and what is asked of them.

    Attributes:
        names: of the tables; the first is the main one.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def path(self) -> str:
        """Of the store, local or a URL."""
        ...

    def table(self, name: str) -> Table:
        """Return a table by its name.

        Raises:
            BadOption: there is none.
        """
        ...

    def asked(self, columns: tuple[str, ...] | None, conditions: Sequence[Condition] = ()) -> Tables:
        """Return the tables with only these columns of the main table, and maybe without rows that do not pass
        conditions.
        """
        ...

    def for_cores(self, cores: int | None) -> Tables:
        """Return the tables divided for so many tasks at once."""
        ...

    def anew(self) -> Tables:
        """Return the same tables, read as they are from now on."""
        ...

    def findings(self, share: Share) -> Iterator[pa.RecordBatch]:
        """Return the table ``findings``, with the log checked elsewhere."""
        ...

    def log(self) -> Log:
        """Return the main table bit by bit."""
        ...

    def figures(self, *, keys: bool = True) -> Figures:
        """Return what figures are made of.

        Args:
            keys: unique keys and keys as well.
        """
        ...

    def described(self) -> dict[str, Any]:
        """Return the filters of the main table, as JSON has them: equal for equal exports."""
        ...


# --- what was read ------------------------------------------------------------------------------------


READING_SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("records", pa.int64()),
        ("given", pa.int64()),
        ("passed_over", pa.map_(pa.string(), pa.int64())),
        ("bytes", pa.int64()),
        ("left_out", pa.map_(pa.string(), pa.int64())),
        ("damaged_bytes", pa.int64()),
    ]
)
"""Columns of the table ``reading``: what :class:`rmqctl.parallel.Tally` has of each part of the main table."""


@dataclass(frozen=True, slots=True)
class ReadingTable:
    """What a reading of the main table looks at, gives and leaves out: a row a part, and one without a number for
    what no part reads.

    Attributes:
        of: the main table, which can go through a part without making rows (``through``).
    """

    of: Any

    def schema(self) -> pa.Schema:
        return READING_SCHEMA

    def parts(self) -> list[tuple[int | None, Any]]:
        before = noted()
        parts = self.of.parts()
        return [(None, noted().plus(before, -1)), *enumerate(parts)]

    def read(self, part: tuple[int | None, Any]) -> Iterator[pa.RecordBatch]:
        number, inner = part
        if number is not None:
            before = noted()
            for _ in self.of.through(inner):
                pass
            inner = noted().plus(before, -1)
        yield pa.RecordBatch.from_pylist([{"part": number, **inner.document()}], schema=READING_SCHEMA)


Options = TypeVar("Options")
Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class RowTable(Generic[Options]):
    """A small table that needs the whole store at once.

    Attributes:
        columns: its schema.
        find: gives its rows, times in ms; None is no row.
    """

    columns: pa.Schema
    find: Callable[[Options], Iterable[Mapping[str, Any] | None]]
    options: Options

    def schema(self) -> pa.Schema:
        return self.columns

    def parts(self) -> list[int]:
        return [0]

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        times = [field.name for field in self.columns if field.type == TIME]
        found = (row for row in self.find(self.options) if row is not None)
        return batched(({**row, **{name: _moment(row.get(name)) for name in times}} for row in found), self.columns)


def _moment(milliseconds: int | None) -> int | None:
    """Microseconds; null for -1, where there is none, and for what no calendar holds."""
    known = milliseconds is not None and milliseconds != -1 and in_calendar(milliseconds)
    return milliseconds * 1000 if known and milliseconds is not None else None


class Look:
    """One look at a store, for all who read the same tables in a process: beside a broker their rows fit each other
    only as of one moment. Another process takes one of its own.
    """

    def __init__(self) -> None:
        self._seen: Any = None
        self._alone = Lock()

    def __reduce__(self) -> tuple[type[Look], tuple[()]]:
        return Look, ()

    def at(self, see: Callable[[], Seen]) -> Seen:
        """Return what the first who asked has seen."""
        with self._alone:
            if self._seen is None:
                self._seen = see()
            found: Seen = self._seen
            return found


@dataclass(frozen=True, slots=True)
class OptionTables(Generic[Options]):
    """Tables made of options, by name: what the :class:`Tables` of every family have in common.

    Attributes:
        options: a dataclass with ``path``, ``columns``, ``wanted``, ``cores`` and ``look``.
        OF: what a family calls that whose tables they are.
        KINDS: what makes each table of the options; the first is the main one.
        PLACE: the column to be read where a query needs none.
        MEANING: of columns, see :func:`narrowed_by`.
    """

    OF: ClassVar[str]
    KINDS: ClassVar[Mapping[str, Callable[[Any], Table]]]
    PLACE: ClassVar[str]
    MEANING: ClassVar[Mapping[str, str]]

    options: Options

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.KINDS)

    @property
    def path(self) -> str:
        path: str = self._given.path
        return path

    def table(self, name: str) -> Table:
        if name not in self.KINDS:
            raise BadOption(f"a {self.OF} has no table {name!r}; there are {', '.join(self.KINDS)}")
        return self.KINDS[name](self.options)

    def asked(self, columns: tuple[str, ...] | None, conditions: Sequence[Condition] = ()) -> Self:
        wanted = narrowed_by(self._given.wanted, conditions, self.MEANING)
        return self._with(columns=(self.PLACE,) if columns == () else columns, wanted=wanted)

    def for_cores(self, cores: int | None) -> Self:
        return self._with(cores=cores)

    def anew(self) -> Self:
        return self._with(look=Look())

    @property
    def _given(self) -> Any:
        return self.options

    def _with(self, **changed: Any) -> Self:
        return replace(self, options=replace(self._given, **changed))

    def stream(self, name: str) -> ArrowTable:
        """Return a table to be read once, while it is consumed.

        Raises:
            WrongUsage: there is no such table.
        """
        if name not in self.KINDS:
            raise WrongUsage("table", f"{name!r} is no table; there are {', '.join(self.KINDS)}.")
        found = self.table(name)
        return ArrowTable(found.schema(), lambda: chain.from_iterable(map(found.read, found.parts())))


def tables_of(format: str, given: Mapping[str, str]) -> Tables:
    """Return the tables of a store by the options of the data source: text by name, names in any case.

    Raises:
        BadOption: an option is not known, or its value is no such thing.
    """
    found: Tables = import_module(FORMATS[format].tables).tables_of(given)
    return found


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison that every row has to pass: ``operation`` is one of ``= < <= > >= in``."""

    column: str
    operation: str
    value: Any


def usual_split_size(size: int, cores: int | None = None) -> int:
    """Bytes of log in one task where nobody says: work for every core, no task that its start outweighs.

    Args:
        size: bytes of all of it.
        cores: tasks that run at once; few are assumed where nobody knows.
    """
    tasks = (cores or _FEW_CORES) * _SPLITS_PER_CORE
    return min(max(size // tasks, SMALLEST_SPLIT), LARGEST_SPLIT)


def check_reachable(tree: Tree) -> None:
    """Refuse to take a whole store that this machine does not have for an empty one.

    Raises:
        IOFailure: the directory is not there.
    """
    if isinstance(tree, LocalTree) and not os.path.isdir(tree.place):
        raise IOFailure(
            f"cannot read {tree.root} on {platform.node() or 'this machine'}",
            "no such directory",
            "every machine that runs tasks must have the store under the same path: mount it there, or give a URL",
        )


def gone(name: str) -> IOFailure:
    """Return the error of a file that was there when the parts were made, and is not when its part is read: its rows
    would be missing in silence.
    """
    return IOFailure(
        f"cannot read {name}",
        "it was deleted after the work was planned; a broker deletes files whose retention has passed",
        "run it again: what is left is planned again; --after TIME, or a start offset, leaves out what is about to go",
    )


# --- what conditions spare ------------------------------------------------------------------------------


W = TypeVar("W", bound="Wanted")


class Wanted(Protocol):
    """A filter of rows: a frozen dataclass, with bounds of time in ms; those above are exclusive."""

    @property
    def topics(self) -> tuple[str, ...]: ...
    def includes_topic(self, topic: Any) -> bool: ...
    @property
    def queue_id(self) -> int | None: ...
    @property
    def after(self) -> int | None: ...
    @property
    def before(self) -> int | None: ...
    @property
    def from_offset(self) -> int | None: ...
    @property
    def to_offset(self) -> int | None: ...


def narrowed_by(wanted: W, conditions: Collection[Condition], meaning: Mapping[str, str]) -> W:
    """Return a filter that passes what the given one and all conditions pass; those it has no words for are left out.

    Args:
        meaning: of columns: ``topic``, ``queue``, ``time`` or ``place``.
    """
    return reduce(lambda made, one: _NARROW.get(meaning.get(one.column, ""), _kept)(made, one), conditions, wanted)


def _kept(wanted: Any, _: Condition) -> Any:
    return wanted


def _topic(wanted: Any, one: Condition) -> Any:
    values = one.value if one.operation == "in" else (one.value,)
    if one.operation not in {"=", "in"} or any(not isinstance(v, str) or v.startswith("base64:") for v in values):
        return wanted
    kept = tuple(filter(wanted.includes_topic, values))
    return replace(wanted, topics=kept, topic_like=()) if kept else wanted


def _queue(wanted: Any, one: Condition) -> Any:
    if one.operation != "=" or not isinstance(one.value, int) or wanted.queue_id is not None:
        return wanted
    return replace(wanted, queue_id=one.value)


def _time(wanted: Any, one: Condition) -> Any:
    if not isinstance(one.value, str) or not _DATED.match(one.value):
        return wanted
    try:
        moment = datetime.fromisoformat(one.value)
    except ValueError:
        return wanted
    # a time without a zone is in the session's; a day on both sides covers every zone
    slack = 0 if moment.tzinfo else _DAY_MS
    milliseconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    at = milliseconds // timedelta(milliseconds=1)
    return _bounded(wanted, one.operation, ("after", "before"), at - slack, at + slack + 1)


def _offset(wanted: Any, one: Condition) -> Any:
    if not isinstance(one.value, int):
        return wanted
    return _bounded(wanted, one.operation, ("from_offset", "to_offset"), one.value, one.value)


def _bounded(wanted: Any, operation: str, names: tuple[str, str], low: int, high: int) -> Any:
    """Return the bounds drawn closer; the lower is inclusive, the upper exclusive."""
    changes: dict[str, Any] = {}
    lower, upper = names
    if operation in {">", ">=", "="}:
        known = getattr(wanted, lower)
        changes[lower] = low if known is None else max(known, low)
    if operation in {"<", "<=", "="}:
        known = getattr(wanted, upper)
        changes[upper] = high + 1 if known is None else min(known, high + 1)
    return replace(wanted, **changes)


_NARROW: dict[str, Callable[[Any, Condition], Any]] = {
    "topic": _topic,
    "queue": _queue,
    "time": _time,
    "place": _offset,
}


# --- options ------------------------------------------------------------------------------------------


_NO_PATH = (
    "no store is given; say .load(PATH), .option('path', PATH), or in SQL USING format OPTIONS (path ...). A table "
    "that is made with columns of its own keeps no options: leave the columns out, and give the option columns"
)
_COMMON = ("table", "unreadable")
"""Options that are none of a family's."""


def options_of(
    source: str, given: Mapping[str, str], known: Mapping[str, tuple[str, Callable[[str], Any]]]
) -> dict[str, Any]:
    """Options as Spark hands them over, by the names of what they set, without the table's name and those of streams.

    Args:
        source: the format, for messages.
        known: by its name, what each option sets, and what makes its value of the text. Names are taken in any case,
            with underscores or without.

    Raises:
        BadOption: one is not known, or its value is no such thing.
    """
    made, by_name = {}, {fold(name): name for name in known}
    others = (*_COMMON, *_STREAM)
    passed = set(map(fold, others))
    for name, text in given.items():
        found = by_name.get(fold(name))
        if found is not None:
            key, convert = known[found]
            made[key] = _converted(source, found, text, convert)
        elif fold(name) not in passed:
            raise _unknown_option(source, name, [*known, *others])
    if not made.get("path"):
        raise BadOption(_NO_PATH)
    return made


def _unknown_option(source: str, name: str, known: Collection[str]) -> BadOption:
    by_name = {fold(one): one for one in known}
    near = nearest(fold(name), by_name)
    meant = f"did you mean {by_name[near[0]]}? There" if near else "there"
    every = ", ".join(sorted(known, key=str.lower))
    return BadOption(f"the {source} source has no option {name!r}; {meant} are {every}")


def cores(text: str) -> int:
    """Return how many tasks run at once.

    Raises:
        ValueError: it is no number above zero.
    """
    if not text.isdecimal() or not int(text):
        raise ValueError("give a number of tasks, such as 512")
    return int(text)


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Where a stream begins that has no checkpoint, and what becomes of it when files are deleted before it read them.

    Attributes:
        offset: ``earliest``, ``latest``, one offset, or offsets by name.
        fail_on_loss: stop when files are gone that were not read; otherwise go on after them.
        most_bytes: of the log in one batch; None for all there is.
    """

    offset: str | int | Places = EARLIEST
    fail_on_loss: bool = True
    most_bytes: int | None = None


def stream_start(source: str, given: Mapping[str, str]) -> StreamStart:
    """Return the options of a stream: ``startingOffset``, ``failOnDataLoss``, ``maxBytesPerTrigger``.

    Raises:
        BadOption: a value is no such thing.
    """
    values = {fold(name): text for name, text in given.items()}
    made = {
        key: _converted(source, name, values[fold(name)], convert)
        for name, (key, convert) in _STREAM.items()
        if fold(name) in values
    }
    return StreamStart(**made)


def fold(name: str) -> str:
    return name.lower().replace("_", "")


def _converted(source: str, name: str, text: str, convert: Callable[[str], Any]) -> Any:
    try:
        return convert(text)
    except ValueError as error:
        raise BadOption(f"option {name} of the {source} source cannot be {text!r}: {error}") from None


def split_size(text: str) -> int:
    """Bytes of a size such as ``64MiB``, ``64m`` or ``67108864``.

    Raises:
        ValueError: it is none, or below 1 KiB.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("give bytes, or 64K, 128MiB, 1G")
    size = int(match[1]) << 10 * " kmgt".index(match[2].lower() or " ")
    if size < _LEAST_SIZE:
        raise ValueError(f"give at least {_LEAST_SIZE} bytes")
    return size


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def flag(text: str) -> bool:
    """Return ``true`` or ``false``.

    Raises:
        ValueError: it is neither.
    """
    if text.lower() not in {"true", "false"}:
        raise ValueError("give true or false")
    return text.lower() == "true"


def level(text: str) -> str:
    """Return the level of checks.

    Raises:
        ValueError: there is none of this name.
    """
    if text not in {"quick", "structure", "full"}:
        raise ValueError("give quick, structure or full")
    return text


def _start_offset(text: str) -> str | int | Places:
    if text.lower() in {EARLIEST, LATEST}:
        return text.lower()
    if not text.lstrip().startswith("{"):
        return int(text)
    import orjson

    found = orjson.loads(text)
    found.pop(MARKS, None)  # copied from a checkpoint
    if not all(isinstance(value, int) for value in found.values()):
        raise ValueError("give numbers by name")
    return dict(found)


_STREAM: dict[str, tuple[str, Callable[[str], Any]]] = {
    "startingOffset": ("offset", _start_offset),
    "failOnDataLoss": ("fail_on_loss", flag),
    "maxBytesPerTrigger": ("most_bytes", split_size),
}
