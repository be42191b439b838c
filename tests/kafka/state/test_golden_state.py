"""Ends of partitions, producers, groups and transactions of golden directories, against what the brokers answered."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures import golden
from rmqctl.kafka.directory.directory import LogDirectory
from rmqctl.kafka.findings.log import BATCH_ROOM
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.state.internal_topics import _share_state, group_offsets, share_states, transactions
from rmqctl.kafka.state.partition_state import PartitionLog
from tests.kafka.state.golden_state_helpers import WRITTEN_LATER

_PRODUCER = {
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "lastSequence": "last_sequence",
    "lastTimestamp": "last_timestamp",
    "coordinatorEpoch": "coordinator_epoch",
    "currentTxnFirstOffset": "current_txn_first_offset",
}
Logs = dict[str, PartitionLog]


@pytest.fixture
def logs(directory: LogDirectory) -> Logs:
    checkpoints = Checkpoints(directory)
    return {p.label: PartitionLog(directory, p, checkpoints) for p in directory.partitions if p.is_plain}


def _of(logs: Logs, topic: str) -> list[PartitionLog]:
    return [log for log in logs.values() if log.partition.topic == topic]


def test_where_partitions_begin_and_end(golden_name: str, logs: Logs) -> None:
    asked = 0
    for label, answer in golden.oracle(golden_name)["partitions"].items():
        state = logs[label].replayed
        end = state.log_end_offset - ((golden_name, label) in WRITTEN_LATER)
        assert (label, state.log_start_offset, end) == (label, answer["beginningOffset"], answer["endOffset"])
        stable = min(state.last_stable_offset, end)
        assert (label, stable) == (label, answer["lastStableOffset"])
        assert state.stop is None or state.stop.kind is BATCH_ROOM
        asked += 1
    assert asked > 20


def test_high_watermarks_of_a_clean_directory_are_the_ends(golden_name: str, logs: Logs) -> None:
    if golden_name.endswith("-clean"):
        for log in logs.values():
            if not log.partition.is_metadata_log:
                assert log.replayed.high_watermark == log.replayed.log_end_offset


def test_producers_are_those_the_broker_knew(golden_name: str, logs: Logs) -> None:
    """A snapshot keeps producers that a broker has forgotten since."""
    seen = 0
    for label, answer in golden.oracle(golden_name)["partitions"].items():
        found = {row["producer_id"]: row for row in logs[label].replayed.producers.rows()}
        for producer in answer["producers"]:
            row = found[producer["producerId"]]
            expected = {ours: producer[theirs] for theirs, ours in _PRODUCER.items()}
            assert {name: row[name] for name in expected} == expected
            seen += 1
        idle = set(found) - {producer["producerId"] for producer in answer["producers"]}
        assert all(found[number]["current_txn_first_offset"] == -1 for number in idle)
    assert seen > 20 or golden_name.startswith("2.8.2")


def test_replayed_producers_equal_every_snapshot(directory: LogDirectory, logs: Logs) -> None:
    from rmqctl.kafka.loading.producers import ProducerReplay
    from rmqctl.kafka.log.indexes import read_producer_snapshot

    compared = 0
    for log in logs.values():
        if log.partition.topic == "compacted":
            continue  # its batches were changed after the snapshots were written
        for file in log.partition.snapshots:
            replay = ProducerReplay()
            for _, block in log.blocks():
                replay.add(block.take(block["last_offset"] < file.base))
            snapshot = read_producer_snapshot(file.open())
            assert snapshot.is_good
            found = {row["producer_id"]: row for row in replay.rows()}
            for entry in snapshot.rows():
                assert found[entry["producer_id"]] == entry, (file.name, entry)
            compared += 1
    assert compared > 10


def test_aborted_transactions_are_those_of_the_indexes(logs: Logs) -> None:
    from rmqctl.kafka.log.indexes import read_txn_index

    for log in logs.values():
        if log.partition.topic == "compacted":
            continue  # a transaction that compaction removed is still in the index
        indexed: list[Any] = []
        for segment in log.segments:
            if segment.txn_index is not None:
                index = read_txn_index(segment.txn_index.open())
                names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
                indexed += zip(*(index[name].tolist() for name in names), strict=True)
        assert [tuple(t[:4]) for t in log.replayed.producers.aborted] == indexed


def test_leader_epochs_of_the_batches_are_those_of_the_checkpoint(logs: Logs) -> None:
    for log in logs.values():
        stored = [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries]
        assert not log.leader_epochs.problems
        derived = [(epoch, max(offset, log.log_start_offset)) for epoch, offset in log.replayed.epochs]
        if log.partition.topic not in {"compacted", "mixed-magic"}:  # batches removed; epochs forgotten for magic 1
            assert set(stored) >= {entry for entry in derived if entry[1] > log.log_start_offset}, log.partition.label


def test_groups_are_those_the_broker_told(golden_name: str, logs: Logs) -> None:
    found = group_offsets(_of(logs, "__consumer_offsets"))
    told: dict[str, dict[str, Any]] = {}
    for (group, topic, partition), commit in found.commits.items():
        row = {"offset": commit.offset, "metadata": commit.metadata}
        row |= {"leaderEpoch": commit.leader_epoch} if commit.leader_epoch >= 0 else {}
        row["lag"] = logs[f"{topic}-{partition}"].replayed.log_end_offset - commit.offset
        told.setdefault(group, {})[f"{topic}-{partition}"] = row
    expected = golden.oracle(golden_name)["groups"]
    assert told == {group: answer["offsets"] for group, answer in expected.items() if answer["offsets"]}
    if not golden_name.startswith("2.8.2"):
        assert list(found.pending) == [("g-txn-open", "z-snappy", 0)]
        assert found.groups["g-classic"] == "consumer"


def test_transactions_are_those_the_broker_told(golden_name: str, logs: Logs) -> None:
    found = transactions(_of(logs, "__transaction_state"))
    told = [
        {
            "transactionalId": name,
            "producerId": transaction.producer_id,
            "producerEpoch": transaction.producer_epoch,
            "state": transaction.state,
            "timeoutMs": transaction.timeout_ms,
            "startTimeMs": transaction.start_timestamp,
            "partitions": [f"{topic}-{number}" for topic, number in transaction.partitions],
        }
        for name, transaction in sorted(found.items())
    ]
    assert told == golden.oracle(golden_name)["transactions"]


def test_share_groups(golden_name: str, logs: Logs) -> None:
    found = share_states(_of(logs, "__share_group_state"))
    assert sorted(state.start_offset for state in found.values()) == ([8, 16, 16] if "4.3" in golden_name else [])


def test_the_lag_of_a_share_group_leaves_out_what_is_done() -> None:
    """Updates are laid over what a snapshot says; a count by the broker itself is believed."""
    snapshot = {"snapshotEpoch": 0, "startOffset": 10, "leaderEpoch": 1, "writeTimestamp": 5}
    state = _share_state(0, snapshot | {"stateBatches": _states((10, 19, 0), (20, 29, 2))}, None)
    assert (state.start_offset, state.done) == (10, 10)
    update = {"snapshotEpoch": 0, "startOffset": -1, "leaderEpoch": 1}
    state = _share_state(1, update | {"stateBatches": _states((12, 21, 4), (25, 25, 0))}, state)
    assert state.batches == ((10, 11, 0), (12, 21, 4), (22, 24, 2), (25, 25, 0), (26, 29, 2))
    assert (state.start_offset, state.done) == (10, 17)
    state = _share_state(1, update | {"startOffset": 20, "stateBatches": []}, state)
    assert state.done == 2 + 7
    assert _share_state(1, update | {"stateBatches": [], "deliveryCompleteCount": 3}, state).done == 3


def _states(*ranges: tuple[int, int, int]) -> list[dict[str, int]]:
    return [{"firstOffset": first, "lastOffset": last, "deliveryState": state} for first, last, state in ranges]
