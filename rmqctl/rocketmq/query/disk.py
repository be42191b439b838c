"""The room that the files of a RocketMQ store take, by what they hold."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.disk import Fate, Use, now_ms, used
from rmqctl.files.tree import Entry, Tree, local_path
from rmqctl.filters import Names
from rmqctl.rocketmq.store.files import (
    BATCH_QUEUES,
    DLEDGER,
    INDEX,
    QUEUES,
    QUEUES_EXT,
    SEPARATE_QUEUES,
    StoreFiles,
    is_queue_id,
)
from rmqctl.rocketmq.store.geometry import integer

_RESERVED_HOURS = 72
"""fileReservedTime where no settings say otherwise (MessageStoreConfig)."""
_HOUR_MS = 3_600_000
_OF_QUEUES = {QUEUES: "queue", BATCH_QUEUES: "batch-queue", QUEUES_EXT: "queue-ext"}


def reserved(store: StoreFiles) -> tuple[int, str]:
    """Return how long a file of the log is kept after its last change, ms, and the setting in words."""
    given = integer(store.settings, "fileReservedTime")
    hours = given or _RESERVED_HOURS
    return hours * _HOUR_MS, f"{'fileReservedTime' if given else 'by default fileReservedTime'} {hours} h"


def rule(store: StoreFiles) -> str:
    """Return what retention goes by (DefaultMessageStore.CleanCommitLogService)."""
    when = store.settings.get("deleteWhen", "04")
    return (
        f"files of the log expire by their last change ({reserved(store)[1]}); the broker deletes them at {when} "
        "o'clock, or when the disk is fuller than diskMaxUsedSpaceRatio, never the last one"
    )


def uses(store: StoreFiles, topics: Names) -> Iterator[Use]:
    """Yield what the files of a store take: the log, then the rest by what it holds.

    Args:
        topics: that are wanted; with some of them only files that belong to them are counted.
    """
    named = {file.name for file in store.log_files}
    if not topics:
        yield _log(store)
    found: dict[tuple[str, str | None, int | None], Use] = {}
    for entry in _files(store.tree, ""):
        if entry.path in named:
            continue
        holds, topic, number = _meaning(entry.path)
        if topics and (topic is None or not topics.include(topic)):
            continue
        fate = Fate.REBUILT if holds in {"queue", "batch-queue", "index", "queue-database"} else Fate.KEPT
        use = found.setdefault((holds, topic, number), Use(holds, fate, topic, number))
        use.add(entry.size, used(local_path(store.tree, entry.path), entry.size), entry.mtime_ms)
    yield from found.values()


def _log(store: StoreFiles) -> Use:
    """The log, whose files expire from the first on, the last one never (MappedFileQueue.deleteExpiredFileByTime)."""
    use, now, kept, latest = Use("commit-log", Fate.RETENTION), now_ms(), reserved(store)[0], 0
    for file in store.log_files:
        latest = max(latest, file.mtime_ms)
        expires = latest + kept if file is not store.log_files[-1] else None
        use.add(file.size, used(local_path(file.tree, file.path), file.size), file.mtime_ms, expires, now)
    return use


def _files(tree: Tree, path: str) -> Iterator[Entry]:
    for entry in tree.entries(path):
        if entry.is_directory:
            yield from _files(tree, entry.path)
        else:
            yield entry


def _meaning(path: str) -> tuple[str, str | None, int | None]:
    """What a file holds by its place, and the topic and queue it belongs to."""
    top, *below = path.split("/")
    if top in _OF_QUEUES and len(below) == 3 and is_queue_id(below[1]):
        return _OF_QUEUES[top], below[0], int(below[1])
    if top in {QUEUES, SEPARATE_QUEUES}:
        return "queue-database", None, None
    if top == INDEX:
        return "index", None, None
    if top.startswith(DLEDGER):
        return "dledger", None, None
    return (top if below else "other"), None, None
