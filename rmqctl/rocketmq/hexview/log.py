"""Annotations of files that hold message records: the commit log, compaction logs, DLedger data.

Annotations of one message record: header fields, body (an inner batch opened up), properties one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from formats.errors import DecodeError
from formats.rocketmq.client_batch import BatchItem
from formats.rocketmq.dledger import ENTRY_SIZE, DLedgerBlank, DLedgerEntry
from formats.rocketmq.message import BlankRecord, plan_at
from formats.rocketmq.properties import PAIR_END, split_properties
from formats.rocketmq.property_crc import SIZE as CRC_SIZE
from formats.rocketmq.property_crc import property_crc, stored_property_crc
from formats.rocketmq.tags_code import tags_code
from rmqctl.hexview.annotation import Annotation, Group, View, gap
from rmqctl.hexview.leaves import Layout, Leaf, layout_of, layout_of_plan
from rmqctl.rocketmq.hexview.meanings import (
    BATCH_ITEM,
    BLANK,
    DLEDGER_BLANK,
    DLEDGER_ENTRY,
    MESSAGE,
    PROPERTY_TIMES,
    Said,
    Table,
    text,
    utc,
)
from rmqctl.rocketmq.hexview.units import field, place_of, rest, structure
from rmqctl.rocketmq.log.block import Blank, Block, Gap, GapKind
from rmqctl.rocketmq.log.record import compression, is_inner_batch
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.text import name_of

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


# --- annotations of files that hold message records -------------------------------------------------


_LOOK_BACK = (1 << 16, 1 << 20, 8 << 20)
_HEAD = 1 << 16
_BLANK = layout_of(BlankRecord)
_ENTRY, _ENTRY_BLANK = layout_of(DLedgerEntry), layout_of(DLedgerBlank)
_UNREADABLE = {GapKind.STRUCTURE, GapKind.CUT, GapKind.SIZE}


@dataclass(frozen=True, slots=True)
class _Found:
    """A record, gap or blank of the scan; ``what`` of a record is its bytes, with the entry header if there is one."""

    position: int
    what: bytes | Gap | Blank


def walk_log(view: View, begin: int, stop: int) -> Iterator[Annotation]:
    """Records with what lies between them; the first annotation may start before ``begin``."""
    return _walk(view, begin, stop, 0)


def walk_dledger(view: View, begin: int, stop: int) -> Iterator[Annotation]:
    """Entries around records with what lies between them."""
    return _walk(view, begin, stop, ENTRY_SIZE)


def _walk(view: View, begin: int, stop: int, lead: int) -> Iterator[Annotation]:
    position = _before(view, begin, lead)
    for found in _events(view, position, stop, lead, chained=True):
        if lead and found.position > position:
            yield from _entries(view, position, found.position, found.position)
        match found.what:
            case bytes() as raw:
                yield from _record(view, found.position, raw, lead)
                position = found.position + len(raw)
            case Gap() as between:
                yield from _gap(view, between)
                position = between.end
            case Blank() as blank:
                yield from _blank(view, blank, lead)
                position = blank.end
    if lead and position < stop:
        yield from _entries(view, position, stop, view.size)


def _before(view: View, begin: int, lead: int) -> int:
    """Where the record, gap or blank starts that holds the byte ``begin``."""
    if begin == 0:
        return 0
    for back in _LOOK_BACK:
        start = max(begin - back, 0)
        last = -1
        for found in _events(view, start, begin + 1, lead, chained=False):
            last = found.position
        if last >= 0:
            return last
        if start == 0:
            break
    return 0


def _events(view: View, start: int, stop: int, lead: int, *, chained: bool) -> Iterator[_Found]:
    """What the scan finds to start in ``[start, stop)``, in file order."""
    extent = Extent(view.file, view.base, start, stop, view.size, lead, chained)
    for block in scan(view.source, extent):
        found = _of_block(block, lead)
        yield from sorted(found, key=lambda one: one.position) if block.gaps or block.blanks else found


def _of_block(block: Block, lead: int) -> Iterator[_Found]:
    begins = (block.at - lead).tolist()
    ends = (block.at + block.total_size).tolist()
    for begin, end in zip(begins, ends, strict=True):
        yield _Found(begin + block.start, block.data[begin:end].tobytes())
    yield from (_Found(g.position, g) for g in block.gaps)
    yield from (_Found(b.position, b) for b in block.blanks)


def _record(view: View, offset: int, raw: bytes, lead: int) -> Iterator[Annotation]:
    if not lead:
        yield from message(view, offset, raw)
        return
    number = next(leaf.value for leaf in _ENTRY.leaves(raw[:lead]) if leaf.name == "index")
    group = Group("entry", offset, len(raw), f"index {number}")
    yield from structure(view, _ENTRY, DLEDGER_ENTRY, offset, raw[:lead], path=("entry",), group=group)
    yield from message(view, offset + lead, raw[lead:], outer=("entry",), group=group)


def _entries(view: View, start: int, stop: int, end: int) -> Iterator[Annotation]:
    """Entries without a record, which the scan passes over: those that begin before ``stop`` and lie before ``end``."""
    while start < stop and start + ENTRY_SIZE <= end:
        raw = view.source.read_at(start, ENTRY_SIZE)
        found = {leaf.name: leaf.value for leaf in _ENTRY.leaves(raw)}
        if found.get("size") != ENTRY_SIZE:
            return
        group = Group("entry", start, ENTRY_SIZE, f"index {found['index']}, empty")
        yield from structure(view, _ENTRY, DLEDGER_ENTRY, start, raw, path=("entry",), group=group)
        start += ENTRY_SIZE


def _gap(view: View, found: Gap) -> Iterator[Annotation]:
    if found.why == GapKind.ZERO_TAIL:
        yield from gap(view, found.position, found.end)
        return
    after = "then a sound record" if found.resumed else "nothing sound behind it"
    group = Group("gap", found.position, found.end - found.position, f"{found.detail}; {after}", wrong=True)
    done = found.position
    if found.why in _UNREADABLE and found.total_size is not None:
        size = found.end - found.position
        head = view.source.read_at(found.position, min(size, _HEAD))
        for note in damaged(view, found.position, head, size, group):
            yield note
            done = note.end
    yield from gap(view, done, found.end, group=group)


def _blank(view: View, found: Blank, lead: int) -> Iterator[Annotation]:
    layout, table = _blank_layout(lead)
    size = found.end - found.position
    raw = view.source.read_at(found.position, min(layout.size, size))
    group = Group("blank", found.position, size, f"{size:,} bytes to the end of the file")
    leaves = list(layout.leaves(raw))
    place = place_of(view, found.position, leaves)
    for leaf in leaves:
        yield field(view, table, leaf, place, ("blank",), raw, group)
    yield from gap(view, found.position + len(raw), found.end, outer=("blank",), name="stale", group=group)


def _blank_layout(lead: int) -> tuple[Layout, Table]:
    return (_ENTRY_BLANK, DLEDGER_BLANK) if lead else (_BLANK, BLANK)
