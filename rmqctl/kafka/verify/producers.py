"""Producers of a partition: sequence numbers and epochs of their batches, and the snapshots of their state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from formats.kafka.record_batch import Attributes
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory.directory import LogFile, Partition
from rmqctl.kafka.findings.derived import (
    SNAPSHOT_MISSING,
    SNAPSHOT_ORPHAN,
    SNAPSHOT_STATE,
    SNAPSHOT_UNREADABLE,
    TRANSACTION_MARKER_GONE,
    TRANSACTION_OPEN,
)
from rmqctl.kafka.findings.log import BATCH_PRODUCER_EPOCH, BATCH_SEQUENCE
from rmqctl.kafka.loading.producers import BATCH_COLUMNS, UNKNOWN, EndedTransaction, ProducerReplay
from rmqctl.kafka.log.block import INT_MAX, Ints
from rmqctl.kafka.log.indexes import ProducerSnapshot, read_producer_snapshot
from rmqctl.kafka.verify.log import LogCheck
from rmqctl.kafka.verify.splits import Headers
from rmqctl.text import number_of

_COMPARED = (
    "producer_epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "last_timestamp",
    "coordinator_epoch",
    "current_txn_first_offset",
)
COORDINATED = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Topics whose batches a coordinator appends, which counts no sequences (AppendOrigin.COORDINATOR)."""


