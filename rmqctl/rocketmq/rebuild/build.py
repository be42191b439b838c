"""Dispatching a whole log into a directory laid out like a store, split by split, on one process or several."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rmqctl.parallel import Ordered
from rmqctl.rocketmq.dispatch.dispatched import Dispatched, Dispatcher, Key, Wanted
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.dispatch.series import Bitmap, Entries, QueueSeries, QueueSizes, Slots
from rmqctl.rocketmq.dispatch.units import Appended
from rmqctl.rocketmq.index import HEADER_SIZE, IndexHead
from rmqctl.rocketmq.log.commitlog import CommitLog, FileContext, LogState, resume_state, walk_file
from rmqctl.rocketmq.rebuild.expired_index import ExpiredIndex
from rmqctl.rocketmq.store.files import BATCH_QUEUES, INDEX, QUEUES, QUEUES_EXT, StoreFiles
from rmqctl.rocketmq.store.geometry import SLOT_SIZE, Geometry, IndexGeometry
from rmqctl.rocketmq.verify.splits import Split, splits_of

BUFFERED = 32 << 20
"""Bytes of queue units held back, over all queues."""
_LARGE = 4096
_SLOTS_AT_ONCE = 1 << 16
OFFSET_DIGITS = 20


def queue_path(kind: str, key: Key) -> str:
    """Directory of a queue, relative to the root of a store."""
    topic, queue_id = key
    return f"{kind}/{os.fsdecode(topic)}/{queue_id}"


@dataclass(slots=True)
class QueueFilesWriter:
    """Queue files below a directory (a `QueueSink`): appended to from a buffer, sparse, at full length.

    Attributes:
        root: stands for the root of the store.
        file_sizes: bytes of a file by kind of queue.
        files: what was written, relative to the root.
    """

    root: Path
    file_sizes: dict[str, int]
    files: set[str] = field(default_factory=set)
    _held: dict[tuple[str, Key], list[Appended]] = field(default_factory=dict)
    _made: set[str] = field(default_factory=set)
    _size: int = 0

    def write(self, kind: str, key: Key, found: Appended) -> None:
        """Take bytes of a queue."""
        self._held.setdefault((kind, key), []).append(found)
        self._size += len(found.data)
        if self._size >= BUFFERED:
            self.flush()

    def read(self, kind: str, key: Key, position: int, size: int) -> bytes:
        """Bytes of a queue that were flushed, within one file."""
        base = position - position % self.file_sizes[kind]
        with (self.root / queue_path(kind, key) / f"{base:0{OFFSET_DIGITS}d}").open("rb") as file:
            return os.pread(file.fileno(), size, position - base)

    def flush_large(self) -> None:
        """Write what is held back where that is a page or more of each queue: there is time, and less is left then."""
        if self._size >= _LARGE * len(self._held):
            self.flush()

    def flush(self) -> None:
        """Write what is held back."""
        for (kind, key), pieces in self._held.items():
            for position, data in _joined(pieces):
                self._write(kind, queue_path(kind, key), position, data)
        self._held.clear()
        self._size = 0

    def _write(self, kind: str, path: str, position: int, data: bytes) -> None:
        size, done = self.file_sizes[kind], 0
        while done < len(data):
            begin = position + done
            base = begin - begin % size
            part = data[done : done + base + size - begin]
            out = self._open(f"{path}/{base:0{OFFSET_DIGITS}d}", size)
            try:
                os.pwrite(out, part, begin - base)
            finally:
                os.close(out)
            done += len(part)

    def _open(self, name: str, size: int) -> int:
        path = f"{self.root}/{name}"
        if name in self.files:
            return os.open(path, os.O_RDWR)
        directory = os.path.dirname(path)
        if directory not in self._made:
            Path(directory).mkdir(parents=True, exist_ok=True)
            self._made.add(directory)
        out = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self.files.add(name)
        os.truncate(out, size)
        return out


def _joined(pieces: list[Appended]) -> list[tuple[int, bytes]]:
    """Return the pieces with those that follow each other put together."""
    found: list[tuple[int, list[bytes]]] = []
    end = -1
    for piece in pieces:
        if piece.position != end:
            found.append((piece.position, []))
        found[-1][1].append(piece.data)
        end = piece.position + len(piece.data)
    return [(position, b"".join(parts)) for position, parts in found]


class IndexFilesWriter:
    """Index files below a directory (an `IndexSink`), numbered in the order of the log.

    Attributes:
        heads: header of each file; :meth:`path` is where it lies.
    """

    def __init__(self, root: Path, geometry: IndexGeometry) -> None:
        self.root, self.geometry = root, geometry
        self.heads: list[IndexHead] = []
        self._out: int | None = None

    def path(self, number: int) -> Path:
        """Where file ``number`` is staged; its name in a store is for others to give."""
        return self.root / INDEX / f"{number:017d}"

    def entries(self, first: int, entries: Entries) -> None:
        """Write entries of the current file."""
        os.pwrite(self._file(), entries.tobytes(), self.geometry.entry_at(first))

    def close(self, head: IndexHead, slots: Slots) -> None:
        """Write slots and header of the current file, and close it."""
        out = self._file()
        for first in range(0, len(slots), _SLOTS_AT_ONCE):
            part = slots[first : first + _SLOTS_AT_ONCE]
            if part.any():
                os.pwrite(out, part.astype(">i4").tobytes(), HEADER_SIZE + first * SLOT_SIZE)
        os.pwrite(out, head.pack(), 0)
        os.close(out)
        self.heads.append(head.copy())
        self._out = None

    def _file(self) -> int:
        if self._out is None:
            path = self.path(len(self.heads))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._out = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            os.truncate(self._out, self.geometry.file_size)
        return self._out


# --- dispatching a whole log into a directory -------------------------------------------------------


SPLIT_SIZE = 64 << 20
"""Bytes of log dispatched at a time; what they dispatch is held in memory."""
_AHEAD = 2
"""Splits that may wait to be written while all processes work on others."""
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Job:
    """What all splits of one build share; can be pickled."""

    rules: DispatchRules
    wanted: Wanted


@dataclass(slots=True)
class Built:
    """What a build made.

    Attributes:
        root: the directory that stands for the root of a store.
        queue_files: files of queues, relative to it.
        queues: the series with the end state of every queue.
        index: headers of the index files, in order; :attr:`index_paths` is where they are staged.
        records: dispatched records.
        end, last, last_store_timestamp: physical offset after and of the last record, its store time in ms.
        damage: places and lengths in the log that hold no record and should.
    """

    root: Path
    queues: QueueSeries
    queue_files: set[str] = field(default_factory=set)
    index: list[IndexHead] = field(default_factory=list)
    index_paths: list[Path] = field(default_factory=list)
    records: int = 0
    end: int = 0
    last: int = 0
    last_store_timestamp: int = 0
    damage: list[tuple[int, int]] = field(default_factory=list)


Builder = Callable[..., Built]
"""What builds: :func:`build`, or something with the same arguments that shares the work otherwise."""


def build(
    store: StoreFiles,
    geometry: Geometry,
    job: Job,
    root: Path,
    *,
    processes: int = 1,
    bitmap: Bitmap | None = None,
    progress: Progress | None = None,
    expired: ExpiredIndex,
) -> Built:
    """Dispatch the whole log of a store into files below ``root``; index files go on after what has ``expired``."""
    sizes, shape = queue_file_sizes(geometry), IndexGeometry(geometry.index_slots, geometry.index_entries)
    files, index = QueueFilesWriter(root, sizes), IndexFilesWriter(root, shape)
    queues = QueueSeries(QueueSizes(sizes[QUEUES], sizes[QUEUES_EXT]), files, bitmap=bitmap, fills_holes=True)
    series = expired.series(shape, index, counts_slots=job.rules.counts_slots)
    built = Built(root, queues)
    for found in _dispatched(store, job, processes, progress, files.flush_large):
        queues.apply(found)
        if found.index is not None:
            series.add(found.index)
        note(built, found)
    built.damage += missing_files(store)
    queues.finish()
    files.flush()
    series.finish()
    built.queue_files, built.index = files.files, index.heads
    built.index_paths = [index.path(number) for number in range(len(index.heads))]
    return built


def queue_file_sizes(geometry: Geometry) -> dict[str, int]:
    """Bytes of a file by kind of queue."""
    return {
        QUEUES: geometry.queue_file_size,
        QUEUES_EXT: geometry.queue_ext_file_size,
        BATCH_QUEUES: geometry.batch_queue_file_size,
    }


def note(built: Built, found: Dispatched) -> None:
    """Add up what a stretch of log has shown; stretches come in log order."""
    built.damage += found.damage
    if found.records:
        built.records += found.records
        built.end, built.last = found.end, found.last
        built.last_store_timestamp = found.last_store_timestamp


def missing_files(store: StoreFiles) -> list[tuple[int, int]]:
    """Places and lengths of files that are missing in the middle of the log."""
    log = CommitLog(store.log_files)
    gaps = (log.gap_before(at) for at in range(len(log.files)))
    return [(gap.physical_offset or 0, gap.size) for gap in gaps if gap is not None]


def _dispatched(
    store: StoreFiles, job: Job, processes: int, progress: Progress | None, idle: Callable[[], object]
) -> Iterator[Dispatched]:
    """Yield what each stretch of the log dispatches, in log order, up to the end of the log; good until the next is
    taken.
    """
    contexts = CommitLog(store.log_files, crashed=store.has_abort).contexts()
    splits = splits_of(contexts, SPLIT_SIZE)
    if processes <= 1 or len(splits) <= 1:
        yield from _in_this_process(contexts, job, progress)
        return
    shared: Ordered[Split, tuple[Dispatched, bool]] = Ordered(_Worker(job), processes, processes + _AHEAD, idle)
    for split, (found, stale) in zip(splits, shared.results(splits), strict=False):
        yield found
        if progress:
            progress((split.stop or split.context.file.size) - split.start)
        if stale:
            return


def _in_this_process(contexts: list[FileContext], job: Job, progress: Progress | None) -> Iterator[Dispatched]:
    dispatcher, state = Dispatcher(job.rules, job.wanted), LogState()
    for context in contexts:
        done = 0
        for found in walk_file(context, state):
            dispatcher.add(found)
            position = found.block.start + len(found.block.data)
            if position - done >= SPLIT_SIZE:
                yield dispatcher.take()
                if progress:
                    progress(position - done)
                done = position
        yield dispatcher.take()
        if progress:
            progress(max(context.file.size - done, 0))


def dispatch_split(split: Split, dispatcher: Dispatcher) -> tuple[Dispatched, bool]:
    """Return what one split dispatches, and whether the log ends in it because old records follow."""
    state = resume_state(split.context, split.start)
    for found in walk_file(split.context, state, start=split.start, stop=split.stop):
        dispatcher.add(found)
    return dispatcher.take(), state.stale


@dataclass(frozen=True, slots=True)
class _Worker:
    """Makes what works on splits in a process; can be pickled."""

    job: Job

    def __call__(self) -> Callable[[Split], tuple[Dispatched, bool]]:
        dispatcher = Dispatcher(self.job.rules, self.job.wanted)
        return lambda split: dispatch_split(split, dispatcher)
