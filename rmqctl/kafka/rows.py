"""Batches and records as JSON-ready rows, the same in every command that shows them; their strings as Arrow arrays."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from formats.kafka.internal_records import INTERNAL_TOPICS, decode_control, decode_record
from formats.kafka.metadata_messages import CONTROL_NAMES
from formats.kafka.record_batch import Attributes, control_type
from rmqctl.kafka.directory.directory import Partition, place_of
from rmqctl.kafka.log.block import Block, Bytes8, Ints
from rmqctl.kafka.log.codecs import codec_name
from rmqctl.kafka.log.records import Records
from rmqctl.text import Fields, Text, raw, text_or_base64

if TYPE_CHECKING:  # rows of batches do without
    import pyarrow as pa

_INLINE = 12
LARGEST_SHOWN = 16 << 20
"""Bytes of a key or value that are shown; a line, a table and JSON need several times their room."""


def binary_of(data: Bytes8, at: Ints, size: Ints) -> pa.BinaryArray:
    """Return the strings ``data[at:at+size]``, copied; null for a negative size. ``data`` goes on for 12 bytes after
    the last.

    They are made as Arrow's views (a length, then the string itself up to 12 bytes, else a prefix that nobody looks
    at, the number of the buffer and the offset), which its cast turns into one run of bytes.
    """
    import pyarrow as pa

    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    null = size < 0
    views = np.zeros((count, 4), np.int32)
    views[:, 0], views[:, 3] = np.where(null, 0, size), at
    short = np.flatnonzero(size <= _INLINE)
    if len(short):
        strings = np.ndarray((len(data) - _INLINE + 1,), f"V{_INLINE}", data, 0, (1,))
        views[short, 1:] = strings[at[short]].view(np.int32).reshape(-1, 3)
    valid = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
    array: Any = pa.Array.from_buffers(pa.binary_view(), count, [valid, pa.py_buffer(views), pa.py_buffer(data)])
    return array.cast(pa.binary())


Row = dict[str, Any]
Shown = Callable[[bytes], Text]

_CONTROL_CHARACTER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MARKERS = {0: "ABORT", 1: "COMMIT"}
_LACKED = ("producer_id", "producer_epoch", "base_sequence", "last_sequence", "leader_epoch", "base_timestamp")
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


def batch_rows(block: Block, partition: Partition | None) -> list[Row]:
    """Return a row for each batch of a block, in order."""
    topic, number = place_of(partition)
    attributes = block["attributes"]
    horizon = (attributes & int(Attributes.DELETE_HORIZON)) != 0
    base_timestamp = block["base_timestamp"]
    columns = {
        "kind": ["batch"] * len(block),
        "file": [block.file] * len(block),
        "topic": [topic] * len(block),
        "partition": [number] * len(block),
        "position": block.position.tolist(),
        "size": block.size.tolist(),
        "magic": block.magic.tolist(),
        "base_offset": block["base_offset"].tolist(),
        "last_offset": block["last_offset"].tolist(),
        "count": block["records_count"].tolist(),
        "compression": [codec_name(codec) for codec in block["codec"].tolist()],
        "timestamp_type": np.where(block.flag(Attributes.LOG_APPEND_TIME), "LogAppendTime", "CreateTime").tolist(),
        "base_timestamp": base_timestamp.tolist(),
        "max_timestamp": block["max_timestamp"].tolist(),
        "producer_id": block["producer_id"].tolist(),
        "producer_epoch": block["producer_epoch"].tolist(),
        "base_sequence": block["base_sequence"].tolist(),
        "last_sequence": block["last_sequence"].tolist(),
        "leader_epoch": block["partition_leader_epoch"].tolist(),
        "transactional": block.flag(Attributes.TRANSACTIONAL).tolist(),
        "control": block.flag(Attributes.CONTROL).tolist(),
        "delete_horizon": [t if h else None for t, h in zip(base_timestamp.tolist(), horizon.tolist(), strict=True)],
        "crc": block["crc"].tolist(),
        "crc_ok": block.crc_ok.tolist(),
    }
    names = tuple(columns)
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if block.has_legacy:
        for row in rows:
            if row["magic"] < 2:
                _leave_out_what_messages_lack(row)
    return rows


def _leave_out_what_messages_lack(row: Row) -> None:
    for name in _LACKED:
        row[name] = None
    if row["magic"] == 0:
        row["timestamp_type"] = "NoTimestampType"
        row["max_timestamp"] = None
    if row["count"] < 0:
        row["count"] = None


def record_row(records: Records, index: int, partition: Partition | None, show: Shown = shown_text) -> Row:
    """Return the row of one record; see :func:`record_rows`."""
    return record_rows(records.take(np.array([index])), partition, show)[0]


def record_rows(records: Records, partition: Partition | None, show: Shown = shown_text) -> list[Row]:
    """Return the rows of records, in order.

    Args:
        partition: where they lie.
        show: how keys, values and headers are shown; other than as they are, nothing is taken apart.
    """
    block = records.block
    topic, number = place_of(partition)
    keys = _strings_of(records, records.key_at, records.key_size)
    values = _strings_of(records, records.value_at, records.value_size)
    legacy = block.is_legacy[records.batch]
    sequence = [None if old else n for old, n in zip(legacy.tolist(), records.sequence.tolist(), strict=True)]
    columns = zip(
        block.position[records.batch].tolist(), records.offset.tolist(), records.timestamp.tolist(), sequence,
        keys, values, _headers(records, show), records.key_size.tolist(), records.value_size.tolist(), strict=True,
    )  # fmt: skip
    rows: list[Row] = [
        {
            "kind": "record",
            "file": block.file,
            "topic": topic,
            "partition": number,
            "batch_position": position,
            "offset": offset,
            "timestamp": timestamp,
            "sequence": sequence,
            "key": None if key is None else show(key),
            "value": None if value is None else show(value),
            "headers": headers,
            "key_size": key_size,
            "value_size": value_size,
            "control_type": None,
        }
        for position, offset, timestamp, sequence, key, value, headers, key_size, value_size in columns
    ]
    control = block.flag(Attributes.CONTROL)[records.batch]
    special = range(len(rows)) if has_decoder(topic) else np.flatnonzero(control).tolist()
    for index in special:
        _take_apart(
            rows[index], keys[index], values[index], decodes=show is shown_text, is_control=bool(control[index])
        )
    return rows


def _strings_of(records: Records, at: Ints, size: Ints) -> list[Any]:
    """Return keys or values; those that are too large to be shown where they lie."""
    if size.max(initial=0) <= LARGEST_SHOWN:
        return binary_of(records.data, at, size).to_pylist()
    view: Any = memoryview(records.data)  # type: ignore[arg-type]
    places = zip(at.tolist(), size.tolist(), strict=True)
    return [view[a : a + n] if n > LARGEST_SHOWN else records.cut(a, n) for a, n in places]


def _take_apart(row: Row, key: bytes | None, value: bytes | None, *, decodes: bool, is_control: bool) -> None:
    """Add what a control record or a record of an internal topic says."""
    if is_control:
        row["control_type"] = control_name(key)
    decoded = decoded_row(row["topic"], key, value, is_control=is_control) if decodes else None
    if decoded is not None:
        row["decoded"] = decoded


def _headers(records: Records, show: Shown) -> Iterable[list[list[Text | None]]]:
    if not len(records.headers):
        return ([] for _ in range(len(records)))
    return (
        [[shown_text(name), None if value is None else show(value)] for name, value in records.headers_of(index)]
        for index in range(len(records))
    )


FORM: Fields = {
    "t": ("topic", lambda row: row["topic"]),
    "p": ("partition", lambda row: row["partition"]),
    "o": ("offset", lambda row: row["offset"]),
    "k": ("key", lambda row: row["key"]),
    "K": ("key size (bytes, -1 for null)", lambda row: row["key_size"]),
    "T": ("timestamp (ms)", lambda row: row["timestamp"]),
    "s": ("value", lambda row: row["value"]),
    "S": ("value size (bytes, -1 for null)", lambda row: row["value_size"]),
    "h": ("headers", lambda row: b",".join(b"%s=%s" % (raw(name), raw(value)) for name, value in row["headers"])),
}
"""What stands after a percent sign of ``--format-string``."""


def has_decoder(topic: str | None) -> bool:
    """Whether records of a topic are taken apart."""
    return topic in INTERNAL_TOPICS


def decoded_row(topic: str | None, key: bytes | None, value: bytes | None, *, is_control: bool) -> Row | None:
    """Return a record of an internal topic or a control record taken apart; None for others."""
    if is_control:
        found = decode_control(control_type(key), value)
    elif topic is not None and has_decoder(topic):
        found = decode_record(topic, key, value)
    else:
        return None
    return None if found is None else found.row()


__all__ = [
    "batch_rows", "control_name", "decoded_row", "has_decoder", "record_row", "record_rows", "redacted",
    "shown_text", "text",
]  # fmt: skip
