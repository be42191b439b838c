"""What a reader of a table may ask for: the options of the data source, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqctl.errors import RmqctlError
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.store.unreadable import forgiving
from rmqctl.rocketmq.tables.bodies import BodyOption

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SMALLEST_SPLIT = 1024


EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream begins that has no checkpoint, and what becomes of it when files are deleted before it read them.

    Attributes:
        offset: ``earliest``, ``latest`` or a physical offset.
        fail_on_loss: stop when files are gone that were not read; otherwise go on behind them.
        most_bytes: of the log in one batch; None for all there is.
    """

    offset: str = EARLIEST
    fail_on_loss: bool = True
    most_bytes: int | None = None


class BadOption(RmqctlError, ValueError):
    """An option of the data source that is not known, or has no such value."""

    exit_code = 2
    meaning = "wrong usage"


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
    values = {name.lower().replace("_", ""): text for name, text in given.items()}
    for name in ("table", *_STREAM):
        values.pop(name, None)
    path = values.pop("path", "")
    if not path:
        raise BadOption("no store is given; say .load(PATH) or .option('path', PATH)")
    made: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    for name, text in values.items():
        if name in _OPTIONS:
            key, convert = _OPTIONS[name]
            made[key] = _converted(name, text, convert)
        elif name in _FILTERS:
            key, convert = _FILTERS[name]
            wanted[key] = _converted(name, text, convert)
        else:
            known = ", ".join(sorted(["table", *_OPTIONS, *_FILTERS]))
            raise BadOption(f"the rocketmq source has no option {name!r}; there are {known}")
    return TableOptions(path, wanted=Filter(**wanted), **made)


def stream_start(given: Mapping[str, str]) -> Start:
    """The options of a stream: ``startingOffset``, ``failOnDataLoss``, ``maxBytesPerTrigger``.

    Raises:
        BadOption: a value is no such thing.
    """
    values = {name.lower().replace("_", ""): text for name, text in given.items()}
    made = {key: _converted(name, values[name], convert) for name, (key, convert) in _STREAM.items() if name in values}
    return Start(**made)


def _converted(name: str, text: str, convert: Any) -> Any:
    try:
        return convert(text)
    except ValueError as error:
        raise BadOption(f"option {name} of the rocketmq source cannot be {text!r}: {error}") from None


def split_size(text: str) -> int:
    """Bytes of a size such as ``64MiB``, ``64m`` or ``67108864``.

    Raises:
        ValueError: it is none, or below 1 KiB.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("give bytes, or 64K, 128MiB, 1G")
    size = int(match[1]) << 10 * " kmgt".index(match[2].lower() or " ")
    if size < _SMALLEST_SPLIT:
        raise ValueError(f"give at least {_SMALLEST_SPLIT} bytes")
    return size


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("give true or false")
    return text.lower() == "true"


def _level(text: str) -> str:
    if text not in {"quick", "structure", "full"}:
        raise ValueError("give quick, structure or full")
    return text


def _offset(text: str) -> str:
    if text.lower() in {EARLIEST, LATEST}:
        return text.lower()
    return str(int(text))


_STREAM: dict[str, tuple[str, Any]] = {
    "startingoffset": ("offset", _offset),
    "failondataloss": ("fail_on_loss", _flag),
    "maxbytespertrigger": ("most_bytes", split_size),
}
_OPTIONS: dict[str, tuple[str, Any]] = {
    "columns": ("columns", _names),
    "body": ("body", BodyOption),
    "splitsize": ("split_size", split_size),
    "skip": ("skip", _flag),
    "level": ("level", _level),
    "commitlog": ("commit_log", _names),
    "brokerconf": ("broker_conf", str),
}
_FILTERS: dict[str, tuple[str, Any]] = {
    "topic": ("topics", _names),
    "queue": ("queue_id", int),
    "after": ("after", int),
    "before": ("before", int),
    "fromoffset": ("from_offset", int),
    "tooffset": ("to_offset", int),
}
