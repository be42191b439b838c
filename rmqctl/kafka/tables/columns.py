"""Batches and records of a block as Arrow batches: the JSON keys of ``dump`` as typed columns, made column by column.

Keys, values and header values are binary, as stored but for compression. What a batch of magic 0 or 1 lacks is null,
and so is the time of a record that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from formats.kafka.record_batch import Attributes
from rmqctl.arrow import TIME, by_value, strings, times
from rmqctl.kafka.log.block import Block, Flags, Ints
from rmqctl.kafka.log.codecs import codec_name
from rmqctl.kafka.log.records import Records
from rmqctl.kafka.rows import binary_of, control_name
from rmqctl.tables import BadOption

HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))

RECORD_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("batch_position", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("timestamp_type", pa.string()),
        ("sequence", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("key_size", pa.int32()),
        ("value_size", pa.int32()),
        ("size", pa.int64()),
        ("control_type", pa.string()),
        ("magic", pa.int32()),
        ("compression", pa.string()),
        ("batch_size", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("transactional", pa.bool_()),
        ("crc_ok", pa.bool_()),
    ]
)
"""Columns of records, in order. ``size``: bytes of key, value and headers. ``batch_size``: bytes of the batch as it is
stored, with the first of its records that is read; null with the others, so that they add up."""

BATCH_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("magic", pa.int32()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("count", pa.int32()),
        ("compression", pa.string()),
        ("timestamp_type", pa.string()),
        ("base_timestamp", TIME),
        ("max_timestamp", TIME),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int32()),
        ("last_sequence", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("transactional", pa.bool_()),
        ("control", pa.bool_()),
        ("delete_horizon", TIME),
        ("crc", pa.int64()),
        ("crc_ok", pa.bool_()),
    ]
)
"""Columns of batches, in order."""

_KINDS_OF_TIME = ("CreateTime", "LogAppendTime", "NoTimestampType")


def chosen_schema(schema: pa.Schema, columns: Collection[str] | None, without: Collection[str] = ()) -> pa.Schema:
    """Return the wanted columns of a table, in its order.

    Args:
        without: those that are not there to be chosen.

    Raises:
        BadOption: there is no such column.
    """
    possible = [field for field in schema if field.name not in without]
    unknown = set(columns or ()) - {field.name for field in possible}
    if unknown:
        raise BadOption(f"no column {min(unknown)!r}; there are {', '.join(f.name for f in possible)}")
    return pa.schema([field for field in possible if columns is None or field.name in columns])


@dataclass(frozen=True, slots=True)
class Place:
    """Where a segment lies: what its name says."""

    topic: str | None
    partition: int | None


class _OfBatches:
    """Columns of the batches of a block, each made when asked for."""

    def __init__(self, block: Block, place: Place, rows: Ints | None = None) -> None:
        self.block, self.place, self._rows = block, place, rows

    @property
    def count(self) -> int:
        return len(self.block) if self._rows is None else len(self._rows)

    def of(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a value a batch, for each row."""
        found: npt.NDArray[Any] = values if self._rows is None else values[self._rows]
        return found

    @cached_property
    def legacy(self) -> Flags | None:
        """Which rows are of magic 0 or 1; None where none is."""
        return self.of(self.block.is_legacy) if self.block.has_legacy else None

    def number(self, name: str, kind: pa.DataType, *, lacking: bool = False) -> Any:
        """Return a header field; null where ``lacking`` and the batch is of magic 0 or 1."""
        values = self.of(self.block[name]).astype(kind.to_pandas_dtype())
        return pa.array(values, kind, mask=self.legacy if lacking else None)

    def time(self, name: str, *, lacking: bool = False) -> Any:
        return when(self.of(self.block[name]), self.legacy if lacking else None)

    def flag(self, bit: Attributes) -> Any:
        return pa.array(self.of(self.block.flag(bit)))

    def kind_of_time(self) -> Any:
        kind = self.block.flag(Attributes.LOG_APPEND_TIME).astype(np.int64)
        kind[self.block.magic == 0] = 2
        return by_value(self.of(kind), _KINDS_OF_TIME.__getitem__)

    def fixed(self, value: Any, kind: pa.DataType) -> Any:
        return pa.nulls(self.count, kind) if value is None else pa.repeat(pa.scalar(value, kind), self.count)


def when(milliseconds: Ints, lacking: Flags | None = None) -> Any:
    """Epoch milliseconds as timestamps; null for -1, where there is none, and for what no calendar holds."""
    none = milliseconds == -1
    if lacking is not None:
        none |= lacking
    if not none.any():
        return times(milliseconds)
    found = times(np.where(none, 0, milliseconds))
    return pa.array(found.cast(pa.int64()).to_numpy(zero_copy_only=False), TIME, mask=none | _nulls(found))


def _nulls(found: Any) -> Flags:
    mask: Flags = found.is_null().to_numpy(zero_copy_only=False)
    return mask


# --- batches ------------------------------------------------------------------------------------------


def batches_of(block: Block, place: Place, schema: pa.Schema) -> pa.RecordBatch:
    """Return a row for each batch of a block, in order."""
    made = _OfBatches(block, place)
    return pa.RecordBatch.from_arrays([_BATCHES[name](made) for name in schema.names], schema=schema)


