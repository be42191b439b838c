"""Whole records that a plan hides: no unit leads to them, no key, or they lie after an end that it gives a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from typing import Any

import numpy as np

from formats.rocketmq.message import ROLLBACK, TRANSACTION, Magic, decode_record
from formats.rocketmq.properties import split_properties
from rmqctl.repair.edits import Overwrite, Plan
from rmqctl.rocketmq.dispatch.rules import UNQUEUED, DispatchRules, properties_of
from rmqctl.rocketmq.index import IndexFile, index_entries
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.measure import is_whole_record, whole_records
from rmqctl.rocketmq.log.record import LogReader, physical_of, record_name
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.log.stand_ins import is_marked
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue, Units, is_pre_blank, queues_of
from rmqctl.rocketmq.repair.queue_references import Place, place_of
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.files import BATCH_QUEUES, INDEX, QUEUES, StoreFile, StoreFiles
from rmqctl.rocketmq.store.geometry import IndexGeometry, geometry_of
from rmqctl.text import number_of

_BLANK = int(Magic.BLANK).to_bytes(4, "big", signed=True)
_HEAD = 2 * len(_BLANK)
"""Bytes of a blank: its size and its magic."""
_ENTRIES = 1 << 16
"""Entries of an index file that are read at once."""


def hidden(before: StoreFiles, after: StoreFiles, plan: Plan) -> list[str]:
    """Return a sentence for each way in which a plan hides whole records at home: without the unit that leads to them,
    the only one for their place; without an entry in the index; after an end that the plan gives a file of the log.

    Args:
        before, after: the store on both sides of the plan. Queues and index are those in files.
    """
    with LogReader(after.log_files) as log:
        return [
            *_without_units(before, after, plan, log),
            *_without_keys(before, after, plan, log),
            *_ended(after, plan),
        ]


def _ended(after: StoreFiles, plan: Plan) -> Iterator[str]:
    written: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for edit in plan.edits:
        if isinstance(edit, Overwrite):
            written[edit.file].append((edit.offset - _HEAD, edit.offset + len(edit.after)))
    for file in (file for file in after.log_files if file.name in written):
        with closing(file.open()) as source:
            # a file is walked only where what is written there may be a blank: that is a reading of all of it
            parts = written[file.name]
            if not any(_BLANK in source.read_at(max(begin, 0), stop + _HEAD - begin) for begin, stop in parts):
                continue
            blocks = scan(source, Extent(file.name, file.base, lead=file.lead))
            for end in (blank.position for block in blocks for blank in block.blanks):
                if any(begin < end < stop for begin, stop in parts):
                    found = whole_records(source, file.base, [(end + _HEAD, file.size)])
                    if count := sum(physical_of(raw) == file.base + at > file.base + end for at, raw in found):
                        records = number_of(count, "whole record", "lie")
                        yield f"{records} after the end that {file.name} gets at {end:,}"


def _without_keys(before: StoreFiles, after: StoreFiles, plan: Plan, log: LogReader) -> Iterator[str]:
    touched = {edit.file for edit in plan.edits if edit.file.split("/")[0] == INDEX}
    if not touched:
        return
    entries = None if INDEX in touched else touched
    was = indexed(before, entries)
    stays = np.zeros(len(was), bool)
    for found in _entries(after) if len(was) else ():
        row = np.minimum(np.searchsorted(was, found), len(was) - 1)
        stays[row[was[row] == found]] = True
    rules = DispatchRules(release_range(before).highest)
    if count := sum(_has_key(log, int(physical), rules) for physical in was[~stays]):
        yield f"the index leads to {number_of(count, 'message')} no more"


def indexed(store: StoreFiles, names: Collection[str] | None = None) -> Ints:
    """Return the physical offsets to which the index leads, ascending, each once; what cannot be read of it is left
    out.

    Args:
        names: only of these files; None: of all.
    """
    return np.unique(np.concatenate([np.zeros(0, np.int64), *_entries(store, names)]))


def _entries(store: StoreFiles, names: Collection[str] | None = None) -> Iterator[Ints]:
    """Yield the physical offsets of :func:`indexed` piece by piece, each once in a piece."""
    geometry = geometry_of(store)
    for entry in index_entries(store):
        with suppress(OSError):
            if names is None or entry.path in names:
                file = IndexFile.open(store.tree, entry, IndexGeometry(geometry.index_slots, geometry.index_entries))
                with closing(file):
                    for first in range(1, file.count + 1, _ENTRIES):
                        found = file.entries(first, min(_ENTRIES, file.count + 1 - first))
                        yield np.unique(found["physical_offset"].astype(np.int64))


def _has_key(log: LogReader, physical: int, rules: DispatchRules) -> bool:
    """Whether a whole record at home is there, and has a key of its own as the store's release reads its properties."""
    raw = log.record(physical)
    if raw is None or physical_of(raw) != physical or not is_whole_record(raw):
        return False
    fields = decode_record(raw)[0]
    properties = properties_of(fields["properties"], rules)
    is_rolled_back = fields["sys_flag"] & TRANSACTION == ROLLBACK
    return not is_rolled_back and any(properties.get(name) for name in (b"UNIQ_KEY", b"KEYS"))


