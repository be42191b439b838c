"""Every byte of a file as a field with its meaning, or as a gap: the walkers put together and held to the bytes.

Place and name say which kind of file lies at a path inside a store. Files that hold message records (the commit log,
compaction logs, DLedger data) show of each record the header fields, the body (an inner batch opened up), and
properties one by one; text files (configuration, epochs, abort, lock and the like) go line by line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from formats.errors import DecodeError
from formats.rocketmq.abort_lock import LOCK_TEXT, abort_pid
from formats.rocketmq.client_batch import BatchItem
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.dledger import ENTRY_SIZE, DLedgerBlank, DLedgerEntry
from formats.rocketmq.epoch import parse_epochs
from formats.rocketmq.message import BlankRecord, plan_at
from formats.rocketmq.properties import PAIR_END, split_properties
from formats.rocketmq.property_crc import SIZE as CRC_SIZE
from formats.rocketmq.property_crc import property_crc, stored_property_crc
from formats.rocketmq.tags_code import tags_code
from rmqctl.files.local import ByteSource
from rmqctl.hexview.annotation import (
    RAW_LIMIT,
    ZERO_RUN,
    Annotation,
    FieldLayout,
    Group,
    Leaf,
    View,
    gap,
    layout_of,
    layout_of_plan,
)
from rmqctl.rocketmq.hexview.meanings import (
    BATCH_ITEM,
    BLANK,
    DLEDGER_BLANK,
    DLEDGER_ENTRY,
    MESSAGE,
    PROPERTY_TIMES,
    ShownValue,
    Table,
    text,
    utc,
)
from rmqctl.rocketmq.hexview.units import field, place_of, rest, structure
from rmqctl.rocketmq.log.block import Blank, Block, Gap, GapKind
from rmqctl.rocketmq.log.record import compression, is_inner_batch
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.store.file_kinds import KINDS, FileKind, reader
from rmqctl.rocketmq.store.geometry import IndexGeometry
from rmqctl.text import name_of

ITEM = layout_of(BatchItem)
_CRC_NAME = b"__CRC32#"


def message(
    view: View, offset: int, raw: bytes, *, outer: tuple[str, ...] = (), group: Group | None = None
) -> Iterator[Annotation]:
    """Yield the fields of the whole record ``raw`` at ``offset``."""
    path = (*outer, "message")
    found = list(layout_of_plan(plan_at(raw)).leaves(raw))
    group = group or Group("message", offset, len(raw), title_of(found))
    yield from _fields(view, MESSAGE, offset, raw, found, path, group)


def damaged(view: View, offset: int, head: bytes, size: int, group: Group) -> Iterator[Annotation]:
    """Yield the header fields of a record that is not whole, as far as they can be trusted to be fields.

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
    """Yield the messages of an inner batch; what is no item is a gap."""
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
    """Return the item at ``at`` of an inner batch; None where the bytes are no whole item."""
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


def _pair(piece: bytes, record: bytes) -> tuple[str, ShownValue]:
    """Name and value of a piece of the properties text; ``record`` is given for the last one, which may be a CRC."""
    pairs = split_properties(piece)
    if not pairs:
        return "ignored", ShownValue(text(piece), "no name and value: readers skip it")
    name, value = pairs[0]
    if name == _CRC_NAME and record:
        return name_of(name), _property_crc(value, record)
    return name_of(name), ShownValue(text(value), _property_meaning(name, value))


def _property_crc(value: bytes, record: bytes) -> ShownValue:
    stored = stored_property_crc(record)
    if stored is None:
        return ShownValue(text(value), f"not the last {CRC_SIZE} bytes: no check")
    computed = property_crc(record)
    good = stored == computed
    return ShownValue(
        text(value), f"{stored}, ok" if good else f"{stored}, bad: the record's is {computed}", wrong=not good
    )


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
    """Return records with what lies between them; the first annotation may start before ``begin``."""
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
    """Yield what the scan finds to start in ``[start, stop)``, in file order."""
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


def _blank_layout(lead: int) -> tuple[FieldLayout, Table]:
    return (_ENTRY_BLANK, DLEDGER_BLANK) if lead else (_BLANK, BLANK)


# --- annotations of text files ----------------------------------------------------------------------


MAX_TEXT = 64 << 20
"""Bytes of a text file that are judged as a whole; longer ones are only shown."""
_WINDOW = 1 << 16
_ZEROS_CARRIED = 16
_ZEROS = re.compile(rb"\0{%d,}" % ZERO_RUN)
Verdict = tuple[str, bool]
Judge = Callable[[bytes], Verdict]


def walk_lines(name: str, judge: Judge | None = None) -> Callable[[View, int, int], Iterator[Annotation]]:
    """Return a walker for text files of one kind; ``judge`` says what the whole file is, and whether that is wrong."""

    def walk(view: View, begin: int, stop: int) -> Iterator[Annotation]:
        title, wrong = "", False
        if judge is not None and view.size <= MAX_TEXT:
            title, wrong = judge(view.source.read_at(0, view.size))
        group = Group(name, 0, view.size, title, wrong)
        for number, at, raw in _lines(view, begin - begin % _WINDOW, stop):
            if at + len(raw) > begin:
                yield _note(view, number, at, raw, group, title if wrong else "")
                wrong = False

    return walk


