"""A store as a broker of a release has it once it has started; opened once, asked for many queues."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Self

from rmqctl.release import Release
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.store import RocketMQStore

if TYPE_CHECKING:  # NumPy and the database library are imported only where they are needed
    from rmqctl.rocketmq.rocksdb_queues import QueueDatabase
    from rmqctl.rocketmq.undispatched import TailUnit

Key = tuple[str, int]


class StartedStore:
    """Use as a context manager.

    Attributes:
        release: whose rules hold.
        topics: the topics that are asked for; None for any.
        log: opened where it is read.
    """

    def __init__(self, store: RocketMQStore, release: Release, topics: Collection[str] | None = None) -> None:
        self.store, self.release, self.topics = store, release, topics
        self.log = LogReader(store.log_files)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the log and the database."""
        self._open.close()
        self.log.close()

    @cached_property
    def database(self) -> QueueDatabase:
        """The RocksDB queues.

        Raises:
            MissingExtra: the package rocksdict is not installed.
            Refused: the store is remote.
            IOFailure: the database cannot be opened.
        """
        from rmqctl.rocketmq.rocksdb_queues import open_queues

        return self._open.enter_context(open_queues(self.store))

    @property
    def log_end(self) -> int:
        """Where a broker would write the next record."""
        return self._coming[0]

    def coming_units(self, topic: str, queue_id: int) -> list[TailUnit]:
        """The units that the start of a broker would add to a queue (spec 6.7).

        Raises:
            OSError: a file cannot be read.
        """
        return self._coming[1].get((topic, queue_id), [])

    def coming_queues(self, topic: str) -> list[int]:
        """Queues of a topic that the start of a broker would add units to.

        Raises:
            OSError: a file cannot be read.
        """
        return [queue for name, queue in self._coming[1] if name == topic]

    @cached_property
    def _coming(self) -> tuple[int, dict[Key, list[TailUnit]]]:
        from rmqctl.rocketmq.topics import coming_units

        end, units = coming_units(self.store, self.release, self.log)
        found: dict[Key, list[TailUnit]] = {}
        for unit in units:
            if self.topics is None or unit.key[0] in self.topics:
                found.setdefault(unit.key, []).append(unit)
        return end, found