def _count(made: _OfBatches) -> Any:
    count = made.block["records_count"]
    unknown = made.block.is_legacy & (count < 0)
    return pa.array(count.astype(np.int32), mask=unknown if unknown.any() else None)


def _horizon(made: _OfBatches) -> Any:
    has = made.block.flag(Attributes.DELETE_HORIZON) & ~made.block.is_legacy
    return when(made.block["base_timestamp"], ~has)


_COMMON: dict[str, Callable[[Any], Any]] = {
    "file": lambda m: m.fixed(m.block.file, pa.string()),
    "topic": lambda m: m.fixed(m.place.topic, pa.string()),
    "partition": lambda m: m.fixed(m.place.partition, pa.int32()),
    "magic": lambda m: pa.array(m.of(m.block.magic).astype(np.int32)),
    "compression": lambda m: by_value(m.of(m.block["codec"]), codec_name),
    "timestamp_type": _OfBatches.kind_of_time,
    "leader_epoch": lambda m: m.number("partition_leader_epoch", pa.int32(), lacking=True),
    "producer_id": lambda m: m.number("producer_id", pa.int64(), lacking=True),
    "producer_epoch": lambda m: m.number("producer_epoch", pa.int32(), lacking=True),
    "transactional": lambda m: m.flag(Attributes.TRANSACTIONAL),
    "crc_ok": lambda m: pa.array(m.of(m.block.crc_ok)),
}
_BATCHES: dict[str, Callable[[_OfBatches], Any]] = {
    **_COMMON,
    "position": lambda m: pa.array(m.block.position),
    "size": lambda m: pa.array(m.block.size.astype(np.int32)),
    "base_offset": lambda m: m.number("base_offset", pa.int64()),
    "last_offset": lambda m: m.number("last_offset", pa.int64()),
    "count": _count,
    "base_timestamp": lambda m: m.time("base_timestamp", lacking=True),
    "max_timestamp": lambda m: m.time("max_timestamp"),
    "base_sequence": lambda m: m.number("base_sequence", pa.int32(), lacking=True),
    "last_sequence": lambda m: m.number("last_sequence", pa.int32(), lacking=True),
    "control": lambda m: m.flag(Attributes.CONTROL),
    "delete_horizon": _horizon,
    "crc": lambda m: m.number("crc", pa.int64()),
}


# --- records ------------------------------------------------------------------------------------------


def rows_of(records: Records, place: Place, schema: pa.Schema) -> pa.RecordBatch:
    """Return a row for each record, in order; keys, values and headers are copied, so that they outlive the window."""
    made = _OfRecords(records, place)
    return pa.RecordBatch.from_arrays([_RECORDS[name](made) for name in schema.names], schema=schema)


class _OfRecords(_OfBatches):
    """Columns of records, each made when asked for."""

    def __init__(self, records: Records, place: Place) -> None:
        super().__init__(records.block, place, records.batch)
        self.records = records

    def headers(self) -> Any:
        at, data = self.records.headers, self.records.data
        names, values = strings(binary_of(data, at[:, 0], at[:, 1])), binary_of(data, at[:, 2], at[:, 3])
        pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
        return pa.ListArray.from_arrays(pa.array(self.records.header_start.astype(np.int32)), pairs, type=HEADERS)

    @cached_property
    def size(self) -> Ints:
        """Bytes of key, value and headers."""
        r = self.records
        found = np.maximum(r.key_size, 0) + np.maximum(r.value_size, 0)
        if len(r.headers):
            sums = np.concatenate([[0], np.cumsum(r.headers[:, 1] + np.maximum(r.headers[:, 3], 0))])
            found = found + sums[r.header_start[1:]] - sums[r.header_start[:-1]]
        return found

    def batch_size(self) -> Any:
        first = np.diff(self.records.batch, prepend=-1) != 0
        return pa.array(self.of(self.block.size).astype(np.int32), mask=~first)

    def control_type(self) -> Any:
        control = np.flatnonzero(self.of(self.block.flag(Attributes.CONTROL)))
        if not len(control):
            return pa.nulls(len(self.records), pa.string())
        found: list[str | None] = [None] * len(self.records)
        for row in control.tolist():
            found[row] = control_name(self.records.key(row))
        return pa.array(found, pa.string())


_RECORDS: dict[str, Callable[[_OfRecords], Any]] = {
    **_COMMON,
    "batch_position": lambda m: pa.array(m.of(m.block.position)),
    "offset": lambda m: pa.array(m.records.offset),
    "timestamp": lambda m: when(m.records.timestamp),
    "sequence": lambda m: pa.array(m.records.sequence.astype(np.int32), mask=m.legacy),
    "key": lambda m: binary_of(m.records.data, m.records.key_at, m.records.key_size),
    "value": lambda m: binary_of(m.records.data, m.records.value_at, m.records.value_size),
    "headers": _OfRecords.headers,
    "key_size": lambda m: pa.array(m.records.key_size.astype(np.int32)),
    "value_size": lambda m: pa.array(m.records.value_size.astype(np.int32)),
    "size": lambda m: pa.array(m.size),
    "batch_size": _OfRecords.batch_size,
    "control_type": _OfRecords.control_type,
}
