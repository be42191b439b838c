"""File sizes of a store: from broker.conf, else from the files themselves, else the broker's defaults.

No size is stored in a store (spec 14.18). Files of a sequence all have one length, so the commonest
length is the size; the number of index slots is found by testing candidates against the entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice

from rmqctl.files.tree import Tree
from rmqctl.rocketmq.broker_conf import integer
from rmqctl.rocketmq.index_geometry import IndexGeometry, assumed_index_geometry, detect_index_geometry
from rmqctl.rocketmq.store import (
    BATCH_QUEUES,
    QUEUES,
    QUEUES_EXT,
    RocketMQStore,
    sequence,
)

COMMIT_LOG_FILE_SIZE = 1 << 30
QUEUE_FILE_SIZE = 6_000_000
QUEUE_EXT_FILE_SIZE = 50_331_648
BATCH_QUEUE_FILE_SIZE = 13_800_000
TIMER_LOG_FILE_SIZE = 104_857_600
QUEUE_UNIT_SIZE = 20
_SAMPLE = 64


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes in bytes and counts, and how they were known.

    Attributes:
        source: ``broker-conf``, ``detected`` or ``default``: the weakest way any of them was known
            among the files that are there.
    """

    commit_log_file_size: int
    queue_file_size: int
    index_slots: int
    index_entries: int
    queue_ext_file_size: int
    batch_queue_file_size: int
    timer_log_file_size: int
    source: str

    def row(self) -> dict[str, int | str]:
        """As the JSON object of the contract."""
        return asdict(self)


def geometry_of(store: RocketMQStore) -> Geometry:
    """Sizes of the store's files.

    Raises:
        OSError: a directory or an index file cannot be read.
    """
    ways: list[str] = []
    conf = store.settings
    log = _pick(conf, "mappedFileSizeCommitLog", (f.size for f in store.log_files), COMMIT_LOG_FILE_SIZE, ways)
    queue = _pick(conf, "mappedFileSizeConsumeQueue", _queue_sizes(store, QUEUES), QUEUE_FILE_SIZE, ways)
    ext = _pick(conf, "mappedFileSizeConsumeQueueExt", _queue_sizes(store, QUEUES_EXT), QUEUE_EXT_FILE_SIZE, ways)
    batch = _pick(
        conf, "mapperFileSizeBatchConsumeQueue", _queue_sizes(store, BATCH_QUEUES), BATCH_QUEUE_FILE_SIZE, ways
    )
    timer = _pick(conf, "mappedFileSizeTimerLog", _sizes(store.tree, "timerlog"), TIMER_LOG_FILE_SIZE, ways)
    index = _index(store, ways)
    source = next((way for way in ("default", "detected", "broker-conf") if way in ways), "default")
    queue = -(-queue // QUEUE_UNIT_SIZE) * QUEUE_UNIT_SIZE if "mappedFileSizeConsumeQueue" in conf else queue
    return Geometry(log, queue, index.slots, index.entries, ext, batch, timer, source)


def _pick(conf: object, key: str, sizes: Iterable[int], default: int, ways: list[str]) -> int:
    """A size from the settings, else the commonest of the files, else the default; notes the way taken."""
    configured = integer(conf, key)  # type: ignore[arg-type]
    if configured:
        ways.append("broker-conf")
        return configured
    counts = Counter(size for size in sizes if size > 0)
    if counts:
        ways.append("detected")
        return max(counts, key=lambda size: (counts[size], size))
    return default


def index_geometry(store: RocketMQStore) -> IndexGeometry:
    """Slots and entries of the store's index files.

    Raises:
        OSError: an index file cannot be read.
    """
    return _index(store, [])


def _index(store: RocketMQStore, ways: list[str]) -> IndexGeometry:
    slots, entries = integer(store.settings, "maxHashSlotNum"), integer(store.settings, "maxIndexNum")
    if slots and entries:
        ways.append("broker-conf")
        return IndexGeometry(slots, entries)
    found = detect_index_geometry(store.tree, store.index_files)
    if found is not None:
        ways.append("detected")
        return found
    if any(e.size > 0 for e in store.index_files):
        ways.append("default")
    return assumed_index_geometry(store.tree, store.index_files)


def _queue_sizes(store: RocketMQStore, kind: str) -> Iterator[int]:
    """Lengths of the files of a sample of queues."""
    for queue in islice(store.queues(kind), _SAMPLE):
        yield from (f.size for f in queue.files()[0])


def _sizes(tree: Tree, path: str) -> Iterator[int]:
    yield from (f.size for f in sequence(tree, path, path)[0])
