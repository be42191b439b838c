"""Records as JSON-ready rows, the same in every command that shows them."""

from __future__ import annotations

import base64
import re
from typing import Any

from formats.kafka.metadata_messages import CONTROL_NAMES
from formats.kafka.record_batch import Attributes
from rmqctl.kafka.directory import Partition
from rmqctl.kafka.records import Records
from rmqctl.text import text_or_base64

_CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def record_row(records: Records, index: int, partition: Partition) -> dict[str, Any]:
    """The row of one record.

    Args:
        partition: where it lies.
    """
    key, value = records.key(index), records.value(index)
    batch = int(records.batch[index])
    block = records.block
    control = None
    if block["attributes"][batch] & Attributes.CONTROL:
        number = int.from_bytes(key[2:4], "big", signed=True) if key and len(key) >= 4 else -1
        control = CONTROL_NAMES.get(number, f"UNKNOWN_{number}")
    return {
        "kind": "record",
        "file": block.file,
        "topic": partition.topic,
        "partition": partition.partition,
        "batch_position": int(block.position[batch]),
        "offset": int(records.offset[index]),
        "timestamp": int(records.timestamp[index]),
        "sequence": int(records.sequence[index]),
        "key": text(key),
        "value": text(value),
        "headers": [[text(name), text(content)] for name, content in records.headers_of(index)],
        "key_size": -1 if key is None else len(key),
        "value_size": -1 if value is None else len(value),
        "control_type": control,
    }


def text(data: bytes | None) -> Any:
    """Bytes where text stands: as text, or as base64 where they are none or have control characters."""
    if data is None:
        return None
    if _CONTROL_CHARACTER.search(data):
        return {"base64": base64.b64encode(data).decode("ascii")}
    return text_or_base64(data)
