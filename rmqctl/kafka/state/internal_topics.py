"""What internal topics say: committed offsets of groups, transactions, share groups (spec 10.2, 10.3).

Each is a table kept as a log: the last record of a key counts, a record without a value removes it. Offsets that a
transaction commits count once its marker stands in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from formats.kafka.coordinator_messages import TransactionStatus
from formats.kafka.internal_records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, decode_record
from formats.kafka.messages import Values
from formats.kafka.record_batch import Attributes, ControlType
from rmqctl.kafka.loading.producers import Marker, marker_of
from rmqctl.kafka.log.records import Records, records_of
from rmqctl.kafka.state.partition_state import PartitionLog

_OFFSET_COMMITS, _GROUP_METADATA = (0, 1), 2
_SHARE_SNAPSHOT = 0
_DONE = frozenset({2, 4})
"""Delivery states ACKNOWLEDGED and ARCHIVED."""


class TableRecord(NamedTuple):
    """A record of an internal topic, or the marker of a transaction.

    Attributes:
        producer_id: of the transaction that wrote it, -1 for none.
        marker: of a control batch; then there is no record.
        file, position: where its batch lies, relative to the log directory, in bytes.
        timestamp: of the record, epoch ms.
    """

    offset: int
    producer_id: int
    type: int
    key: Values
    value: Values | None
    marker: Marker | None = None
    file: str = ""
    position: int = 0
    timestamp: int = -1


class Commit(NamedTuple):
    """An offset that a group committed; ``record_offset`` is where it stands in ``__consumer_offsets``."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    record_offset: int


GroupPartition = tuple[str, str, int]
"""Group, topic and partition."""