@dataclass
class ProducerCheck:
    """Replays the producers of a partition. Feed :meth:`add`, then :meth:`finish` once.

    Attributes:
        is_complete: the replay began with all there was: at offset 0, or with a snapshot at the log's start.
        prior: the log began after offset 0, so that transactions may have begun before it.
    """

    partition: Partition
    replay: ProducerReplay = field(default_factory=ProducerReplay)
    is_complete: bool = True
    prior: bool = False
    seen: bool = False
    _snapshots: dict[int, tuple[LogFile, ProducerSnapshot]] = field(default_factory=dict)
    _unreadable: bool = False
    _due: list[int] = field(default_factory=list)
    _disagreements: list[Finding] = field(default_factory=list)
    _jumps: list[Finding] = field(default_factory=list)
    _ended: int = 0
    _unmarked: dict[int, tuple[int, LogFile]] = field(default_factory=dict)

    def begin(self) -> Iterator[Finding]:
        """Read the snapshots; start from the one at the begin of the log."""
        for file in self.partition.snapshots:
            source = file.open()
            try:
                snapshot = read_producer_snapshot(source)
            finally:
                source.close()
            if not snapshot.is_good:
                self._unreadable = True
                yield Finding(SNAPSHOT_UNREADABLE, file.name, 0, file.size, snapshot.problem)
                continue
            self._snapshots[file.base] = file, snapshot
        logs = self.partition.logs
        start = logs[0].base if logs else 0
        self.prior = start > 0
        first = self._snapshots.get(start)
        if first is not None:
            self.replay.load(first[1].rows())
        self.is_complete = start == 0 or first is not None
        self._due = sorted(base for base in self._snapshots if base > start)

    def add(self, file: LogFile, headers: Headers) -> None:
        """Go on with the batches of a split."""
        rows = np.flatnonzero((headers["producer_id"] >= 0) & headers.crc_ok)
        if not len(rows):
            return
        self.seen = True
        control, offsets = headers.flag(Attributes.CONTROL)[rows], headers["base_offset"][rows]
        begin = 0
        for at in [*np.flatnonzero(control).tolist(), len(rows)]:
            while begin < at:
                self._compare_until(int(offsets[begin]))
                end = at
                if self._due:  # a snapshot is held against what stands before it
                    reached = np.flatnonzero(offsets[begin:at] >= self._due[0])
                    end = begin + int(reached[0]) if len(reached) else at
                self._data(file, headers, rows[begin:end])
                begin = end
            if at < len(rows):
                row = int(rows[at])
                self._compare_until(int(offsets[at]))
                producer, epoch = int(headers["producer_id"][row]), int(headers["producer_epoch"][row])
                self.replay.end(producer, epoch, int(offsets[at]), headers.markers.get(row))
            begin = at + 1

    def _data(self, file: LogFile, headers: Headers, rows: Ints) -> None:
        """Go on with batches of data, each held against what its producer sent before."""
        columns = {name: headers[name][rows] for name in BATCH_COLUMNS}
        before = self.replay.stretch(columns, headers.flag(Attributes.TRANSACTIONAL)[rows])
        if self.partition.topic in COORDINATED:
            return
        epoch, sequence = columns["producer_epoch"], headers["base_sequence"][rows]
        judged = (before.epoch != UNKNOWN) & (sequence >= 0)
        wanted = np.where(before.sequence == INT_MAX, 0, before.sequence + 1)
        fenced = judged & (epoch < before.epoch)
        jumps = judged & (epoch == before.epoch) & (before.sequence >= 0) & (sequence != wanted)
        for at in np.flatnonzero(fenced | jumps).tolist():
            row, producer = int(rows[at]), int(columns["producer_id"][at])
            place = (file.name, int(headers.position[row]), int(headers.size[row]))
            if fenced[at]:
                message = f"producer {producer} with epoch {epoch[at]} after epoch {before.epoch[at]}"
                self._jumps.append(Finding(BATCH_PRODUCER_EPOCH, *place, message))
            else:
                message = f"producer {producer} goes on with sequence {sequence[at]} where {wanted[at]} would follow"
                self._jumps.append(Finding(BATCH_SEQUENCE, *place, message))

    def aborted(self) -> list[EndedTransaction]:
        """Transactions that were aborted since this was asked before."""
        found = [t for t in self.replay.ended[self._ended :] if not t.committed]
        self._ended = len(self.replay.ended)
        return found

    def finish(self, log: LogCheck) -> Iterator[Finding]:
        """Yield what can be said once the whole log is known. Where it is damaged or compacted, batches may be
        missing.
        """
        end_offset = log.end_offset
        self._compare_until(end_offset + 1)
        bases = {segment.base for segment in self.partition.segments} | {end_offset}
        orphans = {base: file for base, (file, _) in sorted(self._snapshots.items()) if base not in bases}
        if not log.damaged:
            names = {file.name for file in orphans.values()}
            if self.is_complete and not (log.compacted or log.misses):
                yield from (finding for finding in self._disagreements if finding.file not in names)
            if not log.compacted:
                yield from self._jumps
            for base, file in orphans.items():
                where = "of no segment, and not the end of the log"
                yield Finding(SNAPSHOT_ORPHAN, file.name, 0, 0, f"offset {base} is {where} ({end_offset})")
            yield from self._missing(end_offset, is_clean=log.is_clean)
        unmarked = self._unmarked if log.compacted and not log.damaged else {}
        for producer, (first, file) in sorted(unmarked.items(), key=lambda item: item[1][0]):
            message = (
                f"producer {producer} has records from offset {first} on, {file.name} says that their transaction "
            )
            message += "ended, and no marker is there"
            yield Finding(TRANSACTION_MARKER_GONE, f"{self.partition.directory}/", 0, 0, message)
        for producer, first in sorted(self.replay.open.items(), key=lambda item: item[1]):
            message = f"producer {producer} began a transaction at offset {first} that has not ended"
            yield Finding(TRANSACTION_OPEN, f"{self.partition.directory}/", 0, 0, message)

    def _missing(self, end_offset: int, *, is_clean: bool) -> Iterator[Finding]:
        """Snapshots that a broker makes when a segment is rolled, and when it stops.

        Where none is there after a clean stop, the next start forgets the producers, and open transactions with them.
        """
        logs = self.partition.logs
        if not self.seen or self._unreadable:
            return
        due = {logs[-1].base} if len(logs) > 1 else set()
        for base in sorted((due | {end_offset} if is_clean else due) - set(self._snapshots)):
            name = f"{self.partition.directory}/{base:020}.snapshot".lstrip("/")
            others = number_of(len(self._snapshots), "other", "are") if self._snapshots else "nor is any other"
            message = f"it is not there, {others}"
            is_forgotten = is_clean and not self._snapshots and base == end_offset and bool(self.replay.producers)
            if is_forgotten:
                known = number_of(len(self.replay.producers), "producer")
                message += f"; a broker that starts now forgets {known}"
            severity = Severity.WARNING if is_forgotten else None
            yield Finding(SNAPSHOT_MISSING, name, 0, 0, message, severity=severity)

    def _compare_until(self, offset: int) -> None:
        """Hold snapshots up to an offset against the replay as it stands."""
        while self._due and self._due[0] <= offset:
            file, snapshot = self._snapshots[self._due.pop(0)]
            for entry in snapshot.rows() if self.replay.open else ():
                first = self.replay.open.get(entry["producer_id"], offset)
                began = entry["current_txn_first_offset"]
                if first < file.base and (began < 0 or began > first):
                    self._unmarked.setdefault(entry["producer_id"], (first, file))
            differences = list(_differences(snapshot, self.replay))
            if differences:
                more = f"; {len(differences) - 1} more" if len(differences) > 1 else ""
                self._disagreements.append(Finding(SNAPSHOT_STATE, file.name, 0, file.size, differences[0] + more))


def _differences(snapshot: ProducerSnapshot, replay: ProducerReplay) -> Iterator[str]:
    """Where a snapshot says other things of a producer than the log. Producers may be missing: idle ones expire."""
    for entry in snapshot.rows():
        number = entry["producer_id"]
        producer = replay.producers.get(number)
        if producer is None:
            yield f"producer {number} has no batch before offset"
            continue
        seen = producer.row()
        for name in _COMPARED:
            if entry[name] != seen[name]:
                yield f"producer {number}: {name} {entry[name]}, in the log {seen[name]}"
                break
