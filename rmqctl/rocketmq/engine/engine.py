"""The store engine: opens a store, takes messages, hands them out again, and closes it as a broker does.

One writer process at a time, held by the broker's own lock; any number of threads.

The dispatching half of an engine: when records get into queues and index, and who does it.

The topics half of an engine: which a broker will know, made by name or on their first message.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from rmqctl.errors import IOFailure, Refused, RmqctlError
from rmqctl.files.writing import Disk
from rmqctl.repair.execute import Applied
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.engine.commit_log import CommitLog, QueueOffsets
from rmqctl.rocketmq.engine.config import StoreConfig, dispatch_rules
from rmqctl.rocketmq.engine.flush import FLUSH, GroupCommit, Pauses, Service, most_undispatched, services_of
from rmqctl.rocketmq.engine.housekeeping import HOUR_MS, Expired, Housekeeping, expire_index, expire_log, expire_queues
from rmqctl.rocketmq.engine.mapped_files import MappedFiles
from rmqctl.rocketmq.engine.message import Message, PutResult, check_topic
from rmqctl.rocketmq.engine.opening import (
    OpenState,
    StoreLock,
    check_kind,
    existing,
    make_database_directory,
    process_id_of,
    recover_before_open,
    remove_abort,
    settings_of,
    settled,
    write_abort,
)
from rmqctl.rocketmq.engine.putting import Puts
from rmqctl.rocketmq.engine.reading import Reading, Reads
from rmqctl.rocketmq.engine.reput import LOGICS_OFFSET, Checkpoint, IndexWriter, Reput
from rmqctl.rocketmq.engine.routing import system_queues
from rmqctl.rocketmq.engine.system_topics import Half, SystemTopics
from rmqctl.rocketmq.engine.topic_table import BATCH_ATTRIBUTES, TopicTable
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.store.files import COMMIT_LOG, INDEX, RocketMQStore
from rmqctl.rocketmq.store.geometry import IndexGeometry

UNDISPATCHED = 16 << 10
"""Bytes of log that dispatch has not come to when an engine crashes on purpose."""


class Dispatches(ABC):
    """Runs reput, one thread at a time; an engine has the attributes."""

    log: CommitLog
    reput: Reput
    reput_lock: threading.Lock
    most_undispatched: int
    _services: list[Service]

    def keep_up(self) -> None:
        """Dispatch all but the last records if too many bytes of log wait for it (`most_undispatched`).

        Where half as many wait in memory, their writers write them themselves: a disk that stands still would else
        fill the memory.

        Raises:
            IOFailure: the log, or a queue or index file, cannot be written.
        """
        most, log = self.most_undispatched, self.log
        if log.wrote - log.committed > most >> 1:
            log.commit()
        if log.committed - self.reput.position > most:
            with self.reput_lock:
                self.reput.run(log.committed - min(3 * UNDISPATCHED, most >> 1))

    @abstractmethod
    def check_not_closed(self) -> None:
        """Refuse what comes behind the end: the files may be somebody else's by then."""

    def dispatch(self) -> int:
        """Put everything that is committed into queues and index; returns the number of records.

        Raises:
            IOFailure: a queue or index file cannot be written; the log is not touched by that.
            Refused: the engine is closed.
        """
        self.check_not_closed()
        with self.reput_lock:
            return self.reput.run() if self.log.committed > self.reput.position else 0

    @contextmanager
    def feeding(self) -> Iterator[Callable[[LogBlock], None]]:
        """While a producer has what it appends in memory: gives what dispatches such records, in log order.

        It raises IOFailure where a queue or index file cannot be written.
        """

        def dispatch(found: LogBlock) -> None:
            if self._services:  # else dispatch waits until it is asked for
                with self.reput_lock:
                    self.reput.add(found)

        self.reput.is_fed = True
        try:
            yield dispatch
        finally:
            self.reput.is_fed = False

    def write_index(self) -> None:
        """Write what of the index is only in memory, so that it can be asked.

        Raises:
            IOFailure: the file cannot be written.
            Refused: the engine is closed.
        """
        self.check_not_closed()
        with self.reput_lock:
            self.reput.write_index()


# --- the topics half of an engine -------------------------------------------------------------------


