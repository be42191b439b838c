"""Sizes of the files of compacted topics (spec 3.8; CompactionLog, SparseConsumeQueue).

The log holds message records (``message``) whose PHYSICALOFFSET is the position in this log; the
queue holds 46-byte units (``batch_consumequeue``) and ends with ``COMPACTION_END``.
"""

from __future__ import annotations

from construct import Const, Struct

from formats.text import decimal_until, until

BATCH_UNIT = 46

PositionEntry = Struct(
    "quote" / Const(b'"'),
    "queue" / until(b'"') * "topic, _ and queue id",
    "colon" / Const(b":"),
    "offset" / decimal_until(b",", required=False) * "queue offset up to which the queue was compacted",
)


def queue_file_size(configured: int = 10 << 20) -> int:
    """Size of a queue file for ``compactionCqMappedFileSize``, bytes."""
    return configured // BATCH_UNIT * BATCH_UNIT


def log_file_size(configured: int = 100 << 20, queue_configured: int = 10 << 20) -> int:
    """Size of a log file for ``compactionMappedFileSize``: a multiple of the queue file's, bytes."""
    queue = queue_file_size(queue_configured)
    count, rest = divmod(configured, queue)
    if count < 5:
        return 5 * queue
    return count * queue if 0 < rest < queue // 2 else (count + 1) * queue
