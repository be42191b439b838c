"""The one scan: finds records in a byte range of a file and yields blocks, whatever the bytes are.

Two ways through the same bytes. *The chain* hops from a known start by TOTALSIZE, as a broker does.
*The search* finds message magics and accepts a record where PHYSICALOFFSET equals the position and
all lengths add up. A large window is followed first, many stretches of it side by side; from where that
ends it is searched, once: where the records found follow each other without a hole the chain is proven
for all of them at once, and only what breaks it is looked at one by one.

Nothing raises on bytes. What cannot be read becomes a :class:`~rmqctl.rocketmq.log.block.Gap`, and the
scan goes on at the next sound record. Memory is bounded by the window and the largest record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqctl.files.local import ByteSource
from rmqctl.files.windows import BEYOND, Windows
from rmqctl.rocketmq.log.block import Blank, Block, Bytes8, Gap, GapKind
from rmqctl.rocketmq.log.chain import Chain, WindowResult
from rmqctl.rocketmq.log.measure import PEEK, records_at

WINDOW = 4 << 20
"""Bytes read at a time: small enough to stay in the processor's cache between the passes."""
_PAGE = 32 << 10
_LOOK_BACK = (1 << 16, 1 << 20, 8 << 20)


@dataclass(frozen=True, slots=True)
class Extent:
    """Which part of which file to scan.

    Attributes:
        file: name for blocks, relative to the store.
        base: physical offset of the file's first byte.
        start, stop: the split in bytes; records that *start* in it are yielded. ``stop`` None: to the end.
        size: end of the file in bytes where it is known; else the source is asked.
        lead: bytes before each record that belong to it: 0, or 48 for a DLedger entry header.
        chained: a record is known to start at ``start``; always so for ``start`` 0.
    """

    file: str
    base: int
    start: int = 0
    stop: int | None = None
    size: int | None = None
    lead: int = 0
    chained: bool = False


def scan(source: ByteSource, extent: Extent, window: int = WINDOW) -> Iterator[Block]:
    """Yield the records that start in the extent, in file order, with what lies between them.

    Any division of a file into splits yields the same records, gaps and blanks, each in the split
    in which it starts; damage longer than 8 MiB may hide the end of a gap from the split after it.

    Raises:
        OSError: the source cannot be read. Never raises on what the bytes are.
    """
    return _Scan(source, extent, max(window, 2 * PEEK)).run()


class _Scan:
    """Windows over one extent, with the chain's position and the gap that is open, if any."""

    def __init__(self, source: ByteSource, extent: Extent, window: int) -> None:
        self.source, self.extent = source, extent
        self.windows = Windows(
            source, start=extent.start, stop=extent.stop, size=extent.size, most=window, overlap=PEEK
        )
        self.chain = Chain(extent.base, self.windows.size, extent.lead, self._peek)
        self._page = -1, b""

    def run(self) -> Iterator[Block]:
        if self._is_beyond_data():
            return
        windows, chain = self.windows, self.chain
        position = self._first_position()
        need = windows.usual(position)
        while windows.goes_on(position, chain.gap):
            data = windows.read(position, need)
            if len(data) < min(need, windows.size - position):
                windows.size = chain.size = position + len(data)  # the file shrank while it was read
            step = chain.follow(data, position, windows.stop)
            yield from self._owned(step, data, position)
            in_damage = chain.gap is not None
            position, need = windows.next(data, position, step.after, step.need, in_damage=in_damage)
        yield from self._close()

    def _is_beyond_data(self) -> bool:
        """Whether nothing was written in this split, nor where a record would be looked for that leads into it."""
        start = self.extent.start
        if start == 0 or self.extent.chained or start >= self.windows.size:
            return False
        return not any(self.source.data_ranges(max(start - _LOOK_BACK[-1], 0), self.windows.stop))

    def _first_position(self) -> int:
        """Where to begin: the extent's start, or a sound record before it whose chain leads there."""
        start = self.extent.start
        if start == 0 or self.extent.chained or start >= self.windows.size:
            return start
        for back in _LOOK_BACK:
            begin = max(start - back, 0)
            found = 0 if begin == 0 else self._first_record(begin, start)
            if found is not None:
                return found
        self.chain.gap = Gap(-1, start, GapKind.MAGIC, "")  # began before this split: not its to report
        return start

    def _first_record(self, begin: int, end: int) -> int | None:
        """Return where the first sound record between two places begins; a little more is mostly enough to see."""
        windows = self.windows
        for more in sorted({min(BEYOND, windows.most), windows.most}):
            data = windows.read(begin, end - begin + more)
            found = records_at(data, begin, self.extent.base, windows.size - begin, self.extent.lead)
            starts = found.at[found.whole]
            if len(starts) and (more == windows.most or not found.needs[found.at < starts[0]].any()):
                first = int(starts[0]) + begin - self.extent.lead
                return first if first < end else None
        return None

    def _peek(self, position: int, size: int) -> bytes:
        """Return a few bytes anywhere in the file; the page that holds them is kept, as the next often lie in it."""
        start, page = self._page
        if not start <= position <= start + len(page) - size:
            start = position // _PAGE * _PAGE
            page = self.source.read_at(start, min(2 * _PAGE, self.windows.size - start))
            self._page = start, page
        return page[position - start : position - start + size]

    def _owned(self, step: WindowResult, data: Bytes8, position: int) -> Iterator[Block]:
        """Yield the step's records, gaps and blanks that start in this extent, as a block."""
        begin, end = self.extent.start, self.windows.stop
        block = step.block(self.extent.file, self.extent.base, position, data)
        lead = self.extent.lead
        if len(block) and not (block.at[0] - lead + position >= begin and block.at[-1] - lead + position < end):
            starts = block.position - lead
            block = block.take((starts >= begin) & (starts < end))
        block.gaps = [g for g in step.gaps if begin <= g.position < end]
        block.blanks = [b for b in step.blanks if begin <= b.position < end]
        if len(block) or block.gaps or block.blanks:
            yield block

    def _close(self) -> Iterator[Block]:
        """Yield the gap still open at the end of the file: damage up to the last byte that is not zero, then room."""
        gap, self.chain.gap = self.chain.gap, None
        if gap is None or not self.extent.start <= gap.position < self.windows.stop:
            return
        last, size = max(self.windows.last_data, gap.position), self.windows.size
        if gap.blank is not None:
            blank = Blank(gap.position, gap.blank, size)
            yield Block.empty(self.extent.file, self.extent.base, gap.position, [], [blank])
            return
        gaps = []
        if last > gap.position:
            gap.end = last
            gaps.append(gap)
        if last < size:
            gaps.append(Gap(last, size, GapKind.ZERO_TAIL, f"{size - last} bytes never written"))
        yield Block.empty(self.extent.file, self.extent.base, gap.position, gaps)


__all__ = ["WINDOW", "Blank", "Block", "Extent", "Gap", "GapKind", "scan"]
