"""Units of queues as rows: of files, of their extensions, and of RocksDB (spec 3, 10.1).

Units, fillers, batch units and extension units are made column by column; the keys are the field names of the schema.
RocksDB is read through the extra ``rocksdb``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from formats.errors import DecodeError
from formats.layout import plan_of
from formats.rocketmq.batch_consumequeue import COMPACTION_END
from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE, MAX_EXT_ADDRESS
from formats.rocketmq.consumequeue_ext import END_OF_FILE, HEAD_SIZE, ConsumeQueueExtUnit
from rmqctl.files.local import ByteSource
from rmqctl.findings import Finding, FindingKind
from rmqctl.rocketmq.dump.record import Row
from rmqctl.rocketmq.findings.derived import (
    QUEUE_EXT,
    QUEUE_HOLE,
    QUEUE_STALE_TAIL,
    QUEUE_TORN_UNIT,
    QUEUE_UNIT_MISMATCH,
)
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Units, is_pre_blank, is_valid, is_valid_batch
from rmqctl.rocketmq.store.files import StoreFile

if TYPE_CHECKING:
    from rmqctl.rocketmq.dump.log import Request

Records = npt.NDArray[np.void]
CHUNK_BYTES = 1 << 20


def unit_rows(
    kind: str,
    file: str,
    positions: Sequence[int],
    units: Records,
    *,
    before: Mapping[str, Sequence[Any]] | None = None,
    names: Mapping[str, str] | None = None,
) -> Iterator[Row]:
    """One row a unit: kind, file, position, what the caller puts before, then the fields.

    Args:
        positions: where each unit starts in the file, in bytes.
        before: more columns in front of the fields.
        names: other keys for some fields; ``position`` always means the place in the file.
    """
    columns: dict[str, Any] = {"kind": repeat(kind), "file": repeat(file), "position": positions, **(before or {})}
    for name in units.dtype.names or ():
        columns[(names or {}).get(name, name)] = units[name].tolist()
    keys = tuple(columns)
    for values in zip(*columns.values(), strict=False):
        yield dict(zip(keys, values, strict=True))


def chunks(source: ByteSource, dtype: np.dtype[Any], start: int, end: int) -> Iterator[tuple[int, Records]]:
    """Units of ``[start, end)`` in pieces, each with its position; holes are not read, a torn last unit is left out."""
    size = dtype.itemsize
    step = max(CHUNK_BYTES // size, 1) * size
    done = start
    for low, high in source.data_ranges(start, end):
        at = max(start + (low - start) // size * size, done)
        while at < high and at + size <= end:
            data = source.read_at(at, min(step, end - at))
            if len(data) < size:
                return
            yield at, np.frombuffer(data, dtype, len(data) // size)
            at += len(data) // size * size
        done = at


def used(units: Records) -> npt.NDArray[np.bool_]:
    """Which units hold anything but zeros."""
    raw = np.frombuffer(units.tobytes(), np.uint8).reshape(len(units), -1)
    return np.asarray(raw.any(axis=1))


# --- consume queue files as rows --------------------------------------------------------------------


_EXT = plan_of(ConsumeQueueExtUnit)
_EXT_SIZE = _EXT.runs[0].only("size")
_MAX_EXT_UNIT = 0x7FFF


@dataclass(frozen=True, slots=True)
class QueueName:
    """Topic and queue id as the directories say; None for a file that lies in no store."""

    topic: str | None
    queue_id: int | None


@dataclass(slots=True)
class ExtensionFiles:
    """The extension of one queue: units by address, files opened when asked for."""

    files: list[StoreFile]
    _open: dict[int, ByteSource] = field(default_factory=dict)

    def unit(self, address: int) -> Row | None:
        """Return the unit at an address that stands in a tags code; None when no sound one lies there."""
        at = address - EXT_ADDRESS_BASE
        file = next((f for f in self.files if f.base <= at < f.base + f.size), None)
        if file is None:
            return None
        source = self._open.setdefault(file.base, file.open())
        unit = decode_ext(source.read_at(at - file.base, _MAX_EXT_UNIT))
        return None if unit is None else {"position": at, **unit}

    def close(self) -> None:
        """Close what was opened."""
        for source in self._open.values():
            source.close()
        self._open.clear()


def decode_ext(data: bytes) -> Row | None:
    """Fields of the extension unit at the start of ``data``, the bitmap in hex; None when there is none."""
    try:
        fields, after = _EXT.unpack_from(data)
    except DecodeError:
        return None
    if fields["size"] != after or after < HEAD_SIZE:
        return None
    return {**fields, "bitmap": fields["bitmap"].hex()}


def queue_rows(file: StoreFile, queue: QueueName, extension: ExtensionFiles | None = None) -> Iterator[Row]:
    """Units of one consume queue file in order, with what is wrong between them; zeros at the end are room."""
    yield from _File(file, queue, UNIT, extension).rows()


def batch_rows(file: StoreFile, queue: QueueName) -> Iterator[Row]:
    """Units of one batch queue file, or of the queue of a compacted topic."""
    yield from _File(file, queue, BATCH_UNIT, None).rows()


class _File:
    """One pass over a file of units."""

    def __init__(
        self, file: StoreFile, queue: QueueName, dtype: np.dtype[Any], extension: ExtensionFiles | None
    ) -> None:
        self.file, self.queue, self.dtype, self.extension = file, queue, dtype, extension
        self.end = 0  # after the last unit that is not all zeros
        self.last_offset = -1

    def rows(self) -> Iterator[Row]:
        source = self.file.open()
        try:
            size = source.size()
            for position, units in chunks(source, self.dtype, 0, size):
                yield from self._chunk(position, units)
            torn = size % self.dtype.itemsize
            if torn and any(source.read_at(size - torn, torn)):
                yield self._finding(QUEUE_TORN_UNIT, size - torn, torn, f"the file ends {torn} bytes into a unit")
        finally:
            source.close()

    def _chunk(self, position: int, units: Units) -> Iterator[Row]:
        rows = np.flatnonzero(used(units))
        positions = (position + rows * self.dtype.itemsize).tolist()
        units = units[rows]
        valid = (is_valid_batch if self.dtype is BATCH_UNIT else is_valid)(units).tolist()
        for at, row, sound in zip(positions, self._rows(positions, units), valid, strict=True):
            if at > self.end:
                yield self._hole(at, row)
            self.end, self.last_offset = at + self.dtype.itemsize, row["physical_offset"]
            found = None
            if not sound and row["kind"] != "queue_end":
                message = f"offset {row['physical_offset']} and size {row['size']} are those of no record"
                found = self._finding(QUEUE_UNIT_MISMATCH, at, self.dtype.itemsize, message)
            elif row["tags_code"] <= MAX_EXT_ADDRESS and row["kind"] == "queue_unit":
                found = self._extend(row)
            yield row
            if found:
                yield found

    def _rows(self, positions: list[int], units: Units) -> Iterator[Row]:
        topics, ids = [self.queue.topic] * len(units), [self.queue.queue_id] * len(units)
        name: dict[str, Sequence[Any]] = {"topic": topics, "queue_id": ids}
        if self.dtype is BATCH_UNIT:
            rows = unit_rows("batch_queue_unit", self.file.name, positions, units, before=name)
            for row, unit in zip(rows, units, strict=True):
                yield {**row, "kind": "queue_end"} if unit.tobytes() == COMPACTION_END else row
            return
        offsets = [(self.file.base + at) // self.dtype.itemsize for at in positions]
        blank = is_pre_blank(units).tolist()
        rows = unit_rows("queue_unit", self.file.name, positions, units, before={**name, "queue_offset": offsets})
        for row, filler in zip(rows, blank, strict=True):
            if filler:
                row["kind"] = "pre_blank"
            yield row

    def _hole(self, position: int, row: Row) -> Row:
        """Return the finding for zero units in front of a unit."""
        size = position - self.end
        count = size // self.dtype.itemsize
        if row["physical_offset"] <= self.last_offset:
            message = f"{count} empty units, and behind them older ones"
            return self._finding(QUEUE_STALE_TAIL, position, self.file.size - position, message)
        return self._finding(QUEUE_HOLE, self.end, size, f"{count} empty units stand in front of a written one")

    def _extend(self, row: Row) -> Row | None:
        """Put the extension unit into the row of its address; a finding where none lies."""
        row["ext"] = self.extension.unit(row["tags_code"]) if self.extension else None
        if self.extension is None or row["ext"] is not None:
            return None
        at = row["tags_code"] - EXT_ADDRESS_BASE
        message = f"the tags code is address {at} of the extension, where no unit lies"
        return self._finding(QUEUE_EXT, row["position"] + 12, 8, message)

    def _finding(self, kind: FindingKind, offset: int, size: int, message: str) -> Row:
        return Finding(
            kind, self.file.name, offset, size, message, topic=self.queue.topic, queue_id=self.queue.queue_id
        ).row()


def extension_rows(file: StoreFile, queue: QueueName) -> Iterator[Row]:
    """Units of one file of consumequeue_ext, as far as their sizes lead (spec 3.5)."""
    source = file.open()
    try:
        at, size = 0, source.size()
        while at + _EXT_SIZE.size <= size:
            data = source.read_at(at, _MAX_EXT_UNIT)
            (length,) = _EXT_SIZE.unpack_from(data)
            unit = decode_ext(data)
            if unit is None:
                yield from _extension_end(file, queue, at, length)
                return
            place = {"kind": "queue_ext_unit", "file": file.name, "position": at, "topic": queue.topic}
            yield {**place, "queue_id": queue.queue_id, "address": file.base + at + EXT_ADDRESS_BASE, **unit}
            at += length
    finally:
        source.close()


def _extension_end(file: StoreFile, queue: QueueName, at: int, length: int) -> Iterator[Row]:
    place = {"file": file.name, "position": at, "topic": queue.topic, "queue_id": queue.queue_id}
    if length == END_OF_FILE:
        yield {"kind": "queue_ext_end", **place}
    elif length:
        message = f"size {length} is that of no extension unit"
        found = Finding(QUEUE_EXT, file.name, at, 2, message, topic=queue.topic, queue_id=queue.queue_id)
        yield found.row()


# --- files that lie alone: whose queue they are of is not known ---------------------------------------


_NOWHERE = QueueName(None, None)


def lone_queue_rows(file: StoreFile, _: Request) -> Iterator[Row]:
    """Units of a file of a consume queue."""
    return queue_rows(file, _NOWHERE)


def lone_batch_rows(file: StoreFile, _: Request) -> Iterator[Row]:
    """Units of a file of a batch queue."""
    return batch_rows(file, _NOWHERE)


def lone_extension_rows(file: StoreFile, _: Request) -> Iterator[Row]:
    """Units of a file of consumequeue_ext."""
    return extension_rows(file, _NOWHERE)
