"""Dividing the segments of a log directory among tasks, and reading a stretch of one.

A segment is divided at entries of its offset index. Stretches in which nothing wanted can lie are left out: by names of
partitions and segments, and by entries of the offset index. An entry is believed where the batch that it leads to says
the same; any division gives the same batches, whatever the entries say. Of time no index proves anything: a lost entry
of the time index shows nowhere in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np

from formats.kafka.record_batch import HEADER_SIZE, Attributes
from rmqctl.files.local import ByteSource
from rmqctl.files.moment import alone, raise_refused
from rmqctl.files.tree import Tree
from rmqctl.filters import Filters, Names
from rmqctl.kafka.directory.directory import LogFile, Segment
from rmqctl.kafka.filters import Wanted
from rmqctl.kafka.log.block import Block, Flags, GapKind, Ints, stated_records
from rmqctl.kafka.log.indexes import OffsetIndex, read_offset_index
from rmqctl.kafka.log.records import Records, records_of
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.state.partition_state import PartitionLog, Visible
from rmqctl.kafka.tables.columns import Place
from rmqctl.parallel import leave_out, note, pass_over
from rmqctl.tables import check_reachable, gone

T = TypeVar("T")
NO_END = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class KafkaFilter:
    """Which records are wanted; see :class:`rmqctl.filters.Filters`.

    Attributes:
        topics, topic_like: the topic is one of these, or one of these patterns matches it.
        queue_id: the number of the partition.
        from_offset, to_offset: bounds of the record's offset, ``to_offset`` exclusive.
        rest: filters on what a record says; those above are not set in it.
    """

    topics: tuple[str, ...] = ()
    queue_id: int | None = None
    after: int | None = None
    before: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    rest: Filters = field(default_factory=Filters)
    topic_like: tuple[str, ...] = ()

    @classmethod
    def of(cls, filters: Filters) -> KafkaFilter:
        """Return what a user asks for, without the limit."""
        rest = replace(
            filters, topic=None, queue=None, limit=None, after=None, before=None, from_offset=None, to_offset=None
        )
        topics = filters.topics
        bounds = (filters.after, filters.before, filters.from_offset, filters.to_offset)
        return cls(topics.exact, filters.queue, *bounds, rest, topics.like)

    def includes(self, log: PartitionLog) -> bool:
        """Whether records of a partition are wanted."""
        topic, number = log.partition.topic, log.partition.partition
        return self.includes_topic(topic) and self.queue_id in {None, number}

    def includes_topic(self, topic: str) -> bool:
        """Whether records of a topic are wanted."""
        return Names(self.topics, self.topic_like).include(topic)

    def within(self, low: int, high: int) -> Wanted:
        """Return the tests for batches and records between two offsets, the upper one exclusive."""
        low, high = max(low, self.from_offset or 0), min(high, NO_END if self.to_offset is None else self.to_offset)
        return Wanted(
            replace(
                self.rest, after=self.after, before=self.before,
                from_offset=low or None, to_offset=None if high == NO_END else high,
            )
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of one segment, to be read anywhere.

    Attributes:
        base: of the segment.
        size: bytes of the file.
        start, stop: batches that start between these bytes.
        low, high: records with offsets between these, ``high`` exclusive; no others are the stretch's.
        visible: what of the partition a consumer sees; None: all is read.
    """

    tree: Tree
    file: str
    place: Place
    base: int
    size: int
    start: int
    stop: int
    low: int = 0
    high: int = NO_END
    visible: Visible | None = None

    def blocks(self) -> Iterator[Block]:
        """Yield the batches that start in it; those of a block live until the next."""
        check_reachable(self.tree)
        source = self.tree.open(self.file)
        try:
            for block in scan(source, Extent(self.file, self.base, self.start, self.stop, self.size)):
                raise_refused(self.tree, self.file)
                yield block
        finally:
            source.close()
        raise_refused(self.tree, self.file)

    def readable(self, found: Iterator[T]) -> Iterator[T]:
        """Yield what was found up to where the file cannot be read: that is a finding, and no end of the work.

        Raises:
            IOFailure: the directory is not there, or the file is no longer.
        """
        try:
            yield from found
        except FileNotFoundError:
            check_reachable(self.tree)
            raise gone(self.file) from None
        except OSError:
            check_reachable(self.tree)
            leave_out("unreadable", self.stop - self.start)

    def batches(self, wanted: Wanted) -> Iterator[Block]:
        """Yield the batches that may hold wanted records."""
        for block in self._chosen(wanted):
            stated = int(self._stated(block).sum())
            note(stated, 0, given=stated)
            yield block

    def records(self, wanted: Wanted) -> Iterator[Records]:
        """Yield the wanted records, each batch decoded once. Of batches with a wrong CRC the records decide."""
        tests = wanted.is_selective
        for block in self._chosen(wanted, doubtful=True):
            decoded = 0
            for records in records_of(block):
                mine = ~self._is_outside(records.offset, records.offset)
                keep = wanted.records(records) if tests else mine
                seen = mine if self.visible is None else mine & (records.offset < self.visible.end)
                shown = seen & self._shown(records)
                keep = keep & shown
                decoded += int((mine & _is_told(records.block)[records.batch]).sum())
                count, given = int(mine.sum()), int(keep.sum())
                note(count, 0, given=given)
                pass_over("undecided", count - int(seen.sum()))
                pass_over("damaged and hidden", int(seen.sum()) - int(shown.sum()))
                pass_over("filter", int(shown.sum()) - given)
                found = records if given == len(records) else records.take(keep)
                if len(found):
                    yield found
            lacking = int(self._stated(block)[_is_told(block)].sum()) - decoded
            if lacking > 0 and not self._is_cut(block):
                note(lacking, 0)
                pass_over("not decodable", lacking)

    def _chosen(self, wanted: Wanted, *, doubtful: bool = False) -> Iterator[Block]:
        """Yield the batches that may hold wanted records; those that are passed over are noted.

        Args:
            doubtful: those with a wrong CRC whatever their headers say.
        """
        for block in self.blocks():
            gaps = (gap.end - gap.position for gap in block.gaps if gap.why is not GapKind.ZERO_TAIL)
            note(0, 0, damaged=sum(gaps))
            keep = wanted.batches(block)
            if doubtful:
                keep |= ~block.crc_ok
            if wanted.filters.damaged:
                keep &= ~block.crc_ok
            reasons = [("filter", ~keep)]
            if self.visible is not None:
                control, shown = block.flag(Attributes.CONTROL), self.visible.wanted(block)
                late = ~control & (block["base_offset"] >= self.visible.end)
                aborted = ~(control | late | shown)
                if doubtful:  # what their headers say may be wrong, so their records are counted one by one
                    shown |= ~block.crc_ok
                reasons = [("control", control), ("undecided", late), ("aborted", aborted), ("filter", shown & ~keep)]
                keep &= shown
            if not keep.all():
                stated = self._stated(block)
                note(int(stated[~keep].sum()), 0)
                for reason, batches in reasons:
                    pass_over(reason, int(stated[batches].sum()))
            yield block if keep.all() else block.take(keep)
        note(0, self.stop - self.start)

    def _shown(self, records: Records) -> Flags:
        """Which records lie in batches that a consumer sees, shape (n,); of sound batches only those are decoded."""
        block = records.block
        if self.visible is None or block.crc_ok.all():
            return np.ones(len(records), np.bool_)
        found: Flags = (block.crc_ok | self.visible.wanted(block))[records.batch]
        return found

    def _stated(self, block: Block) -> Ints:
        """Return how many records of the stretch sound batches state, shape (n,)."""
        outside = self._is_outside(block["base_offset"], block["last_offset"])
        return np.where(outside | ~block.crc_ok, 0, stated_records(block))

    def _is_outside(self, first: Ints, last: Ints) -> Flags:
        """Which ranges of offsets, the last ones inclusive, have nothing of the stretch; without bounds none, whatever
        damage says.
        """
        found: Flags = np.zeros(len(first), np.bool_)
        if self.low:
            found |= last < self.low
        if self.high != NO_END:
            found |= first >= self.high
        return found

    def _is_cut(self, block: Block) -> bool:
        """Whether records of a batch may lie outside of the stretch."""
        return bool(((block["base_offset"] < self.low) | (block["last_offset"] >= self.high)).any())


