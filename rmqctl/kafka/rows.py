"""Batches and records as JSON-ready rows, the same in every command that shows them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from formats.kafka.internal_records import INTERNAL_TOPICS, decode_control, decode_record
from formats.kafka.metadata_messages import CONTROL_NAMES
from formats.kafka.record_batch import Attributes
from rmqctl.kafka.block import Block
from rmqctl.kafka.codecs import codec_name
from rmqctl.kafka.directory import Partition
from rmqctl.kafka.file_names import METADATA_TOPIC
from rmqctl.kafka.records import Records
from rmqctl.text import Text, text_or_base64

Row = dict[str, Any]
Shown = Callable[[bytes], Text]

_CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MARKERS = {0: "ABORT", 1: "COMMIT"}
_LACKED = ("producer_id", "producer_epoch", "base_sequence", "last_sequence", "leader_epoch", "base_timestamp")
_HASH_DIGITS = 12


def shown_text(data: bytes) -> Text:
    """Bytes where text stands: as text, or as base64 where they are not UTF-8 or have control characters."""
    if _CONTROL_CHARACTER.search(data):
        return {"base64": base64.b64encode(data).decode("ascii")}
    return text_or_base64(data)


def redacted(data: bytes) -> str:
    """The first digits of a hash: equal values stay equal, the value itself is gone."""
    import hashlib

    return f"sha256:{hashlib.sha256(data).hexdigest()[:_HASH_DIGITS]}"


def text(data: bytes | None, show: Shown = shown_text) -> Text | None:
    """The same for what may be null."""
    return None if data is None else show(data)


def control_name(key: bytes | None) -> str:
    """What a control record is, by its key."""
    number = int.from_bytes(key[2:4], "big", signed=True) if key and len(key) >= 4 else -1
    return _MARKERS.get(number) or CONTROL_NAMES.get(number) or f"UNKNOWN_{number}"


def place_of(partition: Partition | None) -> tuple[str | None, int | None]:
    """Topic and number as rows show them; None for a file that lies in no partition's directory."""
    if partition is None or not partition.topic:
        return None, None
    return partition.topic, partition.partition


def batch_rows(block: Block, partition: Partition | None) -> list[Row]:
    """A row for each batch of a block, in order."""
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
        "timestamp_type": np.where((attributes & 8) != 0, "LogAppendTime", "CreateTime").tolist(),
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
    """The row of one record.

    Args:
        partition: where it lies.
        show: how keys, values and headers are shown.
    """
    block, batch = records.block, int(records.batch[index])
    key, value = records.key(index), records.value(index)
    topic, number = place_of(partition)
    is_control = bool(block["attributes"][batch] & int(Attributes.CONTROL))
    is_legacy = bool(block.magic[batch] < 2)
    row: Row = {
        "kind": "record",
        "file": block.file,
        "topic": topic,
        "partition": number,
        "batch_position": int(block.position[batch]),
        "offset": int(records.offset[index]),
        "timestamp": int(records.timestamp[index]),
        "sequence": None if is_legacy else int(records.sequence[index]),
        "key": text(key, show),
        "value": text(value, show),
        "headers": [[text(name), text(content, show)] for name, content in records.headers_of(index)],
        "key_size": -1 if key is None else len(key),
        "value_size": -1 if value is None else len(value),
        "control_type": control_name(key) if is_control else None,
    }
    if show is shown_text:
        decoded = decoded_row(topic, key, value, is_control=is_control)
        if decoded is not None:
            row["decoded"] = decoded
    return row


def has_decoder(topic: str | None) -> bool:
    """Whether records of a topic are taken apart."""
    return topic in INTERNAL_TOPICS


def decoded_row(topic: str | None, key: bytes | None, value: bytes | None, *, is_control: bool) -> Row | None:
    """A record of an internal topic or a control record taken apart; None for others."""
    if is_control:
        number = int.from_bytes(key[2:4], "big", signed=True) if key and len(key) >= 4 else -1
        found = decode_control(number, value)
    elif topic is not None and has_decoder(topic):
        found = decode_record(topic, key, value)
    else:
        return None
    return None if found is None else found.row()


__all__ = [
    "METADATA_TOPIC", "batch_rows", "control_name", "decoded_row", "has_decoder", "place_of", "record_row", "redacted",
    "shown_text", "text",
]  # fmt: skip
