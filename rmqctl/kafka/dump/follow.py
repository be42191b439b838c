"""Segments that grow: what is in them, then what a broker appends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rmqctl.kafka.block import Block
from rmqctl.kafka.directory import LogFile, Partition, read_partition
from rmqctl.kafka.dump.segments import SegmentDump, extent_of
from rmqctl.kafka.rows import Row
from rmqctl.kafka.segments import Extent, scan

POLL_SECONDS = 0.5


@dataclass
class Follow:
    """The partitions of a dump, looked at again and again.

    What stands at the end of a file and is no whole batch is left for the next look: a broker may be writing it.
    Segments that are added to the partitions are followed too.

    Attributes:
        partitions: what is followed.
        sleep: waits between two looks.
    """

    segments: SegmentDump
    partitions: list[Partition]
    sleep: Callable[[float], object] = time.sleep
    _done: dict[str, int] = field(default_factory=dict)

    def rows(self) -> Iterator[Row | None]:
        """Rows without end; None when the next one may take a while.

        Raises:
            OSError: a directory or a file cannot be read.
        """
        while True:
            for partition in self.partitions:
                yield from self._partition(partition)
            yield None
            self.sleep(POLL_SECONDS)

    def _partition(self, partition: Partition) -> Iterator[Row]:
        files = partition.files
        now = read_partition(files[0].tree, partition.directory, partition.name) if files else partition
        for log in now.logs:
            try:
                yield from self._file(now, log)
            except FileNotFoundError:  # deleted meanwhile by retention
                continue

    def _file(self, partition: Partition, file: LogFile) -> Iterator[Row]:
        start = self._done.get(file.name, 0)
        if file.size <= start:
            return
        whole = extent_of(file)
        source = file.open()
        try:
            for block in scan(source, Extent(whole.file, whole.base, start, size=file.size, chained=True)):
                block = _whole(block, file.size)
                if len(block) or block.gaps:
                    yield from self.segments.rows_of(self.segments.part(partition, block))
                if len(block):
                    self._done[file.name] = int(block.position[-1] + block.size[-1])
        finally:
            source.close()


def _whole(block: Block, size: int) -> Block:
    """Return a block without what may still be written: a bad batch at the very end, and a gap that no batch ends."""
    found = block
    if len(block) and not block.crc_ok[-1] and block.position[-1] + block.size[-1] >= size:
        found = block.take(slice(0, -1))
    found.gaps = [gap for gap in block.gaps if gap.resumed]
    return found
