"""Compaction of a log as the broker's cleaner does it (spec 14; Cleaner, CleanedTransactionMetadata).

Of the records whose segments are closed, each key keeps its last one. Base offsets, last offsets and sequences of
batches stay. A batch without records stays as a header where a producer's last sequence, or the end of what was
cleaned, would be forgotten. Tombstones, and markers of transactions of which nothing is left, stay until a horizon that
is set when they are met first.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from formats.errors import DecodeError
from formats.kafka.record_batch import HEADER_SIZE, Attributes, ControlType, header_plan
from rmqctl.errors import Refused, TooDamaged
from rmqctl.files.local import LocalFile
from rmqctl.kafka.engine.batch import BatchHead, build_batch
from rmqctl.kafka.engine.config import PER_BATCH_SINCE
from rmqctl.kafka.engine.log import ENDINGS, WritableLog
from rmqctl.kafka.engine.segment import LOG, TXN_INDEX, ActiveSegment, Appended, ClosedSegment, name_of
from rmqctl.kafka.loading.load import CLEANED, SWAP
from rmqctl.kafka.loading.producers import EndedTransaction, marker_of
from rmqctl.kafka.log.block import INT_MAX
from rmqctl.kafka.log.indexes import read_txn_index
from rmqctl.kafka.log.reference import Record, records_of_batch
from rmqctl.kafka.log.scan import Extent, scan

_CHUNK = 256 << 10
"""Bytes that a cleaner reads at a time: releases before 4.1.0 index what is left of them as one append."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a cleaning did.

    Attributes:
        end: offset up to which the log is clean.
        before, after: bytes of the segments that were cleaned.
    """

    end: int
    before: int
    after: int


@dataclass(slots=True)
class _Batch:
    """A batch with the fields of its header and its records."""

    data: bytes
    head: dict[str, int]
    _records: list[Record] | None = None

    @property
    def last_offset(self) -> int:
        return self.head["base_offset"] + self.head["last_offset_delta"]

    def flag(self, bit: Attributes) -> bool:
        return bool(self.head["attributes"] & bit)

    @property
    def horizon(self) -> int | None:
        return self.head["base_timestamp"] if self.flag(Attributes.DELETE_HORIZON) else None

    @property
    def records(self) -> list[Record]:
        if self._records is None:
            self._records = list(records_of_batch(self.data))
        return self._records


@dataclass
class _Transactions:
    """Which transactions are under way at a batch, and how they will end; what stays in the index of a segment.

    Attributes:
        waiting: aborted ones that begin later, by first offset.
        aborted: under way, by producer; the value says whether a batch of it was met.
        index: aborted transactions whose marker stays, for the transaction index.
    """

    waiting: list[tuple[int, EndedTransaction]]
    aborted: dict[int, tuple[EndedTransaction, bool]] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    index: list[EndedTransaction] = field(default_factory=list)

    def can_go(self, batch: _Batch) -> bool:
        """Whether the batch is of an aborted transaction, or the marker of one of which nothing is left."""
        while self.waiting and self.waiting[0][0] <= batch.last_offset:
            _, found = heapq.heappop(self.waiting)
            self.aborted.setdefault(found.producer_id, (found, False))
        producer = batch.head["producer_id"]
        if batch.flag(Attributes.CONTROL):
            return self._marker_can_go(batch, producer)
        if not batch.flag(Attributes.TRANSACTIONAL):
            return False
        known = self.aborted.get(producer)
        if known is None:
            self.committed.add(producer)
            return False
        self.aborted[producer] = known[0], True
        return True

    def _marker_can_go(self, batch: _Batch, producer: int) -> bool:
        if not batch.head["records_count"]:
            return True
        marker = marker_of(batch.data)
        if marker is None:
            return False
        if marker.type == ControlType.COMMIT:
            is_known = producer in self.committed
            self.committed.discard(producer)
            return not is_known
        known = self.aborted.pop(producer, None)
        if known is None or not known[1]:
            return True
        self.index.append(known[0])
        return False


def clean(log: WritableLog, first_dirty: int, now: int) -> Cleaned | None:
    """Clean the closed segments of a log; None where there is nothing to clean.

    Args:
        first_dirty: offset from which keys may have later records, from the cleaner's checkpoint.
        now: time of the cleaning, ms.

    Raises:
        Refused: the log has messages of magic 0 or 1.
        TooDamaged: a batch cannot be read; the log is as it was.
    """
    with log.exclusive():
        return _Cleaning(log, max(first_dirty, log.start), now).run()


class _Cleaning:
    """One round over one log."""

    def __init__(self, log: WritableLog, first_dirty: int, now: int) -> None:
        self.log, self.now, self.first_dirty = log, now, first_dirty
        self.end = self._first_uncleanable()
        self.latest: dict[bytes, int] = {}
        last = {n: (p.last_offset, p.producer_epoch) for n, p in log.states.replay.producers.items()}
        self.last_of_producers = last

    def _first_uncleanable(self) -> int:
        log, lag = self.log, self.log.config.min_lag_ms
        bases = [*(segment.base for segment in log.closed), log.active.base]
        end = max(base for base in bases if base <= max(min(log.stable_offset, log.active.base), bases[0]))
        if lag > 0:
            young = [segment.base for segment in log.closed if segment.largest > self.now - lag]
            end = min([end, *young])
        return end

    def run(self) -> Cleaned | None:
        segments = [segment for segment in self.log.closed if segment.base < self.end]
        if not segments or self.first_dirty >= self.end:
            return None
        self._map_keys(segments)
        before = sum(segment.size for segment in segments)
        transactions = _Transactions(self._aborted())
        after = 0
        for group in self._groups(segments):
            made = self._clean_group(group, transactions)
            after += made.size
        return Cleaned(self.end, before, after)

    # --- reading --------------------------------------------------------------------------------------

    def _batches(self, segment: ClosedSegment) -> Iterator[_Batch]:
        path = self.log.place.directory / name_of(segment.base, LOG)
        source = LocalFile(path, path.name)
        try:
            for block in scan(source, Extent(path.name, segment.base, size=segment.size)):
                if block.gaps or not block.crc_ok.all():
                    raise TooDamaged(path, "a batch in it cannot be read, so it cannot be compacted")
                if block.has_legacy:
                    raise Refused(f"{path} has messages from before 0.11, which only a broker compacts")
                for number in range(len(block)):
                    data = block.raw(number)
                    yield _Batch(data, header_plan().unpack_from(data[:HEADER_SIZE])[0])
        except DecodeError as error:
            raise TooDamaged(path, f"the records of a batch cannot be read: {error}") from error
        finally:
            source.close()

    def _aborted(self) -> list[tuple[int, EndedTransaction]]:
        """Return the aborted transactions of the log, as a heap by first offset."""
        found = []
        for base in [*(segment.base for segment in self.log.closed), self.log.active.base]:
            path = self.log.place.directory / name_of(base, TXN_INDEX)
            if not path.exists():
                continue
            source = LocalFile(path, path.name)
            try:
                index = read_txn_index(source)
            finally:
                source.close()
            names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
            rows = zip(*(index[name].tolist() for name in names), strict=True)
            found += [
                (first, EndedTransaction(n, first, last, stable, committed=False)) for n, first, last, stable in rows
            ]
        heapq.heapify(found)
        return found

    def _map_keys(self, segments: list[ClosedSegment]) -> None:
        """Note the last offset of each key in what is dirty, records of aborted transactions left out."""
        transactions = _Transactions(self._aborted())
        bases = [*(segment.base for segment in segments[1:]), self.end]
        for segment, next_base in zip(segments, bases, strict=True):
            if next_base <= self.first_dirty:
                continue
            for batch in self._batches(segment):
                if transactions.can_go(batch) or batch.flag(Attributes.CONTROL):
                    continue
                for record in batch.records:
                    if record.key is not None and record.offset >= self.first_dirty:
                        self.latest[record.key] = record.offset

    def _groups(self, segments: list[ClosedSegment]) -> Iterator[list[ClosedSegment]]:
        """Neighbouring segments that become one."""
        config, at = self.log.config, 0
        while at < len(segments):
            group, size, indexes = [segments[at]], segments[at].size, segments[at].indexes
            at += 1
            while at < len(segments):
                found = segments[at]
                last = (segments[at + 1].base if at + 1 < len(segments) else self.end) - 1
                sums = indexes[0] + found.indexes[0], indexes[1] + found.indexes[1]
                too_far = found.size > 0 and last - group[0].base > INT_MAX
                if size + found.size > config.segment_bytes or max(sums) > config.index_bytes or too_far:
                    break
                group.append(found)
                size, indexes, at = size + found.size, sums, at + 1
            yield group

    # --- what stays -----------------------------------------------------------------------------------

    def _kept(self, batch: _Batch, transactions: _Transactions) -> bytes | None:
        """Return what is left of a batch; None for nothing."""
        is_control = batch.flag(Attributes.CONTROL)
        can_go = transactions.can_go(batch)
        drops_all = can_go
        if is_control:
            drops_all = can_go and batch.horizon is not None and batch.horizon <= self.now
        keeps_header = self._is_last_of_producer(batch) or batch.last_offset + 1 == self.end
        if drops_all and not keeps_header:
            return None
        records = [] if drops_all else [r for r in batch.records if is_control or self._is_kept(batch, r)]
        if not records:
            return self._header(batch) if keeps_header else None
        horizon = batch.horizon
        needs_horizon = (can_go and is_control) or (not is_control and any(r.value is None for r in records))
        if needs_horizon and horizon is None:
            horizon = self.now + self.log.config.delete_retention_ms
        if len(records) == len(batch.records) and horizon == batch.horizon:
            return batch.data
        return build_batch(self._head(batch, horizon), records)

    def _is_kept(self, batch: _Batch, record: Record) -> bool:
        if record.offset >= self.end:
            return True
        if record.key is None:
            return False
        if record.offset < self.latest.get(record.key, -1):
            return False
        return record.value is not None or batch.horizon is None or self.now < batch.horizon

    def _is_last_of_producer(self, batch: _Batch) -> bool:
        known = self.last_of_producers.get(batch.head["producer_id"])
        if batch.head["producer_id"] < 0 or known is None:
            return False
        if known[0] >= 0:
            return batch.last_offset == known[0]
        return batch.flag(Attributes.CONTROL) and batch.head["producer_epoch"] == known[1]

    def _head(self, batch: _Batch, horizon: int | None = None) -> BatchHead:
        head = batch.head
        stamp = head["max_timestamp"] if batch.flag(Attributes.LOG_APPEND_TIME) else None
        return BatchHead(
            head["base_offset"], batch.last_offset, head["partition_leader_epoch"],
            head["attributes"] & Attributes.CODEC, append_time=stamp, producer_id=head["producer_id"],
            producer_epoch=head["producer_epoch"], base_sequence=head["base_sequence"],
            transactional=batch.flag(Attributes.TRANSACTIONAL), control=batch.flag(Attributes.CONTROL),
            delete_horizon=horizon,
        )  # fmt: skip

    def _header(self, batch: _Batch) -> bytes:
        return build_batch(replace(self._head(batch), max_timestamp=batch.head["max_timestamp"]), [])

    # --- writing --------------------------------------------------------------------------------------

    def _clean_group(self, group: list[ClosedSegment], transactions: _Transactions) -> ClosedSegment:
        log, place = self.log, self.log.place
        modified = os.stat(place.directory / name_of(group[-1].base, LOG)).st_mtime_ns
        made = ActiveSegment.create(
            place.directory, group[0].base, log.config.index_bytes, log.config.index_interval, place.disk, self.now,
            CLEANED,
        )  # fmt: skip
        try:
            transactions.index.clear()
            for segment in group:
                for chunk in self._chunks(segment, transactions):
                    self._write(made, chunk)
            for ended in transactions.index:
                made.add_aborted(ended)
            closed = made.end()
            made.sync()
            made.close()
        except BaseException:
            made.close()
            for ending in ENDINGS:
                place.disk.remove(made.path(ending))
            raise
        for ending in ENDINGS:
            if made.path(ending).exists():
                os.utime(made.path(ending), ns=(modified, modified))
        self._swap(group, made)
        if closed.largest < 0:
            closed = ClosedSegment(closed.base, closed.size, modified // 1_000_000, closed.indexes)
        log.replace_segments(group, closed)
        return closed

    def _chunks(self, segment: ClosedSegment, transactions: _Transactions) -> Iterator[list[tuple[_Batch, bytes]]]:
        """Yield what is left of the batches of a segment, as much together as was read together."""
        found, read = list[tuple[_Batch, bytes]](), 0
        for batch in self._batches(segment):
            if read and read + len(batch.data) > _CHUNK:
                yield found
                found, read = [], 0
            read += len(batch.data)
            kept = self._kept(batch, transactions)
            if kept is not None:
                found.append((batch, kept))
        yield found

    def _write(self, made: ActiveSegment, chunk: list[tuple[_Batch, bytes]]) -> None:
        if not chunk:
            return
        heads = [header_plan().unpack_from(kept[:HEADER_SIZE])[0] for _, kept in chunk]
        batches = [
            Appended(batch.last_offset, head["max_timestamp"], len(kept))
            for (batch, kept), head in zip(chunk, heads, strict=True)
        ]
        data = b"".join(kept for _, kept in chunk)
        if self.log.place.release < PER_BATCH_SINCE:
            batches = [Appended(batches[-1].last_offset, max(b.max_timestamp for b in batches), len(data))]
        made.append(data, batches)

    def _swap(self, group: list[ClosedSegment], made: ActiveSegment) -> None:
        """Put a cleaned segment in the place of others, so that a start at any moment finds either (spec 13.1)."""
        disk, directory = self.log.place.disk, self.log.place.directory
        there = [ending for ending in ENDINGS if made.path(ending).exists()]
        for ending in there:
            disk.replace(made.path(ending), directory / f"{name_of(made.base, ending)}{SWAP}")
        disk.settle()
        for segment in group:
            for ending in ENDINGS:
                disk.remove(directory / name_of(segment.base, ending))
        for ending in there:
            disk.replace(directory / f"{name_of(made.base, ending)}{SWAP}", directory / name_of(made.base, ending))
        disk.settle()
