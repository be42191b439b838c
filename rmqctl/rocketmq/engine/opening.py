"""What an engine takes over from a store that is there: sizes, ends, queues (spec 6.1, 14.1)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from formats.rocketmq.consumequeue_ext import HEAD_SIZE
from formats.rocketmq.property_crc import stored_property_crc
from rmqctl.errors import Refused, TooDamaged
from rmqctl.files.new_directory import MARK
from rmqctl.open import open_store_at
from rmqctl.rocketmq.dispatch.batch_units import BatchQueueState
from rmqctl.rocketmq.dispatch.queue_units import QueueState
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.lifecycle import ABORT, ABORT_BACKUP, LOCK
from rmqctl.rocketmq.geometry import geometry_of
from rmqctl.rocketmq.index_geometry import detect_index_geometry
from rmqctl.rocketmq.log_end import LogEnd, last_record, last_unit, log_end
from rmqctl.rocketmq.queue_files import BATCH_UNIT, UNIT, Queue, queues_of
from rmqctl.rocketmq.releases import release_range
from rmqctl.rocketmq.store import BATCH_QUEUES, COMMIT_LOG, QUEUES, QUEUES_EXT, RocketMQStore

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
        """The next queue offset of every queue."""
        found = {key: queue.next_offset for key, queue in self.queues.items()}
        found |= {key: batch.next_offset for key, batch in self.batch_queues.items()}
        return {(topic.decode("utf-8", "surrogateescape"), queue_id): n for (topic, queue_id), n in found.items()}


def existing(root: Path, config: StoreConfig) -> RocketMQStore | None:
    """The store at a path, None where nothing is there yet, or no more than what an engine makes first.

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


def check_kind(store: RocketMQStore) -> None:
    """Refuse stores whose log or queues are of a kind that the engine does not write.

    Raises:
        Refused: RocksDB queues, or a DLedger log.
    """
    if store.is_rocksdb or store.has_light_database:
        raise Refused(f"{store.root} keeps queues in RocksDB, which only a broker can write; use a broker for it")
    if any(f.lead for f in store.log_files):
        raise Refused(f"{store.root} has a DLedger log, which only its group can write; use a broker for it")


def settled(store: RocketMQStore, config: StoreConfig | None) -> StoreConfig:
    """The configuration for a store: its files' own sizes; its own release unless another is configured.

    Raises:
        Refused: the configuration asks for other sizes than the files have.
        OSError: a file of the log cannot be read.
    """
    plain = StoreConfig()
    asked = config or replace(plain, release=release_range(store).highest)
    geometry, changes = geometry_of(store), {}
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


def _ends_in_crc(store: RocketMQStore) -> bool:
    """Whether the last record has a CRC over itself: brokers that force it cut the log at the first one without."""
    last = last_record(store)
    return last is not None and stored_property_crc(last) is not None


def settings_of(config: StoreConfig) -> dict[str, str]:
    """What a broker.conf would say, for code that goes by it."""
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


def _has_files(store: RocketMQStore, kind: str) -> bool:
    if kind == "index":
        return detect_index_geometry(store.tree, store.index_files) is not None
    return any(f.size > 0 for f in store.log_files) if kind == "commitlog" else False


def state_of(store: RocketMQStore, config: StoreConfig) -> OpenState:
    """Where a cleanly stopped store goes on.

    Raises:
        TooDamaged: the queues point behind the end of the log.
        OSError: a file cannot be read.
    """
    end = log_end(store)
    queues = {_key(q): _queue_state(q, config) for q in queues_of(store.queues(QUEUES), UNIT)}
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


def _queue_state(queue: Queue, config: StoreConfig) -> QueueState:
    end, unit = queue.end(), last_unit(queue)
    physical = int(unit["physical_offset"][0]) + int(unit["size"][0]) if unit is not None and len(unit) else -1
    return QueueState(config.queue_file_size, queue.files[0].base, max(end, queue.files[0].base), physical)


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


__all__ = ["OpenState", "existing", "settled", "state_of"]