def _is_told(block: Block) -> Flags:
    """Which batches state how many records they have, shape (n,)."""
    told: Flags = block.crc_ok & (block.magic >= 2)
    return told


# --- dividing -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Division:
    """How logs are divided.

    Attributes:
        size: bytes of log in one stretch.
        wanted: only these records.
        skip: leave out what holds none of them.
    """

    size: int
    wanted: KafkaFilter
    skip: bool = True

    def stretches(
        self, log: PartitionLog, low: int = 0, high: int = NO_END, visible: Visible | None = None
    ) -> list[Stretch]:
        """Return the stretches of a partition, in order, that may hold wanted records with offsets in ``[low,
        high)``.
        """
        first = max(low, self.wanted.from_offset or 0)
        last = min(high, NO_END if self.wanted.to_offset is None else self.wanted.to_offset)
        segments, tree = segments_of(log), log.directory.tree
        place = Place(log.partition.topic or None, log.partition.partition)
        found = []
        for number, segment in enumerate(segments):
            following = segments[number + 1] if number + 1 < len(segments) else None
            begin, end = segment.between(following, first, last) if self.skip else (0, segment.size)
            if self.skip and (first, last) != (low, high):
                whole = segment.between(following, low, high)
                leave_out("offset", (whole[1] - whole[0]) - max(end - begin, 0))
            found += [
                Stretch(
                    alone(tree, segment.log.name),
                    segment.log.name,
                    place,
                    segment.base,
                    segment.size,
                    start,
                    stop,
                    low,
                    high,
                    visible,
                )
                for start, stop in segment.divided(begin, end, self.size)
            ]
        return found