def _note(view: View, number: int, at: int, raw: bytes, group: Group, problem: str) -> Annotation:
    """Return a line, or a run of zeros; the first one carries what is wrong with the file."""
    if len(raw) >= ZERO_RUN and not any(raw):
        path, value, meaning = (group.name, "zeros"), None, problem or f"{len(raw):,} bytes"
        return view.note(
            path, at, raw[:_ZEROS_CARRIED], value, meaning, size=len(raw), wrong=bool(problem), group=group
        )
    path = (group.name, f"line[{number}]" if number else "text")
    return view.note(path, at, raw, text(raw.rstrip(b"\r\n")), problem, wrong=bool(problem), group=group)


def _lines(view: View, start: int, stop: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, place and bytes of each line, in pieces where it is longer than a window or holds long runs of
    zeros.

    Lines are numbered from 1; 0 where the walk began inside the file and nobody counted.
    """
    number, held, at = (1 if start == 0 else 0), b"", start
    while at + len(held) < min(stop, view.size):
        window = view.source.read_at(at + len(held), _WINDOW)
        if not window:
            break
        lines = (held + window).splitlines(keepends=True)
        held = b"" if at + len(held) + len(window) >= view.size or len(lines[-1]) >= _WINDOW else lines.pop()
        for line in lines:
            yield from ((number, at + offset, piece) for offset, piece in _pieces(line))
            at += len(line)
            number += 1 if number and line.endswith((b"\n", b"\r")) else 0
    if held:
        yield from ((number, at + offset, piece) for offset, piece in _pieces(held))


def _pieces(line: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield a line, with long runs of zeros as pieces of their own."""
    at = 0
    for zeros in _ZEROS.finditer(line):
        if zeros.start() > at:
            yield at, line[at : zeros.start()]
        yield zeros.start(), zeros[0]
        at = zeros.end()
    if at < len(line):
        yield at, line[at:]


def judge_json(data: bytes) -> Verdict:
    """Whether a broker can read a configuration file."""
    try:
        parse_config(data)
    except DecodeError as error:
        return f"no JSON: {error}", True
    return "JSON", False


def judge_epochs(data: bytes) -> Verdict:
    """Whether count and CRC of an epoch file fit its lines."""
    try:
        return f"{len(parse_epochs(data))} epochs, count and CRC ok", False
    except DecodeError as error:
        return str(error), True


def judge_abort(data: bytes) -> Verdict:
    """Which process was not stopped cleanly."""
    pid = abort_pid(data)
    return (f"process {pid} runs or was not stopped cleanly" if pid is not None else ""), False


def judge_lock(data: bytes) -> Verdict:
    """Whether the file is as a broker leaves it."""
    return ("as a broker writes it", False) if data == LOCK_TEXT else ("not what a broker writes", bool(data))


# --- every byte of a file as a field with its meaning -----------------------------------------------


Walker = Callable[[View, int, int], Iterator[Annotation]]
"""Annotates what overlaps ``[begin, stop)``, in file order; what it leaves out becomes gaps and zeros."""


def walk_nothing(*_: object) -> Iterator[Annotation]:
    """Leave all of a file to gaps and zeros."""
    return iter(())


walk_config, walk_epochs = walk_lines("config", judge_json), walk_lines("epochs", judge_epochs)
walk_abort, walk_lock, walk_text = walk_lines("abort", judge_abort), walk_lines("lock", judge_lock), walk_lines("text")


def annotate(
    source: ByteSource,
    kind: FileKind,
    *,
    base: int = 0,
    start: int = 0,
    stop: int | None = None,
    name: str,
    limit: int | None = RAW_LIMIT,
    index: IndexGeometry | None = None,
) -> Iterator[Annotation]:
    """Yield the fields of a file in file order; together they cover it exactly, without overlap.

    Memory is bounded by the largest record, never by the file. Nothing raises on bytes.

    Args:
        base: offset of the file's first byte in its sequence of files, from its name.
        start, stop: show only what overlaps these bytes of the file; whole fields, while gaps end at ``stop``.
        name: the file's path relative to the store; the topic of a queue is read from it.
        limit: bytes of a field that an annotation carries, None for all.
        index: slots and entries of an index file; default: found from its entries.
    """
    size = source.size()
    stop = size if stop is None else min(stop, size)
    begin = max(start, 0)
    if begin >= stop:
        return
    view = View(source, name, size, base, limit, index)
    for note in _tiled(view, reader(KINDS[kind].walk)(view, begin, stop), begin, stop):
        if note.offset >= stop:
            return
        if note.end > begin or (note.size == 0 and note.offset >= begin):
            yield note


def _tiled(view: View, notes: Iterator[Annotation], begin: int, stop: int) -> Iterator[Annotation]:
    """Yield the annotations with every hole between them filled; what would overlap is left out."""
    cursor = -1
    for note in notes:
        if cursor < 0:
            cursor = min(note.offset, begin)
        if note.offset < cursor or note.end > view.size:
            continue
        if note.offset > cursor:
            yield from gap(view, cursor, min(note.offset, stop))
        if note.offset >= stop:
            return
        yield note
        cursor = note.end
    cursor = begin if cursor < 0 else cursor
    if cursor < stop:
        yield from gap(view, cursor, stop)
