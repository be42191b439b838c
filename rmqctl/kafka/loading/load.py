"""Loading one partition as a broker does when it starts (spec 13.1 to 13.4; LogLoader of 3.x and 4.x, Log of 2.8)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from formats.kafka.record_batch import header_plan
from rmqctl.findings import Finding
from rmqctl.kafka.directory.directory import Partition, Segment
from rmqctl.kafka.directory.file_names import DirectoryState
from rmqctl.kafka.loading.epochs import LeaderEpochs
from rmqctl.kafka.loading.files import PartitionFiles, StartFails
from rmqctl.kafka.loading.index_build import OffsetNotIncreasing, OffsetOutOfRange
from rmqctl.kafka.loading.known import KnownLogs
from rmqctl.kafka.loading.producers import ProducerReplay
from rmqctl.kafka.loading.segment import BrokerSegment, Frame, SegmentRecovery, emptied
from rmqctl.kafka.loading.snapshots import ProducerStates, offset_of
from rmqctl.kafka.log.block import INT_MAX, Block, Gap, GapKind
from rmqctl.kafka.log.gaps import gap_finding
from rmqctl.kafka.log.indexes import read_txn_index
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.release import Release

T = TypeVar("T")
_BASE = header_plan().runs[0].only("base_offset")
_BY_BASE_SINCE = Release(4, 1, 0)
"""The first release that looks for an offset by the base offsets of batches."""
_WHOLE_VERSION_SINCE = Release(4, 4, 0)
"""The first release that reads both bytes of the version of an aborted transaction (``AbortedTxn``)."""
INDEX_ENDINGS = (".index", ".timeindex", ".txnindex")


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What a broker knows when it loads a partition.

    Attributes:
        is_clean: the marker of an orderly stop was there.
        recovery_point, log_start: of the checkpoints, 0 where they have none.
        index_room: gives ``segment.index.bytes``; asked where an index with room is written.
        index_interval: ``index.interval.bytes``.
        alive_since: producers idle since before this time, ms, are forgotten.
        keeps_producers: the messages are of magic 2: producers and leader epochs are kept.
        known: logs that have been read already; None: none.
    """

    release: Release
    is_clean: bool
    recovery_point: int = 0
    log_start: int = 0
    index_room: Callable[[], int] = lambda: 10 << 20
    index_interval: int = 4096
    alive_since: int = -(1 << 63)
    keeps_producers: bool = True
    known: KnownLogs | None = None


@dataclass
class LoadedPartition:
    """A partition when it has been loaded.

    Attributes:
        bases: base offsets of its segments, ascending.
        recovered: base offsets of the segments that were checked, or whose indexes were made again.
        largest_bases: largest base offset of the batches of each segment that was checked to its end, by its own.
        epochs: the leader epochs that the broker knows, with their first offsets, ascending.
        producers: those that the broker knows.
        stopped_by: the first place where a check stopped, None where none did.
        failure: why no broker gets that far, and the files count as they lie; "" where one does.
        unread_from: byte of the last segment from which on nothing is read, though it stays; None: all is read.
        known: as of :class:`LoadSettings`.
    """

    view: PartitionFiles
    log_start_offset: int = 0
    log_end_offset: int = 0
    bases: list[int] = field(default_factory=list)
    recovered: set[int] = field(default_factory=set)
    largest_bases: dict[int, int] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    producers: ProducerReplay = field(default_factory=ProducerReplay)
    stopped_by: Finding | None = None
    unread_from: int | None = None
    failure: str = ""
    known: KnownLogs | None = None
    active: BrokerSegment | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """For another process, which makes no files."""
        return {**self.__dict__, "active": None}

    @property
    def partition(self) -> Partition:
        return self.view.partition

    @cached_property
    def files(self) -> PartitionFiles:
        """Its files then, in a view; the indexes of the last segment have the room of one that is written."""
        if self.active is not None:
            self.active.extend_indexes()
        return self.view

    @cached_property
    def segments(self) -> list[Segment]:
        """Its segments then, ascending; the files are those on disk, as far as the broker keeps them."""
        return [self._segment(base) for base in self.bases]

    @cached_property
    def replaced(self) -> set[str]:
        """Names of logs on disk that others stand for, which a clean-up had made."""
        found = set[str]()
        for log in self.partition.logs:
            floor = max((base for base in self.bases if base <= log.base), default=None)
            stored = None if floor is None else self.view[f"{floor:020d}.log"].stored
            if stored is not None and stored.is_leftover:
                found.add(log.name)
        return found

    def _segment(self, base: int) -> Segment:
        name = f"{base:020d}"
        files = [self.view.file(name + ending) for ending in (".log", *INDEX_ENDINGS)]
        return Segment(base, *files)


