"""Batches and records as JSON lines, made by columns: what rows would give, without an object for each record."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pickle import PickleBuffer
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from formats.kafka.record_batch import Attributes
from rmqctl.columns import Cell, lines_of, text_of
from rmqctl.findings import Severity
from rmqctl.kafka.columns import batch_columns, record_columns, shown_text
from rmqctl.kafka.directory.directory import LogFile, Partition, place_of
from rmqctl.kafka.dump.segments import SegmentDump, ShownBatches, pieces_of
from rmqctl.kafka.log.block import Ints
from rmqctl.kafka.log.records import Records
from rmqctl.kafka.rows import has_decoder, record_rows
from rmqctl.parallel import SLOT, Ordered

LineBytes = bytes | memoryview
_GATHERED = 4 << 20
_LONG = 1 << 20
"""Bytes of a key or value from which on a row is made, where columns would need many times their room."""
_FEW = 4
"""Records in a batch up to which each is joined with the line of its batch, if any, rather than batch by batch."""
SPLIT_SIZE, _LEAST_SPLIT = 2 << 20, 1 << 16
"""Bytes of a segment that one process makes lines of at a time; fewer where these are more than can be sent."""
_Range = tuple[int, int, int]
"""Number of a file, and where in it a range begins and ends."""
_LINE = orjson.OPT_APPEND_NEWLINE


class SegmentLines:
    """The parts of a dump as pieces of many lines.

    Attributes:
        shown: batches, or records where they are shown, so far.
        damage: errors and warnings so far.
    """

    def __init__(self, segments: SegmentDump) -> None:
        self.segments = segments
        self.shown = self.damage = 0

    def pieces(self, part: ShownBatches) -> Iterator[LineBytes]:
        """Yield the lines of a part."""
        self.damage += sum(finding.level is not Severity.NOTE for finding in part.findings)
        shown = part.records if self.segments.with_records else part.block
        self.shown += 0 if shown is None else len(shown)
        if part.findings:
            yield from gathered(map(_line, self.segments.rows_of(part)))
            return
        batches = _batch_lines(part)
        written = int(part.continued)
        for chunk in pieces_of(part.records) if part.records is not None and len(part.records) else ():
            yield from self._woven(part, chunk, batches, written)
            written = int(chunk.batch[-1]) + 1
        yield text_of(batches[written:])

    def _woven(
        self, part: ShownBatches, records: Records, batches: pa.BinaryArray, written: int
    ) -> Iterator[LineBytes]:
        """Lines of records, each batch's own line before them; batches before ``written`` have theirs already."""
        starts = np.flatnonzero(np.diff(records.batch, prepend=-1))
        rows = records.batch[starts]
        if rows[0] < written:
            starts, rows = starts[1:], rows[1:]
        stop = int(records.batch[-1]) + 1
        if self._are_plain(part, records) and stop - written == len(rows) and len(records) <= _FEW * len(rows):
            yield text_of(_record_lines(part, records, _before(records, batches[written:stop], starts)))
            return
        lines, ends = self._lines_and_ends(part, records)
        pieces: list[LineBytes] = [lines[: ends[starts[0]]]] if len(starts) else [lines]
        bounds = zip(rows.tolist(), pairwise([*ends[starts].tolist(), int(ends[-1])]), strict=True)
        own = batches[written:stop].to_pylist()
        done = 0
        for row, (begin, end) in bounds:
            pieces += own[done : row + 1 - written]
            done = row + 1 - written
            pieces.append(lines[begin:end])
        yield b"".join(pieces)

    def _are_plain(self, part: ShownBatches, records: Records) -> bool:
        """Whether all records are shown as they are, with nothing taken apart."""
        plain = self.segments.show is shown_text and not has_decoder(place_of(part.partition)[0])
        return (
            plain
            and not records.block.flag(Attributes.CONTROL)[records.batch].any()
            and max(records.key_size.max(initial=0), records.value_size.max(initial=0)) <= _LONG
        )

    def _lines_and_ends(self, part: ShownBatches, records: Records) -> tuple[memoryview, Ints]:
        """Return the lines of records end to end, and where each begins and ends."""
        if self._are_plain(part, records):
            lines = _record_lines(part, records)
            return text_of(lines), _ends_of(lines)
        pieces = [_line(row) for row in record_rows(records, part.partition, self.segments.show)]
        return memoryview(b"".join(pieces)), np.cumsum([0, *map(len, pieces)])


