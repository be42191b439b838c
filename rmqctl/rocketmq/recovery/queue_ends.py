"""Where the queues of a store begin and end: the one answer for `topics`, `lag`, the lookups and `recover`.

It is what a broker of the store's release answers once it has started on the store (spec 6): the start cuts units
that point to what is not in the log, and makes those of messages that no queue has yet. Of a store whose broker
runs, and of one on which no broker would start, the files are taken as they lie. `queue_ends` and `queue_limits`
answer for all queues at once, a :class:`RecoveredStore` for those who go on to ask for single queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from rmqctl.parallel import most_processes
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.queue_ends import QueueRow, queue_rows
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import BATCH_UNIT, is_pre_blank
from rmqctl.rocketmq.queues.rocksdb import QueueDatabase, open_queues
from rmqctl.rocketmq.recovery.databases import RocksQueueImage
from rmqctl.rocketmq.recovery.images import QueueImage
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.recovery.rules import has_dledger_log
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.files import QUEUES, StoreFiles

_NEVER = 1 << 62
Limits = dict[tuple[str, int], tuple[int, int]]
"""Smallest and next offset by topic and queue id."""


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """All queues by topic and id.

    Attributes:
        release: whose start was replayed.
        error: why no broker of the release starts, so that the files are taken as they lie; else None.
    """

    rows: list[QueueRow]
    release: Release
    error: str | None = None


def queue_ends(
    store: StoreFiles, release: Release | None = None, *, as_found: bool = False, processes: int | None = None
) -> QueueEnds:
    """Every queue with its ends, messages, bytes and times.

    Args:
        release: whose start is replayed; None: the one that the store shows.
        as_found: take the files as they lie, whatever a start would make of them.
        processes: that read the log; default: as the machine has cores.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    return ends_at(store, [None], release, as_found=as_found, processes=processes)[0]


