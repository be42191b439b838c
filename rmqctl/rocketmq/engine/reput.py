"""Dispatch while the store runs: from the log to queues and index, in log order, restartable anywhere (spec 3.3).

The log itself drives it: what lies between the last dispatched record and the committed end is found
by the scan and put into queues and index by the shared rules. Records that are there already are
left out by those rules, so starting too early does no harm.

The files of one queue as dispatch writes them: units, units of the extension, batch units (spec 3). Entries of index
files are written as they are made (spec 4.3, 4.4; IndexService, IndexFile). Header and slots stay in memory until
:meth:`IndexWriter.flush`, which writes the header in front of the slots, and once soon after a file was begun.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from formats.layout import plan_of
from formats.rocketmq.checkpoint import FILE_SIZE
from formats.rocketmq.checkpoint import Checkpoint as CheckpointLayout
from rmqctl.errors import IOFailure
from rmqctl.files.local import LocalFile
from rmqctl.files.writing import Disk
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.dispatched import Dispatcher, IndexColumns, Wanted
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.dispatch.series import Entries, IndexSeries, QueueSeries, QueueSizes, Slots
from rmqctl.rocketmq.dispatch.units import Appended, ExtState, QueueState
from rmqctl.rocketmq.engine.commit_log import CommitLog
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.mapped_files import MappedFiles
from rmqctl.rocketmq.engine.opening import OpenState, RawKey
from rmqctl.rocketmq.index import HEADER_SIZE, IndexHead, next_name
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES
from rmqctl.rocketmq.store.geometry import BATCH_UNIT_SIZE, QUEUE_UNIT_SIZE, SLOT_SIZE, IndexGeometry

UNIT_SIZES = {QUEUES: QUEUE_UNIT_SIZE, BATCH_QUEUES: BATCH_UNIT_SIZE}


class UnitFiles:
    """The file sequence of one queue; few descriptors are open at a time."""

    def __init__(
        self, disk: Disk, directory: Path, file_size: int, unit_size: int = 0, *, syncs_full: bool = False
    ) -> None:
        """
        Args:
            unit_size: of units that have one size; 0 otherwise.
            syncs_full: a file that gets full outlasts a power cut from then on: a start reads only the last three.
        """
        self._unit_size, self._syncs_full = unit_size, syncs_full
        self.files = MappedFiles.load(disk, [directory], file_size)

    def write(self, found: Appended) -> None:
        """Write units where dispatch wants them, over as many files as that takes.

        Raises:
            IOFailure: a file cannot be made or written; whole units are in the files.
        """
        at, data = found.position, memoryview(found.data)
        while data:
            room = self.files.file_size - at % self.files.file_size
            try:
                self.files.write(at, data[:room])
            except IOFailure:
                self._mend(at, data[:room])
                raise
            if self._syncs_full and len(data) >= room:
                self.files.sync(at, at + room)
            at, data = at + len(data[:room]), data[room:]
            if data:
                self.files.close_files(at)

    def _mend(self, at: int, data: memoryview) -> None:
        """Take back the part of a unit that a failed write may have left: a start would take it for a whole one."""
        if not self._unit_size or self.files.find(at) is None:
            return
        with suppress(IOFailure):
            found = self.files.read(at, len(data))
            same = next((n for n, (a, b) in enumerate(zip(data, found, strict=False)) if a != b), len(data))
            first = same - same % self._unit_size
            if any(rest := found[first : first + self._unit_size]) and same < len(data):
                self.files.write(at + first, bytes(len(rest)))

    def sync(self, begin: int) -> None:
        """Make what was written from a position on survive a power failure."""
        self.files.sync(begin, 1 << 62)

    def close(self) -> None:
        """Close the files."""
        self.files.close()


# --- dispatch while the store runs ------------------------------------------------------------------


LOGICS_OFFSET = Release(5, 5, 0)
"""Since when the checkpoint has ``logics_physical_offset``."""
_OPEN_QUEUES = 256
_ROUND = 32 << 20
"""Bytes of log whose units are written together."""
Name = tuple[str, RawKey]


class Reput:
    """Dispatches the records of a log; the sink of its `QueueSeries`.

    Attributes:
        position: physical offset up to which records are dispatched.
        queues: the state of each queue.
        is_fed: a producer hands over what it writes (`add`), so that nobody else needs to read it.
        failure: what ended dispatch until the next open; None while it goes on.
        last, store_timestamp: start of the last dispatched record in bytes, and its store time in ms.
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
        self.root, self.log, self.config, self.disk = root, log, config, disk
        self.index, self.checkpoint = index, checkpoint
        self.position = log.wrote
        self.last = self.store_timestamp = 0
        self.use_rules(rules)
        self.queues = QueueSeries(QueueSizes(config.queue_file_size, config.queue_ext_file_size), self)
        self._writers: OrderedDict[Name, UnitFiles] = OrderedDict()
        self._dirty: dict[Name, int] = {}
        self.failure: IOFailure | None = None
        self.is_fed = False
        self._round = min(_ROUND, 2 * log.files.file_size) // 2

    def use_rules(self, rules: DispatchRules) -> None:
        """Dispatch by these rules from now on; what `add` has collected by others is read again."""
        self._ahead = 0
        self._dispatcher = Dispatcher(rules, Wanted(index=self.index is not None, stated=True))

    def take_over(self, state: OpenState) -> None:
        """Go on where a store was left."""
        self.queues.simple.update(state.queues)
        self.queues.batch.update(state.batch_queues)
        sizes = self.queues.sizes
        self.queues.extension.update({key: ExtState(sizes.extension, end) for key, end in state.ext_ends.items()})
        self.position = state.dispatched

    def run(self, until: int | None = None) -> int:
        """Dispatch everything that is committed, or the records below ``until``; returns their number.

        Raises:
            IOFailure: a queue or index file cannot be written. Dispatch then stays where it is, since its
                memory is ahead of the files; the next open starts it again.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        end = self.log.committed if until is None else min(until, self.log.committed)
        count = self._settle(end)
        while self.position < end:
            reached = self._collect(min(end, self.position + _ROUND))
            count += self._apply()
            self.position = reached
        return count

    def add(self, found: LogBlock) -> None:
        """Dispatch records that the caller has in memory, which spares reading them; they lie in the log already."""
        first = int(found.block.physical[0])
        if max(self.position, self._ahead) < first:
            self.run(first)
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if max(self.position, self._ahead) == first:
            self._ahead = self._take(found)
        if self._ahead - self.position >= self._round:
            self._settle(self._ahead)

    def _settle(self, end: int) -> int:
        """Put what `add` has collected into queues and index, or forget it if it goes beyond ``end``."""
        ahead, self._ahead, count = self._ahead, 0, 0
        if ahead > self.position and ahead <= end:
            count = self._apply()
            self.position = ahead
        elif ahead:
            self._dispatcher.take()
        return count

    def _collect(self, end: int) -> int:
        """Give the dispatcher the records that start below ``end``; returns where the next one starts."""
        reached = self.position
        for found in self._blocks(reached, end):
            reached = max(reached, self._take(found))
        return reached if reached > self.position else end

    def _take(self, found: LogBlock) -> int:
        """Give the dispatcher one block; returns where the next record starts, 0 where the block does not say."""
        self._dispatcher.add(found)
        block, reached = found.block, 0
        if len(block):
            reached = int(block.physical[-1] + block.total_size[-1])
        return block.base + block.blanks[-1].end if block.blanks else reached

    def _blocks(self, position: int, end: int) -> Iterator[LogBlock]:
        files = self.log.files
        while position < end and (file := files.find(position)) is not None:
            stop = min(end - file.base, files.file_size)
            source = LocalFile(file.path)
            try:
                extent = Extent(file.path.name, file.base, position - file.base, stop, chained=True)
                for block in scan(source, extent):
                    yield LogBlock(block)
            finally:
                source.close()
            position = file.base + stop

    def _apply(self) -> int:
        found = self._dispatcher.take()
        try:
            self.queues.apply(found)
            if self.index is not None and found.index is not None:
                self.index.add(found.index)
        except IOFailure as error:
            self.failure = error
            raise
        if found.records:
            self.last, self.store_timestamp = found.last, found.last_store_timestamp
        return found.records

    def write(self, kind: str, key: RawKey, found: Appended) -> None:
        """Write units of a queue."""
        name = kind, key
        self.files_of(name).write(found)
        self._dirty.setdefault(name, found.position)

    def files_of(self, name: Name) -> UnitFiles:
        """Return the files of a queue, kind first; few are open at a time."""
        kind, key = name
        files = self._writers.get(name)
        if files is None:
            files = self._writers[name] = UnitFiles(
                self.disk,
                self.directory(kind, key),
                self._size(kind),
                UNIT_SIZES.get(kind, 0),
                syncs_full=self.config.flush is FlushMode.SYNC,
            )
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

    def simple(self, key: RawKey) -> QueueState | None:
        """Return the state of a simple queue, None where it does not exist."""
        return self.queues.simple.get(key)

    def flush(self) -> None:
        """Flush thoroughly: queues and index to the disk, and the checkpoint says so (spec 5)."""
        last, store_timestamp = self.last, self.store_timestamp
        for name, begin in sorted(self._dirty.items()):
            self.files_of(name).sync(begin)
        self._dirty.clear()
        if self.index is not None:
            self.index.flush(sync=True)
        if store_timestamp:
            self.checkpoint.logics_msg_timestamp = store_timestamp
            if self.config.release >= LOGICS_OFFSET:
                self.checkpoint.logics_physical_offset = last

    def write_index(self) -> None:
        """Write what of the index is only in memory."""
        if self.index is not None:
            self.index.flush()

    def close(self) -> None:
        """Close all files; unflushed ones stay in the system's hands."""
        for files in self._writers.values():
            files.close()
        self._writers.clear()
        if self.index is not None:
            self.index.release()


