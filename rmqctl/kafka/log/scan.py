"""The one scan of a segment: finds batches in a byte range of a file and yields blocks, whatever the bytes are.

Nothing raises on bytes. What cannot be read becomes a :class:`~rmqctl.kafka.log.block.Gap`, and the scan
goes on at the next batch that proves itself by its CRC. Memory is bounded by the window and the
largest batch. ``scan`` serves ``.log`` files of all magics and ``.checkpoint`` snapshots alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from formats.kafka.record_batch import HEADER_SIZE, LENGTH_AT, MAGIC_AT
from rmqctl.files.local import ByteSource, LocalFile
from rmqctl.files.windows import Windows
from rmqctl.kafka.log.block import SLACK, Block, Bytes8, Gap, GapKind
from rmqctl.kafka.log.frames import Chain, Found, candidates, sizes_of, whole_among

WINDOW = 8 << 20
"""Bytes read at a time."""
PIECE = 1 << 19
"""Bytes of a local file that are read and followed at a time, while the processor's nearest caches hold them."""
_LOOK_BACK = (1 << 16, 2 << 20, 16 << 20)
_FIRST_LOOK = 1 << 13
_OVERLAP = 64
_SHARED = LENGTH_AT - 1
"""Bytes with which a batch may begin and another one end: those of a base offset that may all be zero."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Which part of which file to scan.

    Attributes:
        file: name for blocks, relative to the log directory.
        base: base offset of the segment, None where nothing says it (files alone, snapshots): what is taken
            for a batch after damage must lie less than 2^31 above it.
        start, stop: the split in bytes; batches that *start* in it are yielded. ``stop`` None: to the end.
        size: end of the file in bytes where it is known; else the source is asked.
        chained: a batch is known to start at ``start``; always so for ``start`` 0.
        check_crc: compare every CRC; without, a batch with a wrong one counts as sound.
    """

    file: str
    base: int | None = None
    start: int = 0
    stop: int | None = None
    size: int | None = None
    chained: bool = False
    check_crc: bool = True


def scan(source: ByteSource, extent: Extent, window: int = WINDOW, piece: int = PIECE) -> Iterator[Block]:
    """Yield the batches that start in the extent, in file order, with what lies between them.

    Any division of a file into splits yields the same batches and gaps, each in the split in which
    it starts.

    Raises:
        OSError: the source cannot be read. Never raises on what the bytes are.
    """
    return _Scan(source, extent, max(window, 256), piece).run()


def whole_in(source: ByteSource, extent: Extent) -> Block:
    """Return the batches that prove themselves and begin in a stretch of a file, wherever they end.

    For what the chain passes over by a size that no CRC bears out: a whole batch may begin in it, and end after it.

    Raises:
        OSError: the source cannot be read.
    """
    begin, limit = extent.start, source.size() if extent.size is None else extent.size
    end = limit if extent.stop is None else extent.stop
    data = np.frombuffer(source.read_at(begin, min(end + HEADER_SIZE, limit) - begin), np.uint8)
    at = candidates(data, limit - begin, None)
    at = at[at < end - begin]
    need = int((at + sizes_of(data, at)).max(initial=0))
    if need > len(data):
        data = np.frombuffer(source.read_at(begin, need), np.uint8)
    at, size = whole_among(data, at)
    magic = data.view(np.int8)[at + MAGIC_AT].astype(np.int64)
    return Block(extent.file, begin, data, at, size, magic, np.ones(len(at), np.bool_))


def scan_inside(source: ByteSource, extent: Extent) -> Iterator[tuple[Block, list[Block]]]:
    """Scan, and search what does not match its CRC: with each block come the batches that lie in such ones, whole.

    So do those that begin with the last zeros of the batch before them, as where bytes between the two were taken out.

    Raises:
        OSError: the source cannot be read.
    """
    end = 0
    for block in scan(source, extent):
        inside = []
        bad = zip(block.position[~block.crc_ok].tolist(), block.size[~block.crc_ok].tolist(), strict=True)
        searched = [(at, at + size) for at, size in bad] + [(gap.position, gap.position) for gap in block.gaps]
        for at, stop in sorted(searched):
            begin = max(at - _SHARED, end, 0)
            shared = source.read_at(begin, max(at - begin, 0))
            begin += len(shared.rstrip(b"\0"))  # other bytes would be no offset
            found = whole_in(source, Extent(extent.file, start=begin, stop=stop)) if begin < stop else ()
            if found:
                inside.append(found)
                end = int((found.position + found.size).max())
        yield block, inside


