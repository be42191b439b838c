"""A broker's recovery as a plan of edits: the state in which the broker would find nothing left to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from formats.layout import plan_of
from formats.rocketmq.checkpoint import Checkpoint
from formats.rocketmq.rocksdb import LARGEST_OFFSET, OFFSET_FAMILY, UNIT_FAMILY, dispatched_end, parse_end_key
from formats.rocketmq.rocksdb_messages import (
    HALF_FAMILY,
    INDEX_MARK,
    INDEX_TIME,
    LEAD,
    NUMBER,
    TIMER_FAMILY,
    TIMER_SCANNED,
)
from rmqctl.errors import Refused
from rmqctl.files.tree import LocalTree, Tree, read_all
from rmqctl.repair.edited_file import Overlay
from rmqctl.repair.edits import PIECE, Create, Cut, Edit, Extend, Overwrite, Plan, Quarantine, Step, changes
from rmqctl.rocketmq.dispatch.database_rows import INDEX_FAMILY, Marks, MessageRows, records_from
from rmqctl.rocketmq.index import HEADER_SIZE, IndexFile, index_entries, next_name
from rmqctl.rocketmq.rebuild.databases import (
    CHECKPOINT,
    END,
    UNIT_ROW,
    IndexRows,
    MadeDatabase,
    OldDatabase,
    dispatch_queues,
    end_key,
    last_unit_in,
    making,
    open_old,
    replacement,
)
from rmqctl.rocketmq.recovery.images import FileImage, IndexImage, IndexParts, QueueImage, read_index
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.state.config import PATH as CHECKPOINT_FILE
from rmqctl.rocketmq.store.databases import MESSAGES, StoredRows
from rmqctl.rocketmq.store.files import COMMIT_LOG, INDEX, StoreFiles
from rmqctl.text import number_of, typed

_RUN = plan_of(Checkpoint).runs[0]


def recovery_plan(store: StoreFiles, found: Recovery, now: datetime, room: Path | None = None) -> Plan:
    """Return the edits that bring a store into the state after a broker's start and clean stop.

    Args:
        found: of ``recover(store, release, index=True)``; with ``databases`` where there is room for them.
        now: local time, for the names of new index files.
        room: directory to build RocksDB databases in, which must stay until the plan is carried out; without one they
            are left to the broker, which adds to them itself.

    Raises:
        Refused: the broker does not start, or files of the store lie outside its root.
    """
    if found.error is not None:
        raise Refused(f"a {found.release} broker does not start on {store.root}: {found.error}; see: rmqctl repair")
    if found.emptied:
        raise Refused(
            f"a {found.release} broker makes an empty database at {', '.join(found.emptied)} of {store.root} and "
            f"deletes the tables that lie there; first type: {typed('repair', store.root)}"
        )
    if store.is_rocksdb and room is None:
        raise Refused(
            f"the queues of {store.root} are a RocksDB database; first type: {typed('recover', store.root, '--apply')}"
        )
    if not isinstance(store.tree, LocalTree) or any(f.name.startswith("/") for f in found.log_files):
        raise Refused(
            f"{store.root} or its commit log is not a local directory with everything below it; copy it first"
        )
    steps = [*_log(found), *_queues(found), *_index(store, found, now), *_checkpoint(store, found)]
    if room is not None and found.databases:
        steps += _databases(overlaid(store, (edit for step in steps for edit in step.edits)), found, room)
    steps += _abort(store)
    return Plan(Path(store.tree.root), f"recover as {found.release}", tuple(steps))


def overlaid(store: StoreFiles, edits: Iterable[Edit]) -> StoreFiles:
    """Return the store with edits carried out in memory, those of logs outside its root included."""
    edits = list(edits)
    tree = Overlay(store.tree, edits)
    logs: list[tuple[str, Tree]] = []
    for name, log in store.log_trees:
        if log.root == f"{store.tree.root}/{name}":
            logs.append((name, tree.child(name)))
        else:
            logs.append((name, Overlay(log, list(_inside(edits, f"{name}/")))))
    if not logs and tree.stat(COMMIT_LOG) is not None:
        logs.append((COMMIT_LOG, tree.child(COMMIT_LOG)))
    made = StoreFiles(tree, logs, store.selection, store.settings)
    made.is_running = store.is_running
    return made


def _inside(edits: Iterable[Edit], directory: str) -> Iterator[Edit]:
    """The edits of files in a directory, their names relative to it."""
    for edit in edits:
        if edit.file.startswith(directory):
            yield replace(edit, file=edit.file[len(directory) :])


def _log(found: Recovery) -> Iterator[Step]:
    cut = found.log_cut
    why = f"the {found.release} broker ends the log at {cut}"
    files = {f.name: f for f in found.log_files}
    queue_files = {f.name for image in found.images for f in image.removed}
    for name in found.deleted:
        if name not in queue_files:
            count = sum(1 for m in found.lost if name in files and files[name].base <= m.physical < _end(found, name))
            yield Step("recover.log", name, "move out", why, (Quarantine(name),), count)
    for change in found.cuts:
        if change.file in files:
            count = sum(1 for m in found.lost if m.physical < _end(found, change.file))
            edits = (
                Cut(change.file, change.from_size, change.to_size),
                Extend(change.file, change.to_size, change.from_size),
            )
            what = f"zeros from byte {change.to_size:,} on"
            yield Step("recover.log", change.file, what, why, edits, count)


# --- databases ----------------------------------------------------------------------------------------


def _databases(store: StoreFiles, found: Recovery, room: Path) -> Iterator[Step]:
    """A step for each database that the start adds rows to, or takes units of what is cut from.

    Args:
        store: as it is after the steps before.
    """
    reached = {(start.database, start.family): start.reached for start in found.databases if start.error is None}
    queues, end = store.queue_database, found.end or 0
    made = []
    if queues is not None and (queues, UNIT_FAMILY) in reached:
        with open_old(store, queues, room) as old:
            made.append(_queues_after(store, old, found.dispatched_from, end, room))
    families = {family: reach for (database, family), reach in reached.items() if database == MESSAGES}
    if families:
        marks = Marks(families.get(INDEX_FAMILY), families.get(HALF_FAMILY), families.get(TIMER_FAMILY))
        with open_old(store, MESSAGES, room) as old:
            made.append(_messages_after(store, old, found.dispatched_from, marks, room))
    for database in made:
        if not database.is_equal:
            edits = replacement(store, database.path, database.place(room))
            what = f"make the database new: {database.what()}"
            yield Step("recover.database", database.path, what, "as dispatch and the end of the log demand", edits)


def _queues_after(store: StoreFiles, old: OldDatabase, since: int, end: int, room: Path) -> MadeDatabase:
    """The database of queues once a broker has dispatched the log from a physical offset on."""
    with making(old, room, [UNIT_FAMILY, OFFSET_FAMILY]) as (made, new):
        cut: set[tuple[bytes, int]] = set()
        for family in old.families:
            for key, value in old.rows(family):
                is_unit = family == UNIT_FAMILY and len(value) == UNIT_ROW.size
                if not is_unit or UNIT_ROW.unpack(value)[0] < end:
                    new.put(family, key, value)
                queue = parse_end_key(key) if family == OFFSET_FAMILY and len(value) == END.size else None
                if queue is not None and END.unpack(value)[0] >= end:
                    cut.add(queue)
        log = dispatch_queues(store, new, since)
        for queue in {*log.queues, *cut}:
            offset, physical = last_unit_in(new, queue)
            if offset >= 0:
                new.put(OFFSET_FAMILY, end_key(queue, b"max"), END.pack(physical, offset))
        reached = dispatched_end(old.get(OFFSET_FAMILY, CHECKPOINT))
        if log.queues or reached > end:
            new.put(OFFSET_FAMILY, CHECKPOINT, NUMBER.pack(min(max(reached, log.end), end)))
    return made


def _messages_after(store: StoreFiles, old: OldDatabase, since: int, marks: Marks, room: Path) -> MadeDatabase:
    """The database of index, timers and half messages likewise; its families reach as far as the marks say."""
    with making(old, room, [INDEX_FAMILY, TIMER_FAMILY, HALF_FAMILY]) as (made, new):
        for family in old.families:
            for key, value in old.rows(family):
                new.put(family, key, value)
        rows = MessageRows(
            None if marks.index is None else max(since, marks.index),
            None if marks.halves is None else max(since, marks.halves),
            marks.timers,
            index=IndexRows(new, 0),
            timers=StoredRows(new, TIMER_FAMILY),
            halves=StoredRows(new, HALF_FAMILY),
            open_halves={key[:LEAD]: key for key, _ in old.rows(HALF_FAMILY) if key != INDEX_MARK},
        )
        first = 0 if marks.timers is not None else max(since, min(marks.offsets, default=0))
        for record in records_from(store.log_files, first, LARGEST_OFFSET, crashed=True):
            rows.add(record)
        for family, name, mark in (
            (INDEX_FAMILY, INDEX_MARK, rows.index_mark),
            (INDEX_FAMILY, INDEX_TIME, rows.index_time),
            (HALF_FAMILY, INDEX_MARK, rows.half_mark),
            (TIMER_FAMILY, TIMER_SCANNED, rows.scanned),
        ):
            if mark >= 0:
                new.put(family, name, NUMBER.pack(mark))
    return made


# --- files --------------------------------------------------------------------------------------------


def _end(found: Recovery, name: str) -> int:
    return next((f.base + f.size for f in found.log_files if f.name == name), 0)


def _queues(found: Recovery) -> Iterator[Step]:
    for image in found.images:
        edits = list(_queue_edits(image))
        if edits:
            what = f"{number_of(image.appended, 'unit')} appended, queue ends at {image.max_offset:,}"
            yield Step(
                "recover.queue", image.directory, what, "as dispatch and the end of the log demand", tuple(edits)
            )


def _queue_edits(image: QueueImage) -> Iterator[Edit]:
    """Files moved out, then each file that stays: bytes that differ from what is on disk."""
    gone = {f.name for f in image.removed}
    yield from (Quarantine(name) for name in sorted(gone))
    for file in image.files:
        name = f"{image.directory}/{file.base:020d}"
        if file.file is None:
            yield Create(name, _bytes(image, file), size=file.size)
        else:
            before, after = _on_disk(file), _bytes(image, file)
            size = max(len(before), len(after))
            yield from changes(name, 0, before.ljust(size, b"\0"), after.ljust(size, b"\0"))


def _bytes(image: QueueImage, file: FileImage) -> bytes:
    return file.units(image.dtype).tobytes()[: file.wrote]


def _on_disk(file: FileImage) -> bytes:
    return FileImage(file.base, file.size, file.size, file.file).raw()


def _index(store: StoreFiles, found: Recovery, now: datetime) -> Iterator[Step]:
    for name in sorted(found.index_deleted):
        why = "it holds entries younger than the checkpoint, and the exit was not clean"
        yield Step("recover.index", name, "move out", why, (Quarantine(name),))
    last = max((e.name for e in index_entries(store)), default="")
    edits = tuple(_index_edits(found.index, now, last)) if found.index else ()
    if edits:
        what = f"{found.index_keys:,} entries"
        yield Step("recover.index", edits[0].file, what, "messages dispatched again", edits)


def _index_edits(image: IndexImage, now: datetime, after: str) -> Iterator[Edit]:
    """Yield what makes the index on disk like an image.

    Args:
        now: local time for the names of new files.
        after: the last name in use, which new names follow even if the clock was set back.
    """
    made, size = image.finish(), image.geometry.file_size
    if image.last is not None and made:
        yield from _changed_index(image.last, made[0], size)
        made = made[1:]
    name = after
    for parts in made:
        name = next_name(name, int(now.timestamp() * 1000))
        yield Create(f"{INDEX}/{name}", _index_content(parts), size=size)


def _changed_index(last: IndexFile, made: IndexParts, file_size: int) -> Iterator[Edit]:
    """Yield overwrites of the file that was there, only where bytes differ."""
    if not made.entries:
        return
    if last.size < file_size:  # a kill between making the file and giving it its length
        yield Extend(last.path, last.size, file_size)
    for offset, data in [(0, made.head), (HEADER_SIZE, made.slots), *made.entries]:
        for start in range(0, len(data), PIECE):
            after = data[start : start + PIECE]
            before = read_index(last, offset + start, len(after))
            yield from changes(last.path, offset + start, before, after)


def _index_content(made: IndexParts) -> bytes:
    """Return a new file up to its last entry."""
    data = bytearray(made.head + made.slots)
    for offset, entries in made.entries:
        data.extend(bytes(max(offset - len(data), 0)))
        data[offset : offset + len(entries)] = entries
    return bytes(data)


def _checkpoint(store: StoreFiles, found: Recovery) -> Iterator[Step]:
    """Yield times that a clean stop would leave: those of the last message."""
    data = read_all(store.tree, CHECKPOINT_FILE)
    old = (data or b"")[: _RUN.packer.size].ljust(_RUN.packer.size, b"\0")
    fields = dict(zip(_RUN.names, _RUN.packer.unpack(old), strict=True))
    last = found.last_store_timestamp
    if last and not found.normal:
        fields |= {"physic_msg_timestamp": last, "logics_msg_timestamp": last}
        fields["index_msg_timestamp"] = min(fields["index_msg_timestamp"], last)
    new = _RUN.packer.pack(*fields.values())
    if new == old:
        return
    why = "the last message of the log was stored then"
    if data is None:
        yield Step("recover.checkpoint", CHECKPOINT_FILE, "make", why, (Create(CHECKPOINT_FILE, new, size=4096),))
        return
    grow: Iterable[Edit] = () if len(data) >= len(new) else (Extend(CHECKPOINT_FILE, len(data), 4096),)
    yield Step("recover.checkpoint", CHECKPOINT_FILE, "set", why, (*grow, Overwrite(CHECKPOINT_FILE, 0, old, new)))


def _abort(store: StoreFiles) -> Iterator[Step]:
    if store.has_abort:
        why = "the store is as after a clean stop"
        yield Step("recover.abort", "abort", "move out", why, (Quarantine("abort"),))
