"""Where a partition begins and ends, what is decided in it, what a consumer sees: one answer for all (spec 12, 13.4).

Offsets are those that a broker gives once it has started on the directory as the only replica. It trusts a directory
that was stopped in order, but for the tail of the last segment; after a crash it checks all from the recovery point on,
cuts at the first batch that is not right, and drops the segments after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from formats.kafka.checkpoint import EpochCheckpoint, parse_leader_epochs
from formats.kafka.directory_files import TopicIdFile, parse_partition_metadata
from formats.kafka.record_batch import Attributes
from rmqctl.files.local import ByteSource
from rmqctl.kafka.directory.directory import LogDirectory, LogFile, Partition, Segment
from rmqctl.kafka.directory.file_names import LONG_MAX, FileKind
from rmqctl.kafka.loading.checkpoints import Checkpoints, read_text
from rmqctl.kafka.loading.producers import EndedTransaction, ProducerReplay
from rmqctl.kafka.log.block import INT_MAX, Block, Flags, Gap, GapKind
from rmqctl.kafka.log.indexes import ProducerSnapshot, read_offset_index, read_producer_snapshot, read_time_index
from rmqctl.kafka.log.records import Records, records_in, records_of
from rmqctl.kafka.log.scan import Extent, scan

_NOWHERE = -1
_LOST = "the last entry of the offset index leads to no batch, so the segment counts as empty"


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a broker cuts a log when it starts: the file, and what it meets there."""

    file: LogFile
    gap: Gap

    @property
    def base(self) -> int:
        """Base offset of the segment; all later ones are dropped."""
        return self.file.base


@dataclass
class PartitionLog:
    """The log of one partition, as a broker serves it once it has started.

    Attributes:
        stop: where the broker cuts it; None where it keeps all. Known once :meth:`blocks` has been read.
    """

    directory: LogDirectory
    partition: Partition
    checkpoints: Checkpoints
    stop: Stop | None = field(default=None, init=False)

    @property
    def segments(self) -> list[Segment]:
        """Segments with a ``.log`` file, ascending."""
        return [segment for segment in self.partition.segments if segment.log is not None]

    @cached_property
    def recovered_from(self) -> int:
        """Number of the first segment that a broker checks batch by batch; after an orderly stop that of none."""
        segments = self.segments
        if self.partition.is_metadata_log:
            return 0  # always loaded as after a crash
        if self.directory.is_clean:
            return len(segments)
        point = self.checkpoints.offset(FileKind.RECOVERY_POINTS, self.partition) or 0
        return max((number for number, segment in enumerate(segments) if segment.base <= point), default=0)

    def blocks(self, start: int = 0) -> Iterator[tuple[Segment, Block]]:
        """Yield the batches that a broker keeps, in order; those of a block live until the next.

        Args:
            start: offset; segments that end before it are left out.
        """
        segments = self.segments
        for number, segment in enumerate(segments):
            if number + 1 < len(segments) and segments[number + 1].base <= start:
                continue
            if self.stop is not None and self.stop.base < segment.base:
                return
            for block in self.blocks_of(number):
                yield segment, block

    def blocks_of(self, number: int) -> Iterator[Block]:
        """Yield the batches of one segment, by its number, up to where a broker cuts it."""
        segment = self.segments[number]
        assert segment.log is not None
        recovered, is_last = number >= self.recovered_from, number + 1 == len(self.segments)
        source = segment.log.open()
        try:
            trusted = 0 if recovered else self._indexed(segment, source) if is_last else None
            if trusted == _NOWHERE:
                self.stop = Stop(segment.log, Gap(0, segment.log.size, GapKind.CUT, _LOST))
                return
            extent = Extent(segment.log.name, segment.base, size=segment.log.size, check_crc=recovered)
            for block in scan(source, extent):
                cut = None if trusted is None else _first_stop(block, trusted)
                if cut is None:
                    yield block
                    continue
                self.stop = Stop(segment.log, cut)
                yield block.take(block.position < cut.position)
                return
        finally:
            source.close()

    @staticmethod
    def _indexed(segment: Segment, log: ByteSource) -> int:
        """Where a broker begins to look for the end of a log that was stopped in order: at the last index entry.

        Zeros at the end of an index count as entries, and lead to byte 0. ``_NOWHERE`` where no batch starts at the
        place, or none from there on reaches the entry's offset: then the log ends for the broker with the base offset
        of the segment.
        """
        if segment.offset_index is None:
            return 0
        source = segment.offset_index.open()
        try:
            index = read_offset_index(source)
        finally:
            source.close()
        if not len(index) or index.padding:
            return 0
        position, offset = int(index.positions[-1]), int(index.offsets(segment.base)[-1])
        extent = Extent(segment.log.name if segment.log else "", segment.base, position, chained=True, check_crc=False)
        expected = position  # where the next batch begins
        for block in scan(log, extent) if position >= 0 else ():
            if not len(block) or block.position[0] != expected:
                break
            if (block["last_offset"] >= offset).any():
                return position
            expected = int(block.position[-1] + block.size[-1])
        return _NOWHERE

    @cached_property
    def log_start_offset(self) -> int:
        """The first offset that is served."""
        stored = self.checkpoints.offset(FileKind.LOG_STARTS, self.partition) or 0
        return max(stored, self.segments[0].base if self.segments else 0)

    @cached_property
    def topic_id(self) -> str | None:
        """The id in partition.metadata, None where there is none."""
        return self.topic_id_file.topic_id

    @cached_property
    def topic_id_file(self) -> TopicIdFile:
        """The partition.metadata as far as it can be read."""
        file = self.partition.one(FileKind.PARTITION_METADATA)
        return TopicIdFile() if file is None else parse_partition_metadata(read_text(file))

    @cached_property
    def leader_epochs(self) -> EpochCheckpoint:
        """The leader-epoch-checkpoint as far as it can be read."""
        file = self.partition.one(FileKind.LEADER_EPOCHS)
        return EpochCheckpoint() if file is None else parse_leader_epochs(read_text(file))

    @cached_property
    def replayed(self) -> PartitionState:
        """The state at the end of the log, from one pass over its batches."""
        return _replay(self)


