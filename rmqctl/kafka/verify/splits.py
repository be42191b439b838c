"""What one split of a segment gives: headers of its batches, its gaps, and what is wrong inside its batches.

Everything that needs the bytes of a batch is done here, in whatever process has the split. What spans
batches is judged from the headers, in the order of the log, by one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.errors import DecodeError
from formats.kafka.record_batch import Attributes, Codec, ControlRecordKey
from formats.layout import plan_of
from rmqctl.files.tree import Tree
from rmqctl.findings import Finding, FindingKind
from rmqctl.kafka.directory.directory import LogFile
from rmqctl.kafka.findings.log import (
    BATCH_CODEC,
    BATCH_COUNT,
    BATCH_TIMESTAMP_SPAN,
    BATCH_WRAPPER,
    RECORD_CONTROL,
    RECORD_MAX_TIMESTAMP,
    RECORD_OFFSET,
    RECORD_UNREADABLE,
)
from rmqctl.kafka.loading.producers import Marker, marker_of
from rmqctl.kafka.log.block import Block, Flags, Gap, Ints
from rmqctl.kafka.log.gaps import wrong_heads
from rmqctl.kafka.log.records import Records, records_of
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.text import instant

SPLIT_SIZE = 32 << 20
"""Bytes of a segment that one process works on at a time."""
NAMES = (
    "base_offset",
    "last_offset",
    "records_count",
    "last_offset_delta",
    "attributes",
    "partition_leader_epoch",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "last_sequence",
)
_SPAN = 1 << 31
"""Milliseconds between timestamps of a batch that a 32-bit difference cannot hold, 24.8 days."""


@dataclass(frozen=True, slots=True)
class Split:
    """A range of a ``.log`` file.

    Attributes:
        base: base offset of the segment; None: any offset is taken for one of its batches after damage.
        records: decode the records of every sound batch.
    """

    tree: Tree
    name: str
    base: int | None
    size: int
    start: int
    stop: int
    records: bool


@dataclass(slots=True)
class Headers:
    """The batches that start in a split, in file order.

    Attributes:
        columns: the header fields of :data:`NAMES`, shape (n,).
        position, size, magic: of each batch, bytes and as stored, shape (n,).
        crc_ok: shape (n,).
        markers: what the marker of a batch says, by its row; batches that are no marker are left out.
        wrappers: of compressed messages of magic 0 with a wrong offset the right one, by row.
        gaps: what else was met, positions in the file.
        findings: what is wrong inside batches.
    """

    columns: dict[str, Ints]
    position: Ints
    size: Ints
    magic: Ints
    crc_ok: Flags
    markers: dict[int, Marker] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    wrappers: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.position)

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]

    def __reduce__(self) -> tuple[Any, ...]:
        """Be sent small: of a column that says the same of all batches one value."""
        columns = [*self.columns.values(), self.position, self.size, self.magic, self.crc_ok]
        sent = [column[:1] if len(column) and (column == column[0]).all() else column for column in columns]
        others = self.markers, self.gaps, self.findings, self.wrappers
        return _received, (len(self), tuple(self.columns), sent, *others)

    @property
    def has_legacy(self) -> bool:
        """Whether any batch is a message of magic 0 or 1."""
        return bool((self.magic < 2).any())

    def take(self, keep: npt.NDArray[Any]) -> Headers:
        """Return the batches of an index or boolean array, without what else was met."""
        columns = {name: column[keep] for name, column in self.columns.items()}
        return Headers(columns, self.position[keep], self.size[keep], self.magic[keep], self.crc_ok[keep])

    @property
    def proven(self) -> Headers:
        """These, with the last offsets that the messages inside of wrappers prove."""
        if not self.wrappers:
            return self
        last = self["last_offset"].copy()
        last[[*self.wrappers]] = [*self.wrappers.values()]
        return replace(self, columns=self.columns | {"last_offset": last})

    def flag(self, bit: Attributes) -> Flags:
        """Which batches have a bit of their attributes set."""
        return (self.columns["attributes"] & int(bit)) != 0


def _received(
    count: int,
    names: tuple[str, ...],
    sent: list[Any],
    markers: dict[int, Marker],
    gaps: list[Gap],
    findings: list[Finding],
    wrappers: dict[int, int],
) -> Headers:
    """Headers that another process sent, with arrays of their own."""
    columns = [np.full(count, c[0], c.dtype) if len(c) == 1 else c.copy() for c in sent]
    position, size, magic, crc_ok = columns[len(names) :]
    by_name = dict(zip(names, columns, strict=False))
    return Headers(by_name, position, size, magic, crc_ok, markers, gaps, findings, wrappers)


def splits_of(file: LogFile, *, records: bool, split_size: int = SPLIT_SIZE) -> Iterator[Split]:
    """Yield a ``.log`` file in ranges; one range, maybe empty, for a small one."""
    size = max(file.size, 0)
    for start in range(0, max(size, 1), split_size):
        yield Split(file.tree, file.name, file.base, size, start, min(start + split_size, size), records)


def read_split(split: Split) -> Headers:
    """Scan a split and look inside its batches."""
    source = split.tree.open(split.name)
    try:
        extent = Extent(split.name, split.base, split.start, split.stop, split.size)
        return _joined([headers_of(block, records=split.records) for block in scan(source, extent)])
    finally:
        source.close()


def headers_of(block: Block, *, records: bool) -> Headers:
    """Return the headers of a block, and what is wrong inside its batches.

    Args:
        records: decode the records of every sound batch.
    """
    found = Headers(
        {name: block[name] for name in NAMES}, block.position, block.size, block.magic, block.crc_ok, gaps=block.gaps
    )
    control = found.flag(Attributes.CONTROL) & block.crc_ok
    for row in np.flatnonzero(control).tolist():
        marker = marker_of(block.raw(row))
        if marker is not None:
            found.markers[row] = marker
    if found.has_legacy:
        right = block.proven_last
        found.wrappers = {row: int(right[row]) for row in np.flatnonzero(right != found["last_offset"]).tolist()}
    found.findings.extend(_header_findings(block, found))
    if records and len(block):
        found.findings.extend(_record_findings(block))
    return found


def _joined(parts: list[Headers]) -> Headers:
    if len(parts) == 1:
        return parts[0]
    none = np.zeros(0, np.int64)
    if not parts:
        return Headers(dict.fromkeys(NAMES, none), none, none, none, none.astype(np.bool_))
    markers, wrappers, before = dict[int, Marker](), dict[int, int](), 0
    for part in parts:
        markers |= {row + before: marker for row, marker in part.markers.items()}
        wrappers |= {row + before: offset for row, offset in part.wrappers.items()}
        before += len(part)
    return Headers(
        {name: np.concatenate([part.columns[name] for part in parts]) for name in NAMES},
        np.concatenate([part.position for part in parts]),
        np.concatenate([part.size for part in parts]),
        np.concatenate([part.magic for part in parts]),
        np.concatenate([part.crc_ok for part in parts]),
        markers=markers,
        gaps=[gap for part in parts for gap in part.gaps],
        findings=[finding for part in parts for finding in part.findings],
        wrappers=wrappers,
    )


def _header_findings(block: Block, headers: Headers) -> Iterator[Finding]:
    """Yield what is wrong with a header that needs no neighbour."""
    modern = ~block.is_legacy

    def at(rows: Flags) -> list[int]:
        return np.flatnonzero(rows).tolist()

    yield from wrong_heads(block, None)
    sound = block.crc_ok & modern
    count, delta = headers["records_count"], headers["last_offset_delta"]
    for row in at(sound & ((count < 0) | (delta < 0) | (count > delta + 1))):
        message = f"{count[row]} records are stated, offsets {delta[row] + 1}"
        yield _of_batch(BATCH_COUNT, block, row, message)
    for row, right in headers.wrappers.items():
        message = f"the offset of the message is {headers['last_offset'][row]}, that of the last one inside {right}"
        yield _of_batch(BATCH_WRAPPER, block, row, message)
    codec = headers["attributes"] & int(Attributes.CODEC)
    for row in at(block.crc_ok & (codec > int(Codec.ZSTD))):
        yield _of_batch(BATCH_CODEC, block, row, f"compression {codec[row]} does not exist")
    created = sound & ~headers.flag(Attributes.LOG_APPEND_TIME) & ~headers.flag(Attributes.DELETE_HORIZON)
    first, last = headers["base_timestamp"], headers["max_timestamp"]
    for row in at(created & (first >= 0) & (last >= 0) & (np.abs(last - first) >= _SPAN)):
        days = abs(int(last[row] - first[row])) / 86_400_000
        message = f"timestamps from {instant(int(first[row]))} to {instant(int(last[row]))} are {days:.1f} days apart"
        yield _of_batch(BATCH_TIMESTAMP_SPAN, block, row, message)


def _record_findings(block: Block) -> Iterator[Finding]:
    """Yield what is wrong with the records of sound batches."""
    sound = block.take(block.crc_ok)
    unreadable: set[int] = set()
    seen = _Seen(sound)
    for records in records_of(sound):
        for row, error in records.failures.items():
            unreadable.add(row)
            yield _of_batch(RECORD_UNREADABLE, sound, row, str(error))
        if len(records):
            yield from seen.add(records)
    yield from seen.max_timestamps(unreadable)
    control = sound.flag(Attributes.CONTROL) & (sound["records_count"] > 0) & ~sound.is_legacy
    for row in np.flatnonzero(control).tolist():
        if row not in unreadable and not _has_control_key(sound.take(np.array([row]))):
            yield _of_batch(RECORD_CONTROL, sound, row, "the key of its record is no version and type")


def _has_control_key(block: Block) -> bool:
    plan = plan_of(ControlRecordKey)
    for records in records_of(block):
        for index in range(len(records)):
            key = records.key(index)
            try:
                if key is None or plan.unpack_from(key)[0]["version"] < 0:
                    return False
            except DecodeError:
                return False
    return True


class _Seen:
    """Offsets and timestamps of the records of batches, of which large ones come in several groups."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.largest = np.full(len(block), np.iinfo(np.int64).min)
        self.some = np.zeros(len(block), np.bool_)
        self.reported: set[int] = set()
        self.last = (-1, -1)

    def add(self, records: Records) -> Iterator[Finding]:
        """Yield batches whose offsets are out of their range, or not in order."""
        block, batch, offset = self.block, records.batch, records.offset
        starts = np.flatnonzero(np.diff(batch, prepend=-1))
        rows = batch[starts]
        self.largest[rows] = np.maximum(self.largest[rows], np.maximum.reduceat(records.timestamp, starts))
        self.some[rows] = True
        low, high = block["base_offset"][batch], block["last_offset"][batch]
        before = np.concatenate([[self.last[1]], offset[:-1]])
        follows = np.concatenate([[batch[0] == self.last[0]], batch[1:] == batch[:-1]])
        wrong = ~block.is_legacy[batch] & ((offset < low) | (offset > high) | (follows & (offset <= before)))
        self.last = int(batch[-1]), int(offset[-1])
        rows, firsts = np.unique(batch[wrong], return_index=True)
        for row, index in zip(rows.tolist(), np.flatnonzero(wrong)[firsts].tolist(), strict=True):
            if row not in self.reported:
                self.reported.add(row)
                place = f"record with offset {offset[index]} in a batch of {low[index]} to {high[index]}"
                yield _of_batch(RECORD_OFFSET, block, row, f"{place}, or not in order")

    def max_timestamps(self, unreadable: set[int]) -> Iterator[Finding]:
        """Yield batches whose header has another timestamp than the largest of their records."""
        block = self.block
        stated = block["max_timestamp"]
        skipped = block.flag(Attributes.LOG_APPEND_TIME) | block.is_legacy
        for row in np.flatnonzero(self.some & (self.largest != stated) & ~skipped).tolist():
            if row not in unreadable:
                message = f"the header says {stated[row]}, the records' largest is {self.largest[row]}"
                yield _of_batch(RECORD_MAX_TIMESTAMP, block, row, message)


def _of_batch(kind: FindingKind, block: Block, row: int, message: str) -> Finding:
    return Finding(kind, block.file, int(block.position[row]), int(block.size[row]), message)