class _Scan:
    """Windows over one extent, with the chain's position and the gap that is open, if any."""

    def __init__(self, source: ByteSource, extent: Extent, window: int, piece: int) -> None:
        self.source, self.extent, self.piece = source, extent, piece
        self.windows = Windows(
            source, start=extent.start, stop=extent.stop, size=extent.size, most=window, overlap=_OVERLAP, slack=SLACK
        )
        self.chain = Chain(self.windows.size, extent.base, check_crc=extent.check_crc)

    def run(self) -> Iterator[Block]:
        windows, chain = self.windows, self.chain
        position = self._first_position()
        need = windows.usual(position)
        while windows.goes_on(position, chain.gap):
            data, found = self._follow(position, need)
            yield from self._owned(found, data, position)
            in_damage = chain.gap is not None
            position, need = windows.next(data, position, found.after, found.need, in_damage=in_damage)
        yield from self._close()

    def _first_position(self) -> int:
        """Where to begin: the extent's start, or a batch before it whose chain leads there."""
        start = self.extent.start
        if start == 0 or self.extent.chained or start >= self.windows.size:
            return start
        for back in _LOOK_BACK:
            begin = max(start - back, 0)
            if begin == 0:
                return 0
            found = self._first_batch(begin, start)
            if found is not None:
                return found
        self.chain.gap = Gap(-1, start, GapKind.SIZE, "")  # began before this split: not its to report
        return start

    def _first_batch(self, begin: int, end: int) -> int | None:
        """Return the first batch in a range that proves itself, as after damage."""
        chain = Chain(self.windows.size, self.extent.base)
        chain.gap = Gap(begin, begin, GapKind.SIZE, "")
        position, need = begin, _FIRST_LOOK  # a batch is mostly near, and searching is dear
        while position < end:
            data = self.windows.read(position, need)
            found = chain.window(data, position, end).follow()
            if found.gaps:
                return found.gaps[0].end if found.gaps[0].end < end else None
            position, need = position + max(found.after, 1), max(found.need, min(4 * len(data), self.windows.most))
        return None

    def _follow(self, position: int, need: int) -> tuple[Bytes8, Found]:
        """Return a window, and what follows each other in it.

        A local file is read in pieces, and each followed while the processor's nearest caches hold it.
        """
        windows, chain = self.windows, self.chain
        need = min(need, windows.size - position)
        if chain.gap is not None or not isinstance(self.source, LocalFile):
            data = windows.read(position, need)
        else:
            data = windows.room(need)
            window, view, got = chain.window(data, position, windows.stop), data.data, 0
            while got < need:
                end = min(got + self.piece, need)
                got += self.source.read_into(position + got, view[got:end])
                if got < end:
                    break
                window.hop(got)
            if got == need:
                return data, window.follow()
            data = data[:got]
        if len(data) < need:
            windows.size = chain.size = position + len(data)  # the file shrank while it was read
        return data, chain.window(data, position, windows.stop).follow()

    def _owned(self, found: Found, data: Bytes8, position: int) -> Iterator[Block]:
        """Yield the batches and gaps that start in this extent, as a block."""
        begin, end = self.extent.start, self.windows.stop
        at, size = found.columns()
        crc_ok = np.ones(len(at), np.bool_)
        crc_ok[found.bad] = False
        magic = data.view(np.int8)[at + MAGIC_AT].astype(np.int64)
        block = Block(self.extent.file, position, data, at, size, magic, crc_ok, [], self.windows.padded(data))
        if len(at) and not (position + at[0] >= begin and position + at[-1] < end):
            block = block.take((block.position >= begin) & (block.position < end))
        block.gaps = [gap for gap in found.gaps if begin <= gap.position < end]
        if len(block) or block.gaps:
            yield block

    def _close(self) -> Iterator[Block]:
        """Yield the gap still open at the end of the file: damage up to the last byte that is not zero, then room."""
        gap, self.chain.gap = self.chain.gap, None
        if gap is None or not self.extent.start <= gap.position < self.windows.stop:
            return
        last, size = max(self.windows.last_data, gap.position), self.windows.size
        gaps = []
        if last > gap.position:
            gap.end = last
            gaps.append(gap)
        if last < size:
            gaps.append(Gap(last, size, GapKind.ZERO_TAIL, f"{size - last} bytes never written"))
        yield Block.empty(self.extent.file, gap.position, gaps)


__all__ = ["WINDOW", "Block", "Extent", "Gap", "GapKind", "candidates", "scan", "scan_inside", "whole_in"]