# --- when it is done --------------------------------------------------------------------------------


UNDISPATCHED = 16 << 10
"""Bytes of log that dispatch has not come to when an engine crashes on purpose."""


class Dispatching:
    """Runs reput, one thread at a time.

    Attributes:
        lock: held by the thread that dispatches.
        most: bytes of log that may wait for it.
        is_served: services of the engine dispatch; else that waits until it is asked for.
    """

    def __init__(self, log: CommitLog, reput: Reput, most: int, check_not_closed: Callable[[], None]) -> None:
        """
        Args:
            check_not_closed: refuses what comes after the end, when the files may be somebody else's.
        """
        self.log, self.reput, self._check_not_closed = log, reput, check_not_closed
        self.lock, self.most = threading.Lock(), most
        self.is_served = False

    def keep_up(self) -> None:
        """Dispatch all but the last records if too many bytes of log wait for it.

        Where half as many wait in memory, their writers write them themselves: a disk that stands still would else
        fill the memory.
        """
        most, log = self.most, self.log
        if log.wrote - log.committed > most >> 1:
            log.commit()
        if log.committed - self.reput.position > most:
            with self.lock:
                self.reput.run(log.committed - min(3 * UNDISPATCHED, most >> 1))

    def run(self) -> int:
        """Put everything that is committed into queues and index; return the number of records.

        Raises:
            IOFailure: a queue or index file cannot be written; the log is not touched by that.
            Refused: the engine is closed.
        """
        self._check_not_closed()
        with self.lock:
            return self.reput.run() if self.log.committed > self.reput.position else 0

    @contextmanager
    def feeding(self) -> Iterator[Callable[[LogBlock], None]]:
        """Give what dispatches records that a producer has in memory as it appends them, in log order.

        It raises IOFailure where a queue or index file cannot be written.
        """

        def dispatch(found: LogBlock) -> None:
            if self.is_served:
                with self.lock:
                    self.reput.add(found)

        self.reput.is_fed = True
        try:
            yield dispatch
        finally:
            self.reput.is_fed = False

    def write_index(self) -> None:
        """Write what of the index is only in memory, so that it can be asked.

        Raises:
            Refused: the engine is closed.
        """
        self._check_not_closed()
        with self.lock:
            self.reput.write_index()


