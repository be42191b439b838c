"""The derived files of one partition as its log alone gives them (spec 7 to 9, 13.3).

One pass over the batches, by the builders with which a broker's start is replayed. Damage in the log is passed over:
batches that are not sound leave no trace in what is derived.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from formats.kafka.checkpoint import LeaderEpoch, format_leader_epochs
from formats.kafka.record_batch import Attributes, ControlType
from rmqctl.kafka.directory.directory import LogFile, Partition, Segment
from rmqctl.kafka.directory.file_names import FileKind, meaning_of
from rmqctl.kafka.loading.epochs import NAME, LeaderEpochs
from rmqctl.kafka.loading.files import PartitionFiles, StartFails
from rmqctl.kafka.loading.index_build import OffsetNotIncreasing, OffsetOutOfRange
from rmqctl.kafka.loading.producers import Marker, ProducerReplay, markers_in
from rmqctl.kafka.loading.segment import BrokerSegment, SegmentRecovery
from rmqctl.kafka.loading.snapshots import ENDING, EXPIRATION_MS, ProducerStates
from rmqctl.kafka.log.block import Batches, are_thinned, has_bridges
from rmqctl.kafka.log.indexes import read_producer_snapshot, read_txn_index
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.state.partition_state import PartitionLog, load_first_snapshot
from rmqctl.kafka.verify.indexes import intervals_shown

INTERVAL = 4096
"""``index.interval.bytes`` of a broker without settings."""
INDEXES = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX})
_ENDINGS = (".index", ".timeindex", ".txnindex")
_NEVER = -(1 << 63)


@dataclass
class Built:
    """What a log gives.

    Attributes:
        files: a view of the partition in which the derived files are those that were built.
        names: of those files, sorted.
        left: why a file could not be built, by its name.
        end_offset: the offset after the last batch, or the base offset of the last segment.
        replay: the producers at the end of the log.
        records: in the sound batches of the log.
    """

    files: PartitionFiles
    names: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    end_offset: int = 0
    replay: ProducerReplay = field(default_factory=ProducerReplay)
    records: int = 0

    def content(self, name: str) -> bytes:
        """Return the bytes of a file that was built."""
        return self.files.read(name)


def interval_of(partition: Partition, stated: int | None) -> int:
    """Bytes between index entries: as settings say, else a broker's own, or as few as the indexes here show.

    Entries are farther apart than the interval, and a broker that starts often leaves more bytes between them.
    """
    if stated is not None:
        return stated
    return min([INTERVAL, *(distance - 1 for distance in intervals_shown(partition.segments))])


def build(log: PartitionLog, interval: int, *, at_end: bool) -> Built:
    """Make all files that are derived from the log of a partition.

    Args:
        interval: ``index.interval.bytes``.
        at_end: there is a producer snapshot of the end of the log, too, as after an orderly stop.
    """
    return Builder(log, interval, at_end=at_end).run()


class Builder:
    """The files that are derived from a log, made as its batches come.

    Where records are missing, by compaction, in a hole or under a bridge, only what was derived before knows of them:
    producer snapshots, and entries of transaction indexes that nothing in the log is against, go on being true.

    Feed :meth:`begin` each segment in order and :meth:`add` its batches, then :meth:`finish` once; or let :meth:`run`
    read them.
    """

    def __init__(self, log: PartitionLog, interval: int, *, at_end: bool) -> None:
        self.log, self.interval, self.at_end = log, interval, at_end
        self.files = PartitionFiles(log.partition)
        for name in self.files.names():
            if name.endswith(ENDING) or name == NAME:
                self.files.delete(name)
        self.found = Built(self.files)
        self.epochs = LeaderEpochs(self.files)
        self.producers = ProducerStates(self.files, _NEVER)
        load_first_snapshot(log, self.producers.replay)
        self.latest, self.misses, self._beyond = -1, False, -1
        self._aborted: _Aborted | None = None
        self.segment: Segment | None = None
        self._recovery: SegmentRecovery | None = None

    def run(self) -> Built:
        """Read the whole log; what it gives."""
        for segment in self.log.segments:
            assert segment.log is not None
            self.begin(segment)
            source = segment.log.open()
            try:
                for block in scan(source, Extent(segment.log.name, segment.base, size=segment.log.size)):
                    self.add(block, markers_in(block))
            finally:
                source.close()
        return self.finish()

    def begin(self, segment: Segment) -> None:
        """Go on with the next segment."""
        self._end()
        if self.segment is not None:
            self._take_up(segment.base)
            self._snapshot(segment.base)
        self.segment = segment
        own = BrokerSegment(self.files, segment.base, int)
        self.files.delete(own.name(".txnindex"))
        self._aborted = None if segment.txn_index is None else _Aborted(segment.txn_index)
        self._recovery = SegmentRecovery(own, self.producers, self.epochs, self.interval, cuts=False)

    def add(self, batches: Batches, marker: Callable[[int], Marker | None]) -> None:
        """Go on with batches of the segment.

        Args:
            marker: what the marker in a row says.
        """
        recovery = self._recovery
        self._look(batches)
        self.found.records += int(np.maximum(batches["records_count"], 0)[batches.crc_ok].sum())
        if self._aborted is not None:
            self._aborted.add(batches, marker)
        if recovery is not None:
            self._tried(lambda: recovery.add(batches, marker))

    def finish(self) -> Built:
        """Return what was made, when all segments were seen."""
        self._end()
        found = self.found
        if self.segment is not None:
            found.end_offset = max(self.producers.end, self.segment.base)
            self._take_up(found.end_offset)
            if self.at_end:
                self._snapshot(found.end_offset)
        self._leader_epochs()
        found.replay = self.producers.replay
        found.names.sort()
        return found

    def _look(self, batches: Batches) -> None:
        """Note whether records are missing up to the end of some batches."""
        base, last = batches["base_offset"][batches.crc_ok], batches["last_offset"][batches.crc_ok]
        if not self.misses and len(base):
            before = np.concatenate([[self._beyond if self._beyond >= 0 else base[0]], last[:-1] + 1])
            self.misses = bool((base > before).any()) or are_thinned(batches) or has_bridges(batches)
            self._beyond = int(last[-1]) + 1

    def _end(self) -> None:
        """Put down the indexes of the segment."""
        recovery = self._recovery
        if recovery is None or not self._tried(recovery.finish):
            return
        if self._aborted is not None and self.misses:
            name = recovery.segment.name(".txnindex")
            self.files.put(name, self._aborted.with_those_of(self.files.read(name) if name in self.files else b""))
        names = (recovery.segment.name(ending) for ending in _ENDINGS)
        self.found.names += [name for name in names if name in self.files]
        if recovery.indexes.times:
            self.latest = max(self.latest, recovery.indexes.times[-1][0])

    def _tried(self, step: Callable[[], object]) -> bool:
        """Take a step; where indexes cannot be made, leave those of the segment as they are."""
        assert self._recovery is not None
        try:
            step()
        except (OffsetNotIncreasing, OffsetOutOfRange, StartFails) as error:
            own, self._recovery = self._recovery.segment, None
            why = error.message if isinstance(error, StartFails) else f"offsets of {own.log} are out of order"
            self.found.left |= dict.fromkeys(map(own.name, _ENDINGS), why)
            return False
        return True

    def _take_up(self, offset: int) -> None:
        """Go on where records are missing with the producers that a snapshot of an offset knows."""
        files = self.log.partition.snapshots if self.misses else []
        for file in (file for file in files if file.base == offset):
            with closing(file.open()) as source:
                stored = read_producer_snapshot(source)
            if stored.is_good:
                self.producers.replay.load(stored.rows())

    def _snapshot(self, offset: int) -> None:
        """Make a snapshot of the producers at an offset, without those that were idle for a day then."""
        states, alive = self.producers, self.latest - EXPIRATION_MS
        states.replay.producers = {
            number: producer
            for number, producer in states.replay.producers.items()
            if producer.current_txn_first_offset >= 0 or producer.last_timestamp > alive
        }
        states.end = offset
        states.take_snapshot()
        if offset in states.snapshots:
            self.found.names.append(states.snapshots[offset])

    def _leader_epochs(self) -> None:
        """Put down the epochs of the batches, and those of the file that agree with them: an epoch may have no
        batch.
        """
        stored = self.log.leader_epochs
        starts = self.epochs.starts
        if not starts and not stored.entries:
            if self.log.partition.one(FileKind.LEADER_EPOCHS) is not None:
                self._put_epochs({})
            return
        merged = dict(sorted(starts.items()))
        for entry in stored.entries:
            merged = _with_entry(merged, entry)
        self.epochs.starts = merged
        self.epochs.cut_end(self.found.end_offset + 1)
        self.epochs.cut_start(self.log.log_start_offset)
        self._put_epochs(self.epochs.starts)

    def _put_epochs(self, starts: dict[int, int]) -> None:
        self.files.put(NAME, format_leader_epochs(LeaderEpoch(epoch, starts[epoch]) for epoch in sorted(starts)))
        self.found.names.append(NAME)


class _Aborted:
    """The entries of a transaction index that nothing in the log of its segment is against."""

    def __init__(self, file: LogFile) -> None:
        with closing(file.open()) as source:
            index = read_txn_index(source)
        last = index["last_offset"]
        is_sound = (index["version"] == 0) & (index["producer_id"] >= 0) & (last >= file.base)
        is_sound &= (index["first_offset"] >= 0) & (index["first_offset"] <= last)
        self._entries = index.slots[: len(index)][is_sound]
        self._entries = self._entries[np.unique(self._entries["last_offset"], return_index=True)[1]]
        self._is_against = np.zeros(len(self._entries), np.bool_)

    def add(self, batches: Batches, marker: Callable[[int], Marker | None]) -> None:
        """Hold the entries against batches: what lies where one has its marker is no marker of an abort."""
        rows = np.flatnonzero(batches.crc_ok)
        if not len(self._entries) or not len(rows):
            return
        at = self._entries["last_offset"]
        row = rows[np.maximum(np.searchsorted(batches["base_offset"][rows], at, side="right") - 1, 0)]
        inside = (batches["base_offset"][row] <= at) & (at <= batches["last_offset"][row])
        fits = batches.flag(Attributes.CONTROL)[row] & (batches["producer_id"][row] == self._entries["producer_id"])
        fits |= (batches["producer_id"][row] < 0) & (batches["records_count"][row] <= 1)  # a bridge
        for number in np.flatnonzero(inside & fits).tolist():
            found = marker(int(row[number]))
            fits[number] = found is None or found.type == ControlType.ABORT
        self._is_against |= inside & ~fits

    def with_those_of(self, made: bytes) -> bytes:
        """Return the entries of an index that was made from the log, these in the place of those with the same end."""
        kept, from_log = self._entries[~self._is_against], np.frombuffer(made, self._entries.dtype)
        others = from_log[~np.isin(from_log["last_offset"], kept["last_offset"])]
        every = np.concatenate([kept, others]).astype(kept.dtype)  # joined they would be of this machine's byte order
        return every[np.argsort(every["last_offset"], kind="stable")].tobytes()


def _with_entry(starts: dict[int, int], entry: LeaderEpoch) -> dict[int, int]:
    """Return the chain with one more entry where that fits between its neighbours; an earlier start of a known epoch,
    too.
    """
    epochs = sorted(starts)
    at = bisect_right(epochs, entry.epoch)
    known = entry.epoch in starts
    before = epochs[at - 1 - known] if at - 1 - known >= 0 else None
    after = entry.epoch if known else epochs[at] if at < len(epochs) else None
    fits = (before is None or starts[before] < entry.start_offset) and entry.epoch >= 0 <= entry.start_offset
    if known:
        fits = fits and entry.start_offset < starts[entry.epoch]
    elif after is not None:
        fits = fits and entry.start_offset < starts[after]
    if not fits:
        return starts
    return dict(sorted({**starts, entry.epoch: entry.start_offset}.items()))


def is_index(name: str) -> bool:
    """Whether a file is an index of a segment."""
    return meaning_of(name.rpartition("/")[2]).kind in INDEXES
