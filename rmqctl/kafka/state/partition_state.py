"""Where a partition begins and ends, what is decided in it, what a consumer sees: one answer for all (spec 12, 13.4).

Offsets are those that a broker gives once it has started on the directory as the only replica. It trusts a directory
that was stopped in order, but for the tail of the last segment; after a crash it checks all from the recovery point on,
cuts at the first batch that is not right, and drops the segments after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from formats.errors import DecodeError
from formats.kafka.checkpoint import EpochCheckpoint, parse_leader_epochs
from formats.kafka.directory_files import TopicIdFile, parse_partition_metadata
from formats.kafka.record_batch import Attributes
from rmqctl.findings import Finding
from rmqctl.kafka.directory.directory import LogDirectory, LogFile, Partition, Segment
from rmqctl.kafka.directory.file_names import LONG_MAX, FileKind
from rmqctl.kafka.loading.checkpoints import Checkpoints, read_text
from rmqctl.kafka.loading.files import PartitionFiles, StartFails
from rmqctl.kafka.loading.load import SWAP, LoadedPartition
from rmqctl.kafka.loading.loads import Loads
from rmqctl.kafka.loading.producers import EndedTransaction, ProducerReplay
from rmqctl.kafka.log.block import Block, Flags, GapKind, stated_records
from rmqctl.kafka.log.indexes import (
    ProducerSnapshot,
    read_offset_index,
    read_producer_snapshot,
    read_time_index,
    read_txn_index,
)
from rmqctl.kafka.log.records import Records, records_in, records_of
from rmqctl.kafka.log.reference import records_of_batch
from rmqctl.kafka.log.scan import Extent, scan

_FEW_BYTES = 1 << 13
"""Bytes of a batch up to which its records are decoded faster one by one than as columns."""


@dataclass
class PartitionLog:
    """The log of one partition: its files as they lie, and what of them a broker serves once it has started.

    Attributes:
        loads: gives the loads of its directory; None: those of the newest release.
    """

    directory: LogDirectory
    partition: Partition
    checkpoints: Checkpoints
    loads: Callable[[], Loads] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """For another process: loaded."""
        return {**self.__dict__, "loaded": self.loaded, "loads": None}

    @property
    def segments(self) -> list[Segment]:
        """Segments with a ``.log`` file, ascending, as they lie."""
        return [segment for segment in self.partition.segments if segment.log is not None]

    @cached_property
    def loaded(self) -> LoadedPartition:
        """The partition as a broker loads it; as it lies where none can, with the reason."""
        loads = Loads(self.directory, self.checkpoints) if self.loads is None else self.loads()
        try:
            return loads.of(self.partition)
        except StartFails as failure:
            return as_it_lies(self.partition, self.log_start_offset, failure.message)

    @property
    def end(self) -> int:
        """The next offset to be written."""
        return self.loaded.log_end_offset

    @property
    def is_whole(self) -> bool:
        """Whether all that a broker loads counts, not only what lies before some offset."""
        return True

    @property
    def served(self) -> list[Segment]:
        """The segments that a broker serves, ascending, each as far as it is kept."""
        return self.loaded.segments

    @cached_property
    def readable(self) -> list[Segment]:
        """The segments as they lie, damaged ends too; a clean-up that a start finishes counts as finished."""
        if not any(file.meaning.leftover == SWAP for file in self.partition.leftovers):
            return self.segments
        swapped = {s.base: s for s in self.served if s.log is not None and s.log.is_leftover}
        gone = self.loaded.replaced
        kept = {s.base: s for s in self.segments if s.log is not None and s.log.name not in gone}
        return [segment for _, segment in sorted((kept | swapped).items())]

    def blocks(self, start: int = 0, *, check_crc: bool = False) -> Iterator[tuple[Segment, Block]]:
        """Yield the batches that a broker keeps, in order; those of a block live until the next.

        Args:
            start: offset; segments that end before it are left out.
            check_crc: leave out batches with a wrong CRC, also where a broker does not look at it.
        """
        served = self.served if start < self.loaded.log_end_offset else []
        for number, segment in enumerate(served):
            if number + 1 < len(served) and served[number + 1].base <= start:
                continue
            for block in self.blocks_of(number, check_crc=check_crc):
                yield segment, block

    def blocks_of(self, number: int, *, check_crc: bool = False) -> Iterator[Block]:
        """Yield the batches of one served segment, by its number, before the end of the log."""
        loaded, segment = self.loaded, self.served[number]
        if segment.log is None:
            return
        is_last, size = number + 1 == len(self.served), segment.log.size
        if is_last and loaded.unread_from is not None:
            size = loaded.unread_from
        source = segment.log.open()
        try:
            extent = Extent(segment.log.name, segment.base, size=size, check_crc=check_crc or bool(loaded.failure))
            for block in scan(source, extent):
                keep = block.crc_ok
                if is_last:
                    keep = keep & (block["base_offset"] < loaded.log_end_offset)
                yield block if keep.all() else block.take(keep)
        finally:
            source.close()

    @cached_property
    def log_start_offset(self) -> int:
        """The first offset that is served, by the checkpoint and the names of files as they lie."""
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
        """Where the log begins and ends, and what is decided in it."""
        return PartitionState(self)


class PartitionState:
    """A partition at the end of its log; what needs a pass over its batches is found when it is first asked for."""

    def __init__(self, log: PartitionLog) -> None:
        self._log, self._loaded = log, log.loaded

    @property
    def log_start_offset(self) -> int:
        return self._loaded.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The next offset to be written."""
        return self._log.end

    @property
    def stop(self) -> Finding | None:
        """Where the broker cuts the log when it starts, or ceases to read it."""
        return self._loaded.stopped_by

    @property
    def high_watermark(self) -> int:
        """That of the checkpoint, within the log."""
        stored = self._log.checkpoints.offset(FileKind.HIGH_WATERMARKS, self._log.partition) or 0
        return min(max(stored, self.log_start_offset), self.log_end_offset)

    @property
    def open(self) -> Mapping[int, int]:
        """First offset of the open transaction of each producer that has one."""
        replays = self._loaded.failure or not self._log.is_whole
        return (self.producers if replays else self._loaded.producers).open

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop."""
        return min(self.open.values(), default=self.log_end_offset)

    @cached_property
    def counted(self) -> CountedRecords:
        """The records in the log, by the headers of their batches."""
        return _counted(self._log)

    @cached_property
    def producers(self) -> ProducerReplay:
        """The producers and transactions that the batches show, those in snapshots too."""
        return producers_of(self._log, (block for _, block in self._log.blocks()))

    @cached_property
    def aborted(self) -> Spans:
        """The transactions that readers of committed records pass over.

        Those that the batches show, and what the transaction indexes list besides, marker or not: readers take a list
        of aborted transactions from there, and ask for nothing else (``LogSegment.collectAbortedTxns``).
        """
        listed = (one for one in listed_as_aborted(self._log) if self._log.is_whole or one.last_offset < self._log.end)
        return Spans([*self.producers.aborted, *listed])

    @cached_property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        """Leader epochs of the batches: epoch and the first offset with it."""
        found = list[tuple[int, int]]()
        for _, block in self._log.blocks():
            if len(block):
                _add_epochs(block, found)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class CountedRecords:
    """The records of a log; times of the first and the last record of data in offset order, ms."""

    count: int
    first_timestamp: int | None
    last_timestamp: int | None


def as_it_lies(partition: Partition, start: int, why: str) -> LoadedPartition:
    """Return a partition that no broker loads: every segment counts, and the end is that of the last sound batch."""
    found = LoadedPartition(PartitionFiles(partition), start, start, failure=why)
    found.bases = [log.base for log in partition.logs]
    for log in reversed(partition.logs):
        source = log.open()
        try:
            sound = (block.take(block.crc_ok) for block in scan(source, Extent(log.name, log.base, size=log.size)))
            last = max((int(block["last_offset"].max()) for block in sound if len(block)), default=-1)
        finally:
            source.close()
        found.log_end_offset = max(found.log_end_offset, log.base, last + 1)
        if last >= 0:
            break
    return found


def damage_of(log: PartitionLog, start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the places of a log at which batches are lost, as files say it: a wrong CRC, bytes that are no batch, an
    end before one that the log has reached. Each with the first offset that may have lain there, and in words.

    Args:
        start: offset; segments that end before it are left out.
    """
    segments = [one for one in log.partition.segments if one.log is not None or one.offset_index is not None]
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base <= start:
            continue
        at, is_last = segment.base, number + 1 == len(segments)
        if segment.log is None:
            yield at, f"segment {at}, of which only the index is there"
            continue
        with closing(segment.log.open()) as source:
            for block in scan(source, Extent(segment.log.name, segment.base, size=segment.log.size)):
                wrong = [(int(block.position[row]), "a wrong CRC") for row in np.flatnonzero(~block.crc_ok)]
                gaps = (gap for gap in block.gaps if not (is_last and gap.why is GapKind.ZERO_TAIL))
                wrong += [(gap.position, "no batch") for gap in gaps]  # room is left only where the log grows
                for position, what in sorted(wrong):
                    before = np.flatnonzero(block.crc_ok & (block.position < position))
                    at = max(at, int(block["last_offset"][before].max()) + 1) if len(before) else at
                    yield at, f"byte {position} of {segment.log.name} ({what})"
                sound = block["last_offset"][block.crc_ok]
                at = max(at, int(sound.max()) + 1) if len(sound) else at
    end = log.replayed.log_end_offset
    reached = max(reached_offsets(log), default=(0, ""))
    if log.partition.is_plain and reached[0] > end:
        yield end, f"the end of the log, {end}, which once reached {reached[0]} ({reached[1]})"