# --- index files as dispatch fills them ----------------------------------------------------------------


_RUN = plan_of(CheckpointLayout).runs[0]
NAME = "checkpoint"
_CHUNK = 1 << 16
"""Bytes of entries that are looked at a time."""


@dataclass(slots=True)
class Checkpoint:
    """What the checkpoint says; the fields of `formats.rocketmq.checkpoint`."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    @classmethod
    def load(cls, root: Path) -> Checkpoint:
        """From the file; zeros where it has none."""
        path = root / NAME
        data = path.read_bytes() if path.exists() else b""
        values = _RUN.packer.unpack(data[: _RUN.packer.size].ljust(_RUN.packer.size, b"\0"))
        return cls(**dict(zip(_RUN.names, values, strict=True)))

    def note_flushed(self, store_timestamp: int) -> None:
        """All messages stored until then are on the disk, ms."""
        self.physic_msg_timestamp = max(store_timestamp, self.physic_msg_timestamp)

    def pack(self) -> bytes:
        """Return the used bytes of the file."""
        return _RUN.packer.pack(*(getattr(self, f.name) for f in fields(self)))

    def save(self, root: Path, disk: Disk) -> None:
        """Write the file through to the disk."""
        fd = disk.open(root / NAME, FILE_SIZE)
        try:
            disk.write(fd, self.pack(), 0)
            disk.sync(fd)
        finally:
            os.close(fd)


# --- index files as dispatch fills them -------------------------------------------------------------


_PAGE_SLOTS = 1024


class IndexWriter:
    """The index files of a store that is written to; the sink of its `IndexSeries`.

    Attributes:
        names: index files there are, ascending.
        series: headers and slots in memory.
    """

    def __init__(
        self, directory: Path, geometry: IndexGeometry, disk: Disk, checkpoint: Checkpoint, *, counts_slots: bool
    ) -> None:
        """
        Args:
            counts_slots: `DispatchRules.counts_slots`.
        """
        self.directory, self.geometry, self.disk, self.checkpoint = directory, geometry, disk, checkpoint
        self.names = sorted(p.name for p in directory.iterdir() if p.name.isdigit()) if directory.is_dir() else []
        self._fd, self._keeps_open, self._is_bare = -1, False, False
        self._changed = np.zeros(-(-geometry.slots // _PAGE_SLOTS), np.bool_)
        head, slots = self._load() if self.names else (None, None)
        self.series = IndexSeries(geometry, counts_slots=counts_slots, sink=self, head=head, slots=slots)

    def _load(self) -> tuple[IndexHead, Slots]:
        """Header and slots of the newest file, which entries go on in."""
        self._fd = self.disk.open(self.directory / self.names[-1], self.geometry.file_size)
        head = IndexHead.parse(os.pread(self._fd, HEADER_SIZE, 0))
        self._clear_after(max(head.index_count, 1))
        data = os.pread(self._fd, self.geometry.slots * SLOT_SIZE, HEADER_SIZE)
        return head, np.frombuffer(data, ">i4").astype(np.int32)

    def _clear_after(self, number: int) -> None:
        """Zero the entries from a number on: what a kill left ahead of the header is made again, or not at all."""
        at = self.geometry.entry_at(number)
        while at < self.geometry.file_size:
            piece = os.pread(self._fd, min(_CHUNK, self.geometry.file_size - at), at)
            if not piece.strip(b"\0"):
                return
            self.disk.write(self._fd, bytes(len(piece)), at)
            at += len(piece)

    def add(self, columns: IndexColumns) -> None:
        """Put the keys of records that follow each other in the log."""
        self.series.add(columns)
        if self.series.heads and self._fd < 0:  # made for a record without keys
            self._open(int(columns.store_timestamp[-1]))
        if self._is_bare:
            self.flush()

    def entries(self, first: int, entries: Entries) -> None:
        """Write entries of the current file."""
        if self._fd < 0:
            self._open(self.series.heads[-1].begin_timestamp)
        self._changed[entries["key_hash"] % self.geometry.slots // _PAGE_SLOTS] = True
        self.disk.write(self._fd, entries.tobytes(), self.geometry.entry_at(first))

    def close(self, head: IndexHead, slots: Slots) -> None:
        """Write header and slots of the current file; one that is complete goes to the disk and is closed.

        The checkpoint says so at once, else a recovery would delete the file (IndexService.flush).
        """
        self._is_bare = False
        self.disk.write(self._fd, head.pack(), 0)
        for begin, end in _runs(self._changed):
            piece = slots[begin * _PAGE_SLOTS : end * _PAGE_SLOTS].astype(">i4").tobytes()
            self.disk.write(self._fd, piece, HEADER_SIZE + begin * _PAGE_SLOTS * SLOT_SIZE)
        self._changed[:] = False
        if not self._keeps_open:
            self.disk.sync(self._fd)
            self.checkpoint.index_msg_timestamp = head.end_timestamp
            self.release()
            self.checkpoint.save(self.directory.parent, self.disk)

    def flush(self, *, sync: bool = False) -> None:
        """Write what is only in memory."""
        if self._fd < 0:
            return
        self._keeps_open = True
        try:
            self.series.finish()
        finally:
            self._keeps_open = False
        if sync:
            self.disk.sync(self._fd)

    def release(self) -> None:
        """Close the current file without writing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self, milliseconds: int) -> None:
        name = next_name(self.names[-1] if self.names else "", milliseconds)
        self._fd = self.disk.open(self.directory / name, self.geometry.file_size)
        self.names.append(name)
        self._is_bare = True


def _runs(changed: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Stretches of changed pages."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], changed, [False])).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
