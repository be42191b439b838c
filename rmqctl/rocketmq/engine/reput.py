"""Dispatch while the store runs: from the log to queues and index, in log order, restartable anywhere (spec 3.3).

The log itself drives it: what lies between the last dispatched record and the committed end is found
by the scan and put into queues and index by the shared rules. Records that are there already are
left out by those rules, so starting too early does no harm.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from rmqctl.files.local import LocalFile
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.batch_units import BatchQueueState
from rmqctl.rocketmq.dispatch.ext_units import ExtState
from rmqctl.rocketmq.dispatch.queue_units import Appended, QueueState
from rmqctl.rocketmq.dispatch.request import DispatchRequest, request_of
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.engine.checkpoint import Checkpoint
from rmqctl.rocketmq.engine.commit_log import CommitLog
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.engine.index_writer import IndexWriter
from rmqctl.rocketmq.engine.opening import OpenState
from rmqctl.rocketmq.engine.queue_writer import UnitFiles
from rmqctl.rocketmq.scan import Extent, scan
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, QUEUES_EXT

RawKey = tuple[bytes, int]
LOGICS_OFFSET = Release(5, 5, 0)
"""Since when the checkpoint has ``logics_physical_offset``."""
_OPEN_QUEUES = 256


class Reput:
    """Dispatches records of a log.

    Attributes:
        position: physical offset up to which records are dispatched.
        queues, batch_queues: what is known of each queue, by topic (bytes) and id.
        last: start of the last dispatched record, bytes; its store time is ``store_timestamp``, ms.
    """

    def __init__(
        self,
        root: Path,
        log: CommitLog,
        config: StoreConfig,
        rules: DispatchRules,
        disk: Disk,
        index: IndexWriter | None,
        checkpoint: Checkpoint,
    ) -> None:
        self.root, self.log, self.config, self.rules, self.disk = root, log, config, rules, disk
        self.index, self.checkpoint = index, checkpoint
        self.position = log.files.min_offset
        self.queues: dict[RawKey, QueueState] = {}
        self.batch_queues: dict[RawKey, BatchQueueState] = {}
        self.last = self.store_timestamp = 0
        self._writers: OrderedDict[tuple[str, RawKey], UnitFiles] = OrderedDict()
        self._dirty: dict[tuple[str, RawKey], int] = {}
        self.ext_ends: dict[RawKey, int] = {}

    def take_over(self, state: OpenState) -> None:
        """Go on where a store was left."""
        self.queues, self.batch_queues = state.queues, state.batch_queues
        self.position = state.dispatched
        self.ext_ends = state.ext_ends

    def run(self, until: int | None = None) -> int:
        """Dispatch everything that is committed, or the records below ``until``; returns their number.

        Raises:
            IOFailure: a queue or index file cannot be written; what was dispatched is not dispatched again.
        """
        end, count = self.log.committed if until is None else min(until, self.log.committed), 0
        for record in self._records(end):
            request = request_of(record, self.rules)
            self.dispatch(request)
            self.position = request.physical_offset + request.size
            count += 1
        self.position = max(self.position, end)
        return count

    def _records(self, end: int) -> Iterator[bytes]:
        files = self.log.files
        while self.position < end:
            file = files.find(self.position)
            if file is None:
                return
            stop = min(end - file.base, files.file_size)
            source = LocalFile(file.path)
            extent = Extent(file.path.name, file.base, self.position - file.base, stop, chained=True)
            try:
                for block in scan(source, extent):
                    for row in range(len(block)):
                        yield block.raw(row)
            finally:
                source.close()
            self.position = max(self.position, file.base + stop)

    def dispatch(self, request: DispatchRequest) -> None:
        """Put one record into its queues and its keys into the index.

        Raises:
            IOFailure: a file cannot be written.
        """
        if request.is_queued:
            self._queue(request)
        if self.index is not None:
            self.index.put(
                request.key_hashes, request.physical_offset, request.store_timestamp, indexed=request.is_indexed
            )
        self.last, self.store_timestamp = request.physical_offset, request.store_timestamp

    def _queue(self, request: DispatchRequest) -> None:
        key = request.topic, request.queue_id
        if self.is_batch(request):
            state = self.batch_queues.setdefault(key, BatchQueueState())
            if found := state.put(request):
                self._write(BATCH_QUEUES, key, found)
            return
        code = request.tags_code
        if self.rules.extension:
            code = self._extend(key, request)
        self._unit(key, request, code, request.queue_offset)
        for extra in request.extra:
            self._unit((extra.topic, extra.queue_id), request, request.tags_code, extra.queue_offset)

    def is_batch(self, request: DispatchRequest) -> bool:
        """Whether a record goes to a batch queue."""
        return self.rules.is_batch_topic(request.topic) or (self.rules.batch_topics is None and request.is_inner_batch)

    def _unit(self, key: RawKey, request: DispatchRequest, code: int, queue_offset: int) -> None:
        state = self.queues.setdefault(key, QueueState(self.config.queue_file_size))
        if found := state.put(request.physical_offset, request.size, code, queue_offset):
            self._write(QUEUES, key, found)

    def _extend(self, key: RawKey, request: DispatchRequest) -> int:
        state = ExtState(self.config.queue_ext_file_size, self.ext_ends.get(key, 0))
        code, found = state.put(request.tags_code, request.store_timestamp)
        for piece in found:
            self._write(QUEUES_EXT, key, piece)
        self.ext_ends[key] = state.end
        return code

    def _write(self, kind: str, key: RawKey, found: Appended) -> None:
        name = kind, key
        self._files(name).write(found)
        self._dirty.setdefault(name, found.position)

    def _files(self, name: tuple[str, RawKey]) -> UnitFiles:
        kind, key = name
        files = self._writers.get(name)
        if files is None:
            files = self._writers[name] = UnitFiles(self.disk, self.directory(kind, key), self._size(kind))
            if len(self._writers) > _OPEN_QUEUES:
                self._writers.popitem(last=False)[1].close()
        else:
            self._writers.move_to_end(name)
        return files

    def _size(self, kind: str) -> int:
        sizes = {QUEUES: self.config.queue_file_size, BATCH_QUEUES: self.config.batch_queue_file_size}
        return sizes.get(kind, self.config.queue_ext_file_size)

    def directory(self, kind: str, key: RawKey) -> Path:
        """Where a queue's files lie."""
        return self.root / kind / key[0].decode("utf-8", "surrogateescape") / str(key[1])

    def flush(self) -> None:
        """The thorough flush: queues and index to the disk, and the checkpoint says so (spec 5).

        Raises:
            IOFailure: the disk fails.
        """
        last, store_timestamp = self.last, self.store_timestamp
        for name, begin in sorted(self._dirty.items()):
            self._files(name).sync(begin)
        self._dirty.clear()
        if self.index is not None:
            self.index.flush(sync=True)
        if store_timestamp:
            self.checkpoint.logics_msg_timestamp = store_timestamp
            if self.config.release >= LOGICS_OFFSET:
                self.checkpoint.logics_physical_offset = last

    def write_index(self) -> None:
        """Write what of the index is only in memory.

        Raises:
            IOFailure: the file cannot be written.
        """
        if self.index is not None:
            self.index.flush()

    def close(self) -> None:
        """Close all files; unflushed ones stay in the system's hands."""
        for files in self._writers.values():
            files.close()
        self._writers.clear()
        if self.index is not None:
            self.index.close()
