"""Queue files whose messages all lie before the log: moved away as a broker's expiry does (spec 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from rmqctl.findings import Finding
from rmqctl.repair.edits import Quarantine, Step
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.queue_files import BATCH_UNIT, UNIT, Queue, queues_of
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, RocketMQStore, StoreFile


def expired_steps(store: RocketMQStore, findings: Iterable[Finding]) -> Iterator[Step]:
    """Steps where the first files of the log are gone and whole queue files still point there.

    Expiry deletes queue files from the oldest while their last unit points before the log, never the last file,
    which keeps the queue's counter.

    Raises:
        OSError: a file cannot be read.
    """
    begin = store.log_files[0].base if store.log_files else 0
    if not any(f.kind is kinds.LOG_GAP and (f.physical_offset or 0) < begin for f in findings) or store.is_rocksdb:
        return
    for kind, dtype in ((QUEUES, UNIT), (BATCH_QUEUES, BATCH_UNIT)):
        for queue in queues_of(store.queues(kind), dtype):
            for file in queue.files[:-1]:
                if not _is_expired(queue, file, begin):
                    break
                why = f"all its units point before the log, which begins at {begin}: their messages are gone"
                what = "move to quarantine, as expiry would"
                yield Step(kinds.LOG_GAP.id, file.name, what, why, (Quarantine(file.name),))


def _is_expired(queue: Queue, file: StoreFile, begin: int) -> bool:
    ends = [int(units["physical_offset"][queue.valid(units)].max(initial=-1)) for _, units in queue.chunks(file)]
    return bool(ends) and -1 < int(np.max(ends)) < begin
