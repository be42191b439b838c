"""The broker's filter by tag: the code in the queue unit, or in the extension unit it leads to (spec 3.2, 3.5)."""

from __future__ import annotations

from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE, MAX_EXT_ADDRESS
from formats.rocketmq.properties import split_properties
from formats.rocketmq.tags_code import tags_code
from rmqctl.rocketmq.query.queue_view import QueueView
from rmqctl.rocketmq.query.steps import Trace
from rmqctl.rocketmq.query.units import Unit
from rmqctl.rocketmq.store import QUEUES_EXT, sequence

_EXT_HEAD = 10


def fits_tag(view: QueueView, unit: Unit, tag: str | None, file: str, trace: Trace) -> bool:
    """Whether a broker gives the unit to a consumer of the tag: the low 32 bits of the code are those of the tag."""
    if tag is None or tag == "*":
        return True
    code, wanted = real_tags_code(view, unit), tags_code(tag)
    if code is None or (code ^ wanted) & 0xFFFFFFFF == 0:
        return True
    trace.add(file, f"unit {unit.queue_offset}", f"tag code {code}, not {wanted} of {tag}; dropped")
    return False


def real_tags_code(view: QueueView, unit: Unit) -> int | None:
    """The code of the tag; None where it lies in an extension unit that is not there: a broker lets that pass."""
    code = unit.tags_code
    if code is None:
        fields = view.log.fields(unit.physical_offset) or {"properties": b""}
        return tags_code(_tag_text(fields["properties"]))
    return _extended(view, code) if code <= MAX_EXT_ADDRESS and not view.is_batch else code


def _tag_text(properties: bytes) -> str | None:
    tags = dict(split_properties(properties)).get(b"TAGS")
    return None if tags is None else tags.decode("utf-8", "replace")


def _extended(view: QueueView, address: int) -> int | None:
    """The code in the extension unit at an address (spec 3.5)."""
    at = address - EXT_ADDRESS_BASE
    path = f"{QUEUES_EXT}/{view.topic}/{view.queue_id}"
    for file in sequence(view.store.tree, path, path)[0]:
        if file.base <= at < file.base + file.size:
            source = file.open()
            data = source.read_at(at - file.base, _EXT_HEAD)
            source.close()
            sound = len(data) == _EXT_HEAD and int.from_bytes(data[:2], "big", signed=True) > 0
            return int.from_bytes(data[2:], "big", signed=True) if sound else None
    return None
