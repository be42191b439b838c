"""Messages as Arrow batches: the JSON keys of ``dump`` as typed columns, made column by column.

The same values that :class:`~rmqctl.rocketmq.dump.log.MessageRows` gives. Text that is not UTF-8 becomes
``base64:...``, since a column of text holds nothing else; a time outside the years 1 to 9999 is null. Nothing here
knows Spark. Of the properties there is the map, and three have columns of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from formats.rocketmq.message import COMPRESSION, TRANSACTION
from rmqctl.arrow import TIME, by_value, chosen, strings, times
from rmqctl.rocketmq.dump.lines import slices_of
from rmqctl.rocketmq.dump.log import HostNames, crc_flags, host_column, hosts_v4, id_bytes, message_ids
from rmqctl.rocketmq.dump.record import KEYS, TAGS, UNIQUE_KEY, VERSIONS, host_text, split_keys, transaction
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.columns import Pairs, TextIds, pairs_of, properties_of
from rmqctl.rocketmq.log.record import compression
from rmqctl.rocketmq.tables.columns import (
    INNER,
    PROPERTIES,
    TEXTS,
    BodyOption,
    Recurring,
    hexadecimal,
    inner_column,
    open_bodies,
    open_sizes,
    pieces,
    scattered,
    stored_bodies,
)
from rmqctl.text import name_of

_BITS = 32  # different names, a bit each


class PropertyColumns:
    """Columns of ``count`` records, each made when asked for."""

    def __init__(self, pairs: Pairs, count: int) -> None:
        self._pairs, self._count = pairs, count

    @cached_property
    def tags(self) -> Any:
        return strings(self._values(TAGS))

    @cached_property
    def unique_key(self) -> Any:
        return strings(self._values(UNIQUE_KEY))

    @cached_property
    def keys(self) -> Any:
        """The parts of KEYS between single spaces, empty ones dropped; no parts without KEYS."""
        raw = pc.fill_null(self._values(KEYS), b"")
        if pc.any(pc.match_substring(raw, b" ")).as_py():
            return pa.array([list(map(name_of, split_keys(keys))) for keys in raw.to_pylist()], TEXTS)
        bounds = np.zeros(len(raw) + 1, np.int32)
        full = pc.not_equal(raw, b"")
        np.cumsum(full.to_numpy(zero_copy_only=False), out=bounds[1:])
        return pa.ListArray.from_arrays(pa.array(bounds), strings(raw.filter(full)))

    @cached_property
    def all(self) -> Any:
        """Every property by name; of repeated names the last value."""
        pairs = self._unique()
        names = strings(_slices(pairs, pairs.name_at, pairs.name_size))
        values = strings(_slices(pairs, pairs.value_at, pairs.value_size))
        bounds = np.searchsorted(pairs.owner, np.arange(self._count + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(bounds), names, values).cast(PROPERTIES)

    def _values(self, name: bytes) -> Any:
        found = self._pairs.named(name)
        return scattered(_slices(found, found.value_at, found.value_size), found.owner, self._count)

    def _unique(self) -> Pairs:
        """Return the pairs less those whose name comes again in the same record."""
        pairs = self._pairs
        if not len(pairs):
            return pairs
        ids = TextIds().numbers(pairs.data, pairs.name_at, pairs.name_size)
        if not _repeats(pairs.owner, ids):
            return pairs
        key = pairs.owner * (int(ids.max()) + 1) + ids
        _, last = np.unique(key[::-1], return_index=True)
        return pairs.take(np.sort(len(key) - 1 - last))


def _repeats(owner: Ints, ids: Ints) -> bool:
    """Whether any record may have a name twice: the sum of its names' bits is then not their union."""
    if int(ids.max()) >= _BITS:
        return True
    bits = np.left_shift(np.int64(1), ids)
    first = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
    return bool((np.add.reduceat(bits, first) != np.bitwise_or.reduceat(bits, first)).any())


