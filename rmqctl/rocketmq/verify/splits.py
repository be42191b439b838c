"""Dividing a log into splits, and checking one: the unit of work of one process or one executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rmqctl.findings import Finding
from rmqctl.rocketmq.findings.state import FILE_UNREADABLE
from rmqctl.rocketmq.log.columns import KeyNumbers, TextIds
from rmqctl.rocketmq.log.commitlog import FileContext, resume_state, walk_file
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.store.geometry import Geometry
from rmqctl.rocketmq.verify.context import LogContext, entry_findings
from rmqctl.rocketmq.verify.index import IndexChecker
from rmqctl.rocketmq.verify.log import DEFAULT_MAX_MESSAGE, LogChecker, LogPartial, damaged_records
from rmqctl.rocketmq.verify.queues import QueueChecker

SPLIT_SIZE = 64 << 20
SPLIT_ALONE = 4 * SPLIT_SIZE
"""Bytes of a split where one process works on all: each opens what it compares with, and looks in front of it."""


@dataclass(frozen=True, slots=True)
class Job:
    """What all splits of one verification share; everything in it can be pickled.

    Attributes:
        bodies: compute body CRCs.
        cross: compare queues and index with the log.
        witness: makes what goes along with the checks of a split: it takes each block with what they say, and gives a
            sight of the split at the end.
    """

    store: RocketMQStore
    geometry: Geometry
    context: LogContext
    bodies: bool = True
    cross: bool = True
    max_message: int = DEFAULT_MAX_MESSAGE
    witness: Callable[[FileContext, TextIds], Any] | None = None


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
        checkers: tuple[QueueChecker, IndexChecker] | None = None
        if job.cross:
            begin = self.split.context.file.base + self.split.start
            index = IndexChecker(job.store, job.geometry, job.context, ids, begin=begin)
            checkers = QueueChecker(job.store, job.context, ids, numbers), index
        witness = job.witness(self.split.context, ids) if job.witness else None
        try:
            yield from self._walk(log, checkers, witness)
        except OSError as error:
            yield unreadable(self.split.context.file.name, error)
            witness = None
        self.partials.log = log.finish()
        self.partials.sight = witness.sight() if witness is not None else None
        if checkers is not None:
            queues, index = checkers
            self.partials.queues, self.partials.index = queues.partial(), index.partial()

    def _walk(
        self, log: LogChecker, checkers: tuple[QueueChecker, IndexChecker] | None, witness: Any
    ) -> Iterator[Finding]:
        split = self.split
        state = resume_state(split.context, split.start)
        for found in walk_file(split.context, state, start=split.start, stop=split.stop):
            findings = log.block(found)
            if witness is not None:
                witness.block(found, findings)
            yield from findings
            if split.context.file.lead and len(found.block):
                yield from entry_findings(found.block)
            if checkers is not None:
                queues, index = checkers
                yield from queues.block(found)
                index.damaged = damaged_records(findings)
                yield from index.block(found)
        log.partial.stale = state.stale
        if checkers is not None and not state.stale:
            file = split.context.file
            checkers[1].rest(file.base + (file.size if split.stop is None else split.stop))


def unreadable(file: str, error: OSError) -> Finding:
    """Return the finding for a file that cannot be read."""
    return Finding(FILE_UNREADABLE, file, 0, 0, f"cannot be read: {error.strerror or error}")
