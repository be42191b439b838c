"""Records as a consumer gets them: no control records, on request none aborted or undecided (spec 9.1, 12)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from formats.kafka.record_batch import Attributes
from rmqctl.kafka.block import Block, Flags
from rmqctl.kafka.records import Records, records_of
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.producers import EndedTransaction


class Spans:
    """The aborted transactions of a partition, to be asked for single batches."""

    def __init__(self, aborted: Iterable[EndedTransaction]) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}
        for transaction in aborted:
            spans = self._by_producer.setdefault(transaction.producer_id, [])
            spans.append((transaction.first_offset, transaction.last_offset))

    def find(self, producer: int, offset: int) -> tuple[int, int] | None:
        """First offset and marker of the aborted transaction that an offset of a producer belongs to."""
        spans = self._by_producer.get(producer, ())
        at = bisect_right(spans, offset, key=lambda span: span[0]) - 1
        return spans[at] if at >= 0 and offset <= spans[at][1] else None


@dataclass(frozen=True, slots=True)
class Visible:
    """What of a partition a consumer sees, to be asked of its blocks anywhere.

    Attributes:
        end: the first offset that it does not see.
        aborted: transactions whose records it does not see; None: it sees all.
    """

    end: int
    aborted: Spans | None

    def wanted(self, block: Block) -> Flags:
        """Which batches of a block hold records for the consumer, by what their headers say."""
        keep = ~block.flag(Attributes.CONTROL) & (block["base_offset"] < self.end)
        if self.aborted is not None:
            producer, base = block["producer_id"], block["base_offset"]
            for row in np.flatnonzero(keep & block.flag(Attributes.TRANSACTIONAL)).tolist():
                keep[row] = self.aborted.find(int(producer[row]), int(base[row])) is None
        return keep


@dataclass(frozen=True, slots=True)
class View(Visible):
    """What of a partition a consumer sees, with its log."""

    log: PartitionLog

    def records(self, start: int) -> Iterator[Records]:
        """Yield groups of records from an offset on, in order."""
        for _, block in self.log.blocks(start):
            kept = block.take(self.wanted(block) & (block["last_offset"] >= start))
            for records in records_of(kept):
                yield records.take((records.offset >= start) & (records.offset < self.end))


def view_of(log: PartitionLog, *, read_committed: bool) -> View:
    """Return what a consumer of the partition's only replica sees."""
    state = log.replayed
    if not read_committed:
        return View(state.log_end_offset, None, log)
    return View(state.last_stable_offset, Spans(state.producers.aborted), log)