def load(partition: Partition, settings: LoadSettings) -> LoadedPartition:
    """Load a partition on a view of its files.

    Raises:
        StartFails: the broker does not get that far.
    """
    return _Loader(partition, settings).run()


class _Loader:
    def __init__(self, partition: Partition, settings: LoadSettings) -> None:
        self.settings = settings
        self.files = PartitionFiles(partition)
        self.found = LoadedPartition(self.files, known=settings.known)
        self.epochs = LeaderEpochs(self.files) if settings.keeps_producers else None
        self.producers = ProducerStates(self.files, self.settings.alive_since)
        self.segments: dict[int, BrokerSegment] = {}

    def run(self) -> LoadedPartition:
        settings, found = self.settings, self.found
        try:
            finish_swaps(self.files, self._segment, self._recover, settings.release)
            self._retried(self._load_segments)
        except _Emptied as error:
            name = error.recovery.segment.log
            raise StartFails(f"offsets of {name} do not increase, so that its index cannot be made") from error
        if self.files.partition.state is DirectoryState.DELETE:
            return found  # nothing more is done with a log that waits to be deleted
        end = self._retried(self._recover_log)
        found.active = self.segments[max(self.segments)]
        found.bases = sorted(self.segments)
        found.log_start_offset = max(settings.log_start, found.bases[0])
        found.log_end_offset = end
        if self.epochs is not None:
            self.epochs.cut_end(end)
            self.epochs.cut_start(settings.log_start)
            found.epochs = sorted(self.epochs.starts.items())
        self.producers.remove_strays(set(self.segments))
        self._rebuild_producers(self.producers, found.log_start_offset, end, after_stop=settings.is_clean)
        found.producers = self.producers.replay
        return found

    def _segment(self, base: int, suffix: str = "") -> BrokerSegment:
        by_base = self.settings.release >= _BY_BASE_SINCE
        return BrokerSegment(self.files, base, self.settings.index_room, suffix, by_base=by_base)

    def _retried(self, step: Callable[[], T]) -> T:
        """Do a step; where a segment's offsets overflow, split it and do it again."""
        while True:
            try:
                return step()
            except _Overflow as overflow:
                self.segments.pop(overflow.segment.base, None)  # none of the new ones may begin there
                for made in _split(overflow.segment):
                    self.segments[made.base] = made
                self.producers.remove(overflow.segment.base)

    # --- the segments ---------------------------------------------------------------------------------

    def _load_segments(self) -> None:
        """Delete indexes without a log; recover segments without an offset index or with a wrong transaction index."""
        self.segments.clear()
        for name in self.files.names():
            if name.endswith(INDEX_ENDINGS):
                if f"{offset_of(name):020d}.log" not in self.files:
                    self.files.delete(name)
            elif name.endswith(".log"):
                base = offset_of(name)
                segment = self._segment(base)
                if segment.log in self.files:
                    self._load(segment)
                    self.segments[base] = segment

    def _load(self, segment: BrokerSegment) -> None:
        if segment.name(".index") not in self.files:
            self._recover(segment)
            return
        if segment.name(".timeindex") not in self.files:
            segment.put_index(".timeindex", b"")
        if self._txn_index_is_wrong(segment):
            self._recover(segment)

    def _txn_index_is_wrong(self, segment: BrokerSegment) -> bool:
        """Whether an aborted transaction ends below the segment.

        Raises:
            StartFails: a version is not 0; up to 4.3 brokers look at its first byte alone.
        """
        name = segment.name(".txnindex")
        if name not in self.files:
            return False
        with closing(self.files.open(name)) as source:
            index = read_txn_index(source)
        for version, last in zip(index["version"].tolist(), index["last_offset"].tolist(), strict=True):
            seen = version if self.settings.release >= _WHOLE_VERSION_SINCE else max(version >> 8, 0)
            if seen:
                raise StartFails(f"unexpected aborted transaction version {seen} in transaction index {name}")
            if last < segment.base:
                return True
        return False

    def _recover(self, segment: BrokerSegment) -> int:
        """Recover one segment, with producers of its own; the bytes cut off."""
        producers = ProducerStates(self.files, self.settings.alive_since)
        self._rebuild_producers(producers, self.settings.log_start, segment.base, after_stop=False)
        self.found.recovered.add(segment.base)
        recovery = SegmentRecovery(segment, producers, self.epochs, self.settings.index_interval)
        try:
            cut = recovery.run(self.settings.known)
        except OffsetOutOfRange as error:
            recovery.write_indexes()
            if segment.next_offset() - 1 - segment.base <= INT_MAX:
                raise StartFails(f"{segment.log} has an offset below its base offset, and cannot be split") from error
            raise _Overflow(segment) from error
        except OffsetNotIncreasing as error:
            self._need_room(recovery)
            raise _Emptied(recovery) from error
        self._need_room(recovery)
        self._note(recovery)
        if recovery.stop is None and not cut:
            self.found.largest_bases[segment.base] = recovery.largest_base
        producers.take_snapshot()
        return cut

    def _need_room(self, recovery: SegmentRecovery) -> None:
        """Hold the indexes that were made to the room that they have: nothing catches what a full one throws."""
        segment, room = recovery.segment, recovery.segment.room()
        if ending := recovery.indexes.overfull(room):
            raise StartFails(
                f"{segment.name(ending)} would have to take more entries than fit into the {room} bytes that "
                "segment.index.bytes gives it"
            )

    def _note(self, recovery: SegmentRecovery) -> None:
        if recovery.stop is not None and self.found.stopped_by is None:
            self.found.stopped_by = recovery.stop

    # --- the log --------------------------------------------------------------------------------------

    def _recover_log(self) -> int:
        """Check what may not have been flushed, and find the end; the end offset."""
        if not self.settings.is_clean:
            self._recover_unflushed()
        end = None
        if self.segments:
            last = self.segments[max(self.segments)]
            end = last.next_offset()
            if self.settings.is_clean and (tail := _unread_tail(last)) is not None:
                self.found.unread_from = tail.offset
                self.found.stopped_by = self.found.stopped_by or tail
            if end < self.settings.log_start:
                self._delete(list(self.segments))
                self.found.unread_from = None
                if self.epochs is not None:
                    self.epochs.clear()
                self.producers.start_at(self.settings.log_start)
                end = None
        if not self.segments:
            made = self._segment(self.settings.log_start)
            self.files.put(made.log, b"")
            self.segments[made.base] = made
        return self.segments[max(self.segments)].next_offset() if end is None else end

    def _recover_unflushed(self) -> None:
        point = self.settings.recovery_point
        floor = max((base for base in self.segments if base <= point), default=point)
        unflushed = sorted(base for base in self.segments if base >= floor)
        for number, base in enumerate(unflushed):
            segment = self.segments[base]
            try:
                cut = self._recover(segment)
            except _Emptied as given_up:
                cut = emptied(given_up.recovery)
                self._note(given_up.recovery)
            if cut > 0:
                self._delete(unflushed[number + 1 :])
                return

    def _delete(self, bases: list[int]) -> None:
        """Remove segments and the snapshots named after them."""
        for base in bases:
            segment = self.segments.pop(base)
            for ending in (".log", *INDEX_ENDINGS):
                self.files.delete(segment.name(ending))
            self.producers.remove(base)

    # --- producers ------------------------------------------------------------------------------------

    def _rebuild_producers(self, states: ProducerStates, log_start: int, end: int, *, after_stop: bool) -> None:
        """Bring the state of producers to an offset, from the newest snapshot below it and the log after that.

        Args:
            after_stop: the broker was stopped in order: without any snapshot there are no producers to look for.
        """
        bases = sorted(self.segments)
        wanted = bases[-2:]
        if not self.settings.keeps_producers or (states.newest is None and after_stop):
            for offset in (*wanted, end):
                states.end = offset
                states.take_snapshot()
            return
        was_empty = not states.replay.producers and states.end >= end
        states.reload(log_start, end)
        if end > states.end and not was_empty:
            floor = max((base for base in bases if base <= states.end), default=states.end)
            for base in (base for base in bases if floor <= base < end):
                start = max(base, states.end, log_start)
                states.end = start
                if base in wanted:
                    states.take_snapshot()
                self._replay(states, self.segments[base], start, end)
        states.end = end
        states.take_snapshot()

    def _replay(self, states: ProducerStates, segment: BrokerSegment, start: int, end: int) -> None:
        """Go on with the batches of a segment between two offsets, without a check of their CRCs."""
        stop = segment.size
        if segment.base == max((base for base in self.segments if base <= end), default=None):
            at_end = segment.find(end)
            stop = at_end.position if at_end is not None else stop
        first = segment.find(start)
        if first is None or first.position >= stop:
            return
        source = self.files.open(segment.log)
        extent = Extent(
            segment.log, segment.base, first.position, stop, stop, chained=True, check_crc=False
        )  # batches are read by their frames alone
        try:
            for block in scan(source, extent):
                states.replay.add(_before_gap(block))
                if block.gaps:
                    for _ in segment.frames(block.gaps[0].position, stop):
                        break  # fails where a size is less than any batch has
                    return
        finally:
            source.close()


