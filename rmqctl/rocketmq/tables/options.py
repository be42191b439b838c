"""What a reader of a table may ask for: the options of the data source, checked, and what conditions spare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.store.unreadable import forgiving
from rmqctl.rocketmq.tables.columns import BodyOption
from rmqctl.tables import flag, level, names, options_of, split_size

_FILTER_NAMES = ("topics", "queue_id", "after", "before", "from_offset", "to_offset")


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
        level: of the checks that ``findings`` runs.
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
        """Return the store; what cannot be read in it counts as empty, so that no task dies of it.

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
