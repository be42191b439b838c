"""What an engine takes over from a store that is there: sizes, ends, queues, after what a broker would recover (spec
6.1, 14.1).

Lock and abort file say who may write the store, and whether the last writer ended well (spec 12). What a broker of
its release would recover at its start is recovered first, by the same code (spec 6).

A killed writer may leave a record half written where the rules of the broker do not see it. The system may stop a
write between two pages. The head and the body of a record then prove themselves while the properties after them end
in zeros, which nothing in a broker checks. Nobody got an answer that such a record is stored: it is taken away before
the store goes on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from formats.rocketmq.abort_lock import LOCK_TEXT
from formats.rocketmq.consumequeue_ext import HEAD_SIZE
from formats.rocketmq.message import decode_record
from formats.rocketmq.property_crc import stored_property_crc
from rmqctl.errors import IOFailure, Refused, StoreInUse, TooDamaged
from rmqctl.files.lock import FileLock, LockHeldError
from rmqctl.files.new_files import MARK
from rmqctl.files.writing import Disk
from rmqctl.release import Release
from rmqctl.repair.edits import Overwrite, Plan, Step
from rmqctl.repair.execute import Applied, apply
from rmqctl.repair.journal_directory import refuse_pending
from rmqctl.rocketmq.dispatch.units import BatchQueueState, QueueState
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.findings.log import LOG_TORN_TAIL
from rmqctl.rocketmq.log.commitlog import CommitLog, LogState, walk_file
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue, queues_of
from rmqctl.rocketmq.queues.ranges import LogEnd, last_record, last_unit, late_start, log_end
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.recovery.plan import recovery_plan
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.files import BATCH_QUEUES, COMMIT_LOG, QUEUES, QUEUES_EXT, StoreFiles
from rmqctl.rocketmq.store.geometry import IndexGeometry, detect_index_geometry, geometry_of
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.text import number_of, typed

_FIRST_WITH_DATABASE = Release(5, 4, 0)
ABORT, ABORT_BACKUP, LOCK = "abort", "abort.bak", "lock"


class StoreLock:
    """The lock a broker holds while it runs: an exclusive record lock on byte 0 of ``lock``.

    The root is made where it is missing.

    Raises:
        StoreInUse: another process, or another engine of this one, holds it.
    """

    def __init__(self, root: Path, disk: Disk) -> None:
        disk.make_directory(root)
        try:
            self._lock = FileLock(str(root / LOCK))
        except LockHeldError as error:
            raise StoreInUse(root) from error
        except OSError as error:
            raise IOFailure.of(error) from error

    def release(self) -> None:
        """Let go; the file stays, as a broker leaves it."""
        self._lock.release()

    def give_up(self) -> None:
        """Let go before anything was written; a file that was missing is gone again."""
        self._lock.release(remove=self._lock.is_new)

    def fill(self) -> None:
        """Write what a broker writes into the file, which it does once it has the lock."""
        try:
            self._lock.fill(LOCK_TEXT)
        except OSError as error:
            raise IOFailure.of(error) from error


def write_abort(root: Path, disk: Disk, process_id: int | None) -> None:
    """Say that a writer is at work: an empty file in 4.x (None); the process id, and a side file, in 5.x."""
    if process_id is not None and not (root / ABORT_BACKUP).exists():
        disk.write_file(root / ABORT_BACKUP, b"")
    disk.write_file(root / ABORT, b"" if process_id is None else str(process_id).encode())
    disk.settle()


def make_database_directory(root: Path, disk: Disk, release: Release) -> None:
    """Make the directory of a database that every broker from 5.4.0 on has; it fills it at its own start (spec 10.7).

    Without it the store would look like one of an earlier release, whose index has other entries.
    """
    if release >= _FIRST_WITH_DATABASE:
        disk.make_directory(root / "rocksdbstore")


def remove_abort(root: Path, disk: Disk) -> None:
    """Say that the writer ended well."""
    disk.settle()  # whoever finds no such file takes all else for whole
    disk.remove(root / ABORT)
    disk.settle()


def process_id_of(config: StoreConfig) -> int | None:
    """Return what the abort file of the release says."""
    if not config.is_5:
        return None
    return os.getpid() if config.process_id is None else config.process_id


# --- the record that a killed writer left half written ----------------------------------------------


def torn_record_plan(store: StoreFiles, end: int) -> Plan | None:
    """Return the plan that puts zeros in the place of the last record, if it is torn; None where it is not.

    Args:
        end: where recovery ends the log.
    """
    with LogReader(store.log_files) as log:
        file = log.file_of(end - 1)
    context = next((c for c in CommitLog(store.log_files, crashed=True).contexts() if c.file is file), None)
    if file is None or context is None:
        return None
    for part in walk_file(context, LogState(), start=late_start(store, file)):
        block = part.block
        if len(block) and int(block.physical[-1] + block.total_size[-1]) == end:
            raw, position = block.raw(len(block) - 1), int(block.position[-1])
            if _is_torn(raw):
                why = "its topic or its properties end in zeros: the write was broken off between two pages"
                what = f"take the half written record at {end - len(raw)} away"
                edit = Overwrite(file.name, position, raw, bytes(len(raw)))
                step = Step(LOG_TORN_TAIL.id, file.name, what, why, (edit,))
                return Plan(Path(store.root), "take away the record that was being written", (step,))
    return None


def _is_torn(raw: bytes) -> bool:
    fields = decode_record(raw)[0]
    return 0 in fields["topic"] or 0 in fields["properties"]


# --- what an engine takes over from a store that is there -------------------------------------------


WHEEL, LMQ = "timerwheel", "%LMQ%"
_BEFORE_ALL = {LOCK, ABORT, ABORT_BACKUP, MARK}
RawKey = tuple[bytes, int]
_SIZES = (
    "commit_log_file_size",
    "queue_file_size",
    "queue_ext_file_size",
    "batch_queue_file_size",
    "timer_log_file_size",
    "index_slots",
    "index_entries",
)


@dataclass(slots=True)
class OpenState:
    """Where a store goes on.

    Attributes:
        log_end: where the next record goes, and the store time of the last.
        dispatched: physical offset up to which records surely have their units.
    """

    log_end: LogEnd
    queues: dict[RawKey, QueueState]
    batch_queues: dict[RawKey, BatchQueueState]
    dispatched: int
    ext_ends: dict[RawKey, int] = field(default_factory=dict)

    def counters(self) -> dict[tuple[str, int], int]:
        """Return the next queue offset of every queue."""
        found = {key: queue.next_offset for key, queue in self.queues.items()}
        found |= {key: batch.next_offset for key, batch in self.batch_queues.items()}
        return {(topic.decode("utf-8", "surrogateescape"), queue_id): n for (topic, queue_id), n in found.items()}


def existing(root: Path, config: StoreConfig) -> StoreFiles | None:
    """Return the store at a path, None where nothing is there yet, or no more than what an engine makes first.

    Raises:
        NotAStore: something else is there.
    """
    if not root.exists() or (root.is_dir() and {p.name for p in root.iterdir()} <= _BEFORE_ALL):
        return None
    found = open_store_at(str(root)) if all(map(_is_found, config.commit_log_paths)) else None
    logs = [str(root / p) for p in config.commit_log_paths if (root / p).is_dir()]
    return found or open_store_at(str(root), commit_log=logs)


def _is_found(path: str) -> bool:
    """Whether a store finds a directory of its log by itself."""
    return path.startswith(COMMIT_LOG) and "/" not in path


def check_kind(store: StoreFiles) -> None:
    """Refuse stores whose log or queues are of a kind that the engine does not write.

    Raises:
        Refused: RocksDB queues, or a DLedger log.
    """
    if store.is_rocksdb or store.has_light_database:
        raise Refused(f"{store.root} keeps queues in RocksDB, which only a broker can write; use a broker for it")
    if any(f.lead for f in store.log_files):
        raise Refused(f"{store.root} has a DLedger log, which only its group can write; use a broker for it")


def settled(store: StoreFiles, config: StoreConfig | None) -> StoreConfig:
    """Return the configuration for a store: its files' own sizes; its own release unless another is configured.

    Raises:
        Refused: the configuration asks for other sizes than the files have.
    """
    plain = StoreConfig()
    asked = config or replace(plain, release=release_range(store).highest)
    geometry, changes = geometry_of(store), {}
    if not _has_files(store, "index") and _index_fits(store, asked):  # no file shows sizes, but its length agrees
        geometry = replace(geometry, index_slots=asked.index_slots, index_entries=asked.index_entries)
    kinds = {"index_slots": "index", "index_entries": "index", "commit_log_file_size": "commitlog"}
    for name in _SIZES:
        has, wants = getattr(geometry, name), getattr(asked, name)
        if has == getattr(plain, name) and not _has_files(store, kinds.get(name, "")):
            continue
        if wants not in (has, getattr(plain, name)) and _has_files(store, kinds.get(name, "commitlog")):
            raise Refused(
                f"{store.root} has {name.replace('_', ' ')} {has}, not {wants}; "
                "leave the size options out to go on with its own"
            )
        changes[name] = has
    if not asked.commit_log_paths and any(name != COMMIT_LOG for name, _ in store.log_trees):
        asked = replace(asked, commit_log_paths=tuple(name for name, _ in store.log_trees))
    return replace(
        asked,
        **changes,
        timer=asked.timer or store.tree.stat(WHEEL) is not None,
        queue_ext=asked.queue_ext or store.tree.stat(QUEUES_EXT) is not None,
        property_crc=asked.property_crc or _ends_in_crc(store),
        multi_dispatch=asked.multi_dispatch
        or any(e.name.startswith(LMQ) for e in store.tree.entries(QUEUES, sizes=False)),
    )


def _index_fits(store: StoreFiles, asked: StoreConfig) -> bool:
    """Whether every index file has the length of the sizes asked for, which are not those that all have by default."""
    plain, size = StoreConfig(), IndexGeometry(asked.index_slots, asked.index_entries).file_size
    own = (asked.index_slots, asked.index_entries) != (plain.index_slots, plain.index_entries)
    sizes = [entry.size for entry in store.index_files if entry.name.isdigit()]
    return own and bool(sizes) and all(found == size for found in sizes)


def _ends_in_crc(store: StoreFiles) -> bool:
    """Whether the last record has a CRC over itself: brokers that force it cut the log at the first one without."""
    last = last_record(store)
    return last is not None and stored_property_crc(last) is not None


def settings_of(config: StoreConfig) -> dict[str, str]:
    """Return what a broker.conf would say, for code that goes by it."""
    sizes = {
        "mappedFileSizeCommitLog": config.commit_log_file_size,
        "mappedFileSizeConsumeQueue": config.queue_file_size,
        "mappedFileSizeConsumeQueueExt": config.queue_ext_file_size,
        "mapperFileSizeBatchConsumeQueue": config.batch_queue_file_size,
        "mappedFileSizeTimerLog": config.timer_log_file_size,
        "maxHashSlotNum": config.index_slots,
        "maxIndexNum": config.index_entries,
    }
    flags = {
        "messageIndexEnable": config.index,
        "enableConsumeQueueExt": config.queue_ext,
        "enableMultiDispatch": config.multi_dispatch,
        "enableLmq": config.multi_dispatch,
    }
    found = {name: str(size) for name, size in sizes.items()}
    found |= {name: str(value).lower() for name, value in flags.items()}
    return {**found, "messageDelayLevel": config.delay_levels}


def _has_files(store: StoreFiles, kind: str) -> bool:
    if kind == "index":
        return detect_index_geometry(store.tree, store.index_files) is not None
    return any(f.size > 0 for f in store.log_files) if kind == "commitlog" else False


def state_of(store: StoreFiles, config: StoreConfig, started: Recovery) -> OpenState:
    """Where a cleanly stopped store goes on.

    Args:
        started: a broker's start on it, which knows the smallest offsets; the next ones are where the files end.

    Raises:
        TooDamaged: the queues point after the end of the log.
    """
    end = log_end(store)
    smallest = {image.key: image.min_offset for image in started.images}
    queues = {
        _key(q): _queue_state(q, config, smallest.get((QUEUES, *q.key), 0))
        for q in queues_of(store.queues(QUEUES), UNIT)
    }
    batch = {_key(q): _batch_state(q) for q in queues_of(store.queues(BATCH_QUEUES), BATCH_UNIT)}
    reached = [s.max_physical for s in queues.values()]
    if (furthest := max(reached, default=-1)) > end.offset and furthest != FILLER_END:
        raise TooDamaged(store.root, f"a queue points to offset {furthest}, the log ends at {end.offset}")
    known = [*reached, *(s.last_physical for s in batch.values())]
    start = store.log_files[0].base if store.log_files else 0
    extension = {_key(q): _extension_end(q) for q in queues_of(store.queues(QUEUES_EXT))}
    return OpenState(end, queues, batch, max([start, *(k for k in known if k <= end.offset)]), extension)


FILLER_END = 0x7FFFFFFF
"""Where the record of a filler unit would end (spec 3.4)."""


def _key(queue: Queue) -> RawKey:
    topic, queue_id = queue.key
    return topic.encode("utf-8", "surrogateescape"), queue_id


def _queue_state(queue: Queue, config: StoreConfig, first: int) -> QueueState:
    end, unit = queue.end(), last_unit(queue)
    physical = int(unit["physical_offset"][0]) + int(unit["size"][0]) if unit is not None and len(unit) else -1
    return QueueState(config.queue_file_size, queue.files[0].base, max(end, queue.files[0].base), physical, first)


def _extension_end(queue: Queue) -> int:
    """Where the units of an extension end, in bytes of its file sequence (ConsumeQueueExt.recover)."""
    file = queue.files[-1]
    source = file.open()
    try:
        data = source.read_at(0, file.size)
    finally:
        source.close()
    at = 0
    while at + 2 <= len(data) and (size := int.from_bytes(data[at : at + 2], "big", signed=True)) >= HEAD_SIZE:
        at += size
    return file.base + at


def _batch_state(queue: Queue) -> BatchQueueState:
    unit = last_unit(queue)
    if unit is None or not len(unit):
        return BatchQueueState(queue.end())
    return BatchQueueState(
        queue.end(), int(unit["physical_offset"][0]), int(unit["base_offset"][0]) + int(unit["batch_size"][0])
    )


# --- before a store is taken over -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that can be taken over.

    Attributes:
        store: as it is now.
        applied: what recovery changed after a crash, with the journal to take it back; None after a clean stop.
    """

    store: StoreFiles
    state: OpenState
    applied: Applied | None = None


