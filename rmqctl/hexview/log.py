"""Annotations of files that hold message records: the commit log, compaction logs, DLedger data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from formats.rocketmq.dledger import ENTRY_SIZE, DLedgerBlank, DLedgerEntry
from formats.rocketmq.message import BlankRecord
from rmqctl.hexview import record
from rmqctl.hexview.annotation import Annotation, Group, View
from rmqctl.hexview.gaps import gap
from rmqctl.hexview.leaves import Layout, layout_of
from rmqctl.hexview.meanings import BLANK, DLEDGER_BLANK, DLEDGER_ENTRY, Table
from rmqctl.hexview.structure import field, place_of, structure
from rmqctl.rocketmq.block import Blank, Block, Gap, GapKind
from rmqctl.rocketmq.scan import Extent, scan

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
        yield from record.message(view, offset, raw)
        return
    number = next(leaf.value for leaf in _ENTRY.leaves(raw[:lead]) if leaf.name == "index")
    group = Group("entry", offset, len(raw), f"index {number}")
    yield from structure(view, _ENTRY, DLEDGER_ENTRY, offset, raw[:lead], path=("entry",), group=group)
    yield from record.message(view, offset + lead, raw[lead:], outer=("entry",), group=group)


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
        for note in record.damaged(view, found.position, head, size, group):
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


__all__ = ["walk_dledger", "walk_log"]
