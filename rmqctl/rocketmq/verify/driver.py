"""Runs the checks in order, on one process or several, and adds up the summary."""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from rmqctl.errors import MissingExtra
from rmqctl.files.tree import Refusals
from rmqctl.findings import Finding, Severity
from rmqctl.parallel import Ordered
from rmqctl.release import Release
from rmqctl.rocketmq.findings.log import LOG_BAD_RECORD, LOG_BLANK, LOG_STORE_TIME
from rmqctl.rocketmq.index import index_entries, is_written
from rmqctl.rocketmq.log.columns import TextIds
from rmqctl.rocketmq.log.commitlog import STRAY, CommitLog, files_to_rename, misnamed, misplaced_files
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.state.config import has_stored_config
from rmqctl.rocketmq.store.databases import POP, can_read, databases_of, has_database
from rmqctl.rocketmq.store.files import StoreFile, StoreFiles, forgiving, lost_ranges, refusals_of, unreadable_files
from rmqctl.rocketmq.store.geometry import Geometry, geometry_of, integer
from rmqctl.rocketmq.verify import files, index, queues, state
from rmqctl.rocketmq.verify.causes import with_causes
from rmqctl.rocketmq.verify.context import Destroyed, LogContext
from rmqctl.rocketmq.verify.log import DEFAULT_MAX_MESSAGE, MISPLACING, LogJoin
from rmqctl.rocketmq.verify.missing import MissingUnits
from rmqctl.rocketmq.verify.splits import (
    SPLIT_SIZE,
    Job,
    Split,
    SplitCheck,
    SplitPartials,
    size_for,
    splits_of,
)

_HEADER = 8
_ANY = "\U0010ffff"
"""Sorts after every id."""
Progress = Callable[[int], object]
"""Called with the bytes of log done since its last call."""

_AHEAD = 3
"""Parts for each process that are worked on, or done, before they are taken."""
Share = Callable[[Job, list[Split]], Iterable["SplitResult"]]
"""Checks splits elsewhere, each with :func:`check_split`, and gives the results in the order of the splits."""


