"""One rebuilding: built beside the store, compared with it, then put in its place or left in a directory.

How much room it will need, from a few samples of the log, is held against what is there.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.errors import Refused, TooDamaged
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.repair.edits import Create, Edit, Overwrite, Plan, Quarantine, Step, placed
from rmqctl.rocketmq.dispatch.dispatched import Dispatched, Dispatcher, Wanted
from rmqctl.rocketmq.dispatch.rules import DispatchRules, assumed_levels
from rmqctl.rocketmq.index import HEADER_SIZE, IndexHead, files_are_written, index_entries, is_written
from rmqctl.rocketmq.log.commitlog import CommitLog, FileContext, LogState, walk_file
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import UNIT
from rmqctl.rocketmq.rebuild.build import Builder, Built, Job, Progress, QueueFilesWriter, build
from rmqctl.rocketmq.rebuild.compare import (
    Change,
    FileDifference,
    QueueComparison,
    index_changes,
    rocksdb_changes,
)
from rmqctl.rocketmq.rebuild.databases import MadeDatabase, message_database, open_old, queue_database, replacement
from rmqctl.rocketmq.rebuild.expired_index import ExpiredIndex, expired_index
from rmqctl.rocketmq.rebuild.unlogged import (
    Bitmaps,
    checkpoint_bytes,
    counter_units,
    index_names,
    indexed_until,
    keep_destroyed_tails,
    lost_counters,
    set_queue_times,
)
from rmqctl.rocketmq.state.config import PATH as CHECKPOINT
from rmqctl.rocketmq.store.databases import MESSAGES
from rmqctl.rocketmq.store.files import BATCH_QUEUES, INDEX, QUEUES, QUEUES_EXT, StoreFiles
from rmqctl.rocketmq.store.geometry import ENTRY, SLOT_SIZE, Geometry, IndexGeometry, geometry_of

_SAMPLES = 5
_SPARE = 4 << 20
_MOST_COMPARED = 1 << 16
"""Bytes of a checkpoint that are read; what is longer is none."""


def bytes_needed(store: StoreFiles, geometry: Geometry, rules: DispatchRules, wanted: Wanted) -> int:
    """Bytes that queues and index will take on the disk, about: the log's size by what samples of it dispatch."""
    contexts = [c for c in CommitLog(store.log_files, crashed=store.has_abort).contexts() if c.file.size]
    step = max(len(contexts) // _SAMPLES, 1)
    samples = [_sample(context, rules, wanted) for context in contexts[::step]]
    records = sum(s.records for s in samples)
    seen = sum(s.end - s.damage[0][0] for s in samples if s.records)
    if not records or not seen:
        return _SPARE
    log = sum(c.file.size for c in contexts)
    keys = sum(int(s.index.keys.sum()) for s in samples if s.index is not None)
    units = sum(len(p.units) for s in samples for p in s.pieces) * UNIT.itemsize
    entries = log * keys // seen
    index = entries * ENTRY.packer.size + (entries // geometry.index_entries + 1) * geometry.index_slots * SLOT_SIZE
    return log * units // seen + (index if wanted.index else 0) + _SPARE


def _sample(context: FileContext, rules: DispatchRules, wanted: Wanted) -> Dispatched:
    """Return what the first block of a file dispatches; its ``damage`` is where the block begins."""
    dispatcher = Dispatcher(rules, wanted)
    for found in walk_file(context, LogState()):
        if len(found.block):
            dispatcher.add(found)
            sample = dispatcher.take()
            sample.damage = [(int(found.block.physical[0]), 0)]
            return sample
    return Dispatched()


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def building(store: StoreFiles, directory: Path) -> Iterator[None]:
    """Say what is needed and what is free where the disk fills up while files are built in a directory.

    Raises:
        Refused: the disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        built = sum(p.stat().st_blocks * 512 for p in directory.rglob("*") if p.is_file())
        free = built + _free(directory)
        needed = max(bytes_needed(store, geometry_of(store), DispatchRules.of(store), Wanted()), free + 1)
        raise Refused(
            f"too little room in {directory.parent}: the files of the plan need about {needed:,} bytes, "
            f"and {free:,} are free; nothing was changed; free some, or give a directory on another disk with "
            "--journal DIR (in a dry run: TMPDIR)"
        ) from error


def check_room(directory: Path, needed: int, *, force: bool = False) -> int:
    """Bytes free where ``directory`` is or will be made.

    Args:
        force: do not refuse.

    Raises:
        Refused: they are fewer than needed.
    """
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    free = _free(place)
    if needed > free and not force:
        raise Refused(
            f"too little room in {place}: about {needed:,} bytes are needed and {free:,} are free; nothing was "
            "written; free some, or give a directory on another disk with --into DIR"
        )
    return free


def _free(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


# --- one rebuilding ---------------------------------------------------------------------------------


KINDS = (QUEUES, QUEUES_EXT, BATCH_QUEUES)


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """What to rebuild.

    Attributes:
        queues, index, checkpoint: the parts wanted.
        topics: only queues of these topics; None for all. The index cannot be rebuilt in part.
        as_release: dispatch as this release does; default: the latest that the store shows.
        processes: 1 works in this process; more share the log.
        databases: RocksDB databases of the parts, too; never for some topics only.
    """

    queues: bool = True
    index: bool = True
    checkpoint: bool = False
    topics: frozenset[bytes] | None = None
    as_release: Release | None = None
    processes: int = 1
    databases: bool = False


@dataclass(slots=True)
class Rebuilt:
    """What came out.

    Attributes:
        changes: files that are to be changed or kept though the log says nothing of them, by name.
        counts: files by change, the equal ones as well.
        counters: next offsets of queues without records and files, kept because consumers committed them.
        checkpoint: content of the new checkpoint, None if it is not wanted.
        databases: RocksDB databases as they must be.
    """

    release: Release
    built: Built
    changes: list[FileDifference] = field(default_factory=list)
    counts: Counter[Change] = field(default_factory=Counter)
    counters: dict[tuple[bytes, int], int] = field(default_factory=dict)
    checkpoint: bytes | None = None
    databases: list[MadeDatabase] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Nothing is to be changed."""
        return not any(c.change in (Change.CREATE, Change.REPLACE, Change.REMOVE) for c in self.changes)

    def summary(self) -> dict[str, Any]:
        """As a JSON object."""
        built = self.built
        return {
            "release": str(self.release),
            "records": built.records,
            "log_end": built.end,
            "queues": len(built.queues.simple) + len(built.queues.batch),
            "index_files": len(built.index),
            "damaged_ranges": len(built.damage),
            "damaged_bytes": sum(size for _, size in built.damage),
            "filled_units": sum(built.queues.filled.values()),
            "files": {str(change): self.counts[change] for change in Change},
        }


class Rebuild:
    """Rebuilds what is derived from a store's log.

    Args:
        progress: called with the bytes of log done since its last call.
        builder: shares the work of dispatching in another way than among processes.
    """

    def __init__(
        self,
        store: StoreFiles,
        options: RebuildOptions,
        progress: Progress | None = None,
        builder: Builder = build,
    ) -> None:
        self.store, self.options, self.progress, self._builder = store, options, progress, builder
        self.geometry: Geometry = geometry_of(store)
        self._shape = IndexGeometry(self.geometry.index_slots, self.geometry.index_entries)
        self.rules = DispatchRules.of(store, options.as_release)
        self.wanted = Wanted(options.queues or options.checkpoint, options.index, options.topics)

    def run(self, directory: Path) -> Rebuilt:
        """Build below ``directory``, which stands for the root of a store, and compare."""
        options, wanted = self.options, self.wanted
        self.expired = ExpiredIndex(self.store.tree)
        if options.index and files_are_written(self.store):
            self.expired = expired_index(self.store, self._shape)
        built = self._builder(
            self.store, self.geometry, Job(self.rules, wanted), directory,
            processes=options.processes,
            bitmap=Bitmaps(self.store).find if self.rules.extension else None,
            progress=self.progress,
            expired=self.expired,
        )  # fmt: skip
        found = Rebuilt(self.rules.release, built)
        if wanted.queues:
            self._keep_counters(found)
            with LogReader(self.store.log_files) as log:
                set_queue_times(built, log)
        self._compare(found)
        if options.databases and options.topics is None:
            self._add_databases(found)
        return found

    def _add_databases(self, found: Rebuilt) -> None:
        """Make new databases where the rows that are there are not those of the log.

        Raises:
            MissingExtra: the package rocksdict is not installed.
        """
        store, made, root = self.store, list[MadeDatabase](), found.built.root
        if self.options.queues and store.queue_database is not None:
            with open_old(store, store.queue_database, root) as old:
                made.append(queue_database(store, old, root))
        if self.options.index and is_written(store) is not False:
            with open_old(store, MESSAGES, root) as old:
                made.append(message_database(store, old, root))
        for new in made:
            change = Change.EQUAL if new.is_equal else Change.REPLACE
            found.counts[change] += 1
            if not new.is_equal:
                found.changes.append(FileDifference(new.path, change, new.what()))
        found.databases = made

    def _keep_counters(self, found: Rebuilt) -> None:
        """Make files for queues that are known by their consumers only; lengthen those whose end is destroyed."""
        queues, size = found.built.queues, self.geometry.queue_file_size
        found.counters = {
            key: offset
            for key, offset in lost_counters(self.store, {*queues.simple, *queues.batch}).items()
            if (self.options.topics is None or key[0] in self.options.topics)
            and not self.rules.is_batch_topic(key[0])
        }  # fmt: skip
        files = QueueFilesWriter(found.built.root, {QUEUES: size}, found.built.queue_files)
        for key, offset in found.counters.items():
            files.write(QUEUES, key, counter_units(offset, size))
        files.flush()
        keep_destroyed_tails(self.store, found.built, files)

    def _compare(self, found: Rebuilt) -> None:
        undispatched = []
        for change in self._changes(found):
            wanted = self.options.index if change.file.startswith("index/") else self.options.queues
            if change.undispatched >= 0:
                undispatched.append(change.undispatched)
            if wanted:
                found.counts[change.change] += 1
                if change.change is not Change.EQUAL:
                    found.changes.append(change)
        if self.options.checkpoint:
            self._add_checkpoint(found, undispatched)

    def _changes(self, found: Rebuilt) -> Iterator[FileDifference]:
        begin = self.store.log_files[0].base if self.store.log_files else 0
        if self.options.queues or self.options.checkpoint:
            queues = QueueComparison(
                self.store, found.built, begin, found.built.end, self.options.checkpoint, self.rules.delay_slack
            )
            yield from queues.changes(KINDS, self.options.topics)
            if self.store.is_rocksdb:
                yield from rocksdb_changes(self.store, found.built, begin, self.options.topics)
        if self.options.index and files_are_written(self.store):
            names = self._index_names(found.built)
            yield from index_changes(self.store, found.built, names, len(self.expired.kept))

    def _index_names(self, built: Built) -> list[str]:
        return index_names(built.index, [e.name for e in index_entries(self.store)][len(self.expired.kept) :])

    def _add_checkpoint(self, found: Rebuilt, undispatched: list[int]) -> None:
        """Add a checkpoint that promises no more than what the queues will hold."""
        built = found.built
        last = built.last, built.last_store_timestamp
        dispatched = last
        if undispatched and not self.options.queues:
            with LogReader(self.store.log_files) as log:
                first = min(undispatched)
                dispatched = first, max((log.store_timestamp(first) or 0) - 1, 0)
        heads = [*self.expired.kept, *built.index] if self.options.index else _heads(self.store)
        found.checkpoint = checkpoint_bytes(
            self.store,
            self.rules.release,
            last=last,
            dispatched=dispatched,
            indexed=indexed_until(heads, self._shape, all_flushed=self.options.index and self.store.has_abort),
            end=built.end,
        )
        old = _content(self.store, CHECKPOINT)
        change = Change.EQUAL if old == found.checkpoint else Change.REPLACE if old is not None else Change.CREATE
        found.counts[change] += 1
        if change is not Change.EQUAL:
            why = "the file is missing" if old is None else "times of the log, the queues or the index differ"
            found.changes.append(FileDifference(CHECKPOINT, change, why))

    def remarks(self, found: Rebuilt) -> list[str]:
        """Return settings that nothing shows, and what a broker will undo; a sentence each, with the next step."""
        kinds = {*((QUEUES,) if self.options.queues else ()), *((INDEX,) if self.options.index else ())}
        kinds |= {BATCH_QUEUES} if found.built.queues.batch and self.options.queues else set()
        remarks = list(assumed_sizes(self.store, kinds))
        delayed = (queue_id for topic, queue_id in found.built.queues.simple if topic == SCHEDULE_TOPIC.encode())
        remarks += filter(None, [assumed_levels(self.store, delayed)])
        if self.options.index and self.store.has_abort and not self.options.checkpoint:
            remarks.append(
                "the store was not stopped cleanly: at its next start the broker deletes index files that are newer "
                "than its checkpoint says; --apply lets it reach to these, with --into DIR give --checkpoint, too"
            )
        return remarks

    # --- where it goes ------------------------------------------------------------------------

    def check_in_place(self) -> None:
        """Hold the store to what a plan may change.

        Raises:
            Refused: the store is not on this machine, or queues of some topics lie in RocksDB with those of others.
        """
        if not isinstance(self.store.tree, LocalTree):
            raise Refused(f"{self.store.root} is not on this machine; give --into DIR to rebuild into a directory here")
        if self.store.is_rocksdb and self.options.topics is not None:
            raise Refused(f"{self.store.root} keeps the queues of all topics in one database; leave --topic out")

    def plan(self, found: Rebuilt) -> Plan:
        """Return the changes as edits of the store itself.

        Raises:
            Refused: as :meth:`check_in_place`.
            TooDamaged: the log has no record, and files would have to go.
        """
        self.check_in_place()
        if not found.built.records and any(c.change is Change.REMOVE for c in found.changes):
            advice = "queues and index are left as they are; bring the log back first"
            raise TooDamaged(self.store.root, "its log holds no record to rebuild from", advice)
        steps = tuple(
            self._step(found, c) for c in found.changes if c.change is not Change.KEEP and not self._inside(c)
        )
        return Plan(Path(self.store.root), "rebuild from the log", steps)

    def _inside(self, change: FileDifference) -> bool:
        """Whether the change is one of a queue that is a part of a database."""
        return self.store.is_rocksdb and change.file.startswith(f"{QUEUES}/")

    def _step(self, found: Rebuilt, change: FileDifference) -> Step:
        new = next((new for new in found.databases if new.path == change.file), None)
        if new is not None:
            replaced = replacement(self.store, new.path, new.place(found.built.root))
            return Step("rebuild.database", new.path, str(change.change), change.why, replaced)
        kind = "rebuild.index" if change.file.startswith("index/") else "rebuild.queue"
        edits: tuple[Edit, ...] = ()
        if change.file == CHECKPOINT:
            return Step(
                "rebuild.checkpoint", change.file, str(change.change), change.why, self._checkpoint_edits(found)
            )
        if change.change is not Change.CREATE:
            edits += (Quarantine(change.file),)
        if change.staged is not None and change.change is not Change.REMOVE:
            edits += (*placed(change.file, change.staged),)
        return Step(kind, change.file, str(change.change), change.why, edits)

    def _checkpoint_edits(self, found: Rebuilt) -> tuple[Edit, ...]:
        new, old = found.checkpoint or b"", _content(self.store, CHECKPOINT)
        if old is not None and len(old) == len(new):
            return (Overwrite(CHECKPOINT, 0, old, new),)
        create = Create(CHECKPOINT, new)
        return (create,) if old is None else (Quarantine(CHECKPOINT), create)

    def complete(self, found: Rebuilt) -> None:
        """Make the directory of :meth:`run` complete: index files named, files that are kept copied, checkpoint."""
        root = found.built.root
        for path, name in zip(found.built.index_paths, self._index_names(found.built), strict=True):
            path.rename(path.with_name(name))
        for change in found.changes:
            if change.change is Change.KEEP and isinstance(self.store.tree, LocalTree):
                target = root / change.file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.store.tree.full(change.file), target)
        self._complete_databases(found)
        if found.checkpoint is not None:
            (root / CHECKPOINT).write_bytes(found.checkpoint)
        if not self.options.queues:
            for kind in KINDS:
                shutil.rmtree(root / kind, ignore_errors=True)

    def _complete_databases(self, found: Rebuilt) -> None:
        """Write the databases; light queues that lie in one are no files, where all queues do they become files."""
        for new in found.databases:
            if self.store.is_rocksdb and new.path == self.store.queue_database:
                shutil.rmtree(new.staged)
            else:
                new.place(found.built.root)
        for topic, _ in found.built.queues.simple:
            if self.store.has_light_database and self.store.in_database(os.fsdecode(topic)):
                shutil.rmtree(found.built.root / QUEUES / os.fsdecode(topic), ignore_errors=True)


def assumed_sizes(store: StoreFiles, kinds: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each kind of file (a directory of the store) to be made whose size nothing shows."""
    advice = "give --broker-conf FILE if this broker is set differently"
    for name, _, size in _unshown(store, kinds):
        taken = f"so the broker's default is taken: {size:,} bytes"
        yield f"no {name} file shows how long {name} files are, {taken}; {advice}"
    if INDEX in kinds and "maxIndexNum" not in store.settings and not any(e.size > 0 for e in store.index_files):
        geometry = geometry_of(store)
        shape = f"{geometry.index_slots:,} slots and {geometry.index_entries:,} entries"
        yield f"no index file shows its slots and entries, so the broker's defaults are taken: {shape}; {advice}"


def unknown_size(store: StoreFiles, kinds: Collection[str]) -> Refused | None:
    """Return the refusal to make queue files whose size nothing shows; None where each is known.

    A broker that is set to another size does not start on them (``MappedFileQueue.load``).
    """
    for name, key, size in _unshown(store, set(kinds) - {QUEUES} if store.is_rocksdb else kinds):
        return Refused(
            f"no {name} file shows how long {name} files are, and a broker that is set to another length does not "
            f"start on them: give --broker-conf FILE (with {key}), or --force to take the broker's default of "
            f"{size:,} bytes"
        )
    return None


def _unshown(store: StoreFiles, kinds: Collection[str]) -> Iterator[tuple[str, str, int]]:
    """Yield name, setting and assumed size (bytes) of the queue files among some kinds whose size nothing shows."""
    geometry = geometry_of(store)
    for kind, name, key, size in (
        (QUEUES, "queue", "mappedFileSizeConsumeQueue", geometry.queue_file_size),
        (BATCH_QUEUES, "batch queue", "mapperFileSizeBatchConsumeQueue", geometry.batch_queue_file_size),
    ):
        if kind in kinds and key not in store.settings and not _has_files(store, kind):
            yield name, key, size


def _has_files(store: StoreFiles, kind: str) -> bool:
    return not store.is_rocksdb and any(q.files(sizes=False)[0] for q in store.queues(kind))


def _heads(store: StoreFiles) -> list[IndexHead]:
    """Headers of the index files that are there."""
    found = []
    for entry in store.index_files:
        if not entry.is_directory and not entry.is_dangling:
            source = store.tree.open(entry.path)
            try:
                found.append(IndexHead.parse(source.read_at(0, HEADER_SIZE)))
            finally:
                source.close()
    return found


def _content(store: StoreFiles, path: str) -> bytes | None:
    entry = store.tree.stat(path)
    if entry is None or entry.is_directory:
        return None
    source = store.tree.open(path)
    try:
        return source.read_at(0, min(entry.size, _MOST_COMPARED))
    finally:
        source.close()
