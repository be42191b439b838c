"""Producers and transactions of a partition, replayed from its batches (spec 9.1, 9.2; ProducerStateManager).

The replay accepts what stands in the log, as a broker does when it loads one: sequences and epochs were judged when the
batches were appended. What is suspicious about them is the business of ``verify``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple

import numpy as np

from formats.errors import DecodeError
from formats.kafka.record_batch import Attributes, ControlType
from rmqctl.kafka.block import Block
from rmqctl.kafka.reference import records_of


@dataclass(slots=True)
class Producer:
    """What is known of one producer; fields and their -1 as in a producer snapshot."""

    producer_id: int
    producer_epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1

    def row(self) -> dict[str, int]:
        """The fields by name."""
        return asdict(self)

    def take_epoch(self, epoch: int) -> None:
        """Forget the batches of another epoch."""
        if epoch != self.producer_epoch:
            self.producer_epoch, self.last_sequence, self.last_offset, self.offset_delta = epoch, -1, -1, 0


class Marker(NamedTuple):
    """The end of a transaction, as its marker says.

    Attributes:
        type: ``ControlType.ABORT`` or ``COMMIT``.
    """

    type: int
    coordinator_epoch: int
    timestamp: int


class EndedTransaction(NamedTuple):
    """A transaction that a marker ended; the fields are those of an entry in the transaction index.

    Attributes:
        last_offset: of the marker.
        last_stable_offset: first offset of the earliest other transaction open then, else that after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    committed: bool


class ProducerReplay:
    """The producers of one partition at some point of its log.

    Attributes:
        producers: by id, in the order first seen.
        ended: transactions ended by a marker, in the order of the markers.
        open: first offset of the transaction that is open, by producer id.
    """

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.ended: list[EndedTransaction] = []
        self.open: dict[int, int] = {}

    def load(self, entries: Iterable[Mapping[str, int]]) -> None:
        """Start from the entries of a producer snapshot."""
        names = [field.name for field in fields(Producer)]
        for entry in entries:
            found = Producer(**{name: int(entry[name]) for name in names})
            self.producers[found.producer_id] = found
            if found.current_txn_first_offset >= 0:
                self.open[found.producer_id] = found.current_txn_first_offset

    def add(self, block: Block) -> None:
        """Go on with the batches of a block."""
        rows = np.flatnonzero(block["producer_id"] >= 0)
        if not len(rows):
            return
        names = ("producer_id", "producer_epoch", "last_sequence", "base_offset", "last_offset", "max_timestamp")
        columns = [block[name][rows].tolist() for name in names]
        transactional = block.flag(Attributes.TRANSACTIONAL)[rows].tolist()
        control = block.flag(Attributes.CONTROL)[rows].tolist()
        for row, in_transaction, is_control, *batch in zip(
            rows.tolist(), transactional, control, *columns, strict=True
        ):
            if is_control:
                marker = marker_of(block.raw(row))
                if marker is not None:
                    self.end(batch[0], batch[1], batch[3], marker)
            else:
                self.data(*batch, transactional=in_transaction)

    def data(
        self, producer: int, epoch: int, sequence: int, base: int, last: int, timestamp: int, *, transactional: bool
    ) -> None:
        """Go on with a batch of data, whose last record has the offset ``last`` and this sequence number."""
        found = self.producers.get(producer)
        if found is None:
            found = self.producers[producer] = Producer(producer)
        found.take_epoch(epoch)
        found.last_sequence, found.last_offset, found.offset_delta = sequence, last, last - base
        found.last_timestamp = timestamp
        if transactional and found.current_txn_first_offset < 0:
            found.current_txn_first_offset = self.open[producer] = base

    def end(self, producer: int, epoch: int, offset: int, marker: Marker) -> None:
        """Go on with a marker."""
        found = self.producers.get(producer)
        if found is None:
            found = self.producers[producer] = Producer(producer)
        found.take_epoch(epoch)
        found.coordinator_epoch, found.last_timestamp = marker.coordinator_epoch, marker.timestamp
        first, found.current_txn_first_offset = found.current_txn_first_offset, -1
        if first >= 0:
            self.open.pop(producer, None)
            stable = min(self.open.values(), default=offset + 1)
            committed = marker.type == ControlType.COMMIT
            self.ended.append(EndedTransaction(producer, first, offset, stable, committed))

    @property
    def aborted(self) -> list[EndedTransaction]:
        """Transactions that were aborted, by the offset of the marker: what transaction indexes list."""
        return [transaction for transaction in self.ended if not transaction.committed]

    def stable_offset(self, end: int) -> int:
        """The first offset that is not decided: of the earliest open transaction, else ``end``."""
        return min(self.open.values(), default=end)

    def rows(self) -> list[dict[str, int]]:
        """The producers as rows, by id."""
        return [self.producers[number].row() for number in sorted(self.producers)]


def marker_of(batch: bytes) -> Marker | None:
    """What the marker in a control batch says; None for an emptied batch, and for one that is no marker."""
    try:
        record = next(records_of(batch), None)
    except DecodeError:
        return None
    if record is None or record.key is None or len(record.key) < 4:
        return None
    kind = int.from_bytes(record.key[2:4], "big", signed=True)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    value = record.value or b""
    epoch = int.from_bytes(value[2:6], "big", signed=True) if len(value) >= 6 else -1
    return Marker(kind, epoch, record.timestamp)