def _slices(pairs: Pairs, at: Ints, size: Ints) -> Any:
    if not len(at):
        return pa.array([], pa.binary())
    return slices_of(pa.py_buffer(pairs.data), at, at + size)


# --- messages as arrow batches ----------------------------------------------------------------------


_V2_SHIFT, _IPV6_BITS = 2, 3  # of Block.variant

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
        self._names = HostNames()
        self._hosts = Recurring(lambda raw: host_text(raw.to_bytes(8, "big")))

    def of(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield the records of a block; more than one batch where bodies grow large."""
        if not len(block):
            return
        for piece, opened in pieces(block) if self._opens else [(block, {})]:
            made = _Columns(piece, opened, self)
            arrays = [_MAKERS[name](made) for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def hosts(self, block: Block, side: str) -> Any:
        """Return the host of each record as text."""
        if (block.variant & _IPV6_BITS).any():
            return pa.array(host_column(block, side, self._names), pa.string())
        return self._hosts.column(pa.array(hosts_v4(block, side)))


class _Columns:
    """The columns of one piece of a block, made when asked for."""

    def __init__(self, block: Block, opened: dict[int, bytes | None], batches: MessageBatches) -> None:
        self.block, self.opened, self.batches = block, opened, batches

    @cached_property
    def properties(self) -> PropertyColumns:
        return PropertyColumns(pairs_of(properties_of(self.block)), len(self.block))

    def topic(self) -> Any:
        at = self.block.topic_at
        return strings(slices_of(pa.py_buffer(self.block.data), at, at + self.block.topic_size))

    def message_id(self) -> Any:
        if (self.block.variant & _IPV6_BITS).any():
            return pa.array(message_ids(self.block), pa.string())
        return hexadecimal(id_bytes(self.block))

    def body(self) -> Any:
        opens = self.batches.body is BodyOption.DECOMPRESSED
        return open_bodies(self.block, self.opened) if opens else stored_bodies(self.block)


Maker = Callable[[_Columns], Any]


def _header(name: str) -> Maker:
    kind = MESSAGE_SCHEMA.field(name).type.to_pandas_dtype()
    return lambda c: pa.array(c.block[name].astype(kind, copy=False))


def _time(name: str) -> Maker:
    return lambda c: times(c.block[name].astype(np.int64, copy=False))


_MAKERS: dict[str, Maker] = {
    "file": lambda c: pa.repeat(pa.scalar(c.block.file), len(c.block)),
    "position": lambda c: pa.array(c.block.position),
    "size": lambda c: pa.array(c.block.total_size.astype(np.int32)),
    "magic": lambda c: chosen(VERSIONS, c.block.variant >> _V2_SHIFT),
    "body_crc_ok": lambda c: pa.array(crc_flags(c.block)[1]),
    "born_timestamp": _time("born_timestamp"),
    "store_timestamp": _time("store_timestamp"),
    "born_host": lambda c: c.batches.hosts(c.block, "born"),
    "store_host": lambda c: c.batches.hosts(c.block, "store"),
    "topic": _Columns.topic,
    "tags": lambda c: c.properties.tags,
    "keys": lambda c: c.properties.keys,
    "unique_key": lambda c: c.properties.unique_key,
    "message_id": _Columns.message_id,
    "properties": lambda c: c.properties.all,
    "transaction": lambda c: by_value(c.block["sys_flag"] & TRANSACTION, transaction),
    "compression": lambda c: by_value(c.block["sys_flag"] & COMPRESSION, compression),
    "body_size": lambda c: pa.array(c.block.body_size.astype(np.int32)),
    "body_size_decompressed": lambda c: open_sizes(c.block, c.opened),
    "inner": lambda c: inner_column(c.block, c.opened),
    "body": _Columns.body,
    **{
        name: _header(name)
        for name in (
            "physical_offset", "body_crc", "queue_id", "flag", "queue_offset", "sys_flag", "reconsume_times",
            "prepared_transaction_offset",
        )
    },
}  # fmt: skip
