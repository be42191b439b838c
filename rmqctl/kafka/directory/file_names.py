"""What the names in a log directory mean (spec 1): files, their kinds, partition directories."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class FileKind(StrEnum):
    """What a file holds, by its name."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    KRAFT_SNAPSHOT = "checkpoint"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    QUORUM_STATE = "quorum-state"
    META_PROPERTIES = "meta.properties"
    RECOVERY_POINTS = "recovery-point-offset-checkpoint"
    HIGH_WATERMARKS = "replication-offset-checkpoint"
    LOG_STARTS = "log-start-offset-checkpoint"
    CLEANER_OFFSETS = "cleaner-offset-checkpoint"
    CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
    LOCK = ".lock"
    OTHER = "other"


SEGMENT_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
"""Kinds of which each segment has at most one file."""
CHECKPOINTS = (
    FileKind.RECOVERY_POINTS,
    FileKind.HIGH_WATERMARKS,
    FileKind.LOG_STARTS,
    FileKind.CLEANER_OFFSETS,
)
"""Text files with one offset a partition."""
LEFTOVERS = (".deleted", ".cleaned", ".swap", ".tmp", ".part")
"""What stands after the name of a file that is waiting for something."""
METADATA_TOPIC = "__cluster_metadata"
BOOTSTRAP = "bootstrap.checkpoint"
REMOTE_CACHE = "remote-log-index-cache"

_SUFFIXES = {f".{kind}": kind for kind in (*SEGMENT_KINDS, FileKind.PRODUCER_SNAPSHOT, FileKind.KRAFT_SNAPSHOT)}
_WHOLE = {str(kind): kind for kind in FileKind if kind not in _SUFFIXES.values() and kind is not FileKind.OTHER}
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})", re.ASCII)
_PARTITION = re.compile(
    r"(?P<topic>.+)-(?P<partition>\d{1,10})(?:\.(?P<unique>[0-9a-f]{32})-(?P<state>\w+))?", re.ASCII
)
_CUT = re.compile(
    r"(?P<topic>.*?)(?:-(?P<partition>\d{1,10}))?\.(?P<unique>[0-9a-f]{32})-(?P<state>delete|stray)", re.ASCII
)
_INT_MAX = 2147483647
LONG_MAX = (1 << 63) - 1
"""The largest offset that a name may hold: brokers read it as a Java ``long``, and fail on a larger one."""


@dataclass(frozen=True, slots=True)
class NameMeaning:
    """A file's name, taken apart.

    Attributes:
        base: the number in front, an offset; None where there is none, or one larger than any offset.
        epoch: of a metadata snapshot, None for other files.
        leftover: ``.deleted`` and the like, "" for a file in use.
    """

    kind: FileKind
    base: int | None = None
    epoch: int | None = None
    leftover: str = ""


@lru_cache(maxsize=4096)
def meaning_of(name: str) -> NameMeaning:
    """Return the meaning of a file's name, without its directory; never fails."""
    leftover = next((end for end in LEFTOVERS if name.endswith(end)), "")
    plain = name.removesuffix(leftover)
    if plain == BOOTSTRAP:
        return NameMeaning(FileKind.KRAFT_SNAPSHOT, leftover=leftover)
    if plain in _WHOLE:
        return NameMeaning(_WHOLE[plain], leftover=leftover)
    stem, dot, suffix = plain.rpartition(".")
    kind = _SUFFIXES.get(dot + suffix, FileKind.OTHER)
    snapshot = _SNAPSHOT.fullmatch(stem) if kind is FileKind.KRAFT_SNAPSHOT else None
    if snapshot and int(snapshot[1]) <= LONG_MAX:
        return NameMeaning(kind, int(snapshot[1]), int(snapshot[2]), leftover)
    base = int(stem) if stem.isascii() and stem.isdigit() and len(stem) == 20 else None
    return NameMeaning(kind, None if base is not None and base > LONG_MAX else base, leftover=leftover)


class DirectoryState(StrEnum):
    """What a partition's directory is, by what follows its name."""

    PLAIN = ""
    FUTURE = "future"
    DELETE = "delete"
    STRAY = "stray"


@dataclass(frozen=True, slots=True)
class PartitionName:
    """A partition directory's name, taken apart.

    Attributes:
        topic: may be cut short in ``-delete`` and ``-stray`` directories.
        partition: None where the name does not say (cut short, or no partition's name at all).
        unique: the 32 digits of a directory that is not plain.
    """

    topic: str
    partition: int | None
    state: DirectoryState = DirectoryState.PLAIN
    unique: str = ""


def partition_of(name: str) -> PartitionName | None:
    """Return what the name of a partition directory says; None where it is no such name.

    The partition stands after the last ``-``, for topics may hold such: ``a-b-0`` is partition 0 of ``a-b``,
    ``x-delete-0`` one of ``x-delete``.
    """
    for form in (_PARTITION, _CUT):
        match = form.fullmatch(name)
        if match is None:
            continue
        number = match["partition"]
        partition = int(number) if number is not None and int(number) <= _INT_MAX else None
        state = match["state"]
        if state is None:
            return PartitionName(match["topic"], partition) if partition is not None else None
        if state in {"future", "delete", "stray"}:
            return PartitionName(match["topic"], partition, DirectoryState(state), match["unique"])
    return None
