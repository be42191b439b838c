"""Which file of the log recovery starts at (spec 6.3, 6.4; ``isMappedFileMatchedRecover``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from formats.rocketmq.message import Magic, SysFlag
from rmqctl.files.source import ByteSource
from rmqctl.rocketmq.recovery.message_check import Verdict, check_at
from rmqctl.rocketmq.recovery.rules import RecoveryRules, Start
from rmqctl.rocketmq.store import StoreFile

_MARGIN_MS = 3000
_HEAD = 128
_OLD_STORE_TIME_AT = 56


@dataclass(frozen=True, slots=True)
class Known:
    """What the choice depends on.

    Attributes:
        queues_end: physical offset behind the last record that a queue knows; -1 without queues.
        checkpoint: its fields by name.
        index_safe: ``messageIndexEnable`` and ``messageIndexSafe``.
        rocksdb: queues are a RocksDB database.
        body: check body CRCs (``checkCRCOnRecover``).
        light_end: how far a RocksDB database beside the queue files reaches in the log; None without one.
    """

    queues_end: int
    checkpoint: Mapping[str, int]
    index_safe: bool = False
    rocksdb: bool = False
    body: bool = True
    light_end: int | None = None

    @property
    def min_timestamp(self) -> int:
        """``StoreCheckpoint.getMinTimestamp``, ms."""
        pair = self.checkpoint["physic_msg_timestamp"], self.checkpoint["logics_msg_timestamp"]
        return max(min(pair) - _MARGIN_MS, 0)

    @property
    def min_timestamp_index(self) -> int:
        """``StoreCheckpoint.getMinTimestampIndex``, ms."""
        return min(self.min_timestamp, self.checkpoint["index_msg_timestamp"])


def start_index(files: list[StoreFile], rules: RecoveryRules, known: Known, *, normal: bool) -> int:
    """Number of the file where the scan begins.

    Raises:
        OSError: a file cannot be read.
    """
    start = rules.normal_start if normal else rules.abnormal_start
    if start is Start.THIRD_LAST:
        return max(len(files) - 3, 0)
    left = rules.max_files
    for index in range(len(files) - 1, 0, -1):
        left -= 1
        fits = _matches(files[index], start, rules, known, normal=normal) and _suits_database(files[index], known)
        if fits or left == 0:
            return index
    return 0


def _matches(file: StoreFile, start: Start, rules: RecoveryRules, known: Known, *, normal: bool) -> bool:
    if start is Start.QUEUES_END:
        return file.base <= known.queues_end
    source = file.open()
    try:
        if start is Start.STORE_TIME:
            return _matches_time(source, rules, known)
        return _matches_validated(source, file, start, rules, known, normal=normal)
    finally:
        source.close()


def _suits_database(file: StoreFile, known: Known) -> bool:
    """Whether the database beside the queue files has units up to a file (CombineConsumeQueueStore)."""
    return known.light_end is None or file.base <= known.light_end


def _matches_time(source: ByteSource, rules: RecoveryRules, known: Known) -> bool:
    head = source.read_at(0, _HEAD)
    magic = int.from_bytes(head[4:8], "big", signed=True)
    if magic != Magic.MESSAGE_V1 and not (magic == Magic.MESSAGE_V2 and rules.known_v2):
        return False
    if known.rocksdb:
        return int.from_bytes(head[28:36], "big", signed=True) <= known.queues_end
    stored = _store_time(head, rules)
    return stored != 0 and stored <= (known.min_timestamp_index if known.index_safe else known.min_timestamp)


def _store_time(head: bytes, rules: RecoveryRules) -> int:
    wide = rules.known_v6 and int.from_bytes(head[36:40], "big") & SysFlag.BORN_HOST_V6
    at = _OLD_STORE_TIME_AT + (12 if wide else 0)
    return int.from_bytes(head[at : at + 8], "big", signed=True)


def _matches_validated(
    source: ByteSource, file: StoreFile, start: Start, rules: RecoveryRules, known: Known, *, normal: bool
) -> bool:
    """The first record must be sound and stored at a time; a blank is sound but has none."""
    if check_at(source, 0, file.size, rules, body=known.body).verdict is not Verdict.RECORD:
        return False
    head = source.read_at(0, _HEAD)
    physical, stored = int.from_bytes(head[28:36], "big", signed=True), _store_time(head, rules)
    if stored == 0 or (known.index_safe and stored > known.checkpoint["index_msg_timestamp"]):
        return False
    logics = known.checkpoint["logics_physical_offset"]
    if normal or known.rocksdb:
        return physical <= known.queues_end
    if start is Start.LOGICS_OFFSET:
        return physical <= logics if logics > 0 else stored <= known.checkpoint["logics_msg_timestamp"]
    return stored <= known.min_timestamp
