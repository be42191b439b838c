"""Runs the checks over a log directory: files and names, then every partition, then what spans partitions.

Splits of all logs are read by one process or several, in log order; what spans batches is joined here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory import LogDirectory, Partition, Segment
from rmqctl.kafka.file_names import DirectoryState, FileKind
from rmqctl.kafka.findings.directory import FILE_UNREADABLE
from rmqctl.kafka.state.metadata import MetadataImage
from rmqctl.kafka.state.partition_state import Checkpoints, PartitionLog
from rmqctl.kafka.state.replicas import gone_of
from rmqctl.kafka.verify import state
from rmqctl.kafka.verify.indexes import IndexSettings, SegmentIndexes, check_txn_index, interval_shown
from rmqctl.kafka.verify.log import LogCheck, SegmentFacts
from rmqctl.kafka.verify.producers import ProducerCheck
from rmqctl.kafka.verify.splits import SPLIT_SIZE, Headers, Split, read_split, splits_of
from rmqctl.parallel import Ordered
from rmqctl.tables import Share, note

LEVELS = ("quick", "structure", "full")
_AHEAD = 3
"""Splits for each process that are worked on, or done, before they are taken."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Choices of a verification.

    Attributes:
        level: ``quick`` names and small files; ``structure`` every batch; ``full`` every record.
        cross: hold derived files against the log.
        processes: 1 works in this process; more share the splits.
    """

    level: str = "full"
    cross: bool = True
    processes: int = 1
    split_size: int = SPLIT_SIZE


@dataclass
class Verification:
    """One run of the checks. Read :meth:`findings` to its end; then :meth:`summary` is complete.

    Attributes:
        selection: path of a partition or file inside the directory, "" for all.
        image: the cluster's metadata, wherever its log lies; None where it is not known.
        share: reads splits elsewhere; None: by processes here.
        elsewhere: topic and number of what lies in the broker's other log directories.
    """

    directory: LogDirectory
    options: VerifyOptions = field(default_factory=VerifyOptions)
    progress: Callable[[int], object] | None = None
    selection: str = ""
    image: MetadataImage | None = None
    share: Share | None = None
    elsewhere: frozenset[tuple[str, int | None]] = frozenset()
    counts: Counter[str] = field(default_factory=Counter)
    files: int = 0
    records: int = 0
    bytes: int = 0
    _seconds: float = 0.0
    _emptied: set[str] = field(default_factory=set)

    def findings(self) -> Iterator[Finding]:
        """All findings: the directory's own files, each partition in order, checkpoints, metadata.

        Raises:
            OSError: the directory cannot be listed.
        """
        began = time.monotonic()
        for finding in self._all():
            self.counts[str(finding.level)] += 1
            yield finding
        self._seconds = time.monotonic() - began

    def summary(self) -> dict[str, Any]:
        """Return the summary object of the contract."""
        return {
            "files": self.files,
            "messages": self.records,
            "bytes": self.bytes,
            "findings": {str(s): self.counts[str(s)] for s in Severity},
            "level": self.options.level,
            "seconds": round(self._seconds, 3),
        }

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that are looked at."""
        wanted = self.selection.partition("/")[0]
        return [p for p in self.directory.partitions if not wanted or p.directory == wanted]

    def _all(self) -> Iterator[Finding]:
        directory, checkpoints = self.directory, Checkpoints(self.directory)
        partitions = self.partitions
        self.files = sum(len(p.files) for p in partitions) + (0 if self.selection else len(directory.files))
        self.bytes = sum(max(log.size, 0) for p in partitions for log in p.logs)
        if not self.selection:
            yield from state.check_directory(directory)
        image = self.image or state.read_image(directory, checkpoints)
        here = {(p.topic, p.partition) for p in directory.partitions} | self.elsewhere
        gone = list(gone_of(directory, checkpoints, image, here))
        self._emptied = {one.partition.directory for one in gone if one.partition is not None}
        ends: dict[str, int] = {}
        headers = iter(self._read(partitions))
        for partition in partitions:
            log = PartitionLog(directory, partition, checkpoints)
            yield from state.check_gone(one for one in gone if one.partition is partition)
            yield from (self._placed(f, partition) for f in self._partition(log, image, headers, ends))
        if not self.selection:
            absent = {(one.topic, one.number) for one in gone if one.partition is None}
            yield from state.check_gone(one for one in gone if one.partition is None)
            yield from state.check_checkpoints(directory, checkpoints, ends, absent)
        metadata = directory.metadata_log
        if metadata is not None and image is not None and metadata in partitions:
            damaged = self.options.level != "quick" and metadata.directory not in ends
            yield from state.check_metadata(metadata, image, damaged=damaged)

    # --- one partition --------------------------------------------------------------------------------

    def _partition(
        self,
        log: PartitionLog,
        image: MetadataImage | None,
        headers: Iterator[tuple[Split, Headers | OSError]],
        ends: dict[str, int],
    ) -> Iterator[Finding]:
        partition = log.partition
        is_gone = partition.directory in self._emptied
        yield from state.check_partition_files(log, image, is_gone=is_gone)
        if self.options.level == "quick" or is_gone:
            return
        compacted = state.is_compacted(partition, log.checkpoints, image)
        check = LogCheck(
            partition,
            self.directory.is_clean and not partition.is_metadata_log,
            compacted=compacted,
            log_start=log.checkpoints.offset(FileKind.LOG_STARTS, partition) or 0,
        )
        producers = ProducerCheck(partition)
        yield from producers.begin()
        segments = [s for s in partition.segments if s.log is not None]
        held: list[Finding] = []
        for segment in segments:
            yield from self._segment(segment, check, producers, headers, held, is_last=segment is segments[-1])
        self.records += check.records
        yield from check.finish()
        if not check.damaged:  # else what is beyond the end may well be what was lost
            ends[partition.directory] = check.end_offset
        if self.options.cross:
            yield from held
            if partition.state is not DirectoryState.DELETE:
                yield from producers.finish(check)
            yield from state.check_epochs(log, check)

    def _segment(
        self,
        segment: Segment,
        check: LogCheck,
        producers: ProducerCheck,
        headers: Iterator[tuple[Split, Headers | OSError]],
        held: list[Finding],
        *,
        is_last: bool,
    ) -> Iterator[Finding]:
        """Take the splits of a segment as they come, then hold its indexes against them."""
        assert segment.log is not None
        indexes = (
            SegmentIndexes(segment, self._settings(check.partition), is_last=is_last) if self.options.cross else None
        )
        for _ in splits_of(segment.log, records=False, split_size=self.options.split_size):
            split, found = next(headers)
            if self.progress is not None:
                self.progress(split.stop - split.start)
            if isinstance(found, OSError):
                check.damaged = True
                yield Finding(FILE_UNREADABLE, segment.log.name, 0, 0, f"{found.strerror or found}")
                continue
            yield from check.add(segment, found, is_last=is_last)
            producers.add(segment.log, found)
            if indexes is not None:
                indexes.add(found)
        if indexes is not None:
            facts = check.segments[-1] if check.segments else SegmentFacts(segment)
            facts = facts if facts.segment is segment else SegmentFacts(segment)
            held.extend(indexes.finish(facts, one_by_one=not (check.compacted or check.legacy)))
            trusted = not (check.damaged or check.misses or check.compacted) and producers.is_complete
            trusted &= is_last or segment.log.size > 0
            held.extend(check_txn_index(segment, producers.aborted(), trusted=trusted, prior=producers.prior))

    def _settings(self, partition: Partition) -> IndexSettings:
        if partition.directory not in self._intervals:
            self._intervals[partition.directory] = interval_shown(partition.segments)
        return IndexSettings(
            self.directory.is_clean and not partition.is_metadata_log,
            partition.state is DirectoryState.DELETE,
            self._intervals[partition.directory],
        )

    _intervals: dict[str, int] = field(default_factory=dict)

    # --- reading --------------------------------------------------------------------------------------

    def _read(self, partitions: Iterable[Partition]) -> Iterable[tuple[Split, Headers | OSError]]:
        """Return the splits of all logs with what they give, in order."""
        if self.options.level == "quick":
            return ()
        records = self.options.level == "full"
        size = self.options.split_size
        splits = [s for p in partitions for log in p.logs for s in splits_of(log, records=records, split_size=size)]
        if self.share is not None:
            return zip(splits, self.share(_noted, splits), strict=True)
        if self.options.processes <= 1 or len(splits) < 2:
            return ((split, _try(split)) for split in splits)
        return self._shared(splits)

    def _shared(self, splits: list[Split]) -> Iterator[tuple[Split, Headers | OSError]]:
        crew: Ordered[Split, Headers | OSError] = Ordered(
            _worker, self.options.processes, self.options.processes * _AHEAD
        )
        yield from zip(splits, crew.results(splits), strict=True)

    @staticmethod
    def _placed(finding: Finding, partition: Partition) -> Finding:
        return replace(finding, topic=partition.topic, partition=partition.partition)


@cache
def _worker() -> Callable[[Split], Headers | OSError]:
    return _try


def _try(split: Split) -> Headers | OSError:
    """Return a split, or why it cannot be read."""
    try:
        return read_split(split)
    except OSError as error:
        return error


def _noted(split: Split) -> Headers | OSError:
    """Return the same by a task somewhere else."""
    found = _try(split)
    if not isinstance(found, OSError):
        note(int(np.clip(found["records_count"], 0, None).sum()), split.stop - split.start)
    return found


__all__ = ["LEVELS", "Verification", "VerifyOptions"]
