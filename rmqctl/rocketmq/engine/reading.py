"""Reading back what an engine holds: messages by queue offset, offsets by time, messages by key (spec 8).

The rules are those of `rmqctl.rocketmq.query`; everything that is committed is dispatched first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.explain import Trace
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.reput import Dispatching
from rmqctl.rocketmq.index import index_files
from rmqctl.rocketmq.query.key import KeyQuery, by_key_in
from rmqctl.rocketmq.query.offset import PULL_COUNT, get_message, units_from
from rmqctl.rocketmq.query.queue_view import QueueView, open_queue
from rmqctl.rocketmq.query.records import Record, RecordReader
from rmqctl.rocketmq.query.time import Boundary, offset_by_time
from rmqctl.rocketmq.query.units import Unit
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.store.files import COMMIT_LOG, StoreFiles
from rmqctl.rocketmq.store.geometry import IndexGeometry


@dataclass(slots=True)
class GetResult:
    """The answer to one pull.

    Attributes:
        status: the broker's word (GetMessageStatus, spec 8.1).
        next_offset: where a consumer goes on.
        messages: records, ascending by queue offset.
    """

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Record] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Placed:
    """A record with what its queue unit says of it."""

    queue_offset: int
    tags_code: int
    record: Record


class Reading:
    """Answers questions about a store whose engine is open; everything that is committed is dispatched before."""

    def __init__(self, root: Path, config: StoreConfig, dispatching: Dispatching) -> None:
        self.root, self.config, self.dispatching = root, config, dispatching

    def get(self, topic: str, queue_id: int, offset: int, count: int = PULL_COUNT, tag: str | None = None) -> GetResult:
        """Return messages of a queue from an offset on: what one call of getMessage returns."""
        self.dispatching.run()
        with self._view(topic, queue_id) as view:
            answer = get_message(view, offset, count, tag)
            reader = RecordReader(view.log, Trace(on=False))
            found = [reader.at(unit.physical_offset) for unit in answer.units]
            messages = [r for r in found if isinstance(r, Record)]
            return GetResult(answer.status, answer.next_offset, answer.min_offset, answer.max_offset, messages)

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the smallest and the next offset of a queue."""
        self.dispatching.run()
        with self._view(topic, queue_id) as view:
            return view.min_offset, view.max_offset

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Return the queue offset for a store time (getOffsetInQueueByTime)."""
        self.dispatching.run()
        with self._view(topic, queue_id) as view:
            return offset_by_time(view, time_ms, boundary)

    def query(self, query: KeyQuery) -> list[Record]:
        """Return the messages a client gets for a key, ascending."""
        self.dispatching.run()
        self.dispatching.write_index()
        store = self._store()
        files = index_files(store, IndexGeometry(self.config.index_slots, self.config.index_entries))
        try:
            with RecoveredStore(store, self.config.release) as started:
                return by_key_in(files, started.log, query, Trace(on=False)).messages
        finally:
            for file in files:
                file.close()

    def due(self, queue_id: int, offset: int, now_ms: int) -> list[Placed]:
        """Messages of a queue of the schedule topic that are due, from a queue offset on."""
        return self.placed(SCHEDULE_TOPIC, queue_id, offset, now_ms)

    def placed(self, topic: str, queue_id: int, offset: int, until: int | None = None) -> list[Placed]:
        """All messages of a queue from a queue offset on, or from its smallest.

        Args:
            until: end in front of the first unit whose tags code is larger.
        """
        with self._view(topic, queue_id) as view:
            reader = RecordReader(view.log, Trace(on=False))
            units: Iterator[Unit] = (unit for _, unit in units_from(view, max(offset, view.min_offset)))
            if until is not None:
                units = takewhile(lambda unit: (unit.tags_code or 0) <= until, units)
            found = ((unit, reader.at(unit.physical_offset)) for unit in units)
            return [Placed(u.queue_offset, u.tags_code or 0, r) for u, r in found if isinstance(r, Record)]

    def records(self, offsets: Sequence[int]) -> list[Record | None]:
        """Return the records at physical offsets; None where there is none."""
        with RecoveredStore(self._store(), self.config.release) as started:
            reader = RecordReader(started.log, Trace(on=False))
            found = [reader.at(offset) for offset in offsets]
            return [record if isinstance(record, Record) else None for record in found]

    def _store(self) -> StoreFiles:
        paths = self.config.commit_log_paths or (COMMIT_LOG,)
        store = StoreFiles(LocalTree(self.root), [(path, LocalTree(self.root / path)) for path in paths])
        store.is_running = True  # the engine's own abort file is no crash
        return store

    @contextmanager
    def _view(self, topic: str, queue_id: int) -> Iterator[QueueView]:
        with (
            RecoveredStore(self._store(), self.config.release) as started,
            open_queue(started, topic, queue_id) as view,
        ):
            state = self.dispatching.reput.simple((topic.encode("utf-8", "surrogateescape"), queue_id))
            if state is not None and not view.is_batch:
                view.min_offset = max(view.min_offset, state.first)
            yield view
