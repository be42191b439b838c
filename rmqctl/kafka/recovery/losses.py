"""The records that a start gives up: those of batches that were in the log and are not served any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqctl.kafka.directory.directory import LogFile, Partition
from rmqctl.kafka.loading.load import LoadedPartition
from rmqctl.kafka.log.block import Batches, Block, Flags, stated_records
from rmqctl.kafka.log.scan import Extent, scan


@dataclass(frozen=True, slots=True)
class Lost:
    """What is given up: records, and the bytes of their batches."""

    records: int = 0
    bytes: int = 0


def lost_of(loaded: LoadedPartition) -> Lost:
    """Count what a partition loses."""
    records = size = 0
    for block in _lost(loaded):
        records += int(stated_records(block).sum())
        size += int(block.size.sum())
    return Lost(records, size)


def held_by(partition: Partition) -> Lost:
    """Count all that the segments of a partition hold."""
    records = size = 0
    for log in partition.logs:
        for block in _batches(log, 0):
            records += int(stated_records(block)[block.crc_ok].sum())
            size += int(block.size.sum())
    return Lost(records, size)


def lost_blocks(loaded: LoadedPartition) -> Iterator[Block]:
    """Yield the batches that are given up, in order; those of a block live until the next."""
    for log in loaded.partition.logs:
        kept = kept_of(loaded, log)
        if kept is not None and kept < log.size:
            yield from _batches(log, kept)
        elif _may_be_unserved(loaded, log, kept):
            for block in _batches(log, 0):
                if (beyond := _beyond(block, loaded)).any():
                    yield block.take(beyond)


def _may_be_unserved(loaded: LoadedPartition, log: LogFile, kept: int | None) -> bool:
    """Whether a log stays whole, and batches of it may lie after the end that a broker found."""
    return kept is not None and log.base == loaded.bases[-1] and not _is_served(loaded, log)


def _lost(loaded: LoadedPartition) -> Iterator[Batches]:
    """Yield the headers of the batches that are given up, from what is known already where that is enough."""
    read = None
    if loaded.known is not None and loaded.partition.logs:
        log = loaded.partition.logs[-1]
        name = log.name.rpartition("/")[2]
        read = loaded.known.of(loaded.view[name]) if name in loaded.view else None
    if read is None or any(kept_of(loaded, log) != log.size for log in loaded.partition.logs):
        yield from lost_blocks(loaded)
    elif _may_be_unserved(loaded, log, log.size):
        yield from (part.take(_beyond(part, loaded)) for part in read)


def kept_of(loaded: LoadedPartition, log: LogFile) -> int | None:
    """Bytes of a log on disk that stay, None where another file took its place."""
    name = log.name.rpartition("/")[2]
    if name not in loaded.view:
        return None if log.name in loaded.replaced else 0
    content = loaded.view[name]
    if content.stored is log:
        return content.kept
    return None


def _is_served(loaded: LoadedPartition, log: LogFile) -> bool:
    """Whether a check of the whole segment has shown that no batch begins at the end of the log or after it."""
    largest = loaded.largest_bases.get(log.base)
    return largest is not None and largest < loaded.log_end_offset


def _batches(log: LogFile, start: int) -> Iterator[Block]:
    source = log.open()
    try:
        extent = Extent(log.name, log.base, start, size=log.size, chained=True)
        yield from (block for block in scan(source, extent) if len(block))
    finally:
        source.close()


def _beyond(block: Batches, loaded: LoadedPartition) -> Flags:
    """Which batches stay in the file of the last segment, at or after the end that a broker found."""
    return block["base_offset"] >= loaded.log_end_offset
