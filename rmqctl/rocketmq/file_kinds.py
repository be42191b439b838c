"""The kinds of files that a store has."""

from __future__ import annotations

from enum import StrEnum


class FileKind(StrEnum):
    """What a file is, whether its place in a store says so or its content."""

    COMMIT_LOG = "commit-log"
    QUEUE = "queue"
    QUEUE_EXT = "queue-ext"
    BATCH_QUEUE = "batch-queue"
    COMPACTION_LOG = "compaction-log"
    COMPACTION_QUEUE = "compaction-queue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    TIMER_WHEEL = "timer-wheel"
    TIMER_LOG = "timer-log"
    TIMER_CHECK = "timer-check"
    DLEDGER_DATA = "dledger-data"
    DLEDGER_INDEX = "dledger-index"
    DLEDGER_CHECKPOINT = "dledger-checkpoint"
    DLEDGER_TERM = "dledger-term"
    CONFIG = "config"
    EPOCH = "epoch"
    IDENTITY = "identity"
    ABORT = "abort"
    LOCK = "lock"
    OTHER = "other"
