"""Batch consume queues against the inner batches of the log (spec 3.6)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.columns import Pairs
from rmqctl.rocketmq.queue_files import BATCH_UNIT, Queue, queues_of
from rmqctl.rocketmq.store import BATCH_QUEUES, RocketMQStore
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.queue_rest import Claim, Key
from rmqctl.text import number_of

_INNER_BATCH = 0x80


class BatchMatch:
    """Finds the inner batches of blocks and notes what they claim of the batch queues.

    Attributes:
        claims: per queue the batches with a readable INNER_BASE: count, first and next queue offset, end.
    """

    def __init__(self, store: RocketMQStore) -> None:
        self.topics = {e.name.encode("utf-8", "surrogateescape") for e in store.tree.entries(BATCH_QUEUES, sizes=False)}
        self.claims: dict[Key, Claim] = {}

    def rows(self, block: Block, topics: Ints, names: list[bytes]) -> Ints:
        """Rows that have no unit in a simple queue: inner batches, and all records of batch topics."""
        batch = (block["sys_flag"] & _INNER_BATCH) != 0
        numbers = [n for n, name in enumerate(names) if name in self.topics]
        return np.flatnonzero(batch | np.isin(topics, numbers) if numbers else batch)

    def claim(self, block: Block, rows: Ints, pairs: Pairs, topics: Ints, names: list[bytes]) -> None:
        """Note the batches among the rows."""
        bases, counts = (_integers(pairs.named(name)) for name in (b"INNER_BASE", b"INNER_NUM"))
        for row in rows.tolist():
            if row in bases and row in counts and int(block["sys_flag"][row]) & _INNER_BATCH:
                key = names[topics[row]].decode("utf-8", "replace"), int(block["queue_id"][row])
                end = int(block.physical[row] + block.total_size[row])
                begin = int(block.physical[row])
                self.claims.setdefault(key, Claim()).add(1, bases[row], bases[row] + counts[row] - 1, end, begin)


def _integers(pairs: Pairs) -> dict[int, int]:
    found = {}
    for i in range(len(pairs)):
        text = pairs.value(i)
        if text.isdigit() and len(text) < 20:
            found[int(pairs.owner[i])] = int(text)
    return found


def finish_batches(store: RocketMQStore, claims: dict[Key, Claim], context: LogContext) -> Iterator[Finding]:
    """Batch queues that do not come out even with the batches of the log."""
    left = dict(claims)
    for queue in queues_of(store.queues(BATCH_QUEUES), BATCH_UNIT):
        yield from _compare(queue, left.pop(queue.key, Claim()), context)
    for key, claim in sorted(left.items()):
        message = (
            f"{claim.count} inner batches of the log, queue offsets {claim.low} to {claim.high}, and no queue file"
        )
        path = f"{BATCH_QUEUES}/{key[0]}/{key[1]}"
        late = context.crashed and claim.begin >= context.dispatched >= 0
        kind = kinds.QUEUE_UNDISPATCHED if late else kinds.QUEUE_MISSING
        yield Finding(kind, path, 0, 0, message, topic=key[0], queue_id=key[1], queue_offset=claim.low)


def _compare(queue: Queue, claim: Claim, context: LogContext) -> Iterator[Finding]:
    count = 0
    last = -1
    topic, queue_id = queue.key
    for file in queue.files:
        for first, units in queue.chunks(file):
            valid = queue.valid(units) & (units["physical_offset"] >= context.min_offset)
            count += int(np.count_nonzero(valid))
            for row in np.flatnonzero(valid).tolist():
                physical, base = int(units["physical_offset"][row]), int(units["base_offset"][row])
                late = context.end is not None and physical >= context.end
                if late or base < last:
                    kind = kinds.QUEUE_AHEAD if late else kinds.QUEUE_UNIT_MISMATCH
                    why = f"the log ends at {context.end}" if late else f"the unit before it has base {last}"
                    message = f"the unit points to {physical} with base offset {base}, but {why}"
                    at = (first + row) * BATCH_UNIT.itemsize
                    yield Finding(kind, file.name, at, BATCH_UNIT.itemsize, message, topic=topic, queue_id=queue_id)
                last = base
    if count < claim.count and not context.crashed:
        message = f"{claim.count} inner batches in the log, but {number_of(count, 'unit')}"
        yield Finding(kinds.QUEUE_MISSING_UNITS, queue.files[-1].name, 0, 0, message, topic=topic, queue_id=queue_id)