@dataclass(frozen=True)
class PartitionState:
    """A partition at the end of its log.

    Attributes:
        log_end_offset: the next offset to be written.
        high_watermark: of the checkpoint, within the log.
        last_stable_offset: where readers of committed records stop.
        first_timestamp, last_timestamp: of the first and the last record of data in offset order, ms.
        epochs: leader epochs of the batches: epoch and the first offset with it.
        stop: where the broker cuts the log when it starts.
    """

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    records: int
    first_timestamp: int | None
    last_timestamp: int | None
    producers: ProducerReplay
    epochs: tuple[tuple[int, int], ...]
    stop: Stop | None


def reached_offsets(log: PartitionLog) -> Iterator[tuple[int, str]]:
    """Yield the offsets at which a log ended once, and who says so: checkpoints and producer snapshots."""
    for kind in (FileKind.HIGH_WATERMARKS, FileKind.RECOVERY_POINTS):
        offset = log.checkpoints.offset(kind, log.partition)
        if offset is not None:
            yield offset, str(kind)
    for file in log.partition.snapshots:
        yield file.base, file.name.rpartition("/")[2]


def proof_of_end(log: PartitionLog, segment: Segment, position: int, last: int) -> str:
    """Return what beside a log proves that its last batch ends with an offset, empty where nothing does.

    The entry of the offset index at its place holds the last offset of all the batches that were appended with it, and
    after an orderly stop the recovery point is the end of the log: the batch may end before either, but not after it.
    So they prove the least offset that the batch before it leaves, and no other. Whatever knows a later one is against.

    Args:
        segment: of the batch.
        position: bytes into the file of its segment.
        last: offset with which it ends if it follows the batch before it.
    """
    if not log.partition.is_plain:
        return ""  # the checkpoints are of the directory with the plain name
    most, known = dict[str, int](), [begin.start_offset - 1 for begin in log.leader_epochs.entries]
    for offset, name in reached_offsets(log):
        known.append(offset - 1)
        if log.directory.is_clean and name == FileKind.RECOVERY_POINTS:
            most[name] = offset - 1
    if segment.offset_index is not None:
        with closing(segment.offset_index.open()) as source:
            index = read_offset_index(source)
        offsets = index.offsets(segment.base)
        known += offsets.tolist()
        for offset in offsets[index.positions == position].tolist():
            most[segment.offset_index.name.rpartition("/")[2]] = offset
    if segment.time_index is not None:
        with closing(segment.time_index.open()) as source:
            known += read_time_index(source).offsets(segment.base).tolist()
    is_proven = all(offset == last for offset in most.values()) and max(known, default=-1) <= last
    return ", ".join(sorted(most)) if is_proven else ""


