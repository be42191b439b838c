"""Batches and records of a block as Arrow batches: the JSON keys of ``dump`` as typed columns, made column by column.

Keys, values and header values are binary, as stored but for compression. What a batch of magic 0 or 1 lacks is null,
and so is the time of a record that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rmqctl.arrow import TIME
from rmqctl.columns import Column
from rmqctl.kafka.columns import BATCH, RECORD, BatchColumns, RecordColumns
from rmqctl.kafka.log.block import Block
from rmqctl.kafka.log.records import Records
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


def batches_of(block: Block, place: Place, schema: pa.Schema) -> pa.RecordBatch:
    """Return a row for each batch of a block, in order."""
    return _made(BATCH, BatchColumns(block, place.topic, place.partition), schema)


def rows_of(records: Records, place: Place, schema: pa.Schema) -> pa.RecordBatch:
    """Return a row for each record, in order; keys, values and headers are copied, so that they outlive the window."""
    return _made(RECORD, RecordColumns(records, place.topic, place.partition), schema)


def _made(makers: Mapping[str, Callable[[Any], Column]], of: BatchColumns, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([makers[field.name](of).arrow(field.type) for field in schema], schema=schema)
