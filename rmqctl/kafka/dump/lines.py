"""Batches and records as JSON lines, made by columns: what rows would give, without an object for each record."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from formats.kafka.record_batch import Attributes
from rmqctl.findings import Severity
from rmqctl.kafka.arrow import binary_of
from rmqctl.kafka.block import Bytes8, Ints
from rmqctl.kafka.codecs import codec_name
from rmqctl.kafka.dump.segments import Part, SegmentDump
from rmqctl.kafka.records import Records
from rmqctl.kafka.rows import batch_rows, has_decoder, place_of, record_rows, shown_text

Piece = bytes | memoryview
_CHUNK = 1 << 13
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

    def pieces(self, part: Part) -> Iterator[bytes]:
        """The lines of a part."""
        self.damage += sum(finding.level is not Severity.NOTE for finding in part.findings)
        count = sum(map(len, part.groups)) if self.segments.with_records else len(part.block)
        self.shown += count
        if part.findings:
            rows = map(_line, self.segments.rows_of(part))
            yield b"".join(rows)
            return
        batches = _batch_lines(part)
        if not self.segments.with_records:
            yield b"".join(batches)
            return
        written = 0
        for records in part.groups:
            for start in range(0, len(records), _CHUNK):
                chunk = (
                    records
                    if len(records) <= _CHUNK
                    else records.take(np.arange(start, min(start + _CHUNK, len(records))))
                )
                yield b"".join(self._woven(part, chunk, batches, written))
                written = int(chunk.batch[-1]) + 1
        yield b"".join(batches[written:])

    def _woven(self, part: Part, records: Records, batches: list[bytes], written: int) -> Iterator[Piece]:
        """Lines of records, each batch's own line before them; batches before ``written`` have theirs already."""
        lines, ends = self._record_lines(part, records)
        starts = np.flatnonzero(np.diff(records.batch, prepend=-1))
        stops = np.append(starts[1:], len(records))
        rows = records.batch[starts].tolist()
        for row, begin, end in zip(rows, ends[starts].tolist(), ends[stops].tolist(), strict=True):
            yield from batches[written : row + 1]
            written = row + 1
            yield lines[begin:end]

    def _record_lines(self, part: Part, records: Records) -> tuple[memoryview, Ints]:
        """The lines of records end to end, and where each begins and ends."""
        control = records.block.flag(Attributes.CONTROL)[records.batch]
        plain = self.segments.show is shown_text and not has_decoder(place_of(part.partition)[0])
        if plain and not control.any() and not records.block.has_legacy:
            lines: Any = _joined(part, records)
            _, offsets, data = lines.buffers()
            return memoryview(data), np.frombuffer(offsets, np.int32, len(lines) + 1, lines.offset * 4).astype(np.int64)
        pieces = [_line(row) for row in record_rows(records, part.partition, self.segments.show)]
        return memoryview(b"".join(pieces)), np.cumsum([0, *map(len, pieces)])


def _line(row: Any) -> bytes:
    return orjson.dumps(row, option=_LINE)


def _joined(part: Part, records: Records) -> pa.BinaryArray:
    block, data = records.block, records.data
    topic, number = place_of(part.partition)
    first, last = int(records.batch[0]), int(records.batch[-1])
    fields = {"kind": "record", "file": block.file, "topic": topic, "partition": number, "batch_position": 0}
    head = orjson.dumps(fields)[:-2]  # without the number and the brace
    positions = _numbers(block.position[first : last + 1]).take(pa.array(records.batch - first))
    return pc.binary_join_element_wise(
        head, positions, b',"offset":', _numbers(records.offset), b',"timestamp":', _numbers(records.timestamp),
        b',"sequence":', _numbers(records.sequence), b',"key":', _json_strings(data, records.key_at, records.key_size),
        b',"value":', _json_strings(data, records.value_at, records.value_size), b',"headers":', _headers(records),
        b',"key_size":', _numbers(records.key_size), b',"value_size":', _numbers(records.value_size),
        b',"control_type":null}\n', b"",
    )  # fmt: skip


