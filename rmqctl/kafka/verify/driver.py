"""Runs the checks over a log directory: files and names, then every partition, then what spans partitions.

Splits of large logs are read by one process or several, in log order, and what spans batches is joined here; small
partitions are looked at whole, many at a time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from rmqctl.files.moment import MomentTree
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory.directory import LogDirectory, Partition, Segment
from rmqctl.kafka.directory.file_names import METADATA_TOPIC, DirectoryState, FileKind
from rmqctl.kafka.findings.directory import FILE_UNREADABLE
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.log.block import stated_records
from rmqctl.kafka.state.metadata import MetadataImage
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Gone, gone_of
from rmqctl.kafka.verify import state
from rmqctl.kafka.verify.indexes import IndexSettings, SegmentIndexes, check_txn_index, intervals_shown
from rmqctl.kafka.verify.log import LogCheck, SegmentFacts
from rmqctl.kafka.verify.producers import ProducerCheck
from rmqctl.kafka.verify.sound import LARGEST, SoundLog, may_be_sound, sound_logs
from rmqctl.kafka.verify.splits import SPLIT_SIZE, Headers, Split, read_split, splits_of
from rmqctl.parallel import Ordered, Share, note

LEVELS = ("quick", "structure", "full")
_NOT_THERE = "it is not there"
_AHEAD = 3
"""Parts for each process that are worked on, or done, before they are taken."""
_GROUP, _GROUP_SIZE = 256, 4 << 20
"""Small partitions that are looked at together, at most, and bytes of their logs."""


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


@dataclass(frozen=True, slots=True)
class Group:
    """Small partitions that follow each other, by their numbers."""

    begin: int
    end: int
    size: int


@dataclass(slots=True)
class PartitionChecked:
    """What was found in a partition; the numbers are there once the findings were read.

    Attributes:
        whole: records of batches whose CRCs match.
        end: the offset after its last batch, None where that is not to be trusted.
    """

    findings: Iterable[Finding] = ()
    records: int = 0
    whole: int = 0
    end: int | None = None


Results = Iterator[tuple["Split | Group", Any]]
"""Parts in order with what they gave: headers of a split or why there are none, of a group what was found in each."""


@dataclass
class Verification:
    """One run of the checks. Read :meth:`findings` to its end; then :meth:`summary` is complete.

    Attributes:
        selection: path of a partition or file inside the directory, "" for all.
        part: names of the directories of partitions that are looked at, and nothing else; none: what belongs to no
            partition; None: all.
        image: the cluster's metadata, wherever its log lies; None where it is not known.
        share: reads splits elsewhere; None: by processes here.
        elsewhere: topic and number of what lies in the broker's other log directories.
        known: what was found in partitions that have not changed since, by the names of their directories.
        memory: takes what is found, for the same.
        checkpoints: of the directory, where they have been read; None: they are read here.
        watch: called with each split of a log that is not small, as it is taken: what it gave, or why it gave nothing.
    """

    directory: LogDirectory
    options: VerifyOptions = field(default_factory=VerifyOptions)
    progress: Callable[[int], object] | None = None
    selection: str = ""
    image: MetadataImage | None = None
    share: Share | None = None
    elsewhere: frozenset[tuple[str, int | None]] = frozenset()
    part: frozenset[str] | None = None
    known: Mapping[str, PartitionChecked] = field(default_factory=dict)
    memory: dict[str, PartitionChecked] | None = None
    checkpoints: Checkpoints | None = None
    watch: Callable[[Partition, Segment, Headers | OSError], object] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    files: int = 0
    records: int = 0
    bytes: int = 0
    _seconds: float = 0.0
    _emptied: set[str] = field(default_factory=set)
    _intervals: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._checkpoints = self.checkpoints or Checkpoints(self.directory)

    def findings(self) -> Iterator[Finding]:
        """All findings: the directory's own files, each partition in order, checkpoints, metadata."""
        began = time.monotonic()
        for finding in map(self._named, self._all()):
            self.counts[str(finding.level)] += 1
            yield finding
        self._seconds = time.monotonic() - began

    def _named(self, finding: Finding) -> Finding:
        """Return a finding; that of a file which is not there says where a directory lies in its place."""
        if not finding.message.startswith(_NOT_THERE):
            return finding
        entry = self.directory.tree.stat(finding.file)
        if entry is None or not entry.is_directory:
            return finding
        rest = finding.message.removeprefix(_NOT_THERE)
        return replace(finding, message=f"{_NOT_THERE} (a directory lies in its place){rest}")

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
        wanted, part = self.selection.partition("/")[0], self.part
        return [
            p
            for p in self.directory.partitions
            if (not wanted or p.directory == wanted) and (part is None or p.directory in part)
        ]

    @property
    def _is_whole(self) -> bool:
        return not self.selection and not self.part

    def _all(self) -> Iterator[Finding]:
        directory, checkpoints = self.directory, self._checkpoints
        partitions = self.partitions
        self.files = sum(len(p.files) for p in partitions) + (len(directory.files) if self._is_whole else 0)
        self.bytes = sum(max(log.size, 0) for p in partitions for log in p.logs)
        if self._is_whole:
            yield from state.check_directory(directory)
            if not any(topic == METADATA_TOPIC for topic, _ in self.elsewhere):
                yield from state.check_metadata_is_here(directory)
        image = self.image = self.image or state.read_image(directory, checkpoints)
        if self._is_whole:
            yield from state.check_node(directory, image)
        gone = self._gone(partitions)
        emptied = {one.partition.directory: one for one in gone if one.partition is not None}
        self._emptied = set(emptied)
        ends: dict[str, int] = {}
        for partition, looked in self._looked(partitions):
            if partition.directory in emptied:
                yield from state.check_gone([emptied[partition.directory]])
            if self.memory is not None:
                looked.findings = tuple(looked.findings)
                self.memory[partition.directory] = looked
            yield from (self._placed(finding, partition) for finding in looked.findings)
            self.records += looked.records
            if looked.end is not None:
                ends[partition.directory] = looked.end
        yield from self._beside(gone, ends)
        metadata = directory.metadata_log
        if metadata is not None and image is not None and metadata in partitions:
            damaged = self.options.level != "quick" and metadata.directory not in ends
            yield from state.check_metadata(metadata, image, damaged=damaged)

    def _gone(self, partitions: Sequence[Partition]) -> list[Gone]:
        """Return the partitions that are looked at and have no segment; of all, those without a directory, too."""
        if self.selection:
            return list(gone_of(replace(self.directory, partitions=[*partitions]), self._checkpoints, None, ()))
        here = {(p.topic, p.partition) for p in self.directory.partitions} | self.elsewhere
        return list(gone_of(self.directory, self._checkpoints, self.image, here))

    def _beside(self, gone: Sequence[Gone], ends: Mapping[str, int]) -> Iterator[Finding]:
        """Yield findings of what is not here and of checkpoints; of a part what the ends of its logs show."""
        absent = {(one.topic, one.number) for one in gone if one.partition is None}
        if self._is_whole:
            yield from state.check_gone(one for one in gone if one.partition is None)
        if not self.selection:
            found = state.check_checkpoints(self.directory, self._checkpoints, ends, absent)
            yield from (finding for finding in found if self._is_whole or finding.topic is not None)

    def _looked(self, partitions: Sequence[Partition]) -> Iterator[tuple[Partition, PartitionChecked]]:
        """Yield the partitions in order with what is found in them."""
        parts = list(self._parts(partitions))
        results, number = self._results(parts), 0
        groups = {part.begin: part for part in parts if isinstance(part, Group)}
        while number < len(partitions):
            group = groups.get(number)
            if partitions[number].directory in self.known:
                yield partitions[number], self.known[partitions[number].directory]
                number += 1
            elif group is None:
                log, looked = PartitionLog(self.directory, partitions[number], self._checkpoints), PartitionChecked()
                looked.findings = self._partition(log, results, looked)
                yield partitions[number], looked
                number += 1
            else:
                yield from zip(partitions[number : group.end], next(results)[1], strict=True)
                number = group.end

    # --- one partition --------------------------------------------------------------------------------

    def _partition(self, log: PartitionLog, results: Results, looked: PartitionChecked) -> Iterator[Finding]:
        """Take the splits of a partition as they come, and say what is wrong."""
        partition = log.partition
        is_gone = partition.directory in self._emptied
        yield from state.check_partition_files(log, self.image, is_gone=is_gone)
        if self.options.level == "quick" or is_gone:
            return
        check = LogCheck(
            partition,
            self.directory.is_clean and not partition.is_metadata_log,
            compacted=state.is_compacted(partition, log.checkpoints, self.image),
            may_be_compacted=self.image is None or partition.topic not in self.image.topics,
            log_start=log.checkpoints.offset(FileKind.LOG_STARTS, partition) or 0,
            leader_epoch=state.leader_epoch(partition, self.image),
        )
        producers = ProducerCheck(partition)
        yield from producers.begin()
        segments = [s for s in partition.segments if s.log is not None]
        held: list[Finding] = []
        for segment in segments:
            yield from self._segment(segment, check, producers, results, held, is_last=segment is segments[-1])
        looked.records, looked.whole = check.records, check.whole
        yield from check.finish(log)
        if not check.damaged:  # else what is beyond the end may well be what was lost
            looked.end = check.end_offset
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
        results: Results,
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
            _, found = next(results)
            if self.watch is not None:
                self.watch(check.partition, segment, found)
            if isinstance(found, OSError):
                check.damaged = True
                yield Finding(FILE_UNREADABLE, segment.log.name, 0, 0, f"{found.strerror or found}")
                continue
            yield from check.add(segment, found)
            producers.add(segment.log, found)
            if indexes is not None:
                indexes.add(found)
        if indexes is not None:
            facts = check.segments[-1] if check.segments else SegmentFacts(segment)
            facts = facts if facts.segment is segment else SegmentFacts(segment)
            held.extend(indexes.finish(facts, one_by_one=not (check.compacted or check.legacy)))
            trusted = not (check.damaged or check.misses or check.compacted) and producers.is_complete
            trusted &= is_last or segment.log.size > 0
            trusted &= not (is_last and isinstance(self.directory.tree, MomentTree))  # a broker writes it after the log
            held.extend(check_txn_index(segment, producers.aborted(), trusted=trusted, prior=producers.prior))

    def _settings(self, partition: Partition) -> IndexSettings:
        if partition.directory not in self._intervals:
            self._intervals[partition.directory] = max(intervals_shown(partition.segments), default=1 << 31)
        return IndexSettings(
            self.directory.is_clean and not partition.is_metadata_log,
            partition.state is DirectoryState.DELETE,
            self._intervals[partition.directory],
        )

    # --- many small partitions ------------------------------------------------------------------------

    def _group(self, group: Group) -> list[PartitionChecked]:
        """Return what is found in small partitions; those in which nothing is wrong are passed together."""
        partitions = self.partitions[group.begin : group.end]
        fit = [p for p in partitions if may_be_sound(p) and p.directory not in self._emptied]
        records, cross = self.options.level == "full", self.options.cross
        sound = sound_logs(fit, is_clean=self.directory.is_clean, records=records, cross=cross) if fit else []
        passed = {p.directory: log for p, log in zip(fit, sound, strict=True) if log is not None}
        return [self._small(partition, passed.get(partition.directory)) for partition in partitions]

    def _small(self, partition: Partition, sound: SoundLog | None) -> PartitionChecked:
        log, looked = PartitionLog(self.directory, partition, self._checkpoints), PartitionChecked()
        if sound is None:
            splits = self._splits(partition)
            looked.findings = tuple(self._partition(log, ((split, _try(split)) for split in splits), looked))
            return looked
        found = list(state.check_partition_files(log, self.image, is_gone=False))
        if self.options.cross:
            found += state.check_epochs(log, sound)
        return PartitionChecked(found, sound.records, sound.records, sound.end_offset)

    # --- reading --------------------------------------------------------------------------------------

    def _parts(self, partitions: Sequence[Partition]) -> Iterator[Split | Group]:
        """Yield the work in order: small partitions together, the logs of others in splits."""
        if self.options.level == "quick":
            return
        begin = size = 0
        for number, partition in enumerate(partitions):
            is_known = partition.directory in self.known
            sizes = [] if is_known or self.share is not None else [log.size for log in partition.logs]
            own = sum(sizes)
            is_small = bool(sizes) and min(sizes) >= 0 and own <= min(LARGEST, self.options.split_size)
            if number > begin and (not is_small or number - begin == _GROUP or size + own > _GROUP_SIZE):
                yield Group(begin, number, size)
                begin, size = number, 0
            if is_small:
                size += own
            else:
                yield from () if is_known else self._splits(partition)
                begin = number + 1
        if begin < len(partitions):
            yield Group(begin, len(partitions), size)

    def _splits(self, partition: Partition) -> Iterator[Split]:
        """Yield the splits of the logs of a partition."""
        for log in partition.logs:
            yield from splits_of(log, records=self.options.level == "full", split_size=self.options.split_size)

    def _results(self, parts: list[Split | Group]) -> Results:
        """Yield the parts with what they give, in order."""
        found: Iterable[Any]
        if self.share is not None:
            found = self.share(_noted, parts)
        elif self.options.processes <= 1 or len(parts) < 2:
            found = map(self._read, parts)
        else:
            make = partial(_reader, replace(self, progress=None, watch=None))
            found = Ordered[Split | Group, Any](make, self.options.processes, self.options.processes * _AHEAD).results(
                parts
            )
        for part, result in zip(parts, found, strict=True):
            if self.progress is not None:
                self.progress(part.size if isinstance(part, Group) else part.stop - part.start)
            yield part, result

    def _read(self, part: Split | Group) -> list[PartitionChecked] | Headers | OSError:
        return self._group(part) if isinstance(part, Group) else _try(part)

    @staticmethod
    def _placed(finding: Finding, partition: Partition) -> Finding:
        return replace(finding, topic=partition.topic, partition=partition.partition)


def share_together(each: Sequence[Verification], share: Share) -> None:
    """Have the logs of several directories read elsewhere as one piece of work."""
    parts = [part for one in each for part in one._parts(one.partitions)]  # noqa: SLF001 -- of the same module
    results = iter(share(_noted, parts))
    for one in each:
        one.share = lambda _, items: islice(results, len(items))


def _reader(verification: Verification) -> Callable[[Split | Group], list[PartitionChecked] | Headers | OSError]:
    return verification._read  # noqa: SLF001 -- of the same module


def _try(split: Split) -> Headers | OSError:
    """Return a split, or why it cannot be read."""
    try:
        return read_split(split)
    except OSError as error:
        return error


def _noted(split: Split) -> Headers | OSError:
    """Read the headers of a split in a task elsewhere; return the system's refusal instead of raising it."""
    found = _try(split)
    if not isinstance(found, OSError):
        note(int(stated_records(found).sum()), split.stop - split.start)
    return found


__all__ = ["LEVELS", "Verification", "VerifyOptions"]