def _first_stop(block: Block, trusted: int) -> Gap | None:
    """Return the first place of a block, from ``trusted`` on, where a broker that starts stops to read."""
    found = [gap for gap in block.gaps if gap.position >= trusted]
    bad = np.flatnonzero(~block.crc_ok & (block.position >= trusted))
    if len(bad):
        at, size = int(block.position[bad[0]]), int(block.size[bad[0]])
        found.append(Gap(at, at + size, GapKind.CRC, "the CRC of the batch does not match"))
    return min(found, key=lambda gap: gap.position, default=None)


def _replay(log: PartitionLog) -> PartitionState:
    producers, epochs = ProducerReplay(), list[tuple[int, int]]()
    load_first_snapshot(log, producers)
    snapshots = deque(_snapshots_loaded(log))
    last_offset, beyond, records = -1, -1, 0
    first = last = b""
    for segment, block in log.blocks():
        if not len(block):
            continue
        _add_producers(block, producers, snapshots)
        _add_epochs(block, epochs)
        last_offset = int(block["last_offset"][-1])  # of the last batch, whether it is the highest or not
        beyond = max(beyond, _beyond(log, segment, block))
        counts = np.clip(block["records_count"], 0, None)
        records += int(counts.sum())
        data = np.flatnonzero((counts > 0) & ~block.flag(Attributes.CONTROL))
        if len(data):
            first = first or block.raw(int(data[0]))
            last = block.raw(int(data[-1]))
    end = _log_end(log, max(last_offset, beyond))
    if snapshots and snapshots[0][0] <= end:
        producers.load(snapshots[0][1].rows())
    for number in [number for number, known in producers.producers.items() if known.producer_epoch < 0]:
        del producers.producers[number]  # a broker that starts takes no producer without a time from a snapshot
    stored = log.checkpoints.offset(FileKind.HIGH_WATERMARKS, log.partition) or 0
    return PartitionState(
        log.log_start_offset,
        end,
        min(max(stored, log.log_start_offset), end),
        producers.stable_offset(end),
        records,
        _timestamps(first)[0],
        _timestamps(last)[1],
        producers,
        tuple(epochs),
        log.stop,
    )


def _add_producers(block: Block, producers: ProducerReplay, snapshots: deque[tuple[int, ProducerSnapshot]]) -> None:
    """Go on with the batches of a block, at the offset of a snapshot with what that says."""
    last, begin = block["last_offset"], 0
    while snapshots and int(last[-1]) >= snapshots[0][0]:
        offset, snapshot = snapshots.popleft()
        at = begin + int(np.argmax(last[begin:] >= offset))
        producers.add(block.take(slice(begin, at)))
        producers.load(snapshot.rows())
        begin = at
    producers.add(block.take(slice(begin, len(block))) if begin else block)


def _snapshots_loaded(log: PartitionLog) -> Iterator[tuple[int, ProducerSnapshot]]:
    """Yield the producer snapshots from which a broker may go on when it starts, ascending, with their offsets.

    It loads the newest up to where it begins to check the log, after an orderly stop up to the end. Only that knows
    what compaction has taken out of the log (``ProducerStateManager.truncateAndReload``).
    """
    bases, number = [segment.base for segment in log.segments], log.recovered_from
    if not bases:
        return
    is_whole = number == len(bases)
    ranges = [(log.log_start_offset, bases[-1 if is_whole else number])]
    for low, high in [*ranges, *([(bases[-1], LONG_MAX)] if is_whole else ())]:
        for file in sorted(log.partition.snapshots, key=lambda file: file.base, reverse=True):
            if low < file.base <= high:
                with closing(file.open()) as source:
                    found = read_producer_snapshot(source)
                if found.is_good:
                    yield file.base, found
                    break