def _before_gap(block: Block) -> Block:
    return block.take(block.position < block.gaps[0].position) if block.gaps else block


class _Overflow(Exception):
    def __init__(self, segment: BrokerSegment) -> None:
        super().__init__(segment.base)
        self.segment = segment


class _Emptied(Exception):
    def __init__(self, recovery: SegmentRecovery) -> None:
        super().__init__(recovery.segment.base)
        self.recovery = recovery


# --- segments whose offsets overflow ---------------------------------------------------------------


def _split(segment: BrokerSegment) -> list[BrokerSegment]:
    """Replace a segment by several, each of which holds batches less than 2^31 above its first offset.

    Brokers do so with segments from before 2.0 (KAFKA-6264). The indexes are left out: whoever recovers the segments
    makes them.

    Raises:
        StartFails: the file does not end with a whole batch.
    """
    files, data = segment.files, segment.files.read(segment.log)
    groups = list[tuple[int, list[Frame]]]()
    end = 0
    for frame in segment.frames(0):
        (first,) = _BASE.unpack_from(data, frame.position)
        if not groups or not 0 <= frame.last_offset - groups[-1][0] <= INT_MAX:
            groups.append((first, []))
        groups[-1][1].append(frame)
        end = frame.position + frame.size
    if end != segment.size:
        raise StartFails(f"{segment.log} cannot be split: after byte {end} there is no whole batch")
    for ending in (".log", ".index", ".timeindex", ".txnindex"):
        files.delete(segment.name(ending))
    made = list[BrokerSegment]()
    for base, frames in groups:
        new = BrokerSegment(files, base, segment.room, by_base=segment.by_base)
        files.put(new.log, data[frames[0].position : frames[-1].position + frames[-1].size])
        made.append(new)
    return made


