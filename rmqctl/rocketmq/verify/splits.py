"""Dividing a log into splits, and checking one: the unit of work of one process or one executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rmqctl.findings import Finding
from rmqctl.rocketmq.findings.state import FILE_UNREADABLE
from rmqctl.rocketmq.log.columns import KeyNumbers, TextIds
from rmqctl.rocketmq.log.commitlog import FileContext, LogBlock, resume_state, walk_file
from rmqctl.rocketmq.log.scan import WINDOW
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.geometry import Geometry
from rmqctl.rocketmq.verify.context import LogContext, entry_findings
from rmqctl.rocketmq.verify.index import IndexChecker, IndexPartial
from rmqctl.rocketmq.verify.log import DEFAULT_MAX_MESSAGE, LogChecker, LogPartial, damaged_records
from rmqctl.rocketmq.verify.queues import QueueChecker, QueuePartial

SPLIT_SIZE = 64 << 20
SPLIT_ALONE = 4 * SPLIT_SIZE
"""Bytes of a split where one process works on all: each opens what it compares with, and looks in front of it."""
KEPT = 8 << 20
"""Bytes of columns and properties kept until they are compared with queues and index. What compares a window's records
has left the caches of the processor whenever their bodies have gone through these, so it works on several in a row.
"""
_COMPARED = "sys_flag", "queue_id", "queue_offset", "physical_offset", "store_timestamp"
"""Header fields that queues and index are compared by."""


@dataclass(frozen=True, slots=True)
class Job:
    """What all splits of one verification share; everything in it can be pickled.

    Attributes:
        bodies: compute body CRCs.
        cross: compare queues and index with the log.
        witness: makes what goes along with the checks of a split, or None where nobody does: it takes each block with
            what they say, and gives a sight of the split at the end.
        window: bytes read at a time; kept: as :data:`KEPT`.
    """

    store: StoreFiles
    geometry: Geometry
    context: LogContext
    bodies: bool = True
    cross: bool = True
    max_message: int = DEFAULT_MAX_MESSAGE
    witness: Callable[[Split, TextIds], Any] | None = None
    window: int = WINDOW
    kept: int = KEPT


@dataclass(frozen=True, slots=True)
class Split:
    """A part of one file of the log: records that start in ``[start, stop)`` bytes of it."""

    context: FileContext
    start: int
    stop: int | None


@dataclass(slots=True)
class SplitPartials:
    """What a checked split leaves for the join.

    Attributes:
        sight: what a witness saw; None without one, and where the file cannot be read.
    """

    log: LogPartial = field(default_factory=LogPartial)
    queues: Any = None
    index: Any = None
    sight: Any = None


def splits_of(contexts: list[FileContext], size: int = SPLIT_SIZE) -> list[Split]:
    """Return splits of all files in log order, each of at most ``size`` bytes."""
    found = []
    for context in contexts:
        length = max(context.file.size, 1)
        found += [Split(context, at, at + size if at + size < length else None) for at in range(0, length, size)]
    return found


def size_for(length: int, processes: int) -> int:
    """Return how large splits of a log should be that so many processes of this machine share: each gets four or more,
    but a split costs some milliseconds of its own.

    Args:
        length: bytes of the log.
    """
    return min(max(length // (4 * processes), SPLIT_SIZE), SPLIT_ALONE) if processes > 1 else SPLIT_ALONE


class SplitCheck:
    """Checks one split; iterate :meth:`findings` to the end, then take :attr:`partials`."""

    def __init__(self, job: Job, split: Split) -> None:
        self.job, self.split = job, split
        self.partials = SplitPartials()

    def findings(self) -> Iterator[Finding]:
        """Yield findings of the split by offset; a file that cannot be read is a finding too."""
        job, ids, numbers = self.job, TextIds(), KeyNumbers()
        log = LogChecker(bodies=job.bodies, max_message=job.max_message, ids=ids, queues=numbers)
        cross = _Cross(job, self.split, ids, numbers) if job.cross else None
        witness = job.witness(self.split, ids) if job.witness else None
        try:
            yield from self._walk(log, cross, witness)
        except OSError as error:
            yield unreadable(self.split.context.file.name, error)
            witness = None
        self.partials.log = log.finish()
        self.partials.sight = witness.sight() if witness is not None else None
        if cross is not None:
            self.partials.queues, self.partials.index = cross.partials()

    def _walk(self, log: LogChecker, cross: _Cross | None, witness: Any) -> Iterator[Finding]:
        split = self.split
        state = resume_state(split.context, split.start)
        for found in walk_file(split.context, state, start=split.start, stop=split.stop, window=self.job.window):
            findings = log.block(found)
            if witness is not None:
                witness.block(found, findings)
            yield from findings
            if split.context.file.lead and len(found.block):
                yield from entry_findings(found.block)
            if cross is not None and len(found.block):
                cross.block(found, damaged_records(findings))
        log.partial.stale = state.stale
        if cross is not None and not state.stale:
            cross.end()


class _Cross:
    """Compares the records of a split with queues and index, those of several windows in a row."""

    def __init__(self, job: Job, split: Split, ids: TextIds, numbers: KeyNumbers) -> None:
        self._ids, self._most, self._kept = ids, job.kept, 0
        self._waiting: list[tuple[LogBlock, set[int]]] = []
        file = split.context.file
        self._stop = file.base + (file.size if split.stop is None else split.stop)
        self._queues = QueueChecker(job.store, job.context, ids, numbers)
        self._index = IndexChecker(job.store, job.geometry, job.context, ids, begin=file.base + split.start)

    def block(self, found: LogBlock, damaged: set[int]) -> None:
        """Take the records of one window, which can be reused, and physical offsets of damaged ones."""
        self._kept += found.leave_window(self._ids, _COMPARED)
        self._waiting.append((found, damaged))
        if self._kept >= self._most:
            self._compare()

    def end(self) -> None:
        """Look at what the index says of the log after the last record."""
        self._compare()
        self._index.rest(self._stop)

    def partials(self) -> tuple[QueuePartial, IndexPartial]:
        """Return what queues and index leave for the join."""
        self._compare()
        return self._queues.partial(), self._index.partial()

    def _compare(self) -> None:
        waiting, self._waiting, self._kept = self._waiting, [], 0  # first: a file that cannot be read ends this
        for found, _ in waiting:
            self._queues.block(found)
        for found, damaged in waiting:
            self._index.damaged = damaged
            self._index.block(found)


def unreadable(file: str, error: OSError) -> Finding:
    """Return the finding for a file that cannot be read."""
    return Finding(FILE_UNREADABLE, file, 0, 0, f"cannot be read: {error.strerror or error}")