def load_first_snapshot(log: PartitionLog, producers: ProducerReplay) -> None:
    """Start from the snapshot at the first segment, where earlier ones are gone."""
    for file in log.partition.snapshots:
        if log.segments and 0 < file.base == log.segments[0].base:
            source = file.open()
            try:
                snapshot = read_producer_snapshot(source)
            finally:
                source.close()
            if snapshot.is_good:
                producers.load(snapshot.rows())


def _add_epochs(block: Block, epochs: list[tuple[int, int]]) -> None:
    """Add leader epochs higher than all before, with the first offset of each."""
    column = block["partition_leader_epoch"]
    highest = np.maximum.accumulate(np.maximum(column, epochs[-1][0] if epochs else -1))
    before = np.concatenate([[epochs[-1][0] if epochs else -1], highest[:-1]])
    rows = np.flatnonzero(highest > before)
    epochs.extend(zip(column[rows].tolist(), block["base_offset"][rows].tolist(), strict=True))


def _beyond(log: PartitionLog, segment: Segment, block: Block) -> int:
    """Return the largest offset that no index of the segment can hold, -1 for none: recovery makes a last segment of
    it.
    """
    if segment.base < (log.segments[log.recovered_from].base if log.recovered_from < len(log.segments) else 1 << 63):
        return -1
    largest = int(block["last_offset"].max())
    return largest if largest - segment.base > INT_MAX else -1


def _log_end(log: PartitionLog, last_offset: int) -> int:
    """Return the next offset: after the last batch, at least the base offset of the last segment that is kept."""
    kept = log.stop.base if log.stop is not None else log.segments[-1].base if log.segments else 0
    return max(last_offset + 1, kept, log.log_start_offset)


def _timestamps(batch: bytes) -> tuple[int | None, int | None]:
    """Timestamps of the first and the last record of a batch, as far as they can be read."""
    groups = records_in(batch) if batch else ()
    found = [int(records.timestamp[at]) for records in groups if len(records) for at in (0, -1)]
    known = [time if time >= 0 else None for time in found] or [None]
    return known[0], known[-1]


class Spans:
    """The aborted transactions of a partition, to be asked for single batches."""

    def __init__(self, aborted: Iterable[EndedTransaction]) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}
        for transaction in aborted:
            spans = self._by_producer.setdefault(transaction.producer_id, [])
            spans.append((transaction.first_offset, transaction.last_offset))

    def find(self, producer: int, offset: int) -> tuple[int, int] | None:
        """First offset and marker of the aborted transaction that an offset of a producer belongs to."""
        spans = self._by_producer.get(producer, ())
        at = bisect_right(spans, offset, key=lambda span: span[0]) - 1
        return spans[at] if at >= 0 and offset <= spans[at][1] else None


@dataclass(frozen=True, slots=True)
class Visible:
    """What of a partition a consumer sees, to be asked of its blocks anywhere.

    Attributes:
        end: the first offset that it does not see.
        aborted: transactions whose records it does not see; None: it sees all.
    """

    end: int
    aborted: Spans | None

    def wanted(self, block: Block) -> Flags:
        """Which batches of a block hold records for the consumer, by what their headers say."""
        keep = ~block.flag(Attributes.CONTROL) & (block["base_offset"] < self.end)
        if self.aborted is not None:
            producer, base = block["producer_id"], block["base_offset"]
            for row in np.flatnonzero(keep & block.flag(Attributes.TRANSACTIONAL)).tolist():
                keep[row] = self.aborted.find(int(producer[row]), int(base[row])) is None
        return keep


@dataclass(frozen=True, slots=True)
class View(Visible):
    """What of a partition a consumer sees, with its log."""

    log: PartitionLog

    def records(self, start: int) -> Iterator[Records]:
        """Yield groups of records from an offset on, in order."""
        for _, block in self.log.blocks(start):
            kept = block.take(self.wanted(block) & (block["last_offset"] >= start))
            for records in records_of(kept):
                yield records.take((records.offset >= start) & (records.offset < self.end))


def view_of(log: PartitionLog, *, read_committed: bool) -> View:
    """Return what a consumer of the partition's only replica sees."""
    state = log.replayed
    if not read_committed:
        return View(state.log_end_offset, None, log)
    return View(state.last_stable_offset, Spans(state.producers.aborted), log)
