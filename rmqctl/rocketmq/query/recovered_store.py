"""A store as a broker of a release has it once it has started; opened once, asked for many queues."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Self

from rmqctl.release import Release
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.store.files import RocketMQStore

if TYPE_CHECKING:  # NumPy and the database library are imported only where they are needed
    from rmqctl.rocketmq.queues.rocksdb import QueueDatabase
    from rmqctl.rocketmq.recovery.outcome import Recovery


class StartedStore:
    """Use as a context manager.

    Attributes:
        release: whose rules hold.
        as_found: take the queues as they lie on disk, whatever a start would make of them.
        log: opened where it is read.
    """

    def __init__(self, store: RocketMQStore, release: Release, *, as_found: bool = False) -> None:
        self.store, self.release, self.as_found = store, release, as_found
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
        """
        from rmqctl.rocketmq.queues.rocksdb import open_queues

        return self._open.enter_context(open_queues(self.store))

    @cached_property
    def replays(self) -> bool:
        """Whether queues are those after the start of a broker; otherwise they are taken as they lie."""
        from rmqctl.rocketmq.recovery.queue_ends import can_replay

        return not self.as_found and can_replay(self.store)

    @cached_property
    def recovery(self) -> Recovery:
        """What a start of a broker of the release makes of the store.

        Raises:
            MissingExtra: the queues are in RocksDB, and its package is not installed.
        """
        from rmqctl.rocketmq.recovery.replay import recover

        return recover(self.store, self.release)

    def recovered_queues(self, topic: str) -> list[int]:
        """Queues of a topic after such a start, those without a message left out.

        Raises:
            MissingExtra: the queues are in RocksDB, and its package is not installed.
        """
        return [image.key[2] for image in self.recovery.images if image.key[1] == topic and image.max_offset]
