"""Dispatching a whole log into a directory, split by split, on one process or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rmqctl.processes import Ordered
from rmqctl.rocketmq.commitlog import CommitLog, FileContext, LogState, resume_state, walk_file
from rmqctl.rocketmq.dispatch.dispatched import Dispatched, Dispatcher, Wanted
from rmqctl.rocketmq.dispatch.index_put import IndexHead
from rmqctl.rocketmq.dispatch.index_series import IndexSeries
from rmqctl.rocketmq.dispatch.queue_series import Bitmap, QueueSeries, QueueSizes
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.geometry import Geometry
from rmqctl.rocketmq.index_geometry import IndexGeometry
from rmqctl.rocketmq.rebuild.staging import IndexFilesWriter, QueueFilesWriter
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, QUEUES_EXT, RocketMQStore
from rmqctl.rocketmq.verify.splits import Split, splits_of

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
        end, last, last_store_timestamp: physical offset behind and of the last record, its store time in ms.
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
    store: RocketMQStore,
    geometry: Geometry,
    job: Job,
    root: Path,
    *,
    processes: int = 1,
    bitmap: Bitmap | None = None,
    progress: Progress | None = None,
) -> Built:
    """Dispatch the whole log of a store into files below ``root``.

    Raises:
        OSError: the log cannot be read, or a file cannot be written.
    """
    sizes, shape = queue_file_sizes(geometry), IndexGeometry(geometry.index_slots, geometry.index_entries)
    files, index = QueueFilesWriter(root, sizes), IndexFilesWriter(root, shape)
    queues = QueueSeries(QueueSizes(sizes[QUEUES], sizes[QUEUES_EXT]), files, bitmap=bitmap, fills_holes=True)
    series = IndexSeries(shape, counts_slots=job.rules.counts_slots, sink=index)
    built = Built(root, queues)
    for found in _dispatched(store, job, processes, progress, files.flush_large):
        queues.apply(found)
        if found.index is not None:
            series.add(found.index)
        note(built, found)
    built.damage += missing_files(store)
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


def missing_files(store: RocketMQStore) -> list[tuple[int, int]]:
    """Places and lengths of files that are missing in the middle of the log."""
    log = CommitLog(store.log_files)
    gaps = (log.gap_before(at) for at in range(len(log.files)))
    return [(gap.physical_offset or 0, gap.size) for gap in gaps if gap is not None]


def _dispatched(
    store: RocketMQStore, job: Job, processes: int, progress: Progress | None, idle: Callable[[], object]
) -> Iterator[Dispatched]:
    """What each stretch of the log dispatches, in log order, up to the end of the log; good until the next is taken."""
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
    """What one split dispatches, and whether the log ends in it because old records follow.

    Raises:
        OSError: the log cannot be read.
    """
    state = resume_state(split.context, split.start) if split.start else LogState()
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
