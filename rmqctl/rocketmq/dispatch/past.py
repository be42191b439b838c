"""Where the log of a store ended at a time, by the store times of its messages: the clock of the broker.

Store times are taken under the lock of the log, so they ascend as the log does, but for a clock that was set back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from formats.rocketmq.message import TRANSACTION
from rmqctl.past import DAMAGE, RETENTION, SET_BACK, is_current
from rmqctl.rocketmq.dispatch.continuity import messages_in
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.log.columns import TextIds
from rmqctl.rocketmq.log.commitlog import CommitLog, LogBlock
from rmqctl.rocketmq.store.files import COMMIT_LOG, StoreFiles

END = 1 << 62
"""An end of the log after all that is there."""
_NO_QUEUES = "RMQ_SYS_ROCKSDB_"
"""What the names of topics begin with whose messages have rows in a database instead of units in a queue."""
_GRAIN_MS = 20


@dataclass(slots=True)
class LogThen:
    """The log as it was at a time.

    Attributes:
        low, high: physical offset at which it ended at least, and at most; :data:`END` where all of it was there.
        reason: why they differ; of a time before the first message, why nothing is known; "" where all is known.
        begin: physical offset at which the log begins now.
        begins: store time of the first message that is here, epoch ms; None without one.
        last: store time of the last message that was there then, epoch ms.
        next: by topic and queue id, the queue offset after the last message in the log then.
    """

    low: int = END
    high: int = END
    reason: str = ""
    begin: int = 0
    begins: int | None = None
    last: int | None = None
    next: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether one place in the log is that of the time, and history goes back as far."""
        return not self.reason


def log_at(store: StoreFiles, at: int) -> LogThen:
    """Return where the log ended at a time, epoch ms; what was stored in this millisecond was there. Reads the headers
    of all messages.
    """
    found, ids = LogThen(begin=CommitLog(store.log_files).min_offset), TextIds()
    numbers: dict[int, int] = {}
    before, later, damage = found.begin, END, list[int]()
    for part in CommitLog(store.log_files, crashed=store.state != "clean").walk():
        block = part.block
        damage += [one.physical_offset for one in part.findings if one.physical_offset is not None]
        if not len(block):
            continue
        time, physical = block["store_timestamp"], block.physical
        if found.begins is None:
            found.begins = int(time[0])
        was_there = time <= at
        if not was_there.all():
            later = min(later, int(physical[~was_there].min()))
        rows = np.flatnonzero(was_there)
        if len(rows):
            before = int(physical[rows[-1]]) + int(block.total_size[rows[-1]])
            found.last = int(time[rows[-1]])
            _note_next(part, rows, ids, numbers)
    found.next = {(_topic(ids, number >> 32), _queue(number)): offset for number, offset in numbers.items()}
    found.next = {key: offset for key, offset in found.next.items() if not key[0].startswith(_NO_QUEUES)}
    if later < before:
        found.low, found.high, found.reason = later, before, SET_BACK
    elif later < END and any(before <= place < later for place in damage):
        found.low, found.high, found.reason = before, later, DAMAGE
    elif later < END:
        found.low = found.high = later
    if found.last is None and found.begin and found.begins is not None:
        found.reason = found.reason or RETENTION
    return found


def _note_next(
    part: LogBlock, rows: np.ndarray[tuple[int], np.dtype[np.intp]], ids: TextIds, numbers: dict[int, int]
) -> None:
    """Note the queue offset after the last message of each queue among some rows."""
    block = part.block
    queued = rows[~np.isin(block["sys_flag"][rows] & TRANSACTION, UNQUEUED)]
    keys = (part.topics(ids)[queued] << 32) | (block["queue_id"][queued].astype(np.int64) & 0xFFFFFFFF)
    after = block["queue_offset"][queued] + messages_in(block)[queued]
    own, last = np.unique(keys[::-1], return_index=True)
    numbers.update(zip(own.tolist(), after[::-1][last].tolist(), strict=True))


def _topic(ids: TextIds, number: int) -> str:
    return ids.texts[number].decode("utf-8", "replace")


def _queue(number: int) -> int:
    queue = number & 0xFFFFFFFF
    return queue - (1 << 32) if queue >> 31 else queue


def is_now(store: StoreFiles, then: LogThen, at: int) -> bool:
    """Whether nothing was written after a time, so that files are as they were: brokers write their settings every few
    seconds. Times of files that are older than the messages say nothing.
    """
    if is_current(at, is_running=store.is_running):
        return True
    listed = (store.tree.entries(path) for path in ("", "config", COMMIT_LOG))
    written = max((entry.mtime_ms for entry in chain.from_iterable(listed) if not entry.is_directory), default=0)
    written = max([written, *(file.mtime_ms for file in store.log_files)])
    everything = then.low == END and then.is_known
    return everything and written > 0 and (then.last or 0) <= written + _GRAIN_MS and written <= at