# --- what stays unread -----------------------------------------------------------------------------


_LOST = "the last entry of the offset index leads to no batch, so the segment counts as empty"


def _unread_tail(segment: BrokerSegment) -> Finding | None:
    """Return the bytes of the last segment that a broker leaves unread after an orderly stop; None without any.

    They stay in the file (spec 13.4).

    Raises:
        StartFails: a size there is less than any batch has.
    """
    offsets = segment.entries[0]
    first = segment.find(segment.base + (offsets[-1] if offsets else 0))
    if first is None:
        end, why = 0, _LOST
    else:
        *_, last = segment.frames(first.position)
        end, why = last.position + last.size, f"{segment.size - last.position - last.size} bytes are no whole batch"
    if end == segment.size:
        return None
    name = "/".join(filter(None, (segment.files.partition.directory, segment.log)))
    return gap_finding(name, Gap(end, segment.size, GapKind.CUT, why), segment.files.partition)


SWAP, CLEANED, DELETED = ".swap", ".cleaned", ".deleted"
_RENAMES = Release(2, 8, 2)
"""The last release that recovers each ``.swap`` segment and then puts it in; later ones rename all files."""


def finish_swaps(
    files: PartitionFiles,
    segment_of: Callable[[int, str], BrokerSegment],
    recover: Callable[[BrokerSegment], int],
    release: Release,
) -> None:
    """Delete what is temporary, and put the segments in that were ready to be.

    Raises:
        StartFails: a temporary file has no offset in its name.
    """
    swaps = _delete_temporary(files)
    if release <= _RENAMES:
        _swap_one_by_one(files, swaps, segment_of, recover)
        return
    low, high = 1 << 63, -1 << 63
    for name in swaps:
        if name.endswith(f".log{SWAP}"):
            segment = segment_of(offset_of(name), SWAP)
            low, high = min(low, segment.base), max(high, segment.next_offset())
    for name in files.names():
        text = name.partition(".")[0]
        if not name.endswith(SWAP) and text.isascii() and text.isdigit() and low <= int(text) < high:
            files.delete(name)
    for name in files.names():
        if name.endswith(SWAP):
            files.rename(name, name.removesuffix(SWAP))