def reached_offsets(log: PartitionLog) -> Iterator[tuple[int, str]]:
    """Yield the offsets at which a log ended once, and who says so: checkpoints and producer snapshots."""
    for kind in (FileKind.HIGH_WATERMARKS, FileKind.RECOVERY_POINTS):
        offset = log.checkpoints.offset(kind, log.partition)
        if offset is not None:
            yield offset, str(kind)
    for file in log.partition.snapshots:
        yield file.base, file.name.rpartition("/")[2]


def proof_of_end(log: PartitionLog, segment: Segment, position: int, last: int, epoch: int) -> str:
    """Return what beside a log proves that its last batch ends with an offset, empty where nothing does.

    The entry of the offset index at its place holds the last offset of all the batches that were appended with it,
    after an orderly stop the recovery point is the end of the log, and where a later leader epoch begins was the end,
    too: the batch may end before each of them, but not after it. So they prove the least offset that the batch before
    it leaves, and no other. Whatever knows a later one is against.

    Args:
        segment: of the batch.
        position: bytes into the file of its segment.
        last: offset with which it ends if it follows the batch before it.
        epoch: its leader epoch.
    """
    if not log.partition.is_plain:
        return ""  # the checkpoints are of the directory with the plain name
    most, known = dict[str, int](), [begin.start_offset - 1 for begin in log.leader_epochs.entries]
    for offset, name in reached_offsets(log):
        known.append(offset - 1)
        if log.directory.is_clean and name == FileKind.RECOVERY_POINTS:
            most[name] = offset - 1
    later = [begin.start_offset for begin in log.leader_epochs.entries if begin.epoch > epoch]
    if later and not log.leader_epochs.problems:
        most[FileKind.LEADER_EPOCHS] = min(later) - 1
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