class KnownTopics:
    """Keeps topics.json and the rules that depend on it; an engine has the attributes."""

    root: Path
    config: StoreConfig
    disk: Disk
    topics: TopicTable
    rules: DispatchRules
    reput: Reput
    topics_lock: threading.Lock
    reput_lock: threading.Lock

    def know(self, topic: str, queue_id: int) -> None:
        """Make the topic known before its first message, as a broker that creates topics by itself."""
        if queue_id >= (self.topics.queues(topic) or 0) or self.topics.changed:
            with self.topics_lock:
                usual = system_queues(topic, self.config) or self.config.default_queues
                self.topics.ensure(topic, max(usual, queue_id + 1))
                self.save_topics()

    def save_topics(self) -> None:
        """Write topics.json if topics were added.

        Raises:
            IOFailure: it cannot be written.
        """
        self.topics.save(self.root, self.disk, self.config.clock.now())

    def make_topic(self, topic: str, queues: int, *, batch: bool = False) -> None:
        """Make a topic known, with so many queues at least.

        Args:
            batch: with batch queues (queue.type=BatchCQ); 5.0.0 and later.

        Raises:
            MessageRefused: no name for a topic.
            Refused: the release has no batch queues.
            IOFailure: topics.json cannot be written.
        """
        self.make_topics([topic], queues, batch=batch)

    def make_topics(self, topics: Iterable[str], queues: int, *, batch: bool = False) -> None:
        """Make several topics known together, as :meth:`make_topic`."""
        names = list(topics)
        for topic in names:
            check_topic(topic, self.config.release)
        if batch and not self.config.is_5:
            raise Refused(f"brokers of {self.config.release} have no batch queues; use --as-release 5.0.0 or later")
        with self.topics_lock:
            for topic in names:
                self.topics.ensure(topic, queues, BATCH_ATTRIBUTES if batch else None)
            self.rules = dispatch_rules(self.config, self.topics, self.rules)
            with self.reput_lock:
                self.reput.use_rules(self.rules)
            self.save_topics()


# --- the store engine -------------------------------------------------------------------------------


_REPUT_INTERVAL_MS, _CHECKPOINT_INTERVAL_MS = 20, 1000


