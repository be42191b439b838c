"""Every byte of a file of a log directory as a field with its value and meaning, or as bytes of no field.

Fields come from the schemas in `formats.kafka`; batches are found by the scan of segments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from formats.errors import DecodeError
from formats.kafka.indexes import AbortedTransaction, OffsetIndexEntry, TimeIndexEntry
from formats.kafka.message_set import head_plan
from formats.kafka.producer_snapshot import CRC_FROM, ProducerEntry, SnapshotHead
from formats.kafka.record_batch import HEADER_SIZE, Attributes, Codec, header_plan
from formats.layout import Run, plan_of
from rmqctl.files.local import ByteSource, without_room
from rmqctl.hexview.annotation import RAW_LIMIT, Annotation, Group, Value
from rmqctl.kafka.directory.directory import LogFile
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.dump.segments import extent_of
from rmqctl.kafka.log.block import Block, Gap, GapKind
from rmqctl.kafka.log.codecs import codec_name, inflate
from rmqctl.kafka.log.indexes import MAX_SNAPSHOT
from rmqctl.kafka.log.legacy import read_message
from rmqctl.kafka.log.reference import varint
from rmqctl.kafka.log.scan import scan
from rmqctl.text import number_of

_ENTRIES: dict[FileKind, tuple[str, Any]] = {
    FileKind.OFFSET_INDEX: ("entry", OffsetIndexEntry),
    FileKind.TIME_INDEX: ("entry", TimeIndexEntry),
    FileKind.TXN_INDEX: ("aborted_transaction", AbortedTransaction),
}
_TIMES = frozenset({"timestamp", "base_timestamp", "max_timestamp", "last_timestamp"})
_PIECE = 1 << 20
_RECORD_FIELDS = ("timestamp_delta", "offset_delta")


def annotate(file: LogFile, start: int = 0, stop: int | None = None) -> Iterator[Annotation]:
    """Yield the fields of a file in order; together they cover it exactly. Nothing raises on bytes.

    Args:
        start, stop: show only what overlaps these bytes.
    """
    source = file.open()
    try:
        yield from annotate_bytes(source, file, start, source.size() if stop is None else stop)
    finally:
        source.close()


def annotate_bytes(source: ByteSource, file: LogFile, start: int, stop: int) -> Iterator[Annotation]:
    """Yield the same for bytes that a file has, or would have."""
    end = min(stop, source.size())
    for note in _of_kind(file, source):
        if note.offset >= end:
            return
        if note.end > start or (note.size == 0 and note.offset >= start):
            yield note


def _of_kind(file: LogFile, source: ByteSource) -> Iterator[Annotation]:
    if file.kind in {FileKind.LOG, FileKind.KRAFT_SNAPSHOT}:
        return _segment(file, source)
    if file.kind in _ENTRIES:
        return _table(file.name, source, *_ENTRIES[file.kind], base=file.base)
    if file.kind is FileKind.PRODUCER_SNAPSHOT:
        return _producers(file.name, source)
    return _lines(file.name, source)


# --- segments -------------------------------------------------------------------------------------------


def _segment(file: LogFile, source: ByteSource) -> Iterator[Annotation]:
    """Batches and gaps in the order of their places."""
    for block in scan(source, extent_of(file)):
        gaps = iter(block.gaps)
        gap = next(gaps, None)
        for row, position in enumerate(block.position.tolist()):
            while gap is not None and gap.position < position:
                yield from _gap(file.name, source, gap)
                gap = next(gaps, None)
            yield from _batch(file.name, block, row)
        while gap is not None:
            yield from _gap(file.name, source, gap)
            gap = next(gaps, None)


def _gap(name: str, source: ByteSource, gap: Gap) -> Iterator[Annotation]:
    size, data = gap.end - gap.position, source.read_at(gap.position, RAW_LIMIT)[: gap.end - gap.position]
    if gap.why is GapKind.ZERO_TAIL:
        yield Annotation(name, gap.position, size, ("zero_tail",), data, None, f"{size:,} bytes, never written")
    else:
        group = Group("gap", gap.position, size, str(gap.why), wrong=True)
        yield Annotation(name, gap.position, size, ("gap",), data, None, gap.detail, wrong=True, group=group)


def _batch(name: str, block: Block, row: int) -> Iterator[Annotation]:
    raw, offset, good = block.raw(row), int(block.position[row]), bool(block.crc_ok[row])
    last = int(block["last_offset"][row])
    if block.is_legacy[row]:
        group = Group("message", offset, len(raw), f"offset {last}, magic {block.magic[row]}", wrong=not good)
        yield from _message(_Notes(name, offset, raw, ("message",), group, crc_ok=good))
        return
    title = f"offsets {block['base_offset'][row]} to {last}, {block['records_count'][row]} records"
    group = Group("batch", offset, len(raw), title, wrong=not good)
    notes = _Notes(name, offset, raw, ("batch",), group, crc_ok=good)
    yield from notes.run(header_plan().runs[0], 0)
    codec = int(block["codec"][row])
    if codec == Codec.NONE:
        yield from _records(notes, int(block["records_count"][row]))
    elif len(raw) > HEADER_SIZE:
        yield notes.bytes("records", HEADER_SIZE, len(raw), _inflated(codec, raw[HEADER_SIZE:]))


def _inflated(codec: int, data: bytes, magic: int = 2) -> str:
    try:
        return f"{codec_name(codec)}, {len(inflate(codec, data, magic)):,} bytes decompressed"
    except DecodeError as error:
        return f"{codec_name(codec)}: {error}"


class _Notes:
    """Makes the annotations of one batch, unit or entry."""

    def __init__(
        self, file: str, offset: int, raw: bytes, path: tuple[str, ...], group: Group | None, *, crc_ok: bool = True
    ) -> None:
        self.file, self.offset, self.raw, self.path, self.group, self.crc_ok = file, offset, raw, path, group, crc_ok

    def field(
        self, name: str, at: int, size: int, value: Value, meaning: str = "", *, wrong: bool = False
    ) -> Annotation:
        """One field, at a place in the raw bytes."""
        raw = self.raw[at : at + min(size, RAW_LIMIT)]
        path = (*self.path, *name.split("/"))
        return Annotation(self.file, self.offset + at, size, path, raw, value, meaning, wrong, self.group)

    def bytes(self, name: str, at: int, end: int, meaning: str = "") -> Annotation:
        """Return a field of any length: text where it is such."""
        data = self.raw[at : min(end, at + RAW_LIMIT)]
        try:
            shown: Value = data.decode()
        except UnicodeDecodeError:
            shown = data
        return self.field(name, at, end - at, shown, meaning)

    def run(self, run: Run, at: int, **meanings: str) -> Iterator[Annotation]:
        """Fields of fixed size that follow each other, as many as are whole."""
        for one in run.fields:
            packer = struct.Struct(run.order + one.code)
            place = at + one.offset
            if place + packer.size > len(self.raw):
                if place < len(self.raw):
                    left = len(self.raw) - place
                    yield self.field(
                        one.name, place, left, self.raw[place:], f"cut: {left} of {packer.size} bytes", wrong=True
                    )
                return
            value = packer.unpack_from(self.raw, place)[0]
            meaning, wrong = meanings.get(one.name, ""), False
            if one.name == "crc":
                meaning, wrong = ("ok" if self.crc_ok else "does not match"), not self.crc_ok
            yield self.field(one.name, place, packer.size, value, meaning or _meaning(one.name, value), wrong=wrong)


def _meaning(name: str, value: int) -> str:
    if name in _TIMES and 0 <= value < 253402300800000:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if name == "attributes":
        names = [bit.name.lower() for bit in Attributes if bit is not Attributes.CODEC and value & bit and bit.name]
        return ", ".join([codec_name(value & int(Attributes.CODEC)), *names])
    return ""


def _records(notes: _Notes, count: int) -> Iterator[Annotation]:
    """Yield the fields of uncompressed records, up to the first that does not add up."""
    raw, at = notes.raw, HEADER_SIZE
    for number in range(count):
        found: list[Annotation] = []
        try:
            at = _record(notes, f"record[{number}]", at, found)
        except DecodeError as error:
            yield from found
            done = found[-1].end - notes.offset if found else at
            yield notes.field("gap", done, len(raw) - done, None, str(error), wrong=True)
            return
        yield from found
    if at < len(raw):
        yield notes.field("gap", at, len(raw) - at, None, f"{len(raw) - at} bytes of no record", wrong=True)


def _record(notes: _Notes, path: str, at: int, found: list[Annotation]) -> int:
    raw, end = notes.raw, len(notes.raw)

    def number(name: str, at: int, most: int = 5) -> tuple[int, int]:
        value, after = varint(raw, at, end, most)
        found.append(
            notes.field(f"{path}/{name}", at, after - at, value, "null" if value < 0 and "size" in name else "")
        )
        return value, after

    def piece(name: str, at: int) -> int:
        size, at = number(f"{name}_size", at)
        if size > end - at:
            raise DecodeError(f"a {name} of {size} bytes, {end - at} are left")
        if size >= 0:
            found.append(notes.bytes(f"{path}/{name}", at, at + size))
        return at + max(size, 0)

    length, at = number("length", at)
    if not 0 < length <= end - at:
        raise DecodeError(f"a record of {length} bytes, {end - at} are left")
    end = at + length
    found.append(notes.field(f"{path}/attributes", at, 1, raw[at]))
    at += 1
    for name, most in zip(_RECORD_FIELDS, (10, 5), strict=True):
        _, at = number(name, at, most)
    at = piece("value", piece("key", at))
    count, at = number("headers", at)
    for header in range(max(count, 0)):
        at = piece(f"header[{header}]/value", piece(f"header[{header}]/key", at))
    if at != end:
        raise DecodeError(f"{number_of(end - at, 'byte', 'are')} left at the end of a record")
    return at


def _message(notes: _Notes) -> Iterator[Annotation]:
    raw = notes.raw
    try:
        message = read_message(raw, 0, len(raw))
    except DecodeError as error:
        yield notes.field("gap", 0, len(raw), None, str(error), wrong=True)
        return
    yield from notes.run(head_plan(message.magic).runs[0], 0)
    if message.key_size >= 0:
        yield notes.bytes("key", message.key_at, message.key_at + message.key_size)
    yield notes.field(
        "value_size", message.value_at - 4, 4, message.value_size, "null" if message.value_size < 0 else ""
    )
    end = message.value_at + max(message.value_size, 0)
    if message.value_size >= 0:
        inner = _inflated(message.codec, raw[message.value_at : end], message.magic) if message.codec else ""
        yield notes.bytes("value", message.value_at, end, inner)
    if end < len(raw):
        yield notes.field("gap", end, len(raw) - end, None, f"{len(raw) - end} bytes of no field", wrong=True)


# --- other files ----------------------------------------------------------------------------------------


def _table(name: str, source: ByteSource, entry: str, schema: Any, *, base: int) -> Iterator[Annotation]:
    """Entries up to the last that is not zero, then room."""
    run = plan_of(schema).runs[0]
    size = run.packer.size
    whole, last = source.size(), _last_data(source)
    used = -(-last // size) * size
    data, begin = b"", 0
    for number, at in enumerate(range(0, min(used, whole), size)):
        if at + size > begin + len(data):
            data, begin = source.read_at(at, _PIECE // size * size), at
        raw = data[at - begin : at - begin + size]
        notes = _Notes(name, at, raw, (entry,), Group(entry, at, len(raw), f"number {number}", wrong=len(raw) < size))
        meanings = {}
        if "relative_offset" in run.names:
            (relative,) = run.only("relative_offset").unpack_from(raw.ljust(size, b"\0"))
            meanings["relative_offset"] = f"offset {relative + base}"
        yield from notes.run(run, 0, **meanings)
    if used < whole:
        rest = source.read_at(used, RAW_LIMIT)
        yield Annotation(name, used, whole - used, ("zero_tail",), rest, None, f"{whole - used:,} bytes, no entries")


def _last_data(source: ByteSource) -> int:
    """Return where the zeros begin that a file ends with; it may be a giant."""
    end = max((end for _, end in source.data_ranges(0, source.size())), default=0)
    while end:
        begin = max(end - _PIECE, 0)
        if used := len(without_room(source.read_at(begin, end - begin))):
            return begin + used
        end = begin
    return 0


def _producers(name: str, source: ByteSource) -> Iterator[Annotation]:
    from crc32c import crc32c

    head, entry = plan_of(SnapshotHead).runs[0], plan_of(ProducerEntry).runs[0]
    whole = source.size()
    data = source.read_at(0, min(whole, head.packer.size + MAX_SNAPSHOT // entry.packer.size * entry.packer.size))
    crc_ok = len(data) >= CRC_FROM and head.only("version", "crc").unpack_from(data)[1] == crc32c(data[CRC_FROM:])
    first = data[: head.packer.size]
    yield from _Notes(name, 0, first, ("snapshot",), Group("snapshot", 0, len(first)), crc_ok=crc_ok).run(head, 0)
    size = entry.packer.size
    for number, at in enumerate(range(head.packer.size, len(data), size)):
        raw = data[at : at + size]
        group = Group("producer", at, len(raw), f"number {number}", wrong=len(raw) < size)
        yield from _Notes(name, at, raw, ("producer",), group).run(entry, 0)
    if len(data) < whole:
        rest, text = source.read_at(len(data), RAW_LIMIT), f"{whole - len(data):,} bytes, more than a snapshot has"
        yield Annotation(name, len(data), whole - len(data), ("gap",), rest, None, text, wrong=True)


def _lines(name: str, source: ByteSource) -> Iterator[Annotation]:
    """Yield a text file line by line; what is no text is shown as bytes."""
    at, size = 0, source.size()
    while at < size:
        data = source.read_at(at, _PIECE)
        if not data:
            return
        for line in data.splitlines(keepends=True):
            notes = _Notes(name, at, line, (), None)
            yield notes.bytes("line", 0, len(line))
            at += len(line)