def _counted(log: PartitionLog) -> CountedRecords:
    count, first, last = 0, b"", b""
    for _, block in log.blocks():
        counts = stated_records(block)
        count += int(counts.sum())
        data = np.flatnonzero((counts > 0) & ~block.flag(Attributes.CONTROL))
        if len(data):
            first = first or block.raw(int(data[0]))
            last = block.raw(int(data[-1]))
    return CountedRecords(count, _timestamps(first)[0], _timestamps(last)[1])


def producers_of(log: PartitionLog, blocks: Iterable[Block]) -> ProducerReplay:
    """Return the producers and transactions that batches show, and the producer snapshots that a broker loads.

    Args:
        blocks: of all the log, in order; batches after its end are those that a broker cuts off.
    """
    producers = ProducerReplay()
    load_first_snapshot(log, producers)
    snapshots = deque(found for found in _snapshots_loaded(log) if found[0] <= log.end)
    for block in blocks:
        if len(block):
            _add_producers(block, producers, snapshots)
    if snapshots:
        producers.load(snapshots[0][1].rows())
    for number in [number for number, known in producers.producers.items() if known.producer_epoch < 0]:
        del producers.producers[number]  # a broker that starts takes no producer without a time from a snapshot
    return producers


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
    bases, recovered = log.loaded.bases, log.loaded.recovered
    if not bases:
        return
    number = next((number for number, base in enumerate(bases) if base in recovered), len(bases))
    is_whole = number == len(bases)
    ranges = [(log.loaded.log_start_offset, bases[-1 if is_whole else number])]
    for low, high in [*ranges, *([(bases[-1], LONG_MAX)] if is_whole else ())]:
        for file in sorted(log.partition.snapshots, key=lambda file: file.base, reverse=True):
            if low < file.base <= high:
                with closing(file.open()) as source:
                    found = read_producer_snapshot(source)
                if found.is_good:
                    yield file.base, found
                    break


