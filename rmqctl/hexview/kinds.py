"""Which kind of file lies at a path inside a store, by its place and name alone."""

from __future__ import annotations

from rmqctl.rocketmq.rows.guess import FileKind
from rmqctl.rocketmq.store import BATCH_QUEUES, COMMIT_LOG, INDEX, QUEUES, QUEUES_EXT, is_offset

_SEQUENCES = {
    QUEUES: FileKind.QUEUE,
    QUEUES_EXT: FileKind.EXTENSION,
    BATCH_QUEUES: FileKind.BATCH_QUEUE,
    "timerlog": FileKind.TIMER_LOG,
}
_COMPACTION = {"compactionLog": FileKind.LOG, "compactionCq": FileKind.BATCH_QUEUE}
_BY_PATH = {
    "checkpoint": FileKind.CHECKPOINT,
    "timerwheel": FileKind.TIMER_WHEEL,
    "abort": FileKind.ABORT,
    "lock": FileKind.LOCK,
    "epochFileCheckpoint": FileKind.EPOCHS,
    "brokerIdentity": FileKind.IDENTITY,
    "brokerIdentity-temp": FileKind.IDENTITY,
    "config/timercheck": FileKind.TIMER_CHECK,
    "compaction/position-checkpoint": FileKind.CONFIG,
}
_DLEDGER = {"checkpoint": FileKind.DLEDGER_CHECKPOINT, "currterm": FileKind.DLEDGER_TERM}
_COPIES = (".bak", ".tmp")
_CONFIG_DEPTH = 2


def kind_of(path: str) -> FileKind | None:
    """The kind of the file at ``path``, relative to the store's root, with ``/``; None for files of no known kind.

    Copies (``.bak``, ``.tmp``) are of the kind of what they are copies of. Files of RocksDB are of
    no kind known here.
    """
    for suffix in _COPIES:
        path = path.removesuffix(suffix)
    parts = path.split("/")
    if path in _BY_PATH:
        return _BY_PATH[path]
    if parts[0].startswith("dledger-"):
        return _dledger(parts)
    if parts[0] == INDEX and len(parts) > 1:
        return FileKind.INDEX
    if parts[0] == "config" and len(parts) == _CONFIG_DEPTH:
        return FileKind.CONFIG
    return _sequence(parts) if is_offset(parts[-1]) else None


def _sequence(parts: list[str]) -> FileKind | None:
    """The kind of a file named by its offset."""
    if parts[0] in _SEQUENCES:
        return _SEQUENCES[parts[0]]
    if parts[0] == "compaction" and len(parts) > 1:
        return _COMPACTION.get(parts[1])
    return FileKind.LOG if parts[0].startswith(COMMIT_LOG) else None


def _dledger(parts: list[str]) -> FileKind | None:
    if not is_offset(parts[-1]):
        return _DLEDGER.get("/".join(parts[1:]))
    return FileKind.DLEDGER_INDEX if INDEX in parts[1:-1] else FileKind.DLEDGER_LOG


__all__ = ["FileKind", "kind_of"]