@dataclass(slots=True)
class SharedLines:
    """The lines of many files made by several processes, a range of bytes at a time.

    Attributes:
        unreadable: makes the line of a file that cannot be read, or raises.
        shown, damage: as of :class:`SegmentLines`.
    """

    segments: SegmentDump
    files: Sequence[tuple[Partition | None, LogFile]]
    processes: int
    unreadable: Callable[[LogFile, OSError], bytes]
    shown: int = 0
    damage: int = 0
    _broken: int = -1
    _split_size: int = SPLIT_SIZE

    def pieces(self) -> Iterator[LineBytes]:
        """Yield the lines in the order of the files; a piece is valid until the next is asked for."""
        given: deque[_Range] = deque()
        self._split_size = SPLIT_SIZE
        make = partial(_worker, replace(self.segments, advance=bool), self.files)
        for made in Ordered(make, self.processes, self.processes + 2).results(self._ranges(given)):
            number, start, stop = given.popleft()
            partition, file = self.files[number]
            if made is None:
                self._split_size = max(self._split_size // 4, _LEAST_SPLIT)
                lines = SegmentLines(self.segments)
                for part in self.segments.parts(partition, file, start, stop):
                    yield from lines.pieces(part)
                self.shown, self.damage = self.shown + lines.shown, self.damage + lines.damage
                continue
            self.segments.advance(stop - start)
            if isinstance(made, OSError):
                if number != self._broken:
                    self.damage += 1
                    yield self.unreadable(file, made)
                self._broken = number
                continue
            self.shown, self.damage = self.shown + made.shown, self.damage + made.damage
            self.segments.hidden += made.hidden
            yield memoryview(made.lines)

    def _ranges(self, given: deque[_Range]) -> Iterator[_Range]:
        for number, (_, file) in enumerate(self.files):
            size, start, end = max(file.size, 1), 0, _data_end(file)
            while start < size:
                stop = start + self._split_size
                stop = size if stop >= end else stop
                given.append((number, start, stop))
                yield given[-1]
                start = stop


def _data_end(file: LogFile) -> int:
    """Where the hole at the end of a file begins, which nobody need search."""
    if file.size <= SPLIT_SIZE:
        return file.size
    source = file.open()
    try:
        return max((end for _, end in source.data_ranges(0, file.size)), default=0)
    except OSError:  # said by whoever reads it
        return file.size
    finally:
        source.close()


@dataclass(frozen=True, slots=True)
class _Made:
    """The lines of a range, and what was counted on the way."""

    lines: Any
    shown: int
    damage: int
    hidden: int


def _worker(
    segments: SegmentDump, files: Sequence[tuple[Partition | None, LogFile]]
) -> Callable[[_Range], _Made | OSError | None]:
    """Return what makes the lines of a range in a process of its own; None where they are too many to be sent."""

    def work(of: _Range) -> _Made | OSError | None:
        number, start, stop = of
        lines, pieces, size = SegmentLines(segments), list[LineBytes](), 0
        segments.hidden = 0
        try:
            for part in segments.parts(*files[number], start, stop):
                for piece in lines.pieces(part):
                    pieces.append(piece)
                    size += len(piece)
                    if size > SLOT:
                        return None
        except OSError as error:
            return error
        return _Made(PickleBuffer(b"".join(pieces)), lines.shown, lines.damage, segments.hidden)

    return work


def _line(row: Any) -> bytes:
    return orjson.dumps(row, option=_LINE)


def gathered(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines joined, some MiB at a time."""
    found, size = list[bytes](), 0
    for line in lines:
        found.append(line)
        size += len(line)
        if size > _GATHERED:
            yield b"".join(found)
            found, size = [], 0
    yield b"".join(found)


def _before(records: Records, batches: pa.BinaryArray, starts: Ints) -> pa.BinaryArray:
    """Return what stands before the line of each record: that of its batch, if it is the first of it, or nothing."""
    if len(starts) == len(records):
        return batches
    index = np.full(len(records), len(batches))
    index[starts] = np.arange(len(starts))
    return pa.concat_arrays([batches, pa.array([b""], pa.binary())]).take(pa.array(index))


def _record_lines(part: ShownBatches, records: Records, before: Cell = b"") -> pa.BinaryArray:
    return lines_of(record_columns(records, part.partition), len(records), before)


def _batch_lines(part: ShownBatches) -> pa.BinaryArray:
    """Return the line of each batch."""
    if not len(part.block):
        return pa.array([], pa.binary())
    return lines_of(batch_columns(part.block, part.partition), len(part.block))


def _ends_of(lines: pa.BinaryArray) -> Ints:
    """Return where each line begins in what ``text_of`` gives, and where the last one ends, shape (n + 1,)."""
    return np.concatenate([[0], np.cumsum(pc.binary_length(lines).to_numpy(zero_copy_only=False))])