class Level(StrEnum):
    """How much is looked at: ``quick`` no record, ``structure`` every record but no body, ``full`` everything."""

    QUICK = "quick"
    STRUCTURE = "structure"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Choices of a verification.

    Attributes:
        cross: compare queues and index with the log (levels above quick).
        as_release: judge by this release; default: the one the store shows.
        processes: 1 works in this process; more share the splits of the log.
        split_size: bytes; default: by the length of the log and the processes that share it.
    """

    level: Level = Level.FULL
    cross: bool = True
    processes: int = 1
    as_release: Release | None = None
    split_size: int | None = None


class Verification:
    """One run of the checks over a store.

    Iterate :meth:`findings` to its end; then :meth:`summary` is complete.

    Args:
        witness: as of :class:`Job`; can be pickled.
        saw: takes what the witness saw of each split, in log order; None: :attr:`sights` does.

    Attributes:
        part: physical offsets: only files of the log that begin there are read; None: all.
        log: what the splits of the log leave, added up; missing: records whose queue unit is not there, or wrong.
        sights: what the witness saw of each split, in log order, where nobody else takes it; None of a split that
            cannot be read.

    Raises (from :meth:`findings`):
    """

    def __init__(
        self,
        store: StoreFiles,
        options: VerifyOptions,
        progress: Progress | None = None,
        share: Share | None = None,
        witness: Callable[[Split, TextIds], Any] | None = None,
        saw: Callable[[Any], object] | None = None,
    ) -> None:
        self.store, self.options, self.progress, self.share = forgiving(store), options, progress, share
        self.witness, self.sights = witness, list[Any]()
        self.saw = saw or self.sights.append
        self.log, self.missing = LogJoin(), MissingUnits()
        self.part: tuple[int, int] | None = None
        self.counts: Counter[str] = Counter()
        self.files = self.records = self.messages = self.placeholders = self.bytes = 0
        self._chains: list[list[Finding]] | None = None
        self._places, self._destroyed = list[tuple[int, str]](), Destroyed()
        self._began = time.monotonic()
        self._seconds = 0.0

    def findings(self) -> Iterator[Finding]:
        """All findings: files first, then the log by offset, then what spans files."""
        for finding in with_causes(self._all(), self.store):
            self.counts[str(finding.level)] += 1
            if finding.physical_offset is not None and finding.kind.id.startswith("log."):
                insort(self._places, (finding.physical_offset, finding.kind.id))
            yield finding
        self._seconds = time.monotonic() - self._began

    @property
    def incomplete(self) -> MissingExtra | None:
        """Parts that were to be checked are in RocksDB, and its package is not installed."""
        wanted = self.options.cross and self.options.level is not Level.QUICK
        if wanted and (self.store.is_rocksdb or self.store.has_light_database) and not can_read():
            return MissingExtra("comparing RocksDB queues with the log", "rocksdb")
        if wanted and (is_written(self.store) is None or has_database(self.store, POP)) and not can_read():
            return MissingExtra("comparing messages in RocksDB with the log", "rocksdb")
        if wanted and has_stored_config(self.store) and not can_read():
            return MissingExtra("checking configuration in RocksDB", "rocksdb")
        return None

    def summary(self) -> dict[str, Any]:
        """Return the summary object of the contract."""
        return {
            "files": self.files,
            "messages": self.messages,
            "placeholders": self.placeholders,
            "records": self.records,
            "bytes": self.bytes,
            "findings": {str(s): self.counts[str(s)] for s in Severity},
            "level": str(self.options.level),
            "destroyed": self._lost_messages(),
            "seconds": round(self._seconds, 3),
        }

    def _lost_messages(self) -> list[dict[str, Any]]:
        """Return rows of queues whose units lead into damage of the log, by the kind of finding that is there."""
        found = dict[tuple[str, str, int], list[tuple[int, int, int]]]()
        for begin, inside in self._destroyed.items():
            at = bisect_right(self._places, (begin, _ANY)) - 1
            for queue, span in inside.items() if at >= 0 else ():
                found.setdefault((self._places[at][1], *queue), []).append(span)
        return [
            {"id": kind, "topic": topic, "queue_id": queue_id, "messages": sum(span[0] for span in spans),
             "first_offset": min(span[1] for span in spans), "last_offset": max(span[2] for span in spans)}
            for (kind, topic, queue_id), spans in sorted(found.items())
        ]  # fmt: skip

    def _all(self) -> Iterator[Finding]:
        geometry = geometry_of(self.store)
        if self.options.level is not Level.QUICK:
            yield from self._renamed(geometry.commit_log_file_size)
        context = LogContext.of(self.store, self.options.as_release)
        checked = files.FileCheck(self.store, geometry, Release(*context.highest_release))
        yield from checked.findings()
        self.files, self.bytes = checked.files, sum(max(f.size, 0) for f in self.store.log_files)
        if self.options.level is not Level.QUICK:
            partials = AllPartials()
            yield from self._log(self._job(geometry, context), partials)
            newest = Release(*context.highest_release)
            across = list(partials.noted(partials.log.findings(self.options.as_release, newest)))
            yield from across
            context = self._learned(context, partials, across, geometry.commit_log_file_size)
            if self.options.cross and self.store.log_files:  # without it all that points to it is wrong: one finding
                yield from queues.finish(self.store, geometry, checked.queues, partials.queues, context)
                yield from index.finish(self.store, geometry, partials.index, context, self._chains)
        yield from state.check_state(self.store, context)
        yield from state.check_config(self.store, context)
        yield from state.check_timer(self.store, context)
        if self.options.level is not Level.QUICK and databases_of(self.store):
            from rmqctl.rocketmq.verify.databases import check_databases  # most stores keep everything in files

            yield from check_databases(self.store, context, cross=self.options.cross)
        yield from unreadable_files(self.store)

    def _renamed(self, file_size: int) -> Iterator[Finding]:
        """One sentence about files of the log under each other's names; they are then read where they belong."""
        moved = [
            one
            for one in files_to_rename(self.store, misplaced_files(self.store, file_size))
            if one.file.base != STRAY and one.file.base % file_size == one.home % file_size
        ]
        if not moved:
            return
        names = {one.file.name for one in moved}
        kept = [file for file in self.store.log_files if file.name not in names]
        self.store = self.store.with_log([*kept, *(one.at_home() for one in moved)])
        yield misnamed(moved)

    def _job(self, geometry: Geometry, context: LogContext) -> Job:
        bodies, cross = self.options.level is Level.FULL, self.options.cross
        max_message = integer(self.store.settings, "maxMessageSize") or DEFAULT_MAX_MESSAGE
        return Job(self.store, geometry, context, bodies, cross, max_message, self.witness)

    def _log(self, job: Job, partials: AllPartials) -> Iterator[Finding]:
        """Yield findings of all splits in log order; what they leave for the join is added to ``said``."""
        log = CommitLog(self.store.log_files, crashed=self.store.has_abort, file_size=job.geometry.commit_log_file_size)
        size = SPLIT_SIZE if self.share is not None else size_for(self.bytes, self.options.processes)
        splits = splits_of([c for c in log.contexts() if self._reads(c.file)], self.options.split_size or size)
        numbers = {file.name: number for number, file in enumerate(log.files)}
        lost = {file.name: gap for file, gap in files.cut_files(log.files, log.file_size)}
        ended = False
        for split, result in self._results(job, splits):
            if split.start == 0:
                gap = log.gap_before(numbers[split.context.file.name])
                if gap is not None:
                    partials.log.gap(gap)
                    yield gap
            if not ended:
                for finding in partials.noted(result.findings()):
                    if not _is_reported(finding, split.context.file, lost):
                        yield finding
                if isinstance(result, SplitResult):
                    refusals_of(self.store.tree).update(result.refusals)
                partials.add(result.partials)
                self.saw(result.partials.sight)
                ended = result.partials.log.stale
                if split.stop is None and split.context.file.name in lost:
                    partials.log.lose(*lost[split.context.file.name])
            if self.progress:
                self.progress((split.stop or split.context.file.size) - split.start)

    def _reads(self, file: StoreFile) -> bool:
        return self.part is None or self.part[0] <= file.base < self.part[1]

    def _results(self, job: Job, splits: list[Split]) -> Iterator[tuple[Split, Any]]:
        if self.share is not None:
            yield from zip(splits, self.share(job, splits), strict=True)
            return
        if self.options.processes <= 1 or len(splits) <= 1:
            yield from ((split, SplitCheck(job, split)) for split in splits)
            return
        indexes = range(len(index_entries(self.store)) if job.cross else 0)
        processes = self.options.processes
        shared: Ordered[Split | int, Any] = Ordered(_Checker(job), processes, _AHEAD * processes, keeps=True)
        results = shared.results([*splits, *indexes])
        yield from zip(splits, results, strict=False)
        self._chains = []
        for found, refusals in results:
            self._chains.append(found)
            refusals_of(self.store.tree).update(refusals)

    def _learned(self, context: LogContext, partials: AllPartials, across: list[Finding], file_size: int) -> LogContext:
        """Return the context with what the scan has shown."""
        breaks = [f.physical_offset for f in across if f.kind in MISPLACING and f.physical_offset is not None]
        log, self.log, self.missing = partials.log, partials.log, partials.queues.missing
        self.records, self.messages, self.placeholders = log.records, log.messages, log.placeholders
        lost = lost_ranges(self.store, context.log_files, file_size)
        return replace(
            context,
            end=None if not context.log_files else context.min_offset if log.end is None else log.end,
            last_store_timestamp=log.last_time or 0,
            newest_store_timestamp=log.newest_time or 0,
            damaged=tuple(sorted(log.damaged + lost)),
            dispatched=partials.queues.dispatched,
            misplaced=frozenset(log.misplaced + breaks),
            destroyed=self._destroyed,
            odd_times=frozenset(partials.odd_times),
        )