def _delete_temporary(files: PartitionFiles) -> list[str]:
    """Remove ``.deleted`` and ``.cleaned`` files, and swaps of a split that was not complete; the other swaps."""
    cleaned, swaps = list[str](), list[str]()
    for name in files.names():
        if name.endswith(DELETED) and not name.endswith(f".checkpoint{DELETED}"):
            files.delete(name)
        elif name.endswith(CLEANED):
            cleaned.append(name)
        elif name.endswith(SWAP):
            swaps.append(name)
    least = min((offset_of(name) for name in cleaned), default=1 << 63)
    dropped = [name for name in swaps if offset_of(name) >= least]
    for name in (*dropped, *cleaned):
        files.delete(name)
    return [name for name in swaps if name not in dropped]


def _swap_one_by_one(
    files: PartitionFiles,
    swaps: list[str],
    segment_of: Callable[[int, str], BrokerSegment],
    recover: Callable[[BrokerSegment], int],
) -> None:
    """Make the indexes of each swapped log again, and remove the segments that it stands for, as 2.8 does."""
    for name in swaps:
        for ending in (".index", ".timeindex", ".txnindex"):
            files.delete(f"{offset_of(name):020d}{ending}")
        if not name.endswith(f".log{SWAP}"):
            files.delete(name)
    for name in sorted(n for n in swaps if n.endswith(f".log{SWAP}")):
        segment = segment_of(offset_of(name), SWAP)
        recover(segment)
        end = segment.next_offset()
        for old in files.names():
            text = old.partition(".")[0]
            if old.endswith(".log") and text.isdigit() and segment.base <= int(text) < end:
                for ending in (".log", ".index", ".timeindex", ".txnindex"):
                    files.delete(f"{text}{ending}")
        for made in files.names():
            if made.startswith(f"{segment.base:020d}.") and made.endswith(SWAP):
                files.rename(made, made.removesuffix(SWAP))
