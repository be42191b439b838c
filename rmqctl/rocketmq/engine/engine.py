"""The store engine: opens a store, takes messages, hands them out again, and closes it as a broker does.

One writer process at a time, held by the broker's own lock; any number of threads.

An engine is put together from parts that own their state: the commit log, dispatch (`reput.py`), topics and writers
(`putting.py`), readers (`reading.py`), system topics, group commit and housekeeping.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
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
from rmqctl.rocketmq.engine.message import Message, PutResult
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
from rmqctl.rocketmq.engine.putting import KnownTopics, Putting
from rmqctl.rocketmq.engine.reading import GetResult, Reading
from rmqctl.rocketmq.engine.reput import LOGICS_OFFSET, UNDISPATCHED, Checkpoint, Dispatching, IndexWriter, Reput
from rmqctl.rocketmq.engine.system_topics import Half, SystemTopics
from rmqctl.rocketmq.engine.topic_table import TopicTable
from rmqctl.rocketmq.query.key import KeyQuery
from rmqctl.rocketmq.query.offset import PULL_COUNT
from rmqctl.rocketmq.query.records import Record
from rmqctl.rocketmq.query.time import Boundary
from rmqctl.rocketmq.store.files import COMMIT_LOG, INDEX, StoreFiles
from rmqctl.rocketmq.store.geometry import IndexGeometry

# --- the store engine -------------------------------------------------------------------------------


_REPUT_INTERVAL_MS, _CHECKPOINT_INTERVAL_MS = 20, 1000


class StoreEngine:
    """A store that is open for writing.

    Attributes:
        root: its directory.
        config: the settings in force; sizes are those of the files.
        log: the commit log; its ``wrote``, ``committed`` and ``flushed`` are the flush positions, bytes.
        topics: the topics a broker will know.
        reput, dispatching: what puts records into queues and index, and when that is done.
        putting, reading: writers and readers.
        housekeeping: its schedule, if the configuration has one; its turns can be taken by hand.
        recovered: what had to be recovered first, with the journal to take it back; None after a clean stop.
    """

    def __init__(self, root: Path, config: StoreConfig, store: StoreFiles | None, disk: Disk, lock: StoreLock) -> None:
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

    def _take_over(self, store: StoreFiles | None, state: OpenState | None) -> None:
        config, disk = self.config, self.disk
        self.topics = TopicTable.of(store, config.release)
        rules = dispatch_rules(config, self.topics, DispatchRules.of(store) if store else None)
        self.checkpoint = Checkpoint.load(self.root)
        directories = [self.root / p for p in config.commit_log_paths or (COMMIT_LOG,)]
        files = MappedFiles.load(
            disk, directories, config.commit_log_file_size, ahead=True, full=config.disk_clean_forcibly
        )
        self.log = CommitLog(
            files,
            QueueOffsets(state.counters() if state else None),
            state.log_end.offset if state else config.log_start,
            pooled=config.waits_in_memory,
        )
        index = self._index(rules) if config.index else None
        self.system = SystemTopics(self.root, config, disk, store)
        self.reput = Reput(self.root, self.log, config, rules, disk, index, self.checkpoint)
        self.dispatching = Dispatching(self.log, self.reput, most_undispatched(self.log), self.check_not_closed)
        self.known = KnownTopics(self.root, config, disk, self.topics, rules, self.dispatching)
        if state is not None:
            self.log.store_timestamp = state.log_end.store_timestamp or 0
            self.reput.take_over(state)

    def _index(self, rules: DispatchRules) -> IndexWriter:
        geometry = IndexGeometry(self.config.index_slots, self.config.index_entries)
        return IndexWriter(self.root / INDEX, geometry, self.disk, self.checkpoint, counts_slots=rules.counts_slots)

    def _start(self) -> None:
        self.group_commit = GroupCommit(self.log, self.config.sync_flush_timeout_ms)
        self.reading = Reading(self.root, self.config, self.dispatching)
        self._services: list[Service] = []
        self.housekeeping = Housekeeping(self)
        self.putting = Putting(
            self.config, self.log, self.known, self.dispatching, self.housekeeping, self.group_commit, self.check_open
        )
        if self.config.services:
            self._services = services_of(self.log, self.config, self.checkpoint.note_flushed)
            self._services.append(Service("reput", _REPUT_INTERVAL_MS, Pauses(self.log, self.reput, self.dispatch)))
            if self.config.is_5:
                self._services.append(Service("checkpoint", _CHECKPOINT_INTERVAL_MS, self._save_checkpoint))
        if self.config.housekeeping:
            self._services += self.housekeeping.services()
        self.dispatching.is_served = bool(self._services)

    # --- writing, by the part that does it --------------------------------------------------------

    def put(self, message: Message) -> PutResult:
        """Store a message; see :meth:`Putting.put`."""
        return self.putting.put(message)

    def put_async(self, message: Message) -> Future[PutResult]:
        """Append a message now, and answer it later; see :meth:`Putting.put_async`."""
        return self.putting.put_async(message)

    def put_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """Store messages of one queue together; see :meth:`Putting.put_batch`."""
        return self.putting.put_batch(messages)

    def put_batch_async(self, messages: Sequence[Message]) -> Future[list[PutResult]]:
        """Append messages of one queue together, and answer them later; see :meth:`Putting.put_batch_async`."""
        return self.putting.put_batch_async(messages)

    def make_topic(self, topic: str, queues: int, *, batch: bool = False) -> None:
        """Make a topic known; see :meth:`KnownTopics.make`."""
        self.known.make([topic], queues, batch=batch)

    def dispatch(self) -> int:
        """Put everything that is committed into queues and index; see :meth:`Dispatching.run`."""
        return self.dispatching.run()

    # --- reading, once everything is dispatched ---------------------------------------------------

    def get(self, topic: str, queue_id: int, offset: int, count: int = PULL_COUNT, tag: str | None = None) -> GetResult:
        """Return messages of a queue from an offset on; see :meth:`Reading.get`."""
        return self.reading.get(topic, queue_id, offset, count, tag)

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the smallest and the next offset of a queue; see :meth:`Reading.offsets`."""
        return self.reading.offsets(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Return the queue offset of a store time; see :meth:`Reading.offset_by_time`."""
        return self.reading.offset_by_time(topic, queue_id, time_ms, boundary)

    def query(self, query: KeyQuery) -> list[Record]:
        """Return messages by key; see :meth:`Reading.query`."""
        return self.reading.query(query)

    # --- transactions, delivery, expiry -----------------------------------------------------------

    def prepare(self, message: Message, group: str) -> Half:
        """Store a transactional message as a half message, to be ended by :meth:`end`.

        Args:
            group: the producer's group.

        Raises:
            MessageRefused: the broker would not store it.
        """
        return self.system.transactions.prepare(self, message, group)

    def end(self, half: Half, *, commit: bool) -> PutResult | None:
        """Commit a half message, which gives its record, or roll it back."""
        return self.system.transactions.end(self, half, commit=commit)

    def deliver_due(self) -> list[PutResult]:
        """Deliver delayed and timer messages whose time has come, by the engine's clock."""
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
        with self.dispatching.lock, self.log.locked():
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
        """Make the log, then queues and index survive a power failure, and say so in the checkpoint."""
        self.check_open()
        self._flush_log()
        self.dispatch()
        with self.dispatching.lock:
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
        """End as a broker that is asked to stop: all flushed, the file made ahead deleted, no abort file.

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
        yet, the checkpoint is older than the log, the file made ahead and the abort file are there. All that is on
        the disk, so that a power cut makes it no worse.
        """
        if not self._closed:
            try:
                self._stop_services()
                self._crash()
                self.disk.sync_all(self.root, *self.log.files.directories)
            finally:
                self.abandon()

    def _crash(self) -> None:
        self.log.commit()
        end = self.log.committed
        left = min(UNDISPATCHED, (end - self.log.files.min_offset) // 3)
        with self.dispatching.lock:
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
        self.dispatching.is_served = False

    def _release(self) -> None:
        self._closed = True
        self.log.seal(self._ended())
        self.group_commit.close()
        self.log.close()
        with self.dispatching.lock:
            self.reput.close()
        self.system.close()
        self._lock.release()

    def check_open(self) -> None:
        """Refuse to go on with an engine that is closed or has failed.

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
        """Refuse to go on with an engine that is closed.

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
