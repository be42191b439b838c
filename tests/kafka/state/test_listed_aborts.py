"""Readers of committed records pass over what a transaction index lists, whether a marker in the log ends it or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.local import LocalFile
from rmqctl.kafka.loading.producers import EndedTransaction, ProducerReplay
from rmqctl.kafka.loading.snapshots import snapshot_bytes
from rmqctl.kafka.log.indexes import read_producer_snapshot
from rmqctl.kafka.query.offset import OffsetQuestion, offset_rows
from rmqctl.kafka.state.partition_state import PartitionLog, Spans
from rmqctl.kafka.store import KafkaStore
from rmqctl.opening import open_store
from tests.conftest import Rmqctl
from tests.kafka.state.listed_aborts_helpers import CASES, PARTITION, STORE, listed


def log_of(root: Path) -> PartitionLog:
    store = open_store(str(root))
    assert isinstance(store, KafkaStore)
    return next(log for log in store.replicas.served if log.partition.directory == PARTITION)


def committed(log: PartitionLog) -> set[int]:
    _, *rows = offset_rows(log, OffsetQuestion(0, 1000, read_committed=True))
    return {row["offset"] for row in rows}


@pytest.mark.parametrize("case", CASES)
def test_what_an_index_lists_is_passed_over(case: str, tmp_path: Path) -> None:
    log = log_of(listed(case, tmp_path))
    expected = committed(log_of(golden.pristine(STORE))) - CASES[case]
    assert committed(log) == expected
    (_, first, *_, last) = offset_rows(log, OffsetQuestion(min(CASES[case]), 1, read_committed=True, explain=True))
    assert first["offset"] not in CASES[case]
    assert "aborted" in last["what"] or "aborted" in str(last)


@pytest.mark.parametrize("case", CASES)
def test_convert_leaves_out_what_readers_pass_over(case: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = listed(case, tmp_path)
    made = rmqctl("convert", root, tmp_path / "store", "--small", "-o", "jsonl").stdout.splitlines()
    queue = next(row for row in map(json.loads, made) if (row.get("topic"), row.get("queue_id")) == ("txn-a", 0))
    assert queue["messages"] == len(committed(log_of(root)))


def test_convert_leaves_out_what_a_snapshot_leaves_open(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """A broker takes open transactions from the newest snapshot, whether their batches are in the log or not."""
    root = golden.unpack(STORE, tmp_path)
    snapshot = max((root / PARTITION).glob("*.snapshot"))
    producers = ProducerReplay()
    producers.load(read_producer_snapshot(LocalFile(snapshot, "")).rows())
    plain = committed(log_of(root))
    first = sorted(plain)[len(plain) // 2]
    next(
        one for one in producers.producers.values() if one.current_txn_first_offset < 0
    ).current_txn_first_offset = first
    snapshot.write_bytes(snapshot_bytes(producers))
    assert committed(log_of(root)) == {offset for offset in plain if offset < first}
    done = rmqctl("convert", root, tmp_path / "store", "--small", "-o", "jsonl")
    assert done.exit_code == 0, done.output
    queue = next(
        row
        for row in map(json.loads, done.stdout.splitlines())
        if (row.get("topic"), row.get("queue_id")) == ("txn-a", 0)
    )
    assert queue["messages"] == len(committed(log_of(root)))


def test_an_index_that_a_start_makes_again_lists_nothing(tmp_path: Path) -> None:
    root = listed("an entry begins earlier", tmp_path)
    (root / ".kafka_cleanshutdown").unlink()
    (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert committed(log_of(root)) == committed(log_of(golden.pristine(STORE)))


def test_spans_that_overlap_are_one() -> None:
    spans = Spans(EndedTransaction(7, *ends, 0, False) for ends in [(10, 20), (12, 15), (30, 31), (12, 15)])
    assert [spans.find(7, offset) for offset in (9, 10, 17, 20, 21, 31)] == [
        None,
        (10, 20),
        (10, 20),
        (10, 20),
        None,
        (30, 31),
    ]
    assert spans.find(8, 12) is None
