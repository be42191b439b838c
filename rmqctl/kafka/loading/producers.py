"""Producers and transactions of a partition, replayed from its batches (spec 9.1, 9.2; ProducerStateManager).

The replay accepts what stands in the log, as a broker does when it loads one: sequences and epochs were judged when the
batches were appended. What is suspicious about them is the business of ``verify``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple

import numpy as np

from formats.errors import DecodeError
from formats.kafka.record_batch import Attributes, ControlType, control_type, coordinator_epoch
from rmqctl.kafka.log.block import Batches, Block, Flags, Ints
from rmqctl.kafka.log.reference import records_of_batch


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
        """Return the fields by name."""
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


BATCH_COLUMNS = ("producer_id", "producer_epoch", "last_sequence", "base_offset", "last_offset", "max_timestamp")
"""What the replay needs of batches, in the order of :meth:`ProducerReplay.data`."""
UNKNOWN = -(1 << 16)
"""Stands for the epoch of a producer of which nothing was known."""
_FEW = 24
"""Batches below which columns are slower than one after the other."""


class Before(NamedTuple):
    """What was known of the producer of each batch when its turn came.

    Attributes:
        epoch: :data:`UNKNOWN` where nothing was, shape (n,).
        sequence: of the last record before, -1 where none was known, shape (n,).
    """

    epoch: Ints
    sequence: Ints


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
        """Start from the entries of a producer snapshot; what was known before is forgotten, but for what has ended."""
        self.producers.clear()
        self.open.clear()
        names = [field.name for field in fields(Producer)]
        for entry in entries:
            found = Producer(**{name: int(entry[name]) for name in names})
            self.producers[found.producer_id] = found
            if found.current_txn_first_offset >= 0:
                self.open[found.producer_id] = found.current_txn_first_offset

    def add(self, block: Block) -> None:
        """Go on with the batches of a block."""
        self.go_on(block, markers_in(block))

    def go_on(self, block: Batches, marker: Callable[[int], Marker | None]) -> None:
        """Go on with batches.

        Args:
            marker: what the marker in a row says.
        """
        rows = np.flatnonzero(block["producer_id"] >= 0)
        control = block.flag(Attributes.CONTROL)[rows]
        transactional = block.flag(Attributes.TRANSACTIONAL)[rows]
        columns = {name: block[name][rows] for name in BATCH_COLUMNS}
        ids, epochs, bases = (columns[name] for name in ("producer_id", "producer_epoch", "base_offset"))
        begin = 0
        for at in [*np.flatnonzero(control).tolist(), len(rows)]:
            if at > begin:
                stretch = slice(begin, at)
                self.stretch({name: column[stretch] for name, column in columns.items()}, transactional[stretch])
            if at < len(rows):
                self.end(int(ids[at]), int(epochs[at]), int(bases[at]), marker(int(rows[at])))
            begin = at + 1

    def stretch(self, columns: Mapping[str, Ints], transactional: Flags) -> Before:
        """Go on with batches of data that no marker stands between; a run of many is done by columns.

        Args:
            columns: those of :data:`BATCH_COLUMNS`, shape (n,), in the order of the log.
            transactional: shape (n,).
        """
        count = len(transactional)
        before = Before(np.full(count, UNKNOWN, np.int64), np.full(count, -1, np.int64))
        if count < _FEW:
            lists = [columns[name].tolist() for name in BATCH_COLUMNS]
            for row, (in_transaction, *batch) in enumerate(zip(transactional.tolist(), *lists, strict=True)):
                known = self.producers.get(batch[0])
                if known is not None:
                    before.epoch[row], before.sequence[row] = known.producer_epoch, known.last_sequence
                self.data(*batch, transactional=in_transaction)
            return before
        order = np.argsort(columns["producer_id"], kind="stable")
        by = {name: columns[name][order] for name in BATCH_COLUMNS}
        ids = by["producer_id"]
        firsts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        lasts = np.append(firsts[1:], count) - 1
        epoch, sequence = np.empty(count, np.int64), np.empty(count, np.int64)
        epoch[1:], sequence[1:] = by["producer_epoch"][:-1], by["last_sequence"][:-1]
        begun = np.minimum.reduceat(np.where(transactional[order], np.arange(count), count), firsts).tolist()
        finals = [by[name][lasts].tolist() for name in BATCH_COLUMNS]
        for first, start, *final in zip(firsts.tolist(), begun, *finals, strict=True):
            known = self.producers.get(final[0])
            epoch[first], sequence[first] = (known.producer_epoch, known.last_sequence) if known else (UNKNOWN, -1)
            self.data(*final, transactional=False)
            found = self.producers[final[0]]
            if start < count and found.current_txn_first_offset < 0:
                found.current_txn_first_offset = self.open[final[0]] = int(by["base_offset"][start])
        before.epoch[order], before.sequence[order] = epoch, sequence
        return before

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

    def end(self, producer: int, epoch: int, offset: int, marker: Marker | None) -> None:
        """Go on with a control batch.

        Args:
            marker: None for one that compaction emptied: a broker notes that there is such a producer, and nothing of
                it, its epoch neither (``ProducerAppendInfo.append``).
        """
        found = self.producers.get(producer)
        if found is None:
            found = self.producers[producer] = Producer(producer)
        if marker is None:
            return
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
        """Return the first offset that is not decided: of the earliest open transaction, else ``end``."""
        return min(self.open.values(), default=end)

    def rows(self) -> list[dict[str, int]]:
        """Return the producers as rows, by id."""
        return [self.producers[number].row() for number in sorted(self.producers)]


def markers_in(block: Block) -> Callable[[int], Marker | None]:
    """Return what reads the marker in a row of a block."""
    return lambda row: marker_of(block.raw(row))


def marker_of(batch: bytes) -> Marker | None:
    """Return what the marker in a control batch says; None for an emptied batch, and for one that is no marker."""
    try:
        record = next(records_of_batch(batch), None)
    except DecodeError:
        return None
    kind = control_type(None if record is None else record.key)
    if record is None or kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return Marker(kind, coordinator_epoch(record.value), record.timestamp)