def _is_reported(finding: Finding, file: StoreFile, lost: Mapping[str, tuple[int, int]]) -> bool:
    """Whether a finding only says that a file of the log was cut: its last record, or its blank, is not there."""
    if file.name not in lost or finding.file != file.name:
        return False
    if finding.kind is not LOG_BAD_RECORD:
        return finding.kind is LOG_BLANK
    with LogReader([file]) as log:  # a record begins where damage ends, or only zeros follow it
        return not any(log.read(file.base + finding.offset + finding.size, _HEADER))


@dataclass(slots=True)
class AllPartials:
    """What all splits leave for the join, added up as they come."""

    log: LogJoin = field(default_factory=LogJoin)
    queues: queues.QueuePartial = field(default_factory=queues.QueuePartial)
    index: index.IndexPartial = field(default_factory=index.IndexPartial)
    odd_times: set[int] = field(default_factory=set)

    def noted(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings as they are; where one says that a store time looks damaged, that is kept."""
        for finding in findings:
            wrong = finding.kind is LOG_STORE_TIME and finding.level is not Severity.NOTE
            if wrong and finding.physical_offset is not None:
                self.odd_times.add(finding.physical_offset)
            yield finding

    def add(self, partials: SplitPartials) -> None:
        self.log.add(partials.log)
        if partials.queues is not None:
            self.queues.join(partials.queues)
            self.index.join(partials.index)


@dataclass(slots=True)
class SplitResult:
    """A split checked in another process, here or elsewhere."""

    found: list[Finding]
    partials: SplitPartials
    refusals: Refusals

    def findings(self) -> Iterable[Finding]:
        return self.found


@dataclass(frozen=True, slots=True)
class _Checker:
    """Makes what works in a process on splits, and on index files by their number; can be pickled."""

    job: Job

    def __call__(self) -> Callable[[Split | int], Any]:
        return lambda part: self._chains(part) if isinstance(part, int) else check_split(self.job, part)

    def _chains(self, number: int) -> tuple[list[Finding], Refusals]:
        """Return findings of the chains of one index file."""
        job = self.job
        return index.chains_of(job.store, job.geometry, number), refusals_of(job.store.tree)


def check_split(job: Job, split: Split) -> SplitResult:
    """Check one split to its end; the result can be pickled."""
    check = SplitCheck(job, split)
    found = list(check.findings())
    refusals = refusals_of(split.context.file.tree) | refusals_of(job.store.tree)
    return SplitResult(found, check.partials, refusals)


__all__ = [
    "AllPartials",
    "Geometry",
    "Level",
    "Progress",
    "Share",
    "SplitResult",
    "Verification",
    "VerifyOptions",
    "check_split",
]
