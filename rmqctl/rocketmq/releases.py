"""Which releases could have written a store: evidence from its files, each with what it proves (spec 15)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from formats.errors import DecodeError
from formats.rocketmq.config_json import parse_config
from rmqctl.files.tree import read_all
from rmqctl.release import Release
from rmqctl.rocketmq.release_evidence import Evidence, index_evidence, record_evidence
from rmqctl.rocketmq.store import BATCH_QUEUES, RocketMQStore

OLDEST, NEWEST = Release(4, 4, 0), Release(5, 5, 0)
FIRST_WITH_EMPTY_BODIES = Release(5, 3, 2)
"""First release whose push consumers take messages without a body; those before fail on one and stop there."""
_PATHS = (
    ("abort.bak", Release(5, 0, 0)),
    ("timerwheel", Release(5, 0, 0)),
    ("timerlog", Release(5, 0, 0)),
    (BATCH_QUEUES, Release(5, 0, 0)),
    ("epochFileCheckpoint", Release(5, 0, 0)),
    ("config/timercheck", Release(5, 0, 0)),
    ("config/topicQueueMapping.json", Release(5, 0, 0)),
    ("config/consumerOrderInfo.json", Release(5, 0, 0)),
    ("config/messageRequestMode.json", Release(5, 0, 0)),
    ("compaction", Release(5, 1, 0)),
    ("config/tieredStoreMetadata.json", Release(5, 1, 0)),
    ("config/transactionMetrics", Release(5, 2, 0)),
    ("consumequeue/CURRENT", Release(5, 2, 0)),
    ("config/consumerOffsets", Release(5, 1, 4)),
    ("config/acls", Release(5, 3, 0)),
    ("kvStore", Release(5, 3, 2)),
    ("config/rdb", Release(5, 3, 2)),
    ("rocksdbstore", Release(5, 4, 0)),
)
CHECKPOINT_SIZE = 4096
_MADE, _NOT_MADE = 4, 2
_CHECKPOINT_FIELDS = ((24, Release(5, 0, 0)), (32, Release(5, 1, 1)), (40, Release(5, 5, 0)))


@dataclass(frozen=True, slots=True)
class ReleaseRange:
    """The releases that fit all evidence."""

    lowest: Release
    highest: Release
    evidence: tuple[Evidence, ...]

    @property
    def is_5(self) -> bool:
        """Whether the rules of 5.x apply; a store that could be either is read by its later release."""
        return self.highest.major >= NEWEST.major

    def row(self) -> list[str]:
        """Lowest and highest, as the contract shows them."""
        return [str(self.lowest), str(self.highest)]


def release_range(store: RocketMQStore, *, quick: bool = False) -> ReleaseRange:
    """Weigh the evidence: the releases that most of it fits. A store that a later broker took over is of that one.

    Args:
        quick: leave out the index, which only tells 4.x releases apart that answer queries alike.

    Raises:
        OSError: a file cannot be read.
    """
    evidence = [e for look in (_LOOKS[:-1] if quick else _LOOKS) for e in look(store)]
    bounds = {r for e in evidence for r in (e.lowest, e.highest) if r} | {OLDEST, NEWEST}
    best = max(sorted(bounds, reverse=True), key=lambda release: sum(e.weight for e in evidence if e.fits(release)))
    fitting = [e for e in evidence if e.fits(best)]
    lowest = max((e.lowest for e in fitting if e.lowest), default=OLDEST)
    highest = min((e.highest for e in fitting if e.highest), default=NEWEST)
    return ReleaseRange(lowest, highest, tuple(evidence))


def _paths(store: RocketMQStore) -> Iterator[Evidence]:
    for path, since in _PATHS:
        if store.tree.stat(path) is not None:
            yield Evidence(f"{path} is there", lowest=since, weight=_MADE)


def _absent(store: RocketMQStore) -> Iterator[Evidence]:
    """What every later broker would have made; it tells something only of a store that was not copied in part."""
    if store.tree.stat("checkpoint") is None or store.tree.stat("lock") is None:
        return
    if store.tree.stat("abort.bak") is None:
        yield Evidence("abort.bak is not there", highest=Release(4, 9, 8), weight=_NOT_MADE)
    elif store.tree.stat("rocksdbstore") is None:
        yield Evidence("rocksdbstore is not there", highest=Release(5, 3, 4), weight=_NOT_MADE)


def _abort(store: RocketMQStore) -> Iterator[Evidence]:
    data = read_all(store.tree, "abort")
    if data is not None and data.strip().isdigit():
        yield Evidence("abort holds a process id", lowest=Release(5, 0, 0))


def _checkpoint(store: RocketMQStore) -> Iterator[Evidence]:
    """Later fields, which hold physical offsets; numbers that are none come from damage."""
    data = read_all(store.tree, "checkpoint") or b""
    limit = max((f.base + f.size for f in store.log_files), default=0)
    for at, since in _CHECKPOINT_FIELDS if len(data) == CHECKPOINT_SIZE else ():
        if 0 < int.from_bytes(data[at : at + 8], "big", signed=True) <= limit:
            yield Evidence(f"the checkpoint has an offset at byte {at}", lowest=since)


def _config(store: RocketMQStore) -> Iterator[Evidence]:
    for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json"):
        try:
            document = parse_config(read_all(store.tree, f"config/{name}") or b"")
        except DecodeError:
            continue
        version = document.get("dataVersion") if isinstance(document, dict) else None
        if isinstance(version, dict) and "stateVersion" in version:
            yield Evidence(f"config/{name} has a stateVersion", lowest=Release(5, 0, 0))
        elif isinstance(version, dict):
            yield Evidence(f"config/{name} has no stateVersion", highest=Release(4, 9, 8))


_LOOKS: tuple[Callable[[RocketMQStore], Iterator[Evidence]], ...] = (
    _paths,
    _absent,
    _abort,
    _checkpoint,
    _config,
    record_evidence,
    index_evidence,
)


__all__ = ["NEWEST", "OLDEST", "Evidence", "ReleaseRange", "release_range"]
