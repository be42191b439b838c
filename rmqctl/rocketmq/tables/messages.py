"""Messages as Arrow batches: the JSON keys of ``dump`` as typed columns, made column by column.

Text that is not UTF-8 becomes ``base64:...``, since a column of text holds nothing else; a time outside the years 1 to
9999 is null. Nothing here knows Spark. Of the properties there is the map, and three have columns of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

from rmqctl.arrow import TIME
from rmqctl.rocketmq.dump.messages import MESSAGE, Kept, MessageColumns
from rmqctl.rocketmq.dump.properties import PROPERTIES, TEXTS
from rmqctl.rocketmq.dump.record import RowOptions
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.tables.columns import (
    INNER,
    BodyOption,
    inner_column,
    open_bodies,
    open_sizes,
    pieces,
    stored_bodies,
)

MESSAGE_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.int64()),
        ("physical_offset", pa.int64()),
        ("size", pa.int32()),
        ("magic", pa.string()),
        ("body_crc", pa.int32()),
        ("body_crc_ok", pa.bool_()),
        ("queue_id", pa.int32()),
        ("flag", pa.int32()),
        ("queue_offset", pa.int64()),
        ("sys_flag", pa.int32()),
        ("born_timestamp", TIME),
        ("born_host", pa.string()),
        ("store_timestamp", TIME),
        ("store_host", pa.string()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("topic", pa.string()),
        ("tags", pa.string()),
        ("keys", TEXTS),
        ("unique_key", pa.string()),
        ("message_id", pa.string()),
        ("properties", PROPERTIES),
        ("transaction", pa.string()),
        ("compression", pa.string()),
        ("body_size", pa.int32()),
        ("body_size_decompressed", pa.int32()),
        ("inner", INNER),
        ("body", pa.binary()),
    ]
)
"""Columns of messages, in order; sizes and positions in bytes."""

_OPENED = {"body_size_decompressed", "inner", "body"}


def message_schema(columns: Collection[str] | None = None, body: BodyOption = BodyOption.DECOMPRESSED) -> pa.Schema:
    """Return the schema of the wanted columns, in the order of :data:`MESSAGE_SCHEMA`.

    Args:
        columns: names; None for all that ``body`` leaves.
        body: ``stored`` leaves out what needs decompression, ``none`` also the body.

    Raises:
        ValueError: there is no such column.
    """
    without = {BodyOption.DECOMPRESSED: set(), BodyOption.STORED: _OPENED - {"body"}, BodyOption.NONE: _OPENED}[body]
    possible = [field for field in MESSAGE_SCHEMA if field.name not in without]
    if columns is None:
        return pa.schema(possible)
    unknown = set(columns) - {field.name for field in possible}
    if unknown:
        raise ValueError(f"no column {min(unknown)!r}; there are {', '.join(f.name for f in possible)}")
    return pa.schema([field for field in possible if field.name in columns])


class MessageBatches:
    """Turns blocks into batches of one schema; keeps texts that recur from block to block."""

    def __init__(self, schema: pa.Schema, body: BodyOption = BodyOption.DECOMPRESSED) -> None:
        self.schema, self.body = schema, body
        self._opens = body is BodyOption.DECOMPRESSED and bool(_OPENED & set(schema.names))
        self._kept = Kept(RowOptions())

    def of(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield the records of a block; more than one batch where bodies grow large."""
        if not len(block):
            return
        for piece, opened in pieces(block) if self._opens else [(block, {})]:
            made = MessageColumns(piece, self._kept)
            arrays = [
                self._body(name, piece, opened) if name in _OPENED else MESSAGE[name](made).arrow(kind)
                for name, kind in zip(self.schema.names, self.schema.types, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _body(self, name: str, block: Block, opened: dict[int, bytes | None]) -> Any:
        """Return a column that needs decompression, or the bodies as they are stored."""
        if name == "inner":
            return inner_column(block, opened)
        if name == "body_size_decompressed":
            return open_sizes(block, opened)
        return open_bodies(block, opened) if self.body is BodyOption.DECOMPRESSED else stored_bodies(block)