class StoreEngine(KnownTopics, Dispatches, Reads, Puts):
    """A store that is open for writing.

    Attributes:
        root: its directory.
        config: the settings in force; sizes are those of the files.
        log: the commit log; its ``wrote``, ``committed`` and ``flushed`` are the flush positions, bytes.
        topics: the topics a broker will know.
        housekeeping: its schedule, if the configuration has one; its turns can be taken by hand.
        recovered: what had to be recovered first, with the journal to take it back; None after a clean stop.
    """

    def __init__(
        self, root: Path, config: StoreConfig, store: RocketMQStore | None, disk: Disk, lock: StoreLock
    ) -> None:
        """Use :meth:`open`."""
        self.root, self.config, self.disk, self._lock = root, config, disk, lock
        self.recovered: Applied | None = None
        opened = recover_before_open(store, config) if store is not None else None
        if opened is not None:
            store, self.recovered = opened.store, opened.applied
        lock.fill()
        self._take_over(store, opened.state if opened is not None else None)
        self._save_checkpoint()
        make_database_directory(root, disk, config.release)
        write_abort(root, disk, process_id_of(config))
        self._closed = False
        self._start()

    @classmethod
    def open(cls, path: str | Path, config: StoreConfig | None = None, *, disk: Disk | None = None) -> Self:
        """Open the store at a path, or make one where there is none.

        Args:
            config: default: the release and the sizes that the store shows.
            disk: where to write; for tests.

        Raises:
            NotAStore: something else lies there.
            StoreInUse: a broker or another engine has it open.
            Refused: the sizes asked for are not those of its files, or its queues are not in files.
            TooDamaged: it needs more than the recovery of a broker.
            IOFailure: the system refuses.
        """
        root, disk = Path(path), disk or Disk()
        config = config.valid() if config is not None else None
        try:
            before = existing(root, config or StoreConfig())  # nothing is made where something else lies
            return cls._opened(Path(before.root) if before is not None else root, config, disk)
        except OSError as error:
            raise IOFailure.of(error) from error

    @classmethod
    def _opened(cls, root: Path, config: StoreConfig | None, disk: Disk) -> Self:
        """Lock the store, and only then look at it: what was seen before may have grown since."""
        lock = StoreLock(root, disk)
        try:
            store = existing(root, config or StoreConfig())
            if store is not None:
                check_kind(store)
                config = settled(store, config)
                store.settings = settings_of(config)
            return cls(root, config or StoreConfig(), store, disk, lock)
        except BaseException:
            lock.give_up()
            raise

    def _take_over(self, store: RocketMQStore | None, state: OpenState | None) -> None:
        config, disk = self.config, self.disk
        self.topics = TopicTable.of(store, config.release)
        self.rules: DispatchRules = dispatch_rules(config, self.topics, DispatchRules.of(store) if store else None)
        self.checkpoint = Checkpoint.load(self.root)
        directories = [self.root / p for p in config.commit_log_paths or (COMMIT_LOG,)]
        files = MappedFiles.load(
            disk, directories, config.commit_log_file_size, ahead=True, full=config.disk_clean_forcibly
        )
        self.log = CommitLog(
            files,
            QueueOffsets(state.counters() if state else None),
            state.log_end.offset if state else 0,
            pooled=config.waits_in_memory,
        )
        index = self._index() if config.index else None
        self.system = SystemTopics(self.root, config, disk, store)
        self.reput = Reput(self.root, self.log, config, self.rules, disk, index, self.checkpoint)
        if state is not None:
            self.log.store_timestamp = state.log_end.store_timestamp or 0
            self.reput.take_over(state)

    def _index(self) -> IndexWriter:
        geometry = IndexGeometry(self.config.index_slots, self.config.index_entries)
        counts = self.rules.counts_slots
        return IndexWriter(self.root / INDEX, geometry, self.disk, self.checkpoint, counts_slots=counts)

    def _start(self) -> None:
        self.group_commit = GroupCommit(self.log, self.config.sync_flush_timeout_ms)
        self.most_undispatched = most_undispatched(self.log)
        self.reading = Reading(self.root, self.config)
        self.reput_lock, self.topics_lock = threading.Lock(), threading.Lock()
        self._services: list[Service] = []
        self.housekeeping = Housekeeping(self)
        if self.config.services:
            self._services = services_of(self.log, self.config, self.checkpoint.note_flushed)
            self._services.append(Service("reput", _REPUT_INTERVAL_MS, Pauses(self.log, self.reput, self.dispatch)))
            if self.config.is_5:
                self._services.append(Service("checkpoint", _CHECKPOINT_INTERVAL_MS, self._save_checkpoint))
        if self.config.housekeeping:
            self._services += self.housekeeping.services()

    def prepare(self, message: Message, group: str) -> Half:
        """Store a transactional message as a half message, to be ended by :meth:`end`.

        Args:
            group: the producer's group.

        Raises:
            MessageRefused: the broker would not store it.
            IOFailure: the system refuses.
        """
        return self.system.transactions.prepare(self, message, group)

    def end(self, half: Half, *, commit: bool) -> PutResult | None:
        """Commit a half message, which gives its record, or roll it back.

        Raises:
            IOFailure: the system refuses.
        """
        return self.system.transactions.end(self, half, commit=commit)

    def deliver_due(self) -> list[PutResult]:
        """Deliver delayed and timer messages whose time has come, by the engine's clock.

        Raises:
            IOFailure: the system refuses.
        """
        return self.system.deliver(self)

    def expire(self, now_ms: int | None = None, *, at_once: bool = False) -> Expired:
        """Delete log files older than the reserved time, and the queue and index files that point only to them.

        Args:
            now_ms: default: the engine's clock; the age of a file is that of its last change.
            at_once: delete log files whatever their age, ten at most, as a broker does whose disk is nearly full.

        Raises:
            IOFailure: a file cannot be deleted, or the log not be flushed, which comes first.
        """
        now = self.config.clock.now() if now_ms is None else now_ms
        self.dispatch()
        self.log.flush()
        with self.reput_lock, self.log.locked():
            files = self.log.files
            log = expire_log(
                files,
                min(self.log.flushed, self.reput.position),
                now,
                self.config.reserved_hours * HOUR_MS,
                at_once=at_once,
            )
            queues = expire_queues(self.reput, files.min_offset)
            index = self.reput.index
            entries = expire_index(index, files.min_offset, self.disk) if index is not None else []
        timer = self.system.expire(files.min_offset)
        return Expired(tuple(log), tuple(queues), tuple(entries), tuple(timer), files.min_offset)

    def flush(self) -> None:
        """Make the log, then queues and index survive a power failure, and say so in the checkpoint.

        Raises:
            IOFailure: the system refuses.
        """
        self.check_open()
        self._flush_log()
        self.dispatch()
        with self.reput_lock:
            self.reput.flush()
        self._save_checkpoint()

    def flush_soon(self, most: int) -> None:
        """Have the flush service go to work now, if there is one, when more than ``most`` bytes wait for it."""
        if self.log.committed - self.log.flushed > most:
            for service in self._services:
                if service.name == FLUSH:
                    service.wake()

    def _flush_log(self) -> None:
        self.log.commit()
        store_timestamp = self.log.store_timestamp
        self.log.flush()
        self.checkpoint.note_flushed(store_timestamp)

    def _save_checkpoint(self) -> None:
        self.checkpoint.save(self.root, self.disk)

    def close(self) -> None:
        """End as a broker that is told to stop: all flushed, the file made ahead deleted, no abort file.

        Where something cannot be written the abort file stays, and the next open recovers.

        Raises:
            IOFailure: the system refuses; the lock is released all the same.
        """
        if self._closed:
            return
        try:
            self._stop_services()
            self.system.transactions.note(self)
            self.log.seal(self._ended())
            self.log.mend_tail()
            self.flush()
            self.system.finish(self)
            self.log.files.remove_from(self.log.wrote + (self.log.wrote % self.log.files.file_size > 0))
            self.topics.save(self.root, self.disk, self.config.clock.now())
            remove_abort(self.root, self.disk)
        finally:
            self._release()

    def abandon(self) -> None:
        """End as a killed process: nothing is finished, the abort file stays."""
        if not self._closed:
            self._stop_services()
            self._release()

    def crash(self) -> None:
        """End as a broker does that is killed while it writes.

        The log is complete, as the page cache keeps it; the last records have no queue units and index entries
        yet, the checkpoint is behind, the file made ahead and the abort file are there.
        """
        if not self._closed:
            try:
                self._stop_services()
                self._crash()
            finally:
                self.abandon()

    def _crash(self) -> None:
        self.log.commit()
        end = self.log.committed
        left = min(UNDISPATCHED, (end - self.log.files.min_offset) // 3)
        with self.reput_lock:
            self.reput.run(end - 2 * left)
            if reached := self.reput.store_timestamp:  # else it says what it said when the store was opened
                self.checkpoint.physic_msg_timestamp = reached
                if self.config.release < LOGICS_OFFSET:  # later ones set it only once a minute
                    self.checkpoint.logics_msg_timestamp = reached
            self._save_checkpoint()
            self.reput.run(end - left)
            self.reput.write_index()

    def _stop_services(self) -> None:
        for service in reversed(self._services):
            service.stop()
        self._services.clear()

    def _release(self) -> None:
        self._closed = True
        self.log.seal(self._ended())
        self.group_commit.close()
        self.log.close()
        with self.reput_lock:
            self.reput.close()
        self.system.close()
        self._lock.release()

    def check_open(self) -> None:
        """
        Raises:
            Refused: the engine is closed.
            IOFailure: a service could not write, or queues or index could not be written.
        """
        if self._closed:
            raise self._ended()
        if self.reput.failure is not None:  # a broker takes no more, either; its next start looks at few log files
            raise self.reput.failure.with_traceback(None)
        for service in self._services:
            if service.error is not None:
                raise service.error.with_traceback(None)

    def check_not_closed(self) -> None:
        """
        Raises:
            Refused: the engine is closed.
        """
        if self._closed:
            raise self._ended()

    def _ended(self) -> Refused:
        return Refused(f"the engine on {self.root} is closed; open the store again")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except RmqctlError:
            if error is None:
                raise
