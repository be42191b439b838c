"""Which kind of file lies at a path inside a store, by its place and name."""

from __future__ import annotations

from rmqctl.rocketmq.file_kinds import FileKind
from rmqctl.rocketmq.store import BATCH_QUEUES, COMMIT_LOG, INDEX, QUEUES, QUEUES_EXT, is_offset

_QUEUE_KINDS = {QUEUES: FileKind.QUEUE, QUEUES_EXT: FileKind.QUEUE_EXT, BATCH_QUEUES: FileKind.BATCH_QUEUE}
_COMPACTION = {"compactionLog": FileKind.COMPACTION_LOG, "compactionCq": FileKind.COMPACTION_QUEUE}
_BY_NAME = {
    "checkpoint": FileKind.CHECKPOINT,
    "timerwheel": FileKind.TIMER_WHEEL,
    "abort": FileKind.ABORT,
    "lock": FileKind.LOCK,
    "epochFileCheckpoint": FileKind.EPOCH,
    "brokerIdentity": FileKind.IDENTITY,
    "brokerIdentity-temp": FileKind.IDENTITY,
    "config/timercheck": FileKind.TIMER_CHECK,
    "compaction/position-checkpoint": FileKind.CONFIG,
}
_COPIES = (".bak", ".tmp")
_CONFIG_DEPTH = 2


def kind_of(path: str) -> FileKind:
    """The kind of the file at ``path``, relative to the store's root, with ``/``.

    Copies (``.bak``, ``.tmp``) are of the kind of what they are copies of; files in directories of
    RocksDB and unknown ones are ``OTHER``.
    """
    for suffix in _COPIES:
        path = path.removesuffix(suffix)
    if path in _BY_NAME:
        return _BY_NAME[path]
    parts = path.split("/")
    if parts[0].startswith("dledger-"):
        return _dledger(parts)
    if parts[0] == INDEX and len(parts) > 1:
        return FileKind.INDEX
    if parts[0] == "config" and len(parts) == _CONFIG_DEPTH:
        return FileKind.CONFIG
    return _sequence(parts) if is_offset(parts[-1]) else FileKind.OTHER


def _sequence(parts: list[str]) -> FileKind:
    """The kind of a file named by its offset."""
    if parts[0] in _QUEUE_KINDS:
        return _QUEUE_KINDS[parts[0]]
    if parts[0] == "compaction" and len(parts) > 1:
        return _COMPACTION.get(parts[1], FileKind.OTHER)
    if parts[0] == "timerlog":
        return FileKind.TIMER_LOG
    return FileKind.COMMIT_LOG if parts[0].startswith(COMMIT_LOG) or len(parts) == 1 else FileKind.OTHER


def _dledger(parts: list[str]) -> FileKind:
    if parts[1:] in (["checkpoint"], ["currterm"]):
        return FileKind.DLEDGER_CHECKPOINT if parts[1] == "checkpoint" else FileKind.DLEDGER_TERM
    if not is_offset(parts[-1]):
        return FileKind.OTHER
    return FileKind.DLEDGER_INDEX if "index" in parts[1:-1] else FileKind.DLEDGER_DATA
