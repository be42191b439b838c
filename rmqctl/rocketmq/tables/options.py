"""What a reader of a table may ask for: the options of the data source, checked, and what conditions spare."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.store.unreadable import forgiving
from rmqctl.rocketmq.tables.bodies import BodyOption
from rmqctl.tables import BadOption, Condition, flag, level, names, options_of, split_size

_FILTER_NAMES = ("topics", "queue_id", "after", "before", "from_offset", "to_offset")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS = 86_400_000
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]|$)")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options of a table.

    Attributes:
        path: of the store, local or a URL.
        columns: the wanted ones; None for all.
        body: what the column ``body`` of messages holds.
        split_size: bytes of the log in one task; None: by the size of the log and the cores.
        wanted: only these messages.
        skip: leave out files and splits in which nothing wanted can lie.
        level: of the checks behind ``findings``.
        cores: tasks that run at once; None where nobody knows.
    """

    path: str
    columns: tuple[str, ...] | None = None
    body: BodyOption = BodyOption.DECOMPRESSED
    split_size: int | None = None
    wanted: Filter = field(default_factory=Filter)
    skip: bool = True
    level: str = "full"
    commit_log: tuple[str, ...] = ()
    broker_conf: str | None = None
    cores: int | None = None

    def store(self) -> RocketMQStore:
        """The store; what cannot be read in it counts as empty, so that no task dies of it.

        Raises:
            NotAStore: there is none at the path.
            OSError: it cannot be read.
        """
        return forgiving(open_store_at(self.path, commit_log=self.commit_log, broker_conf=self.broker_conf))


def table_options(given: Mapping[str, str]) -> TableOptions:
    """Options as Spark hands them over: text by name, names in any case.

    Raises:
        BadOption: one is not known, or its value is no such thing.
    """
    made = options_of("rocketmq", given, _OPTIONS)
    wanted = {name: made.pop(name) for name in _FILTER_NAMES if name in made}
    return TableOptions(wanted=Filter(**wanted), **made)


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "path": ("path", str),
    "columns": ("columns", names),
    "body": ("body", BodyOption),
    "splitsize": ("split_size", split_size),
    "skip": ("skip", flag),
    "level": ("level", level),
    "commitlog": ("commit_log", names),
    "brokerconf": ("broker_conf", str),
    "topic": ("topics", names),
    "queue": ("queue_id", int),
    "after": ("after", int),
    "before": ("before", int),
    "fromoffset": ("from_offset", int),
    "tooffset": ("to_offset", int),
}
"""What each option sets, and what makes its value of the text."""


# --- the filter of messages -----------------------------------------------------------------------


def narrowed(wanted: Filter, conditions: Collection[Condition]) -> Filter:
    """A filter that passes what the given one and all conditions pass; those it has no words for are left out."""
    return reduce(lambda made, one: _NARROW.get(one.column, _kept)(made, one), conditions, wanted)


def _kept(wanted: Filter, _: Condition) -> Filter:
    return wanted


def _topic(wanted: Filter, one: Condition) -> Filter:
    values = one.value if one.operation == "in" else (one.value,)
    if one.operation not in {"=", "in"} or any(not isinstance(v, str) or v.startswith("base64:") for v in values):
        return wanted
    kept = tuple(value for value in values if not wanted.topics or value in wanted.topics)
    return replace(wanted, topics=kept) if kept else wanted


def _queue(wanted: Filter, one: Condition) -> Filter:
    if one.operation != "=" or not isinstance(one.value, int) or wanted.queue_id is not None:
        return wanted
    return replace(wanted, queue_id=one.value)


def _time(wanted: Filter, one: Condition) -> Filter:
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


def _offset(wanted: Filter, one: Condition) -> Filter:
    if not isinstance(one.value, int):
        return wanted
    return _bounded(wanted, one.operation, ("from_offset", "to_offset"), one.value, one.value)


def _bounded(wanted: Filter, operation: str, names: tuple[str, str], low: int, high: int) -> Filter:
    """The bounds drawn closer; the lower is inclusive, the upper exclusive."""
    changes: dict[str, Any] = {}
    lower, upper = names
    if operation in {">", ">=", "="}:
        known = getattr(wanted, lower)
        changes[lower] = low if known is None else max(known, low)
    if operation in {"<", "<=", "="}:
        known = getattr(wanted, upper)
        changes[upper] = high + 1 if known is None else min(known, high + 1)
    return replace(wanted, **changes)


_NARROW: dict[str, Callable[[Filter, Condition], Filter]] = {
    "topic": _topic,
    "queue_id": _queue,
    "store_timestamp": _time,
    "physical_offset": _offset,
}


__all__ = ["BadOption", "TableOptions", "narrowed", "split_size", "table_options"]