def _without_units(before: StoreFiles, after: StoreFiles, plan: Plan, log: LogReader) -> Iterator[str]:
    touched = [edit.file.split("/")[:3] for edit in plan.edits]
    for kind, dtype in ((QUEUES, UNIT), (BATCH_QUEUES, BATCH_UNIT)):
        parts = [names for names in touched if names[0] == kind]
        now = {queue.key: queue for queue in queues_of(after.queues(kind), dtype)} if parts else {}
        for queue in queues_of(before.queues(kind), dtype) if parts else ():
            own = [kind, queue.where.topic, str(queue.where.queue_id)]
            if any(own[: len(names)] == names for names in parts):
                names = list(_taken(queue, now.get(queue.key), log))
                if names:
                    yield f"no unit of {queue.where.path} leads to {names[0]} any more"


def _taken(was: Queue, now: Queue | None, log: LogReader) -> Iterator[str]:
    """Yield names of records that have lost their units, or of whose bytes these say another number than before."""
    offsets, physical, sizes = _units(was)
    kept, leads, lengths = _units(now) if now is not None else (offsets[:0], physical[:0], sizes[:0])
    row = np.minimum(np.searchsorted(kept, offsets), max(len(kept) - 1, 0))
    is_kept = (kept[row] == offsets) & (leads[row] == physical) if len(kept) else np.zeros(len(offsets), bool)
    for offset, at in zip(offsets[~is_kept].tolist(), physical[~is_kept].tolist(), strict=True):
        if name := served_name(log, (*was.key, offset), at):
            yield name
    for i in np.flatnonzero(is_kept & (lengths[row] != sizes) if len(kept) else is_kept).tolist():
        at = int(physical[i])
        is_right = len(log.record(at) or b"") == int(sizes[i])
        if is_right and (name := served_name(log, (*was.key, int(offsets[i])), at)):
            yield name


def served_name(log: LogReader, place: Place, physical: int) -> str:
    """Return the name of the record to which a unit at a place in a queue leads, if it is whole, at home and names that
    place; "" for any other, and for one that stands for a destroyed message.
    """
    raw = log.record(physical)
    fields: dict[str, Any] = decode_record(raw)[0] if raw is not None else {}
    if raw is None or fields["physical_offset"] != physical or place not in _places(fields):
        return ""
    return record_name(fields) if not is_marked(fields) and is_whole_record(raw) else ""


def _units(queue: Queue) -> tuple[Ints, Ints, Ints]:
    """Queue offsets of all units of a queue, ascending, where they lead in the log, and the sizes in them."""
    offsets, physical, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    is_batch = queue.dtype is BATCH_UNIT
    for file in queue.files:
        for first, units in _chunks(queue, file):
            rows = np.flatnonzero(queue.valid(units) & ~is_pre_blank(units))
            begin = file.base // queue.dtype.itemsize + first
            offsets.append(units["base_offset"][rows].astype(np.int64) if is_batch else rows + begin)
            physical.append(units["physical_offset"][rows].astype(np.int64))
            sizes.append(units["size"][rows].astype(np.int64))
    found = np.concatenate(offsets)
    order = np.argsort(found, kind="stable")
    return found[order], np.concatenate(physical)[order], np.concatenate(sizes)[order]


def _chunks(queue: Queue, file: StoreFile) -> Iterator[tuple[int, Units]]:
    """Yield the units of a file; none of one that cannot be read, which leads nowhere."""
    with suppress(OSError):
        yield from queue.chunks(file)


def _places(fields: dict[str, Any]) -> set[Place]:
    """Return the places in queues that a record names: its own, and those in light queues."""
    if fields["sys_flag"] & TRANSACTION in UNQUEUED:
        return set()
    properties = dict(split_properties(fields["properties"]))
    texts = [properties.get(name, b"") for name in (b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET")]
    light = zip(*(text.split(b",") for text in texts), strict=False)
    own = {(name.decode("utf-8", "surrogateescape"), 0, int(at)) for name, at in light if at.isdigit()}
    return {place_of(fields), *own}
