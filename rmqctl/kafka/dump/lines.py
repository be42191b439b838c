"""Batches and records as JSON lines, made by columns: what rows would give, without an object for each record."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pickle import PickleBuffer
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from formats.kafka.record_batch import Attributes
from rmqctl.findings import Severity
from rmqctl.kafka.directory.directory import LogFile, Partition, place_of
from rmqctl.kafka.dump.segments import SegmentDump, ShownBatches, pieces_of
from rmqctl.kafka.log.block import Bytes8, Flags, Ints
from rmqctl.kafka.log.codecs import codec_name
from rmqctl.kafka.log.records import Records
from rmqctl.kafka.rows import batch_rows, binary_of, has_decoder, record_rows, shown_text
from rmqctl.parallel import SLOT, Ordered

LineBytes = bytes | memoryview
Cell: TypeAlias = "bytes | pa.BinaryArray"
"""Of each line the same bytes, or bytes of its own."""
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
_BOOLEANS = (b"false", b"true")
_QUOTE, _BACKSLASH, _COMMA = b'"\\,'
_LETTERED, _LETTERS = b'"\\\t\n\r', b'"\\tnr'
_FOREIGN, _CONTROL = len(_LETTERED), len(_LETTERED) + 1
"""Kinds of bytes: those of other than ASCII characters, and those that no text is shown with."""


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
        yield _bytes_of(batches[written:])

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
            yield _bytes_of(_record_lines(part, records, _before(records, batches[written:stop], starts)))
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
            and not records.block.has_legacy
            and not records.block.flag(Attributes.CONTROL)[records.batch].any()
            and max(records.key_size.max(initial=0), records.value_size.max(initial=0)) <= _LONG
        )

    def _lines_and_ends(self, part: ShownBatches, records: Records) -> tuple[memoryview, Ints]:
        """Return the lines of records end to end, and where each begins and ends."""
        if self._are_plain(part, records):
            lines = _record_lines(part, records)
            return memoryview(_bytes_of(lines)), _offsets_of(lines)
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
    block, data = records.block, records.data
    topic, number = place_of(part.partition)
    fields = {"kind": "record", "file": block.file, "topic": topic, "partition": number, "batch_position": 0}
    return _joined(
        len(records), before, orjson.dumps(fields)[:-2], _numbers(block.position[records.batch]),
        b'"offset":', _numbers(records.offset), b'"timestamp":', _numbers(records.timestamp),
        b'"sequence":', _numbers(records.sequence), b'"key":', *_strings(data, records.key_at, records.key_size),
        b',"value":', *_strings(data, records.value_at, records.value_size), b',"headers":', _headers(records),
        b',"key_size":', _numbers(records.key_size), b'"value_size":', _numbers(records.value_size),
        b'"control_type":null}\n',
    )  # fmt: skip


def _batch_lines(part: ShownBatches) -> pa.BinaryArray:
    """Return the line of each batch."""
    block = part.block
    if block.has_legacy or not len(block):
        return pa.array(list(map(_line, batch_rows(block, part.partition))), pa.binary())
    topic, number = place_of(part.partition)
    fields = {"kind": "batch", "file": block.file, "topic": topic, "partition": number, "position": 0}
    append_time = block.flag(Attributes.LOG_APPEND_TIME)
    codecs = [b'"' + codec_name(codec).encode() + b'"' for codec in range(8)]
    base_timestamp = _numbers(block["base_timestamp"])
    return _joined(
        len(block), orjson.dumps(fields)[:-2], _numbers(block.position), b'"size":', _numbers(block.size),
        b'"magic":', _numbers(block.magic), b'"base_offset":', _numbers(block["base_offset"]),
        b'"last_offset":', _numbers(block["last_offset"]), b'"count":', _numbers(block["records_count"]),
        b'"compression":', _named(block["codec"], codecs),
        b',"timestamp_type":', _named(append_time, (b'"CreateTime"', b'"LogAppendTime"')),
        b',"base_timestamp":', base_timestamp, b'"max_timestamp":', _numbers(block["max_timestamp"]),
        b'"producer_id":', _numbers(block["producer_id"]), b'"producer_epoch":', _numbers(block["producer_epoch"]),
        b'"base_sequence":', _numbers(block["base_sequence"]), b'"last_sequence":', _numbers(block["last_sequence"]),
        b'"leader_epoch":', _numbers(block["partition_leader_epoch"]),
        b'"transactional":', _named(block.flag(Attributes.TRANSACTIONAL), _BOOLEANS),
        b',"control":', _named(block.flag(Attributes.CONTROL), _BOOLEANS),
        b',"delete_horizon":', _where(block.flag(Attributes.DELETE_HORIZON), base_timestamp, b"null,"),
        b'"crc":', _numbers(block["crc"]), b'"crc_ok":', _named(block.crc_ok, _BOOLEANS), b"}\n",
    )  # fmt: skip


# --- cells, and lines of them -------------------------------------------------------------------------


def _joined(count: int, *cells: Cell) -> pa.BinaryArray:
    """Lines of cells; neighbours that are the same in each line are joined before."""
    merged: list[Any] = []
    for cell in cells:
        if isinstance(cell, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += cell
        else:
            merged.append(cell)
    if len(merged) == 1 and isinstance(merged[0], bytes):
        return pa.array(merged * count, pa.binary())
    return pc.binary_join_element_wise(*merged, b"")


def _is_one(column: Any) -> bool:
    return bool(len(column)) and bool(column[0] == column[-1]) and bool((column == column[0]).all())


def _numbers(column: Ints) -> Cell:
    """Integers as text, each with a comma after it: together they are written as one JSON list."""
    if _is_one(column):
        return b"%d," % column[0]
    text = bytearray(orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY))
    text[-1] = _COMMA
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _COMMA) + 1
    return _binary(text, np.concatenate([np.ones(1, np.int64), ends]))


def _binary(data: Any, offsets: Ints) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    found: Any = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    return found


def _named(column: Any, names: Sequence[bytes]) -> Cell:
    """Small numbers by their names."""
    if _is_one(column):
        return names[int(column[0])]
    return pa.array(names, pa.binary()).take(pa.array(column.astype(np.int64)))


def _where(flags: Flags, yes: Cell, no: bytes) -> Cell:
    if not flags.any():
        return no
    return yes if flags.all() else pc.if_else(pa.array(flags), yes, no)


def _strings(data: Bytes8, at: Ints, size: Ints) -> tuple[Cell, ...]:
    """Keys or values as JSON; nearly all only need quotes, or backslashes too, which all get at once."""
    if (size < 0).all():
        return (b"null",)
    strings: Any = binary_of(data, at, size)
    text, offsets = _bytes_of(strings), _offsets_of(strings)
    found = np.frombuffer(text, np.uint8)
    special = np.flatnonzero((found - np.uint8(0x20) >= 0x5F) | (found == _QUOTE) | (found == _BACKSLASH))
    if not len(special):
        return (b'"', strings, b'"') if not strings.null_count else (_quoted(strings),)
    kinds = _escapes()[found[special]]
    foreign = _rows_of(special[kinds == _FOREIGN], offsets)
    if len(foreign) and not (kinds == _CONTROL).any() and _is_utf8(strings):
        foreign = foreign[:0]
    single = np.union1d(foreign, _rows_of(special[kinds == _CONTROL], offsets))
    escaped = special[kinds < _FOREIGN]
    if len(escaped):
        strings = _escaped(strings, found, offsets, escaped, kinds[kinds < _FOREIGN])
    quoted = _quoted(strings)
    if not len(single):
        return (quoted,)
    mask = np.zeros(len(strings), np.bool_)
    mask[single] = True
    texts = [orjson.dumps(shown_text(bytes(text[offsets[row] : offsets[row + 1]]))) for row in single.tolist()]
    return (pc.replace_with_mask(quoted, pa.array(mask), pa.array(texts, pa.binary())),)


def _quoted(strings: pa.BinaryArray) -> pa.BinaryArray:
    return pc.fill_null(pc.binary_join_element_wise(b'"', strings, b'"', b""), b"null")


def _escaped(strings: pa.BinaryArray, found: Bytes8, offsets: Ints, at: Ints, kinds: Any) -> pa.BinaryArray:
    """Return the strings with a backslash before each byte at these places, which becomes the letter of its kind."""
    to = at + np.arange(len(at))
    text = np.empty(len(found) + len(at), np.uint8)
    kept = np.ones(len(text), np.bool_)
    kept[to] = False
    text[kept] = found
    text[to], text[to + 1] = _BACKSLASH, np.frombuffer(_LETTERS, np.uint8)[kinds]
    moved = offsets + np.searchsorted(at, offsets)
    buffers = [strings.buffers()[0], pa.py_buffer(moved.astype(np.int32)), pa.py_buffer(text)]
    escaped: Any = pa.Array.from_buffers(pa.binary(), len(strings), buffers)
    return escaped


def _rows_of(at: Ints, offsets: Ints) -> Ints:
    """Return the strings in which any of the places lies."""
    return np.flatnonzero(np.diff(np.searchsorted(at, offsets)))


def _is_utf8(strings: Any) -> bool:
    try:
        strings.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


@cache
def _escapes() -> Any:
    """Of each byte what it needs in JSON: the number of its letter after a backslash, or a look at the whole string."""
    table = np.full(256, _FOREIGN, np.uint8)
    table[:0x20] = table[0x7F] = _CONTROL
    table[list(_LETTERED)] = np.arange(len(_LETTERED))
    return table


def _offsets_of(lines: Any) -> Ints:
    """Where each string begins in what :func:`_bytes_of` gives, and where the last one ends."""
    found = np.frombuffer(lines.buffers()[1], np.int32, len(lines) + 1, lines.offset * 4).astype(np.int64)
    return found - found[0]


def _bytes_of(lines: Any) -> memoryview:
    """Return the strings of an array end to end."""
    data = lines.buffers()[2]
    if data is None or not len(lines):
        return memoryview(b"")
    offsets = np.frombuffer(lines.buffers()[1], np.int32, len(lines) + 1, lines.offset * 4)
    return memoryview(data)[int(offsets[0]) : int(offsets[-1])]


def _headers(records: Records) -> Cell:
    if not len(records.headers):
        return b"[]"
    found = []
    for index, count in enumerate(records.header_count.tolist()):
        pairs = records.headers_of(index) if count else []
        found.append(
            orjson.dumps([[shown_text(name), None if value is None else shown_text(value)] for name, value in pairs])
        )
    return pa.array(found, pa.binary())