def recover_before_open(store: StoreFiles, config: StoreConfig) -> Opened:
    """Bring a store into the state in which its broker would go on writing; the caller holds its lock.

    After a clean stop nothing is changed. After a crash a half written last record is taken away and the
    recovery of the release is carried out, each by plan and journal.

    Raises:
        TooDamaged: the broker would not start, or would give up messages.
        Refused: its files cannot be changed by a plan, or an earlier run on it was broken off.
    """
    refuse_pending(Path(store.root))
    found = recover(store, config.release, index=store.has_abort)
    _refuse_damaged(store, found)
    torn = torn_record_plan(store, found.end) if store.has_abort and found.end else None
    if torn is not None:
        apply(torn, lock_is_held=True, outside=store.logs_outside)
        found = recover(store, config.release, index=True)
    applied = None
    if store.has_abort:
        now = datetime.fromtimestamp(config.clock.now() / 1000).astimezone().replace(tzinfo=None)
        applied = apply(recovery_plan(store, found, now), lock_is_held=True, outside=store.logs_outside)
        settings = store.settings
        store = open_store_at(
            store.root, commit_log=[t.root for _, t in store.log_trees] if config.commit_log_paths else ()
        )
        store.settings = settings
    state = state_of(store, config, found)
    if found.end is not None and state.log_end.offset != found.end:
        raise TooDamaged(
            store.root,
            f"the log ends at {state.log_end.offset}, where a {found.release} broker would end it at {found.end}",
        )
    return Opened(store, state, applied)


def _refuse_damaged(store: StoreFiles, found: Recovery) -> None:
    if found.error is not None:
        raise TooDamaged(store.root, f"a {found.release} broker does not start on it: {found.error}")
    if found.missing is not None:
        raise TooDamaged(store.root, found.missing.message, found.missing.kind.remedy)
    if found.lost:
        why = f": {found.stopped_by.message}" if found.stopped_by is not None else ""
        where = (
            f"{found.stopped_by.file}, byte {found.stopped_by.offset}" if found.stopped_by is not None else "the log"
        )
        raise TooDamaged(
            store.root,
            f"a {found.release} broker would stop at {where}{why}, and give up {number_of(len(found.lost), 'message')}",
            f"type: {typed('repair', store.root)}, or {typed('salvage', store.root, 'INTO')}",
        )
