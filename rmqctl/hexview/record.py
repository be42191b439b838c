"""Annotations of one message record: header fields, body (an inner batch opened up), properties one by one."""

from __future__ import annotations

from collections.abc import Iterator

from formats.errors import DecodeError
from formats.rocketmq.client_batch import BatchItem
from formats.rocketmq.message import plan_at
from formats.rocketmq.properties import PAIR_END, split_properties
from formats.rocketmq.property_crc import SIZE as CRC_SIZE
from formats.rocketmq.property_crc import property_crc, stored_property_crc
from formats.rocketmq.tags_code import tags_code
from rmqctl.hexview.annotation import Annotation, Group, View
from rmqctl.hexview.leaves import Leaf, layout_of, layout_of_plan
from rmqctl.hexview.meanings import BATCH_ITEM, MESSAGE, PROPERTY_TIMES, Said, Table, text, utc
from rmqctl.hexview.structure import field, place_of, rest
from rmqctl.rocketmq.body import compression, is_inner_batch
from rmqctl.rocketmq.rows.text import name_of

ITEM = layout_of(BatchItem)
_CRC_NAME = b"__CRC32#"


def message(
    view: View, offset: int, raw: bytes, *, outer: tuple[str, ...] = (), group: Group | None = None
) -> Iterator[Annotation]:
    """The fields of the whole record ``raw`` at ``offset``."""
    path = (*outer, "message")
    found = list(layout_of_plan(plan_at(raw)).leaves(raw))
    group = group or Group("message", offset, len(raw), title_of(found))
    yield from _fields(view, MESSAGE, offset, raw, found, path, group)


def damaged(view: View, offset: int, head: bytes, size: int, group: Group) -> Iterator[Annotation]:
    """The header fields of a record that is not whole, as far as they can be trusted to be fields.

    Args:
        head: the first bytes of the gap.
        size: bytes in the gap.
    """
    try:
        plan = plan_at(head)
    except DecodeError:
        return
    found = list(layout_of_plan(plan).leaves(head, size))
    place = place_of(view, offset, [leaf for leaf in found if leaf.name != "body" or leaf.at + leaf.size <= len(head)])
    for leaf in found:
        yield field(view, MESSAGE, leaf, place, ("damaged_message",), head, group)


def title_of(found: list[Leaf]) -> str:
    """Which message it is: topic, queue and queue offset."""
    fields = {leaf.name: leaf.value for leaf in found}
    topic = fields["topic"].decode("utf-8", "replace")
    return f"{topic}/{fields['queue_id']} queue offset {fields['queue_offset']}"


def _fields(
    view: View, table: Table, offset: int, raw: bytes, found: list[Leaf], path: tuple[str, ...], group: Group | None
) -> Iterator[Annotation]:
    place = place_of(view, offset, found)
    flags = place.fields.get("sys_flag", 0)
    done = 0
    for leaf in found:
        if leaf.name == "properties" and leaf.value:
            yield from _properties(view, offset + leaf.at, leaf.value, raw, (*path, leaf.name), group)
        elif leaf.name == "body" and leaf.value and is_inner_batch(flags) and compression(flags) == "none":
            yield from _inner(view, offset + leaf.at, leaf.value, (*path, leaf.name), group)
        else:
            yield field(view, table, leaf, place, path, raw, group)
        done = leaf.at + leaf.size
    yield from rest(view, offset, raw, done, path, group)


def _inner(view: View, offset: int, body: bytes, path: tuple[str, ...], group: Group | None) -> Iterator[Annotation]:
    """The messages of an inner batch; what is no item is a gap."""
    at, number = 0, 0
    while at < len(body):
        item = _item(body, at)
        if item is None:
            break
        found = list(ITEM.leaves(item))
        yield from _fields(view, BATCH_ITEM, offset + at, item, found, (*path, f"item[{number}]"), group)
        at, number = at + len(item), number + 1
    yield from rest(view, offset, body, at, path, group)


def _item(body: bytes, at: int) -> bytes | None:
    """The item at ``at`` of an inner batch; None where the bytes are no whole item."""
    first = next(ITEM.leaves(body[at : at + ITEM.size]))
    if first.problem or not ITEM.size <= first.value <= len(body) - at:
        return None
    item = body[at : at + first.value]
    *_, last = ITEM.leaves(item)
    return item if not last.problem and last.name == ITEM.last and last.at + last.size == len(item) else None


def _properties(
    view: View, offset: int, data: bytes, record: bytes, path: tuple[str, ...], group: Group | None
) -> Iterator[Annotation]:
    """One annotation for each pair, with the marks that belong to it."""
    at = 0
    while at < len(data):
        mark = data.find(PAIR_END, at)
        end = len(data) if mark < 0 else mark + 1
        piece = data[at:end]
        name, said = _pair(piece, record if end == len(data) else b"")
        yield view.note((*path, name), offset + at, piece, said.value, said.meaning, wrong=said.wrong, group=group)
        at = end


def _pair(piece: bytes, record: bytes) -> tuple[str, Said]:
    """Name and value of a piece of the properties text; ``record`` is given for the last one, which may be a CRC."""
    pairs = split_properties(piece)
    if not pairs:
        return "ignored", Said(text(piece), "no name and value: readers skip it")
    name, value = pairs[0]
    if name == _CRC_NAME and record:
        return name_of(name), _property_crc(value, record)
    return name_of(name), Said(text(value), _property_meaning(name, value))


def _property_crc(value: bytes, record: bytes) -> Said:
    stored = stored_property_crc(record)
    if stored is None:
        return Said(text(value), f"not the last {CRC_SIZE} bytes: no check")
    computed = property_crc(record)
    good = stored == computed
    return Said(text(value), f"{stored}, ok" if good else f"{stored}, bad: the record's is {computed}", wrong=not good)


def _property_meaning(name: bytes, value: bytes) -> str:
    decoded = value.decode("utf-8", "replace")
    if name == b"TAGS":
        return f"tag hash {tags_code(decoded)}"
    if name in PROPERTY_TIMES and decoded.isascii() and decoded.isdigit():
        return utc(int(decoded))
    return ""


__all__ = ["damaged", "message", "title_of"]
