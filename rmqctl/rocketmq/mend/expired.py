"""Queue files whose messages all lie before the log: moved away as a broker's expiry does (spec 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

import numpy as np

from formats.rocketmq.consumequeue import PRE_BLANK
from rmqctl.findings import Finding
from rmqctl.repair.edits import Overwrite, Quarantine, Step
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.queue_files import BATCH_UNIT, UNIT, Queue, Units, is_pre_blank, queues_of
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, RocketMQStore, StoreFile
from rmqctl.text import number_of

_FIRST = 3


def expired_steps(store: RocketMQStore, findings: Iterable[Finding]) -> Iterator[Step]:
    """Steps where the first files of the log are gone and whole queue files still point there.

    Expiry deletes queue files from the oldest while their last unit points before the log, never the last file,
    which keeps the queue's counter. Units that damage made point elsewhere do not keep a file: where a later file still
    begins before the log, all in front of it is gone.

    Raises:
        OSError: a file cannot be read.
    """
    begin = store.log_files[0].base if store.log_files else 0
    if not any(f.kind is kinds.LOG_GAP and (f.physical_offset or 0) < begin for f in findings) or store.is_rocksdb:
        return
    for kind, dtype in ((QUEUES, UNIT), (BATCH_QUEUES, BATCH_UNIT)):
        for queue in queues_of(store.queues(kind), dtype):
            old = [_begins_before(queue, file, begin) for file in queue.files]
            for number, file in enumerate(queue.files[:-1], 1):
                if not (_is_expired(queue, file, begin) or any(old[number:])):
                    break
                why = f"its messages lie before the log, which begins at {begin}: they are gone"
                what = "move to quarantine, as expiry would"
                yield Step(kinds.LOG_GAP.id, file.name, what, why, (Quarantine(file.name),))


def hollow_steps(store: RocketMQStore) -> Iterator[Step]:
    """First files of queues in which no unit is left, once the log has given back all that it can.

    A broker that finds one among the last three cuts the queue there, and starts to count anew.

    Raises:
        OSError: a file cannot be read.
    """
    if store.is_rocksdb:
        return
    begin = store.log_files[0].base if store.log_files else 0
    for kind, dtype in ((QUEUES, UNIT), (BATCH_QUEUES, BATCH_UNIT)):
        for queue in queues_of(store.queues(kind), dtype):
            hollow = list(takewhile(lambda file: not _has_units(queue, file), queue.files))  # noqa: B023 -- used at once
            for file in hollow if len(hollow) < len(queue.files) else ():
                why = "no unit is in it, and the log has none of its messages: a broker would cut the queue here"
                yield Step(kinds.LOG_GAP.id, file.name, "move to quarantine", why, (Quarantine(file.name),))
            if dtype is UNIT and begin:
                yield from _filled(queue, queue.files[len(hollow) :], begin)


def _filled(queue: Queue, files: list[StoreFile], begin: int) -> Iterator[Step]:
    """Units without a message in front of the first whose message the log has: fillers, as in front of a new queue."""
    for file in files:
        units = queue.read(file)
        valid = queue.valid(units)
        live = np.flatnonzero(valid & ~is_pre_blank(units) & (units["physical_offset"] >= begin))
        used = len(units) if file is not files[-1] else int(np.flatnonzero(valid).max(initial=-1)) + 1
        empty = np.flatnonzero(~valid[: int(live[0]) if len(live) else used])
        if len(empty):
            runs = np.split(empty, np.flatnonzero(np.diff(empty) > 1) + 1)
            edits = tuple(_filler(file, units, int(run[0]), len(run)) for run in runs)
            why = "their messages are gone with the first files of the log; a broker would cut the queue here"
            yield Step(kinds.LOG_GAP.id, file.name, f"make {number_of(len(empty), 'filler unit')}", why, edits)
        if len(live):
            return


def _filler(file: StoreFile, units: Units, first: int, count: int) -> Overwrite:
    before = units[first : first + count].tobytes()
    return Overwrite(file.name, first * UNIT.itemsize, before, PRE_BLANK * count)


def _has_units(queue: Queue, file: StoreFile) -> bool:
    return any(bool(queue.valid(units).any()) for _, units in queue.chunks(file))


def _is_expired(queue: Queue, file: StoreFile, begin: int) -> bool:
    ends = [int(units["physical_offset"][queue.valid(units)].max(initial=-1)) for _, units in queue.chunks(file)]
    return bool(ends) and -1 < int(np.max(ends)) < begin


def _begins_before(queue: Queue, file: StoreFile, begin: int) -> bool:
    """Whether the first units of a file point before the log: most of the first three, as one may be damaged."""
    for _, units in queue.chunks(file):
        first = units["physical_offset"][queue.valid(units)][:_FIRST]
        return int(np.count_nonzero(first < begin)) * 2 > len(first)
    return False
