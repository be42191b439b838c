"""The columns of batches and records, said once for rows, JSON lines and tables (CLI contract, ``dump``).

Keys, values and header values are shown as text or base64 in rows and lines; in tables they are binary. What a batch of
magic 0 or 1 lacks is null.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from formats.kafka.metadata_messages import CONTROL_NAMES
from formats.kafka.record_batch import Attributes, control_type
from rmqctl.columns import Cell, Column, Named, Numbers, Objects, Same, Times
from rmqctl.kafka.directory.directory import Partition, place_of
from rmqctl.kafka.log.block import Block, Flags, Ints
from rmqctl.kafka.log.codecs import codec_name
from rmqctl.kafka.log.records import Records
from rmqctl.text import Text, text_or_base64

if TYPE_CHECKING:  # rows of batches do without
    import pyarrow as pa

LARGEST_SHOWN = 16 << 20
"""Bytes of a key or value that are shown; a line, a table and JSON need several times their room."""
Shown = Callable[[bytes], Text]

_CONTROL_CHARACTER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MARKERS = {0: "ABORT", 1: "COMMIT"}
_HASH_DIGITS = 12


def shown_text(data: bytes) -> Text:
    """Bytes where text stands: as text, or as base64 where they are not UTF-8 or have control characters; of what is
    larger than :data:`LARGEST_SHOWN` its hash.
    """
    if len(data) > LARGEST_SHOWN:
        import hashlib

        return {"sha256": hashlib.sha256(data).hexdigest()}
    try:
        found = data.decode()
    except UnicodeDecodeError:
        return text_or_base64(data)
    if found.isprintable() or not _CONTROL_CHARACTER.search(found):  # the first is quick, and mostly enough
        return found
    return {"base64": base64.b64encode(data).decode("ascii")}


def redacted(data: bytes) -> str:
    """Return the first digits of a hash: equal values stay equal, the value itself is gone."""
    import hashlib

    return f"sha256:{hashlib.sha256(data).hexdigest()[:_HASH_DIGITS]}"


def text(data: bytes | None, show: Shown = shown_text) -> Text | None:
    """Return bytes as they are shown, None for null."""
    return None if data is None else show(data)


def control_name(key: bytes | None) -> str:
    """Return what a control record is, by its key."""
    number = control_type(key)
    return _MARKERS.get(number) or CONTROL_NAMES.get(number) or f"UNKNOWN_{number}"


# --- columns of batches -------------------------------------------------------------------------------


class BatchColumns:
    """The columns of the batches of a block, each made when asked for; with ``rows``, of the batches of these rows.

    Attributes:
        topic, partition: where they lie, as far as that is known.
    """

    def __init__(self, block: Block, topic: str | None, partition: int | None, rows: Ints | None = None) -> None:
        self.block, self.topic, self.partition, self._rows = block, topic, partition, rows

    def of(self, values: Any) -> Any:
        """Return a value a batch, for each row."""
        return values if self._rows is None else values[self._rows]

    @cached_property
    def legacy(self) -> Flags | None:
        """Which rows are of magic 0 or 1; None where none is."""
        return self.of(self.block.is_legacy) if self.block.has_legacy else None

    def same(self, value: Any) -> Same:
        return Same(value, len(self.block) if self._rows is None else len(self._rows))

    def number(self, name: str, *, lacks: bool = False) -> Numbers:
        """Return a header field; where ``lacks``, batches of magic 0 and 1 have none."""
        return Numbers(self.of(self.block[name]), self.legacy if lacks else None)

    def flag(self, bit: Attributes) -> Named:
        return Named(self.of(self.block.flag(bit)), _FLAG)

    def count(self) -> Numbers:
        """Return the counts of records; messages whose inner ones cannot be read have none."""
        count, has_legacy = self.of(self.block["records_count"]), self.legacy is not None
        return Numbers(count, self.legacy & (count < 0) if has_legacy else None)

    def timestamp_type(self) -> Named:
        kind = self.block.flag(Attributes.LOG_APPEND_TIME)
        if self.block.has_legacy:
            kind = np.where(self.block.magic == 0, 2, kind)
        return Named(self.of(kind), ("CreateTime", "LogAppendTime", "NoTimestampType"))

    def time(self, name: str, lacking: Flags | None) -> Times:
        """Return a time of the header; ``lacking``: by batch."""
        return Times(self.of(self.block[name]), None if lacking is None else self.of(lacking), -1)

    def horizon(self) -> Times:
        return self.time("base_timestamp", ~self.block.flag(Attributes.DELETE_HORIZON) | self.block.is_legacy)


_FLAG = (False, True)
_CODECS = tuple(map(codec_name, range(8)))
_OF_BOTH: dict[str, Callable[[Any], Column]] = {
    "file": lambda c: c.same(c.block.file),
    "topic": lambda c: c.same(c.topic),
    "partition": lambda c: c.same(c.partition),
    "magic": lambda c: Numbers(c.of(c.block.magic)),
    "compression": lambda c: Named(c.of(c.block["codec"]), _CODECS),
    "timestamp_type": BatchColumns.timestamp_type,
    "leader_epoch": lambda c: c.number("partition_leader_epoch", lacks=True),
    "producer_id": lambda c: c.number("producer_id", lacks=True),
    "producer_epoch": lambda c: c.number("producer_epoch", lacks=True),
    "transactional": lambda c: c.flag(Attributes.TRANSACTIONAL),
    "crc_ok": lambda c: Named(c.of(c.block.crc_ok), _FLAG),
}
BATCH: dict[str, Callable[[BatchColumns], Column]] = {
    **_OF_BOTH,
    "kind": lambda c: c.same("batch"),
    "position": lambda c: Numbers(c.block.position),
    "size": lambda c: Numbers(c.block.size),
    "base_offset": lambda c: c.number("base_offset"),
    "last_offset": lambda c: c.number("last_offset"),
    "count": BatchColumns.count,
    "base_timestamp": lambda c: c.time("base_timestamp", c.block.is_legacy if c.block.has_legacy else None),
    "max_timestamp": lambda c: c.time("max_timestamp", c.block.magic == 0 if c.block.has_legacy else None),
    "base_sequence": lambda c: c.number("base_sequence", lacks=True),
    "last_sequence": lambda c: c.number("last_sequence", lacks=True),
    "control": lambda c: c.flag(Attributes.CONTROL),
    "delete_horizon": BatchColumns.horizon,
    "crc": lambda c: c.number("crc"),
}
"""What makes each column of batches."""
_BATCH_KEYS = (
    "kind", "file", "topic", "partition", "position", "size", "magic", "base_offset", "last_offset", "count",
    "compression", "timestamp_type", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch",
    "base_sequence", "last_sequence", "leader_epoch", "transactional", "control", "delete_horizon", "crc", "crc_ok",
)  # fmt: skip


def batch_columns(block: Block, partition: Partition | None) -> dict[str, Column]:
    """Return the columns of the batches of a block that ``dump`` shows, in the order of the contract."""
    made = BatchColumns(block, *place_of(partition))
    return {name: BATCH[name](made) for name in _BATCH_KEYS}


# --- columns of records -------------------------------------------------------------------------------


class RecordColumns(BatchColumns):
    """The columns of records, each made when asked for.

    Attributes:
        show: how keys, values and headers are shown.
    """

    def __init__(self, records: Records, topic: str | None, partition: int | None, show: Shown = shown_text) -> None:
        super().__init__(records.block, topic, partition, records.batch)
        self.records, self.show = records, show

    @cached_property
    def key(self) -> Strings:
        return Strings(self.records, self.records.key_at, self.records.key_size, self.show)

    @cached_property
    def value(self) -> Strings:
        return Strings(self.records, self.records.value_at, self.records.value_size, self.show)

    @cached_property
    def control(self) -> Ints:
        """The rows of control records."""
        return np.flatnonzero(self.of(self.block.flag(Attributes.CONTROL)))

    def size(self) -> Numbers:
        """Return the bytes of key, value and headers."""
        records = self.records
        found = np.maximum(records.key_size, 0) + np.maximum(records.value_size, 0)
        if len(records.headers):
            sums = np.concatenate([[0], np.cumsum(records.headers[:, 1] + np.maximum(records.headers[:, 3], 0))])
            found = found + sums[records.header_start[1:]] - sums[records.header_start[:-1]]
        return Numbers(found)

    def batch_size(self) -> Numbers:
        return Numbers(self.of(self.block.size), np.diff(self.records.batch, prepend=-1) == 0)

    def control_type(self) -> Column:
        if not len(self.control):
            return self.same(None)
        found: list[str | None] = [None] * len(self.records)
        for row in self.control.tolist():
            found[row] = control_name(self.records.key(row))
        return Objects(found)


RECORD: dict[str, Callable[[RecordColumns], Column]] = {
    **_OF_BOTH,
    "kind": lambda c: c.same("record"),
    "batch_position": lambda c: Numbers(c.of(c.block.position)),
    "offset": lambda c: Numbers(c.records.offset),
    "timestamp": lambda c: Times(c.records.timestamp, absent=-1),
    "sequence": lambda c: Numbers(c.records.sequence, c.legacy),
    "key": lambda c: c.key,
    "value": lambda c: c.value,
    "headers": lambda c: Headers(c.records, c.show),
    "key_size": lambda c: Numbers(c.records.key_size),
    "value_size": lambda c: Numbers(c.records.value_size),
    "size": RecordColumns.size,
    "batch_size": RecordColumns.batch_size,
    "control_type": RecordColumns.control_type,
}
"""What makes each column of records."""
RECORD_KEYS = (
    "kind", "file", "topic", "partition", "batch_position", "offset", "timestamp", "sequence", "key", "value",
    "headers", "key_size", "value_size", "control_type",
)  # fmt: skip


def record_columns(records: Records, partition: Partition | None, show: Shown = shown_text) -> dict[str, Column]:
    """Return the columns of records that ``dump`` shows, in the order of the contract."""
    made = RecordColumns(records, *place_of(partition), show)
    return {name: RECORD[name](made) for name in RECORD_KEYS}


class Strings:
    """Keys or values of records.

    Attributes:
        listed: their bytes, None for null; those that are too large to be shown where they lie.
    """

    def __init__(self, records: Records, at: Ints, size: Ints, show: Shown) -> None:
        self._records, self._at, self._size, self._show = records, at, size, show

    @cached_property
    def listed(self) -> list[Any]:
        if self._size.max(initial=0) <= LARGEST_SHOWN:
            return self.arrow().to_pylist()
        view: Any = memoryview(self._records.data)  # type: ignore[arg-type]
        places = zip(self._at.tolist(), self._size.tolist(), strict=True)
        return [view[at : at + size] if size > LARGEST_SHOWN else self._records.cut(at, size) for at, size in places]

    def values(self) -> list[Text | None]:
        return [text(data, self._show) for data in self.listed]

    def json(self, end: bytes) -> tuple[Cell, ...]:
        if self._show is not shown_text:
            return Objects(self.values()).json(end)
        if (self._size < 0).all():
            return (b"null" + end,)
        from rmqctl.kafka.strings import json_of

        return json_of(self.arrow(), shown_text, end)

    def arrow(self, _kind: pa.DataType | None = None) -> Any:
        """Return the bytes, whatever the type; they are copied, so that they outlive the window."""
        from rmqctl.kafka.strings import binary_of

        return binary_of(self._records.data, self._at, self._size)


@dataclass(frozen=True, slots=True)
class Headers:
    """Headers of records: pairs of a name and a value."""

    records: Records
    show: Shown

    def values(self) -> list[list[list[Text | None]]]:
        if not len(self.records.headers):
            return [[] for _ in range(len(self.records))]
        return [
            [[shown_text(name), text(value, self.show)] for name, value in self.records.headers_of(index)]
            for index in range(len(self.records))
        ]

    def json(self, end: bytes) -> tuple[Cell]:
        return Objects(self.values()).json(end) if len(self.records.headers) else (b"[]" + end,)

    def arrow(self, kind: pa.DataType) -> Any:
        import pyarrow as pa

        from rmqctl.arrow import strings
        from rmqctl.kafka.strings import binary_of

        at, data = self.records.headers, self.records.data
        names, values = strings(binary_of(data, at[:, 0], at[:, 1])), binary_of(data, at[:, 2], at[:, 3])
        pairs = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
        return pa.ListArray.from_arrays(pa.array(self.records.header_start.astype(np.int32)), pairs, type=kind)
