"""Recovering one segment: checking every batch, cutting at the first wrong one, making its indexes (spec 13.3)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from formats.kafka.indexes import AbortedTransaction, entry_dtype
from rmqctl.files.local import ByteSource
from rmqctl.findings import Finding
from rmqctl.kafka.block import Block
from rmqctl.kafka.directory import Partition
from rmqctl.kafka.dump.segments import gap_finding, wrong_crc
from rmqctl.kafka.recovery.epochs import LeaderEpochs
from rmqctl.kafka.recovery.files import StartFails
from rmqctl.kafka.recovery.index_build import IndexBuilder
from rmqctl.kafka.recovery.producers import ProducerStates
from rmqctl.kafka.recovery.segment import BrokerSegment
from rmqctl.kafka.segments import Extent, scan
from rmqctl.kafka.state.producers import EndedTransaction


class SegmentRecovery:
    """One pass over the batches of a segment.

    Attributes:
        stop: why the pass ended before the end of the file, None where it did not.
        valid: bytes of batches that are right.

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
        self.valid = 0

    def run(self) -> int:
        """Check the segment, cut it and write its indexes; the number of bytes that are no batches at its end.

        Raises:
            OffsetNotIncreasing: nothing is cut and written then.
            OffsetOutOfRange: likewise.
            StartFails: an aborted transaction does not fit those before it.
            OSError: the log cannot be read.
        """
        ended = len(self.producers.replay.ended)
        source = self.segment.files.open(self.segment.log)
        try:
            self._read(source)
        finally:
            source.close()
        self.indexes.finish()
        size = self.segment.size
        if self.cuts:
            self.segment.files.resize(self.segment.log, self.valid)
        self.write_indexes()
        self._write_aborted([t for t in self.producers.replay.ended[ended:] if not t.committed])
        return size - self.valid

    def write_indexes(self) -> None:
        """Write both indexes as far as they have been made."""
        self.segment.put_index(".index", self.indexes.offset_index())
        self.segment.put_index(".timeindex", self.indexes.time_index())

    def _read(self, source: ByteSource) -> None:
        size, files = self.segment.size, self.segment.files
        place = "/".join(filter(None, (files.partition.directory, self.segment.log)))
        for found in scan(source, Extent(place, self.segment.base, size=size)):
            block, stop = up_to_stop(found, files.partition) if self.cuts else (found.take(found.crc_ok), None)
            self.stop = stop
            self.indexes.add(block)
            if self.epochs is not None:
                self.epochs.add(block)
            modern = block.take(block.magic >= 2) if block.has_legacy else block
            self.producers.replay.add(modern)
            if len(block):
                self.valid = int(block.position[-1] + block.size[-1])
                self.producers.end = int(block["last_offset"][-1]) + 1
            if self.stop is not None:
                return

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

    Returns:
        bytes cut off the log.
    """
    segment, files = recovery.segment, recovery.segment.files
    recovery.write_indexes()
    first, size = segment.find(segment.base), segment.size
    for ending in (".index", ".timeindex"):
        segment.put_index(ending, b"", segment.padded(ending))
    if segment.name(".txnindex") in files:
        files.put(segment.name(".txnindex"), b"")
    if first is None:
        return 0
    files.resize(segment.log, first.position)
    return size - first.position
