"""The ends of transactions that were destroyed: what producer snapshots and transaction indexes still know of them.

A snapshot after a destroyed range says that a transaction has ended which was open before it; an entry of the
transaction index says where, and that it was aborted: brokers index every abort. The marker is then written again, for
without it the transaction hangs, and readers of committed records wait for ever.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np

from formats.kafka.internal_records import TRANSACTION_STATE
from formats.kafka.record_batch import HEADER_SIZE
from rmqctl.files.local import BytesSource
from rmqctl.findings import Finding
from rmqctl.kafka.directory.directory import LogDirectory, Partition
from rmqctl.kafka.engine.batch import Ending, end_marker
from rmqctl.kafka.findings.derived import TXN_INDEX_ENTRY
from rmqctl.kafka.findings.log import BATCH_OFFSET_GAP
from rmqctl.kafka.loading.producers import ProducerReplay
from rmqctl.kafka.log.indexes import read_producer_snapshot, read_txn_index
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.repair.bridge import empty_batch, filler
from rmqctl.kafka.repair.survey import Batch, Range, Survey
from rmqctl.kafka.state.internal_topics import Transaction, noted_of
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.repair.edits import Step


def transaction_name(directory: str, producer: int, first: int) -> str:
    """Return what people, steps and the books call a transaction."""
    return f"{directory} producer {producer} from offset {first}"


class _Later(NamedTuple):
    """What is known of a producer after a range.

    Attributes:
        batch: its first sound one.
        snapshot: what the next producer snapshot says of it, if that was taken before it wrote again.
    """

    batch: Batch | None
    snapshot: Mapping[str, int] | None


@dataclass
class Endings:
    """Goes through a log with its destroyed ranges, in order.

    Attributes:
        survey: of the log.
        doubtful: names of transaction indexes that are damaged themselves.
        replay: the producers where the way has come to.
        undecided: producer and first offset of the transactions that ended, or may have ended, in the last range asked
            for, nobody knows how: the producer's next marker decides for them.
    """

    survey: Survey
    doubtful: frozenset[str] = frozenset()
    replay: ProducerReplay = field(default_factory=ProducerReplay)
    undecided: list[tuple[int, int]] = field(default_factory=list)
    _at: tuple[int, int] = (0, 0)
    _named: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        partition = self.survey.partition
        self._snapshots = list(_snapshots(partition))
        self._aborted = dict(aborted_in(partition, self.doubtful))
        if self._snapshots and self.survey.files and self._snapshots[0][0] == self.survey.files[0].base:
            self.replay.load(self._snapshots[0][1].values())

    def of(self, lost: Range) -> dict[int, Ending]:
        """Return the markers that a range held, by their offsets, as far as that is known."""
        self.undecided = []
        self._advance(lost)
        return self._markers(lost)

    def _markers(self, lost: Range) -> dict[int, Ending]:
        found, unplaced, unknown = dict[int, Ending](), list[Ending](), set[int]()
        is_complete = self._lists_all(lost)
        within = {at: who for at, who in self._aborted.items() if _inside(at, lost)}
        for producer, first in sorted(self.replay.open.items()):
            later = self._later(producer, lost)
            aborted = [at for at, who in self._aborted.items() if who == (producer, first)]
            inside = [at for at in aborted if at in within]
            is_over = not aborted and self._is_over(producer, first, lost, later)
            if inside:
                found[inside[0]] = self._ending(producer, later, commit=False)
            elif is_over and is_complete:
                unplaced.append(self._ending(producer, later, commit=True))
            else:
                unknown.add(producer)
                if is_over or not (aborted or is_complete or later.snapshot is not None):
                    self.undecided += {(producer, first)} - self._named
                    self._named.add((producer, first))
        for at, (producer, _) in within.items():  # readers pass over a producer's records up to this marker
            later = self._later(producer, lost)
            if at not in found and producer not in unknown and (producer in self.replay.producers or any(later)):
                found[at] = self._ending(producer, later, commit=False)
        for ending in unplaced:
            begun = [first for producer, first in within.values() if producer == ending.producer_id]
            free = (at for at in range(min([lost.beyond, *begun]) - 1, lost.first - 1, -1) if at not in found)
            if (place := next(free, None)) is not None:
                found[place] = ending
        return found

    def _lists_all(self, lost: Range) -> bool:
        """Whether no abort in a range can be missing: its segment has a sound transaction index, or all are sound.

        Where the log of a segment is gone, and nothing else of it is left, its transaction index may be gone, too.
        """
        segments = self.survey.partition.segments
        bases = {*(segment.base for segment in segments), *(offset for offset, _ in self._snapshots)}
        if any(lost.first < base < lost.beyond for base in bases):
            return False
        begin = self.survey.files[lost.segment].base if lost.parts else lost.first
        own = next((segment for segment in segments if segment.base == begin), None)
        before = -1 if lost.before is None else lost.before.last_offset
        is_after_hole = bool(lost.parts) and before + 1 < begin == lost.first
        if own is None or is_after_hole or (own.txn_index is not None and own.txn_index.name in self.doubtful):
            return False
        if own.txn_index is not None:
            return True
        are_there = None not in {own.log, own.offset_index, own.time_index}  # else it may have gone with them
        return are_there and not self.doubtful and all(t.last_offset in self._aborted for t in self.replay.aborted)

    @property
    def unknown(self) -> str:
        """What a step says of the transactions that are undecided, "" without any."""
        return "".join(
            f"; {transaction_name(self.survey.partition.directory, producer, first)} ended here, nothing left says "
            "how, or goes on: its next marker decides what readers of committed records get"
            for producer, first in self.undecided
        )

    def named(self, markers: Mapping[int, Ending]) -> str:
        """Return markers at their offsets, with the transactions that they end, as a step names them."""
        directory, begun = self.survey.partition.directory, self.replay.open
        how = {True: "COMMIT", False: "ABORT"}
        ended = [(at, how[ending.commit], ending.producer_id) for at, ending in sorted(markers.items())]
        entries = {at: entry[1] for at, entry in self._aborted.items()}
        first = {
            at: entries.get(at, at) if kind == "ABORT" else begun.get(producer, at) for at, kind, producer in ended
        }
        return ", ".join(
            f"{kind} of {transaction_name(directory, producer, first[at])} at {at}" for at, kind, producer in ended
        )

    def _is_over(self, producer: int, first: int, lost: Range, later: _Later) -> bool:
        """Whether a transaction that is open before a range is not after it: something later says so.

        That is an entry of the transaction index about one that began in it, the next producer snapshot, if it was
        taken before the producer wrote again, an entry about a later one, or the first batch of the producer if it has
        another epoch.
        """
        if any(who == producer and begin > first and _inside(at, lost) for at, (who, begin) in self._aborted.items()):
            return True
        if later.snapshot is not None:
            return later.snapshot["current_txn_first_offset"] != first
        batch = later.batch
        if batch is None:
            return False
        mine = [(at, begin) for at, (who, begin) in self._aborted.items() if who == producer and at >= lost.beyond]
        if batch.is_marker:
            return any(at == batch.base_offset and begin > first for at, begin in mine)
        is_another = any(begin == batch.base_offset for _, begin in mine)
        return is_another or batch.producer_epoch > self.replay.producers[producer].producer_epoch

    def _ending(self, producer: int, later: _Later, *, commit: bool) -> Ending:
        state, known = self.replay.producers.get(producer), later.snapshot
        epoch, time, coordinator = (
            (later.batch.producer_epoch, later.batch.max_timestamp, 0) if later.batch else (0, -1, 0)
        )
        if state is not None:
            epoch, time, coordinator = state.producer_epoch, state.last_timestamp, state.coordinator_epoch
        if known is not None:
            epoch, time, coordinator = known["producer_epoch"], known["last_timestamp"], known["coordinator_epoch"]
        elif later.batch is not None and not later.batch.is_marker and later.batch.producer_epoch == epoch + 1:
            epoch += 1  # transaction version 2
        return Ending(producer, epoch, commit, max(coordinator, 0), time)

    def _later(self, producer: int, lost: Range) -> _Later:
        """Return what a producer did after a range, as far as that says how its transaction ended."""
        columns = self.survey.columns
        rows = np.flatnonzero((columns["producer_id"] == producer) & (columns["base_offset"] >= lost.beyond))
        batch = self.survey.batch(int(rows[0])) if len(rows) else None
        last = batch.base_offset if batch is not None else sys.maxsize
        wanted = (entries for offset, entries in self._snapshots if lost.beyond <= offset <= last)
        return _Later(batch, next((entries[producer] for entries in wanted if producer in entries), None))

    def pass_over(self, lost: Range, data: bytes) -> None:
        """Go on with what takes the place of a range."""
        for block in scan(BytesSource(data), Extent("", None, size=len(data))):
            self.replay.add(block.take(block.crc_ok & (block.magic >= 2)))
        self._at = lost.segment, lost.end

    def _advance(self, lost: Range) -> None:
        """Go on with the sound batches up to a range."""
        (segment, begin), known = self._at, dict(self._snapshots)
        for number in range(segment, lost.segment + 1):
            file = self.survey.files[number]
            if not begin and file.base <= lost.first:
                hole = self.survey.hole_before(number, 0)
                if hole.before is not None and hole.first < file.base:
                    self._markers(hole)
                if file.base in known:
                    self.replay.load(known[file.base].values())  # a broker took it when it knew the whole log
            stop = lost.begin if number == lost.segment else file.size
            source = file.open()
            try:
                for block in scan(source, Extent(file.name, file.base, begin, stop, file.size)):
                    self.replay.add(block.take(block.crc_ok & (block.magic >= 2) & (block.position < stop)))
            finally:
                source.close()
            begin = 0
        self._at = lost.segment, lost.end


def doubtful_indexes(partition: Partition, survey: Survey, findings: Iterable[Finding]) -> frozenset[str]:
    """Return the names of the transaction indexes that are damaged themselves.

    An entry about what came after the end of the log is none: that was cut off, or its file emptied.

    Args:
        partition: with the indexes, those of segments whose logs are gone, too.
        survey: of its log.
    """
    end = int(survey.columns["last_offset"].max(initial=-1)) + 1
    files = {segment.txn_index.name: segment.txn_index for segment in partition.segments if segment.txn_index}
    found, entries = set[str](), dict[str, list[int]]()
    for finding in findings:
        if not finding.kind.id.startswith("txn-index.") or finding.file not in files:
            continue
        if finding.kind is TXN_INDEX_ENTRY:
            entries.setdefault(finding.file, []).append(finding.offset)
        else:
            found.add(finding.file)
    for name, places in entries.items():
        if name not in found:
            with closing(files[name].open()) as source:
                index = read_txn_index(source)
            if any(int(index["last_offset"][place // index.entry_size]) < end for place in places):
                found.add(name)
    return frozenset(found)


def hole_steps(directory: LogDirectory, findings: Sequence[Finding]) -> Iterator[Step]:
    """Yield what stays of offsets that are missing without a trace of damage, and whose transactions are not known."""
    why = (
        "a broker serves the log as it is: consumers pass over the offsets, and the next record gets the one after the "
        "last batch; a replica with the batches around them shows whether they were ever written: rmqctl diff"
    )
    holes = sorted((f for f in findings if f.kind is BATCH_OFFSET_GAP), key=lambda f: (f.file, f.offset))
    partitions = {partition.directory: partition for partition in directory.partitions}
    for name, of_partition in groupby(holes, key=lambda finding: finding.file.rpartition("/")[0]):
        survey = Survey(partitions[name])
        endings = Endings(survey, doubtful_indexes(survey.partition, survey, findings))
        for finding in of_partition:
            number = [file.name for file in endings.survey.files].index(finding.file)
            endings.of(endings.survey.hole_before(number, finding.offset))
            what = f"left as it is: at {finding.offset} {finding.message}"
            yield Step(finding.kind.id, finding.file, what, f"{why}{endings.unknown}")


_COMMITS = frozenset({"PrepareCommit", "CompleteCommit"})
_ABORTS = frozenset({"PrepareAbort", "PrepareEpochFence", "CompleteAbort"})
_OWN_EPOCH = 2
"""The transaction version from which on each transaction has an epoch of its own."""


def coordinator_says(
    replicas: Replicas, log: PartitionLog, survey: Survey, replay: ProducerReplay, producer: int
) -> tuple[bool, str]:
    """Return whether a coordinator has, or may have, committed a transaction that is open here, and what it says of it.

    Args:
        survey, replay: of the log.
        producer: its transaction is open.
    """
    partition, logs = log.partition, replicas.of(TRANSACTION_STATE)
    noted = [state.transaction for state in noted_of(logs, producer)]
    key = partition.topic, partition.partition or 0
    if not noted:
        is_whole = bool(logs) and len(logs) >= replicas.partition_count(TRANSACTION_STATE)
        elsewhere = f"{TRANSACTION_STATE} is not all here, so what its coordinator decided is not known"
        return False, "no transactional id has this producer, so no coordinator ends it" if is_whole else elsewhere
    coordinator, latest = f"the coordinator of {noted[-1].transactional_id}", noted[-1]
    named = [n for n, state in enumerate(noted) if key in state.partitions]
    after = noted[named[-1] :] if named else []
    if not named and noted[0].state == "CompleteCommit":
        after = noted[:1]  # all that compaction has left of a commit, and it does not say in which partitions
    decided = next((state for state in after if state.state in _COMMITS | _ABORTS), None)
    if decided is not None and decided.state in _COMMITS:
        if decided is latest and latest.state == "PrepareCommit":
            return True, f"{coordinator} has committed it: a broker that starts writes its COMMIT marker"
        mine = list(survey.batches(np.flatnonzero(survey.columns["producer_id"] == producer)))
        if _is_after(decided, noted, key, mine, replay):
            late = f"the last commit of {latest.transactional_id} has its marker here"
            return False, f"{late}; what is open was written after it"
        marked = max((batch.max_timestamp for batch in mine if batch.is_marker), default=None)
        if marked is None:
            return True, f"{coordinator} has committed it: only its marker is missing here; restore it with --from"
        times = f"{np.datetime64(marked, 'ms')}Z, the commit of {np.datetime64(decided.last_update, 'ms')}Z"
        return True, (
            f"{coordinator} may have committed it: the last marker here is of {times}, by the clocks of two brokers, "
            "and nothing says which came first. Restore the marker with --from, or end the transaction with "
            "kafka-transactions.sh abort where the brokers run"
        )
    others = "these records stay aborted and those of other partitions do not"
    told = f"{coordinator} has it open: should the producer come back and commit, {others}"
    if not named:
        told = f"{coordinator} does not name this partition, so it never ends it"
    elif decided is not None:
        told = f"{coordinator} has aborted it, too"
    elif latest.producer_epoch > replay.producers[producer].producer_epoch:
        told = f"{coordinator} has fenced the producer, so that it cannot commit it"
    return False, told


def _is_after(
    commit: Transaction,
    noted: Sequence[Transaction],
    key: tuple[str, int],
    mine: Sequence[Batch],
    replay: ProducerReplay,
) -> bool:
    """Whether what a producer has open was certainly written after a commit, and is no part of it.

    Epochs say so: from transaction version 2 on each transaction has its own, and its marker the next. Else every
    transaction with the partition that was decided must have ended one here, and the states that are noted must reach
    back to where the producer got its epoch: compaction keeps the last that it has seen, and all after that. Times do
    not say so: those of markers and of decisions are of the clocks of two brokers, those of records of a third.

    Args:
        key: the partition.
        mine: the batches of the producer.
    """
    markers = [batch for batch in mine if batch.is_marker]
    begin = replay.open[commit.producer_id]
    epoch = min((b.producer_epoch for b in mine if b.base_offset >= begin), default=None)
    if epoch is None:
        return False
    if epoch > commit.producer_epoch or (epoch == commit.producer_epoch and commit.version >= _OWN_EPOCH):
        return True
    if any(marker.producer_epoch > epoch for marker in markers):
        return True
    if noted[0].state != "Empty":
        return False
    decisions, is_named = 0, False
    for state in noted:
        is_named |= key in state.partitions
        if is_named and state.state in _COMMITS | _ABORTS:
            decisions, is_named = decisions + 1, False
    ended = {done.last_offset for done in replay.ended if done.producer_id == commit.producer_id}
    since = [m for m in markers if m.base_offset in ended and m.producer_epoch >= noted[0].producer_epoch]
    return len(since) >= decisions


def with_markers(
    lost: Range, markers: Mapping[int, Ending], epoch: int, timestamp: int, *, fills: bool = True
) -> bytes | None:
    """Markers at their offsets, with empty batches between them, that fill a range; None where they cannot.

    Args:
        fills: the bytes of the range; else as few as it takes.
    """
    pieces: list[tuple[int, int, bytes]] = [
        (offset, offset + 1, end_marker(ending, offset, epoch)) for offset, ending in sorted(markers.items())
    ]
    edges = [lost.first, *(edge for low, high, _ in pieces for edge in (low, high)), lost.beyond]
    runs = [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
    room = lost.size - sum(len(piece) for *_, piece in pieces)
    if not runs:
        return b"".join(piece for *_, piece in pieces) if room == 0 or not fills else None
    for low, high in runs[:-1]:
        pieces.append((low, high, empty_batch(low, high - 1, epoch, timestamp)))
        room -= HEADER_SIZE
    low, high = runs[-1]
    rest = filler(low, high - 1, epoch, timestamp, room if fills else HEADER_SIZE)
    if rest is None:
        return None
    return b"".join(piece for *_, piece in sorted([*pieces, (low, high, rest)]))


def _inside(offset: int, lost: Range) -> bool:
    return lost.first <= offset < lost.beyond


def _snapshots(partition: Partition) -> Iterator[tuple[int, dict[int, dict[str, int]]]]:
    """Yield the sound producer snapshots: their offset, and their entries by producer."""
    for file in partition.snapshots:
        source = file.open()
        try:
            found = read_producer_snapshot(source)
        finally:
            source.close()
        if found.is_good:
            yield file.base, {row["producer_id"]: row for row in found.rows()}


def aborted_in(partition: Partition, doubtful: frozenset[str]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the aborted transactions of the sound transaction indexes: offset of the marker; producer, first offset."""
    for segment in partition.segments:
        file = segment.txn_index
        if file is None or file.name in doubtful:
            continue
        source = file.open()
        try:
            index = read_txn_index(source)
        finally:
            source.close()
        sound = np.flatnonzero(index["version"] == 0)
        names = ("last_offset", "producer_id", "first_offset")
        for last, producer, first in zip(*(index[name][sound].tolist() for name in names), strict=True):
            yield last, (producer, first)