def segments_of(log: PartitionLog) -> list[IndexedSegment]:
    """Return the segments of a partition, ascending, with all that can be read in them."""
    return [IndexedSegment(log.directory.tree, segment) for segment in log.readable]


class IndexedSegment:
    """One segment with its indexes, each read when asked for."""

    def __init__(self, tree: Tree, segment: Segment) -> None:
        assert segment.log is not None
        self.tree, self._segment, self.log = tree, segment, segment.log
        self.base, self.size = segment.base, max(segment.log.size, 0)

    def divided(self, begin: int, end: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield a range of bytes in ranges of about a size each, that begin at entries of the index where it
        has any.
        """
        if end - begin <= size + size // 2:
            if begin < end:
                yield begin, end
            return
        wanted = np.arange(begin + size, end, size)
        positions = self._positions()
        if len(positions):
            wanted = positions[np.minimum(np.searchsorted(positions, wanted), len(positions) - 1)]
        cuts = [begin, *(cut for cut in np.unique(wanted).tolist() if begin < cut < end), end]
        yield from pairwise(cuts)

    def _positions(self) -> Ints:
        index = self.offset_index
        found = np.zeros(0, np.int64) if index is None else index.positions
        return found if (np.diff(found) > 0).all() else found[:0]

    @cached_property
    def offset_index(self) -> OffsetIndex | None:
        """The entries of the offset index; None where it cannot be read."""
        return _read(self._segment.offset_index, read_offset_index)

    @cached_property
    def begins_right(self) -> bool:
        """Whether the first batch agrees with the name of the file."""
        first = self._batch_at(0)
        return first is not None and int(first["base_offset"][0]) >= self.base

    def between(self, following: IndexedSegment | None, low: int, high: int) -> tuple[int, int]:
        """Return the bytes in which wanted records may lie; equal ones where none does."""
        if low <= self.base and high == NO_END:
            return 0, self.size
        if not self.size or not self.begins_right:
            return 0, self.size
        ends = following.base if following is not None and following.begins_right else None
        if self.base >= high or (ends is not None and ends <= low):
            return 0, 0
        return self.position(low), self._end_position(high)

    def position(self, offset: int) -> int:
        """Where a batch starts before which all offsets are lower; 0 where the index does not say."""
        entries = self._entries()
        if entries is None or offset <= self.base:
            return 0
        offsets, positions = entries
        entry = int(np.searchsorted(offsets, offset, side="right")) - 1
        return int(positions[entry]) if entry >= 0 and self._is_true(entry) else 0

    def _end_position(self, offset: int) -> int:
        """Where a batch starts from which on all offsets are at least this one; else the end of the file."""
        entries = self._entries()
        if entries is None or offset == NO_END:
            return self.size
        entry = int(np.searchsorted(entries[0], offset)) + 1
        return int(entries[1][entry]) if entry < len(entries[0]) and self._is_true(entry) else self.size

    def _entries(self) -> tuple[Ints, Ints] | None:
        """Last offset and position of the indexed batches; None where they do not ascend."""
        index = self.offset_index
        if index is None or not len(index):
            return None
        offsets, positions = index.offsets(self.base), index.positions
        return (offsets, positions) if (np.diff(offsets) > 0).all() and len(self._positions()) else None

    def _is_true(self, entry: int) -> bool:
        """Whether a batch stands where an entry says, and ends with its offset."""
        entries = self._entries()
        assert entries is not None
        batch = self._batch_at(int(entries[1][entry]))
        return batch is not None and int(batch["last_offset"][0]) == int(entries[0][entry])

    def scanned(self, start: int) -> Iterator[Block]:
        """Yield the batches from a place on where one should start."""
        source = self.log.open()
        try:
            yield from scan(source, Extent(self.log.name, self.base, start))
        finally:
            source.close()

    def _batch_at(self, position: int) -> Block | None:
        """Return the sound batch at a position; None where there is none, or the file cannot be read."""
        if not 0 <= position < self.size:
            return None
        source = self.log.open()
        try:
            extent = Extent(self.log.name, self.base, position, position + 1, self.size, chained=True)
            found = next((block.take(block.crc_ok) for block in scan(source, extent, 4 * HEADER_SIZE)), None)
        except OSError:
            return None
        finally:
            source.close()
        return found if found is not None and len(found) and int(found.position[0]) == position else None


def _read(file: LogFile | None, read: Callable[[ByteSource], T]) -> T | None:
    """Return what a derived file holds; None where it is not there or cannot be read."""
    if file is None:
        return None
    try:
        source = file.open()
        try:
            return read(source)
        finally:
            source.close()
    except OSError:
        return None


def grouped(stretches: Sequence[Stretch], size: int) -> list[list[Stretch]]:
    """Stretches in order, as many together as make a size."""
    found: list[list[Stretch]] = []
    room = 0
    for stretch in stretches:
        length = stretch.stop - stretch.start
        if room < length or not found:
            found.append([])
            room = size
        found[-1].append(stretch)
        room -= length
    return found