def _batch_lines(part: Part) -> list[bytes]:
    """The line of each batch."""
    block = part.block
    if block.has_legacy or not len(block):
        return list(map(_line, batch_rows(block, part.partition)))
    topic, number = place_of(part.partition)
    fields = {"kind": "batch", "file": block.file, "topic": topic, "partition": number, "position": 0}
    attributes = block["attributes"]
    horizon = (attributes & int(Attributes.DELETE_HORIZON)) != 0
    base_timestamp = _numbers(block["base_timestamp"])
    codecs = pa.array([b'"' + codec_name(codec).encode() + b'"' for codec in range(8)])
    types = pa.array([b'"CreateTime"', b'"LogAppendTime"'])
    flags = pa.array([b"false", b"true"])

    def flag(of: Any) -> Any:
        return flags.take(pa.array(of.astype(np.int8)))

    lines: Any = pc.binary_join_element_wise(
        orjson.dumps(fields)[:-2], _numbers(block.position), b',"size":', _numbers(block.size),
        b',"magic":', _numbers(block.magic), b',"base_offset":', _numbers(block["base_offset"]),
        b',"last_offset":', _numbers(block["last_offset"]), b',"count":', _numbers(block["records_count"]),
        b',"compression":', codecs.take(pa.array(block["codec"])),
        b',"timestamp_type":', types.take(pa.array(((attributes & 8) != 0).astype(np.int8))),
        b',"base_timestamp":', base_timestamp, b',"max_timestamp":', _numbers(block["max_timestamp"]),
        b',"producer_id":', _numbers(block["producer_id"]), b',"producer_epoch":', _numbers(block["producer_epoch"]),
        b',"base_sequence":', _numbers(block["base_sequence"]), b',"last_sequence":', _numbers(block["last_sequence"]),
        b',"leader_epoch":', _numbers(block["partition_leader_epoch"]),
        b',"transactional":', flag(block.flag(Attributes.TRANSACTIONAL)),
        b',"control":', flag(block.flag(Attributes.CONTROL)),
        b',"delete_horizon":', pc.if_else(pa.array(horizon), base_timestamp, b"null"),
        b',"crc":', _numbers(block["crc"]), b',"crc_ok":', flag(block.crc_ok), b"}\n", b"",
    )  # fmt: skip
    found: list[bytes] = lines.to_pylist()
    return found


def _numbers(column: Ints) -> pa.BinaryArray:
    if len(column) and column[0] == column[-1] and (column == column[0]).all():
        return pa.repeat(pa.scalar(b"%d" % column[0], pa.binary()), len(column))
    return pa.array(column).cast(pa.string()).cast(pa.binary())


def _json_strings(data: Bytes8, at: Ints, size: Ints) -> pa.BinaryArray:
    """Strings as JSON: those of harmless ASCII in quotes, all at once; the others one by one."""
    strings: Any = binary_of(data, at, size)
    _, offsets, joined = strings.buffers()
    quoted = pc.fill_null(pc.binary_join_element_wise(b'"', strings, b'"', b""), b"null")
    if joined is None or not len(joined):
        return quoted
    special = _special()[np.frombuffer(joined, np.uint8)]
    if not special.any():
        return quoted
    ends = np.frombuffer(offsets, np.int32, len(strings) + 1, strings.offset * 4)
    before = np.concatenate([np.zeros(1, np.int32), np.cumsum(special, dtype=np.int32)])[ends]
    rows = np.flatnonzero(before[1:] != before[:-1])
    if not len(rows):
        return quoted
    mask = np.zeros(len(strings), np.bool_)
    mask[rows] = True
    texts = [orjson.dumps(shown_text(text)) for text in strings.take(pa.array(rows)).to_pylist()]
    return pc.replace_with_mask(quoted, pa.array(mask), pa.array(texts, pa.binary()))


@cache
def _special() -> Any:
    """Which bytes need more than quotes around them."""
    table = np.zeros(256, np.uint8)
    table[:0x20] = table[0x7F:] = table[[0x22, 0x5C]] = 1
    return table


def _headers(records: Records) -> Any:
    if not len(records.headers):
        return b"[]"
    found = []
    for index, count in enumerate(records.header_count.tolist()):
        pairs = records.headers_of(index) if count else []
        found.append(
            orjson.dumps([[shown_text(name), None if value is None else shown_text(value)] for name, value in pairs])
        )
    return pa.array(found, pa.binary())