def ends_at(
    store: StoreFiles,
    places: Iterable[int | None],
    release: Release | None = None,
    *,
    as_found: bool = False,
    processes: int | None = None,
) -> list[QueueEnds]:
    """Return what :func:`queue_ends` does for each of some places of the log, as if it ended there.

    Args:
        places: physical offsets; None: the end. Records that begin there or later do not count.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    rules = release or release_range(store).highest
    started = None if as_found else _started(store, rules, processes)
    if started is None or not started.starts:
        error = started.error if started else None
        return [QueueEnds(queue_rows(store, as_found=True, before=before), rules, error) for before in places]
    with ExitStack() as opened:
        read_from = store.is_rocksdb or store.has_light_database
        database = opened.enter_context(open_queues(store)) if read_from else None
        return [QueueEnds(_rows_after(started, database, before), rules) for before in places]


def queue_limits(store: StoreFiles, *, processes: int | None = None) -> Limits:
    """Smallest and next offset of every queue: those that :func:`queue_ends` has, without counting messages.

    Raises:
        MissingExtra: the queues are in RocksDB, and its package is not installed.
    """
    started = _started(store, release_range(store).highest, processes)
    if started is None or not started.starts:
        return {(r.topic, r.queue_id): (r.min_offset, r.max_offset) for r in queue_rows(store, as_found=True)}
    return {image.key[1:]: (image.min_offset, image.max_offset) for image in images_by_queue(started.images).values()}


def _started(store: StoreFiles, release: Release, processes: int | None) -> Recovery | None:
    """Return a start on the store; None where none can be replayed."""
    return recover(store, release, processes=processes or most_processes()) if can_replay(store) else None


def can_replay(store: StoreFiles) -> bool:
    """Whether a start can be replayed: no broker runs on the store, and its log is not one of DLedger."""
    return not store.is_running and not has_dledger_log(store)


def images_by_queue(images: Iterable[QueueImage]) -> dict[tuple[str, int], QueueImage]:
    """Return one image a queue by topic and id, ascending; where there are two of a name, the one with messages."""
    found: dict[tuple[str, int], QueueImage] = {}
    for image in images:
        other = found.setdefault(image.key[1:], image)
        if (image.max_offset > 0, image.key[0] == QUEUES) > (other.max_offset > 0, other.key[0] == QUEUES):
            found[image.key[1:]] = image
    return dict(sorted(found.items()))


def _rows_after(started: Recovery, database: QueueDatabase | None, before: int | None) -> list[QueueRow]:
    with LogReader(started.log_files) as log:
        return [_row_of(image, log, started, database, before) for image in images_by_queue(started.images).values()]


def _row_of(
    image: QueueImage, log: LogReader, started: Recovery, database: QueueDatabase | None, before: int | None
) -> QueueRow:
    """Return the units that count, and of them those whose records are in the log.

    Args:
        before: physical offset from which on records do not count, and what is after them in the queue; None: all do.
    """
    messages = size = 0
    ends: list[int] = []
    end = image.max_offset
    for offsets, physical, sizes, counts in _stretches(image, database):
        later = np.flatnonzero((sizes > 0) & (physical >= (_NEVER if before is None else before)))
        upto = int(later[0]) if len(later) else len(sizes)
        live = (sizes > 0) & (physical >= started.log_begin) & (physical < (started.end or 0))
        live[upto:] = False
        if live.any():
            messages, size = messages + int(counts[live].sum()), size + int(sizes[live].sum())
            ends += [int(physical[live][0]), int(physical[live][-1])]
        if len(later):
            end = int(offsets[upto])
            break
    times = [log.store_timestamp(p) for p in (ends[0], ends[-1])] if ends else [None, None]
    return QueueRow(image.key[1], image.key[2], min(image.min_offset, end), end, messages, size, *times)


def _stretches(image: QueueImage, database: QueueDatabase | None) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Queue and physical offsets, sizes and numbers of messages of the units, file by file; int64 of one shape (n,)."""
    if isinstance(image, RocksQueueImage):
        for found in image.units(database):
            yield found["queue_offset"], found["physical_offset"], found["size"], np.ones(len(found), np.int64)
        return
    for file in image.files:
        units = file.units(image.dtype)[: file.wrote // image.unit_size]
        real, batch = ~is_pre_blank(units), image.dtype is BATCH_UNIT
        offsets = units["base_offset"] if batch else file.base // image.unit_size + np.arange(len(units))
        offsets, units = offsets[real].astype(np.int64), units[real]
        physical, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        counts = units["batch_size"].astype(np.int64) if batch else np.ones(len(units), np.int64)
        yield offsets, physical, sizes, counts


# --- a recovered store, for those who ask for single queues ----------------------------------------------


class RecoveredStore:
    """A store as a broker of a release has it once it has started; opened once, asked for many queues.

    Use as a context manager.

    Attributes:
        release: whose rules hold.
        as_found: take the queues as they lie on disk, whatever a start would make of them.
        log: opened where it is read.
    """

    def __init__(self, store: StoreFiles, release: Release, *, as_found: bool = False) -> None:
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
        return self._open.enter_context(open_queues(self.store))

    @cached_property
    def replays(self) -> bool:
        """Whether queues are those after the start of a broker; otherwise they are taken as they lie."""
        return not self.as_found and can_replay(self.store)

    @cached_property
    def recovery(self) -> Recovery:
        """What a start of a broker of the release makes of the store.

        Raises:
            MissingExtra: the queues are in RocksDB, and its package is not installed.
        """
        found: Recovery | None = self.store.starts.get(self.release)
        if found is None:
            found = self.store.starts[self.release] = recover(self.store, self.release)
        return found

    @cached_property
    def images(self) -> dict[tuple[str, int], QueueImage]:
        """The queues after such a start, by topic and id."""
        return images_by_queue(self.recovery.images)

    def recovered_queues(self, topic: str) -> list[int]:
        """Queues of a topic after such a start, those without a message left out.

        Raises:
            MissingExtra: the queues are in RocksDB, and its package is not installed.
        """
        return [image.key[2] for image in self.recovery.images if image.key[1] == topic and image.max_offset]