def listed_as_aborted(log: PartitionLog) -> Iterator[EndedTransaction]:
    """Yield the entries of the transaction indexes that stay as they are when a broker starts."""
    for segment in log.served:
        if segment.txn_index is None or segment.base in log.loaded.recovered:
            continue
        with closing(segment.txn_index.open()) as source:
            index = read_txn_index(source)
        names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
        for producer, first, last, stable in zip(*(index[name].tolist() for name in names), strict=True):
            yield EndedTransaction(producer, first, last, stable, committed=False)


def load_first_snapshot(log: PartitionLog, producers: ProducerReplay) -> None:
    """Start from the snapshot at the first segment, where earlier ones are gone."""
    for file in log.partition.snapshots:
        if log.segments and 0 < file.base == log.segments[0].base <= log.end:
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


def first_timestamp(file: LogFile) -> int | None:
    """Return the time of the first record of a segment, epoch ms; None where its first MiB shows none."""
    with closing(file.open()) as source:
        for block in scan(source, Extent(file.name, file.meaning.base, stop=1 << 20, size=file.size)):
            if len(block):
                return _timestamps(block.raw(0))[0]
    return None


def _timestamps(batch: bytes) -> tuple[int | None, int | None]:
    """Timestamps of the first and the last record of a batch, as far as they can be read."""
    found = list[int]()
    if batch and len(batch) <= _FEW_BYTES:
        try:
            found.extend(record.timestamp for record in records_of_batch(batch))
        except DecodeError:
            pass
    elif batch:
        found.extend(int(records.timestamp[at]) for records in records_in(batch) if len(records) for at in (0, -1))
    known = [time if time >= 0 else None for time in found] or [None]
    return known[0], known[-1]


class Spans:
    """The aborted transactions of a partition, to be asked for single batches."""

    def __init__(self, aborted: Iterable[EndedTransaction]) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}
        for transaction in sorted(aborted, key=lambda one: one.first_offset):
            spans = self._by_producer.setdefault(transaction.producer_id, [])
            first, last = transaction.first_offset, transaction.last_offset
            if spans and first <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(spans[-1][1], last)
            else:
                spans.append((first, last))

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
    return View(state.last_stable_offset, state.aborted, log)
