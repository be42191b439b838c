"""The one scan of a segment: finds batches in a byte range of a file and yields blocks, whatever the bytes are.

Nothing raises on bytes. What cannot be read becomes a :class:`~rmqctl.kafka.block.Gap`, and the scan
goes on at the next batch that proves itself by its CRC. Memory is bounded by the window and the
largest batch. ``scan`` serves ``.log`` files of all magics and ``.checkpoint`` snapshots alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from formats.kafka.record_batch import MAGIC_AT
from rmqctl.files.local import ByteSource, LocalFile
from rmqctl.kafka.block import SLACK, Block, Bytes8, Gap, GapKind
from rmqctl.kafka.frames import Chain, Found, candidates

WINDOW = 8 << 20
"""Bytes read at a time."""
_PIECE = 1 << 19
_LOOK_BACK = (1 << 16, 2 << 20, 16 << 20)
_FIRST_LOOK = 1 << 13
_OVERLAP = 64


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


def scan(source: ByteSource, extent: Extent, window: int = WINDOW) -> Iterator[Block]:
    """Yield the batches that start in the extent, in file order, with what lies between them.

    Any division of a file into splits yields the same batches and gaps, each in the split in which
    it starts.

    Raises:
        OSError: the source cannot be read. Never raises on what the bytes are.
    """
    return _Scan(source, extent, max(window, 256)).run()


class _Scan:
    """Windows over one extent, with the chain's position and the gap that is open, if any."""

    def __init__(self, source: ByteSource, extent: Extent, window: int) -> None:
        self.source, self.extent, self.window = source, extent, window
        self.size = source.size() if extent.size is None else extent.size
        self.stop = self.size if extent.stop is None else min(extent.stop, self.size)
        self.chain = Chain(self.size, extent.base, check_crc=extent.check_crc)
        self._buffer = bytearray(0)
        self._last_data = 0

    def run(self) -> Iterator[Block]:
        position = self._first_position()
        need = self._room(position)
        while self._goes_on(position):
            data, found = self._follow(position, need)
            yield from self._owned(found, data, position)
            position, need = self._next(found, data, position)
        yield from self._close()

    def _goes_on(self, position: int) -> bool:
        gap = self.chain.gap
        searching = gap is not None and gap.position >= self.extent.start
        return position < self.size and (position < self.stop or searching)

    def _first_position(self) -> int:
        """Where to begin: the extent's start, or a batch before it whose chain leads there."""
        start = self.extent.start
        if start == 0 or self.extent.chained or start >= self.size:
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
        chain = Chain(self.size, self.extent.base)
        chain.gap = Gap(begin, begin, GapKind.SIZE, "")
        position, need = begin, _FIRST_LOOK  # a batch is mostly near, and searching is dear
        while position < end:
            data = self._read(position, need)
            found = chain.window(data, position, end).follow()
            if found.gaps:
                return found.gaps[0].end if found.gaps[0].end < end else None
            position, need = position + max(found.after, 1), max(found.need, min(4 * len(data), self.window))
        return None

    def _follow(self, position: int, need: int) -> tuple[Bytes8, Found]:
        """Return a window, and what follows each other in it.

        A local file is read in pieces, and each followed while the processor's nearest caches hold it.
        """
        need = min(need, self.size - position)
        if self.chain.gap is not None or not isinstance(self.source, LocalFile):
            data = self._read(position, need)
        else:
            data = self._room_for(need)
            window, view, got = self.chain.window(data, position, self.stop), memoryview(self._buffer), 0
            while got < need:
                end = min(got + _PIECE, need)
                got += self.source.read_into(position + got, view[got:end])
                if got < end:
                    break
                window.hop(got)
            if got == need:
                return data, window.follow()
            data = data[:got]
        if len(data) < need:
            self.size = self.chain.size = position + len(data)  # the file shrank while it was read
        return data, self.chain.window(data, position, self.stop).follow()

    def _read(self, position: int, need: int) -> Bytes8:
        """Return a window of up to ``need`` bytes in the buffer that all windows share."""
        room = self._room_for(min(need, self.size - position))
        return room[: self.source.read_into(position, memoryview(self._buffer)[: len(room)])]

    def _room_for(self, need: int) -> Bytes8:
        """Return the first bytes of the buffer."""
        if len(self._buffer) < need + SLACK:
            self._buffer = bytearray(need + SLACK)
        return np.frombuffer(self._buffer, np.uint8, need)

    def _next(self, found: Found, data: Bytes8, position: int) -> tuple[int, int]:
        """Where the next window begins and how many bytes it needs; zeros are passed without reading holes."""
        after = position + found.after
        if self.chain.gap is not None:
            self._note_data(data, position)
            if found.need == 0 and not data[found.after :].any():
                after = max(after, self._next_data(position + len(data)) - _OVERLAP)
        return after, max(found.need, self._room(after))

    def _room(self, position: int) -> int:
        """Bytes to read at a position: a window, but little more than the extent, unless damage goes on there."""
        if self.chain.gap is not None:
            return self.window
        return min(self.window, max(self.stop - position, 0) + _LOOK_BACK[0])

    def _note_data(self, data: Bytes8, position: int) -> None:
        used = len(data.tobytes().rstrip(b"\0"))
        if used:
            self._last_data = position + used

    def _next_data(self, position: int) -> int:
        """Return the first byte from ``position`` that is not zero; the end of the file if there is none."""
        for start, end in self.source.data_ranges(position, self.size):
            while start < end:
                data = self._read(start, min(self.window, end - start))
                if not len(data):
                    return self.size
                if data.any():
                    return start + int(np.argmax(data != 0))
                start += len(data)
        return self.size

    def _owned(self, found: Found, data: Bytes8, position: int) -> Iterator[Block]:
        """Yield the batches and gaps that start in this extent, as a block."""
        begin, end = self.extent.start, self.stop
        at, size = found.columns()
        crc_ok = np.ones(len(at), np.bool_)
        crc_ok[found.bad] = False
        padded = np.frombuffer(self._buffer, np.uint8, len(data) + SLACK)
        magic = data.view(np.int8)[at + MAGIC_AT].astype(np.int64)
        block = Block(self.extent.file, position, data, at, size, magic, crc_ok, [], padded)
        if len(at) and not (position + at[0] >= begin and position + at[-1] < end):
            block = block.take((block.position >= begin) & (block.position < end))
        block.gaps = [gap for gap in found.gaps if begin <= gap.position < end]
        if len(block) or block.gaps:
            yield block

    def _close(self) -> Iterator[Block]:
        """Yield the gap still open at the end of the file: damage up to the last byte that is not zero, then room."""
        gap, self.chain.gap = self.chain.gap, None
        if gap is None or not self.extent.start <= gap.position < self.stop:
            return
        last = max(self._last_data, gap.position)
        gaps = []
        if last > gap.position:
            gap.end = last
            gaps.append(gap)
        if last < self.size:
            gaps.append(Gap(last, self.size, GapKind.ZERO_TAIL, f"{self.size - last} bytes never written"))
        yield Block.empty(self.extent.file, gap.position, gaps)


__all__ = ["WINDOW", "Block", "Extent", "Gap", "GapKind", "candidates", "scan"]
