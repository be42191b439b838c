"""A segment as a broker reads it, through its offset index and frame by frame (spec 2, 7.5), and as it recovers it.

Recovering checks every batch, cuts at the first wrong one, and makes the indexes (spec 13.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from formats.kafka.indexes import AbortedTransaction, OffsetIndexEntry, TimeIndexEntry, entry_dtype
from formats.kafka.record_batch import FRAME_HEAD, MIN_LEGACY_LENGTH, PEEK, header_plan
from rmqctl.findings import Finding
from rmqctl.kafka.directory.directory import Partition
from rmqctl.kafka.loading.epochs import LeaderEpochs
from rmqctl.kafka.loading.files import PartitionFiles, StartFails
from rmqctl.kafka.loading.index_build import IndexBuilder
from rmqctl.kafka.loading.known import KnownLogs
from rmqctl.kafka.loading.producers import EndedTransaction, Marker, markers_in
from rmqctl.kafka.loading.snapshots import ProducerStates
from rmqctl.kafka.log.block import Batches, Block
from rmqctl.kafka.log.gaps import gap_finding, wrong_crc
from rmqctl.kafka.log.scan import Extent, scan

ENTRY_SIZES = {".index": OffsetIndexEntry.sizeof(), ".timeindex": TimeIndexEntry.sizeof()}
"""Bytes of an entry of the two indexes that have a fixed room."""
_WARM_BYTES = 8192
_HEAD = header_plan().runs[0].only("base_offset", "batch_length", "magic", "last_offset_delta")


class Frame(NamedTuple):
    """Where a batch lies in its file, and its offsets; the base offset of an old message is that of its last one."""

    position: int
    size: int
    base_offset: int
    last_offset: int


class BrokerSegment:
    """One segment in a view of a partition.

    Attributes:
        base: the base offset that its name says.
        room: gives the bytes that an index of this partition has while its segment is written.
        by_base: an offset is looked for by base offsets first, see :meth:`find`.
    """

    def __init__(
        self, files: PartitionFiles, base: int, room: Callable[[], int], suffix: str = "", *, by_base: bool = False
    ) -> None:
        self.files, self.base, self.room, self.suffix, self.by_base = files, base, room, suffix, by_base
        self._entries: tuple[list[int], list[int]] | None = None

    def name(self, ending: str) -> str:
        """Return the name of one of its files."""
        return f"{self.base:020d}{ending}{self.suffix}"

    @property
    def log(self) -> str:
        return self.name(".log")

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return self.files.size(self.log)

    # --- its indexes ----------------------------------------------------------------------------------

    def padded(self, ending: str) -> int:
        """Bytes that an index has while its segment is written."""
        return self.room() // ENTRY_SIZES[ending] * ENTRY_SIZES[ending]

    def put_index(self, ending: str, entries: bytes, size: int | None = None) -> None:
        """Write an index; ``size``: with zeros up to so many bytes, None: only the entries."""
        self.files.put(self.name(ending), entries, size)
        if ending == ".index":
            self._entries = _columns(entries)

    def leave_index(self, ending: str, data: bytes, size: int) -> None:
        """Write an index without an entry that counts, whatever stands in it."""
        self.files.put(self.name(ending), data, size)
        if ending == ".index":
            self._entries = [], []

    def extend_indexes(self) -> None:
        """Give the indexes the room that those of an active segment have."""
        for ending in ENTRY_SIZES:
            self._create(ending)
            if ending == ".index":
                _ = self.entries  # before zeros are added: they are no entries for the broker that adds them
            self.files.resize(self.name(ending), self.padded(ending))

    def _create(self, ending: str) -> None:
        """Make an index in its full size where there is none, as a broker does when it looks at one."""
        if self.name(ending) not in self.files:
            self.put_index(ending, b"", self.padded(ending))

    @property
    def entries(self) -> tuple[list[int], list[int]]:
        """Relative offsets and positions of the offset index; every slot of a file that was there counts."""
        if self._entries is None:
            self._create(".index")
        if self._entries is None:
            self._entries = _columns(self.files.read(self.name(".index")))
        return self._entries

    def lookup(self, offset: int) -> int:
        """Return the position from which to read for an offset, as the index has it."""
        offsets, positions = self.entries
        slot = lower_bound(offsets, offset - self.base, _WARM_BYTES // ENTRY_SIZES[".index"])
        return 0 if slot < 0 else positions[slot]

    # --- its log --------------------------------------------------------------------------------------

    def frames(self, start: int, stop: int | None = None) -> Iterator[Frame]:
        """Yield the batches from a position on, by their frames alone.

        Raises:
            StartFails: a size is less than any batch has.
        """
        end = self.size if stop is None else min(stop, self.size)
        source = self.files.open(self.log)
        at = max(start, 0)
        try:
            while at < end - PEEK:
                head = source.read_at(at, _HEAD.size).ljust(_HEAD.size, b"\0")
                offset, length, magic, delta = _HEAD.unpack(head)
                if length < MIN_LEGACY_LENGTH:
                    raise StartFails(
                        f"record size {length} at byte {at} of {self.log} is smaller than the minimum of "
                        f"{MIN_LEGACY_LENGTH}"
                    )
                if at + FRAME_HEAD + length > end:
                    return
                yield Frame(at, FRAME_HEAD + length, offset, offset if magic < 2 else offset + delta)
                at += FRAME_HEAD + length
        finally:
            source.close()

    def find(self, offset: int) -> Frame | None:
        """Return the batch, from where the index points, in which an offset lies, or the next one after it.

        Up to 4.0 that is the first that ends there or after it (``FileRecords.searchForOffsetWithSize``). Later
        releases go by base offsets, and ask only the batch before the first larger one where it ends
        (``searchForOffsetFromPosition``): a batch that a smaller one follows at the end of the file is passed over.
        """
        frames = self.frames(self.lookup(offset))
        if not self.by_base:
            return next((frame for frame in frames if frame.last_offset >= offset), None)
        before: Frame | None = None
        for frame in frames:
            if frame.base_offset >= offset:
                is_inside = before is not None and frame.base_offset > offset and before.last_offset >= offset
                return before if is_inside else frame
            before = frame
        return before if before is not None and before.last_offset >= offset else None

    def next_offset(self) -> int:
        """Return the offset after the last batch, found from the last entry of the index; the base offset without any.

        Raises:
            StartFails: the tail of the log cannot be read.
        """
        offsets = self.entries[0]
        first = self.find(self.base + (offsets[-1] if offsets else 0))
        if first is None:
            return self.base
        *_, last = self.frames(first.position)
        return last.last_offset + 1


def lower_bound(values: list[int], target: int, warm: int) -> int:
    """Return the slot of the largest value that is not above a target, by the broker's own search; -1 without one.

    Args:
        warm: number of entries at the end that are searched first.
    """
    if not values:
        return -1
    low, high = max(len(values) - 1 - warm, 0), len(values) - 1
    if values[low] >= target:
        if values[0] > target:
            return -1
        low, high = 0, low
    while low < high:
        middle = (low + high + 1) // 2
        if values[middle] > target:
            high = middle - 1
        elif values[middle] < target:
            low = middle
        else:
            return middle
    return low


def _columns(data: bytes) -> tuple[list[int], list[int]]:
    dtype = entry_dtype(OffsetIndexEntry)
    slots = np.frombuffer(data, dtype, len(data) // dtype.itemsize)
    return slots["relative_offset"].tolist(), slots["position"].tolist()


class SegmentRecovery:
    """One pass over the batches of a segment.

    Attributes:
        stop: why the pass ended before the end of the file, None where it did not.
        valid: bytes of batches that are right.
        largest_base: the largest base offset of them, -1 without any.
        is_trimmed: the log was cut after them, and the offset index after its last entry.

    Args:
        cuts: the pass ends at the first wrong batch, and what follows is cut; else it goes on after it.
    """

    def __init__(
        self,
        segment: BrokerSegment,
        producers: ProducerStates,
        epochs: LeaderEpochs | None,
        interval: int,
        *,
        cuts: bool = True,
    ) -> None:
        self.segment, self.producers, self.epochs, self.cuts = segment, producers, epochs, cuts
        self.indexes = IndexBuilder(segment.base, interval)
        self.stop: Finding | None = None
        self.valid, self.largest_base, self.is_trimmed = 0, -1, False
        self._ended = len(producers.replay.ended)

    def run(self, known: KnownLogs | None = None) -> int:
        """Check the segment, cut it and write its indexes; the number of bytes that are no batches at its end.

        Args:
            known: logs that have been read already.

        Raises:
            OffsetNotIncreasing: no index is written then.
            OffsetOutOfRange: likewise.
            StartFails: an aborted transaction does not fit those before it.
        """
        segment, partition = self.segment, self.segment.files.partition
        place = "/".join(filter(None, (partition.directory, segment.log)))
        read = None if known is None else known.of(segment.files[segment.log])
        if read is not None:
            for headers in read:
                self.add(headers, headers.markers.get)
            return self.finish()
        source = segment.files.open(segment.log)
        try:
            for found in scan(source, Extent(place, segment.base, size=segment.size)):
                block, self.stop = up_to_stop(found, partition) if self.cuts else (found, None)
                self.add(block, markers_in(block))
                if self.stop is not None:
                    break
        finally:
            source.close()
        return self.finish()

    def add(self, found: Batches, marker: Callable[[int], Marker | None]) -> None:
        """Go on with batches; those that are not sound are passed over.

        Args:
            marker: what the marker in a row says.

        Raises:
            OffsetNotIncreasing: as :meth:`run` says.
            OffsetOutOfRange: likewise.
            StartFails: a leader epoch is none.
        """
        sound = found if found.crc_ok.all() else found.take(found.crc_ok)
        self.indexes.add(sound)
        if self.epochs is not None:
            self.epochs.add(sound)
        modern = sound.take(sound.magic >= 2) if sound.has_legacy else sound
        rows = np.flatnonzero(found.crc_ok & (found.magic >= 2)) if len(modern) < len(found) else None
        self.producers.replay.go_on(modern, marker if rows is None else lambda row: marker(int(rows[row])))
        if len(sound):
            self.valid = int(sound.position[-1] + sound.size[-1])
            self.largest_base = max(self.largest_base, int(sound["base_offset"].max()))
            self.producers.end = int(sound["last_offset"][-1]) + 1

    def finish(self) -> int:
        """Cut the segment and write its indexes, when all batches are known; as :meth:`run`.

        Raises:
            OffsetNotIncreasing: no index is written then.
            OffsetOutOfRange: likewise.
            StartFails: an aborted transaction does not fit those before it.
        """
        size = self.segment.size
        if self.cuts:
            self.segment.files.resize(self.segment.log, self.valid)
        self.is_trimmed = True
        self.indexes.finish()
        self.write_indexes()
        self._write_aborted([t for t in self.producers.replay.ended[self._ended :] if not t.committed])
        return size - self.valid

    def write_indexes(self) -> None:
        """Write both indexes as far as they have been made."""
        self.segment.put_index(".index", self.indexes.offset_index())
        self.segment.put_index(".timeindex", self.indexes.time_index())

    def _write_aborted(self, aborted: list[EndedTransaction]) -> None:
        name = self.segment.name(".txnindex")
        if not aborted and name not in self.segment.files:
            return
        if any(b.last_offset <= a.last_offset for a, b in pairwise(aborted)):
            raise StartFails(f"the last offset of an aborted transaction is not above the one before it in {name}")
        found = np.zeros(len(aborted), entry_dtype(AbortedTransaction))
        for number, t in enumerate(aborted):
            found[number] = (0, t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
        self.segment.files.put(name, found.tobytes())


def up_to_stop(block: Block, partition: Partition) -> tuple[Block, Finding | None]:
    """Return the batches of a block before the first place where a broker that checks a log stops, and that place."""
    gap = min(block.gaps, key=lambda gap: gap.position, default=None)
    bad = np.flatnonzero(~block.crc_ok)
    at = int(block.position[bad[0]]) if len(bad) else None
    if gap is None and at is None:
        return block, None
    if at is not None and (gap is None or at < gap.position):
        return block.take(slice(0, int(bad[0]))), wrong_crc(block, int(bad[0]), partition)
    assert gap is not None
    return block.take(block.position < gap.position), gap_finding(block.file, gap, partition)


def emptied(recovery: SegmentRecovery) -> int:
    """Give up a segment whose offsets do not increase: cut all of it that ends at its base offset or after it.

    The indexes count as empty then, but nothing overwrites what stands in them (``AbstractIndex.truncateToEntries``):
    the entries made so far, and after them those that were there, up to the end of what was trimmed.

    Returns:
        bytes cut off the log.
    """
    segment, files = recovery.segment, recovery.segment.files
    there = {ending: files.read(name) for ending in ENTRY_SIZES if (name := segment.name(ending)) in files}
    if recovery.is_trimmed:
        there.pop(".index", None)
    recovery.write_indexes()
    first, size = segment.find(segment.base), segment.size
    for ending in ENTRY_SIZES:
        made, room = files.read(segment.name(ending)), segment.padded(ending)
        segment.leave_index(ending, (made + there.get(ending, b"")[len(made) :])[:room], room)
    if segment.name(".txnindex") in files:
        files.put(segment.name(".txnindex"), b"")
    if first is None:
        return 0
    files.resize(segment.log, first.position)
    return size - first.position