@dataclass
class GroupOffsets:
    """What ``__consumer_offsets`` says.

    Attributes:
        commits: by group, topic and partition.
        pending: offsets in transactions that are open.
        groups: every group that is named; its protocol type, "" where only offsets are there.
    """

    commits: dict[GroupPartition, Commit] = field(default_factory=dict)
    pending: dict[GroupPartition, Commit] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Transaction:
    """The latest state of a transactional id, as its coordinator noted it.

    Attributes:
        version: of the transaction protocol that its producer speaks; 0 where the record does not say.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    partitions: tuple[tuple[str, int], ...]
    start_timestamp: int
    timeout_ms: int
    last_update: int
    version: int = 0

    @property
    def is_open(self) -> bool:
        """Whether its end has not been decided, or not been written everywhere."""
        return self.state in {"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}


class SharePartition(NamedTuple):
    """Where a share group stands in a partition, named by the id of its topic."""

    group: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """Where a share group is in a partition; -1 for what is not known.

    Attributes:
        leader_epoch, write_timestamp: with which the start offset was written.
        snapshot_epoch, state_epoch: of the last snapshot.
        batches: first and last offset and delivery state of records after the start, ascending.
        complete: records after the start that are done with, as releases from 4.2 on count them.
        file, position: where the batch of the last record that says so lies, relative to the log directory, in bytes.
    """

    start_offset: int
    leader_epoch: int
    write_timestamp: int
    batches: tuple[tuple[int, int, int], ...] = ()
    complete: int = -1
    snapshot_epoch: int = -1
    state_epoch: int = -1
    file: str = field(default="", compare=False)
    position: int = field(default=0, compare=False)

    @property
    def done(self) -> int:
        """Records after the start that are acknowledged or archived, so that nobody gets them again."""
        return self.complete if self.complete >= 0 else sum(after - first for first, after in self.done_ranges)

    @property
    def done_ranges(self) -> list[tuple[int, int]]:
        """Where they lie: the first offset of each range and the one after it, ascending."""
        found = [(max(first, self.start_offset), last + 1) for first, last, state in self.batches if state in _DONE]
        return [(first, after) for first, after in found if first < after]


def group_offsets(logs: Iterable[PartitionLog]) -> GroupOffsets:
    """Replay the partitions of ``__consumer_offsets``."""
    found = GroupOffsets()
    for log in logs:
        for record, end in _offset_records(_table(log, CONSUMER_OFFSETS)):
            if record.type not in _OFFSET_COMMITS:
                _note_group(found, record)
            else:
                _commit(found.pending if end is None else found.commits, record)
    for group, _, _ in (*found.commits, *found.pending):
        found.groups.setdefault(group, "")
    return found


def transactions(logs: Iterable[PartitionLog]) -> dict[str, Transaction]:
    """Replay the partitions of ``__transaction_state``; by transactional id, those removed left out."""
    found: dict[str, Transaction] = {}
    for log in logs:
        for record in _table(log, TRANSACTION_STATE):
            if record.marker is not None:
                continue
            name = record.key["transactionalId"]
            found.pop(name, None)
            if record.value is not None:
                found[name] = _transaction(name, record.value)
    return found


class Noted(NamedTuple):
    """A state that a coordinator noted of a transactional id, and the record that says so."""

    transaction: Transaction
    record: TableRecord


def noted_of(logs: Iterable[PartitionLog], producer_id: int, *, check_crc: bool = False) -> list[Noted]:
    """Return every state that coordinators noted of a producer and that compaction has left, in order.

    Args:
        check_crc: leave out batches with a wrong CRC, which brokers do not look at when they load the topic.
    """
    found = list[Noted]()
    for log in logs:
        for record in _table(log, TRANSACTION_STATE, check_crc=check_crc):
            if record.marker is None and record.value is not None and record.value["producerId"] == producer_id:
                found.append(Noted(_transaction(record.key["transactionalId"], record.value), record))
    return found


class PastCommit(NamedTuple):
    """An offset that a group committed in a partition, whatever came later.

    Attributes:
        commit: None where the record removes it.
        record: that says so; end: that put it in force, the same or the marker of its transaction; None while that is
            open.
    """

    group: str
    commit: Commit | None
    record: TableRecord
    end: TableRecord | None


def commit_history(logs: Iterable[PartitionLog], topic: str, partition: int) -> list[PastCommit]:
    """Return what ``__consumer_offsets`` still has of the commits of a partition, in the order in which they came into
    force; records in batches with a wrong CRC are left out.
    """
    found = list[PastCommit]()
    for log in logs:
        for record, end in _offset_records(_table(log, CONSUMER_OFFSETS, check_crc=True)):
            is_commit = record.type in _OFFSET_COMMITS
            if is_commit and (record.key["topic"], record.key["partition"]) == (topic, partition):
                group = record.key["group"]
                commit = None if record.value is None else _commit_of(record, record.value)
                found.append(PastCommit(group, commit, record, end))
    return found


def first_records(log: PartitionLog) -> dict[tuple[Any, ...], int]:
    """Return the time of the first record of each key that a partition of an internal topic still has, epoch ms:
    committed offsets by group, topic and partition, transactions by transactional id.
    """
    found: dict[tuple[Any, ...], int] = {}
    if log.partition.topic == TRANSACTION_STATE:
        for record in _table(log, TRANSACTION_STATE):
            if record.marker is None:
                found.setdefault((record.key["transactionalId"],), record.timestamp)
        return found
    for record, end in _offset_records(_table(log, CONSUMER_OFFSETS)):
        if record.type in _OFFSET_COMMITS and end is not None:
            found.setdefault((record.key["group"], record.key["topic"], record.key["partition"]), end.timestamp)
    return found


def share_states(logs: Iterable[PartitionLog], *, check_crc: bool = False) -> dict[SharePartition, ShareState]:
    """Replay the partitions of ``__share_group_state``: snapshots, and updates of them.

    Args:
        check_crc: leave out records in batches with a wrong CRC.
    """
    found: dict[SharePartition, ShareState] = {}
    for log in logs:
        for record in _table(log, SHARE_GROUP_STATE, check_crc=check_crc):
            if record.marker is not None:
                continue
            key = SharePartition(record.key["groupId"], record.key["topicId"], record.key["partition"])
            if record.value is None:
                found.pop(key, None)
            else:
                state = _share_state(record.type, record.value, found.get(key))
                found[key] = replace(state, file=record.file, position=record.position)
    return found


def _table(log: PartitionLog, topic: str, *, check_crc: bool = False) -> Iterator[TableRecord]:
    """Yield the records of an internal topic that can be taken apart, and the markers, in order."""
    for _, block in log.blocks(check_crc=check_crc):
        for records in records_of(block):
            control = (block["attributes"] & int(Attributes.CONTROL)) != 0
            for index, row in enumerate(records.batch.tolist()):
                producer, offset = _transaction_of(records, row), int(records.offset[index])
                place = block.file, int(block.position[row]), int(records.timestamp[index])
                if control[row]:
                    marker = marker_of(block.raw(row))
                    if marker is not None:
                        yield TableRecord(offset, int(block["producer_id"][row]), -1, {}, {}, marker, *place)
                    continue
                taken = decode_record(topic, records.key(index), records.value(index))
                if taken is not None and taken.key is not None and not taken.error and isinstance(taken.type, int):
                    yield TableRecord(offset, producer, taken.type, taken.key, taken.value, None, *place)


def _offset_records(records: Iterable[TableRecord]) -> Iterator[tuple[TableRecord, TableRecord | None]]:
    """Yield the records of ``__consumer_offsets`` in the order in which they come into force, each with the one that
    puts it in force: itself, or the marker of its transaction. Those in open transactions come last, with None.
    """
    pending: dict[int, list[TableRecord]] = {}
    for record in records:
        if record.marker is not None:
            held = pending.pop(record.producer_id, [])
            yield from ((of, record) for of in held if record.marker.type == ControlType.COMMIT)
        elif record.type in _OFFSET_COMMITS and record.producer_id >= 0:
            pending.setdefault(record.producer_id, []).append(record)
        else:
            yield record, record
    yield from ((record, None) for held in pending.values() for record in held)


def _transaction_of(records: Records, row: int) -> int:
    block = records.block
    return int(block["producer_id"][row]) if block["attributes"][row] & Attributes.TRANSACTIONAL else -1


def _commit(table: dict[GroupPartition, Commit], record: TableRecord) -> None:
    """Note an offset, unless a later record did so before the transaction of this one ended."""
    key = record.key["group"], record.key["topic"], record.key["partition"]
    known = table.get(key)
    if known is not None and known.record_offset > record.offset:
        return
    table.pop(key, None)
    if record.value is not None:
        table[key] = _commit_of(record, record.value)


def _commit_of(record: TableRecord, value: Values) -> Commit:
    epoch = value.get("leaderEpoch", -1)
    return Commit(value["offset"], epoch, value["metadata"] or "", value["commitTimestamp"], record.offset)


def _note_group(found: GroupOffsets, record: TableRecord) -> None:
    """Note what kind a group is, by the records that describe it."""
    group = str(record.key.get("group") or record.key.get("groupId") or "")
    if record.type == _GROUP_METADATA:
        kind = (record.value or {}).get("protocolType", "")
    else:
        kind = "streams" if record.type >= 17 else "share" if 9 <= record.type <= 15 else "consumer"
    if record.value is not None:
        found.groups[group] = kind
    elif record.type in {_GROUP_METADATA, 3, 11, 17}:
        found.groups.pop(group, None)


def _transaction(name: str, value: Values) -> Transaction:
    status = value["transactionStatus"]
    known = status in set(TransactionStatus)
    partitions = [
        (entry["topic"], number) for entry in value["transactionPartitions"] or () for number in entry["partitionIds"]
    ]
    return Transaction(
        name,
        value["producerId"],
        value["producerEpoch"],
        TransactionStatus(status).name if known else f"Unknown-{status}",
        tuple(sorted(partitions)),
        value["transactionStartTimestampMs"],
        value["transactionTimeoutMs"],
        value["transactionLastUpdateTimestampMs"],
        value.get("clientTransactionVersion", 0),
    )


def _share_state(kind: int, value: Values, known: ShareState | None) -> ShareState:
    start: int = value["startOffset"]
    batches = [(b["firstOffset"], b["lastOffset"], b["deliveryState"]) for b in value["stateBatches"] or ()]
    complete: int = value.get("deliveryCompleteCount", -1)
    if kind != _SHARE_SNAPSHOT and known is not None:
        start = known.start_offset if start < 0 else start
        laid, epochs = _laid(known.batches, batches), (known.snapshot_epoch, known.state_epoch)
        return ShareState(start, value["leaderEpoch"], known.write_timestamp, laid, complete, *epochs)
    written: Any = value.get("writeTimestamp", -1)
    epochs = value["snapshotEpoch"], value.get("stateEpoch", -1)
    return ShareState(start, value["leaderEpoch"], written, _laid((), batches), complete, *epochs)


def _laid(below: Iterable[tuple[int, int, int]], above: list[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Ranges of offsets with their states, the later ones laid over the earlier ones."""
    found = list(below)
    for first, last, state in above:
        kept = [(a, min(b, first - 1), s) for a, b, s in found if a < first]
        kept += [(max(a, last + 1), b, s) for a, b, s in found if b > last]
        found = [*kept, (first, last, state)]
    return tuple(sorted(found))
