"""The engine's coordinator: the records of a broker's, ids that go on, transactions that are ended for others."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.errors import Refused
from rmqctl.filters import Filters, Rendering
from rmqctl.kafka.engine.batch import BatchHead
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.engine.transactions import Coordinator, Transactional
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.query.key import partition_of_name
from rmqctl.opening import open_store
from rmqctl.release import Release
from tests.conftest import Rmqctl

RELEASES = ("3.9.2", "4.3.1")
STATUSES = {"commit": [0, 1, 1, 2, 4], "abort": [0, 1, 1, 3, 5]}
TIMES = ("transactionLastUpdateTimestampMs", "transactionStartTimestampMs")


def noted(root: Path, name: str) -> list[dict[str, Any]]:
    """Values of the records that say something of a transactional id, and in which partition they are."""
    found = []
    for row in open_store(str(root)).dump(Filters(topic="__transaction_state"), Rendering(records=True)).rows:
        decoded = (row or {}).get("decoded")
        if decoded and decoded["key"]["transactionalId"] == name:
            assert row is not None
            found.append({"partition": row["partition"], "version": decoded["version"], **decoded["value"]})
    return found


def send(engine: KafkaEngine, transaction: Transactional, partition: int, sequence: int = 0) -> None:
    head = BatchHead(
        producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch, base_sequence=sequence,
        transactional=True,
    )  # fmt: skip
    engine.append("t", partition, [Record(0, 1700000000000, -1, b"k", b"v", ())], head)


def opened(root: Path, release: str) -> KafkaEngine:
    engine = KafkaEngine.open(root, EngineConfig(Release.parse(release), replace(LogConfig.small())))
    engine.make_topic("t", 2)
    return engine


@pytest.mark.parametrize("release", RELEASES)
def test_records_are_those_of_a_broker(release: str, tmp_path: Path) -> None:
    """Fields, versions and epochs, against the first transaction of a broker of the release."""
    with opened(tmp_path, release) as engine:
        coordinator = Coordinator(engine)
        transaction = coordinator.begin("tx-1", 900_000)
        for partition in (0, 1):
            coordinator.add(transaction, [("t", partition)])
            send(engine, transaction, partition)
        coordinator.end(transaction, commit=True)
    ours = noted(tmp_path, "tx-1")
    assert [value["transactionStatus"] for value in ours] == STATUSES["commit"]
    assert {value["partition"] for value in ours} == {partition_of_name("tx-1", 50)}
    theirs = noted(golden.pristine(f"{release}-clean"), "tx-1")
    first = next(n for n, value in enumerate(theirs) if value["transactionStatus"] == 4)
    by_status = {value["transactionStatus"]: value for value in theirs[: first + 1]}
    for value in ours:
        wanted = by_status[value["transactionStatus"]]
        assert list(value) == list(wanted)
        same = ("version", "producerEpoch", "transactionTimeoutMs", "clientTransactionVersion")
        assert [value.get(name) for name in same] == [wanted.get(name) for name in same]
        assert (value["transactionPartitions"] is None) == (wanted["transactionPartitions"] is None)
        assert (value["transactionStartTimestampMs"] < 0) == (wanted["transactionStartTimestampMs"] < 0)
        assert value.get("previousProducerId", -1) == (value["producerId"] if release == "4.3.1" else -1)


@pytest.mark.parametrize("release", RELEASES)
def test_what_was_left_open_is_aborted_by_the_next(release: str, tmp_path: Path) -> None:
    with opened(tmp_path, release) as engine:
        coordinator = Coordinator(engine)
        first = coordinator.begin("pay")
        coordinator.add(first, [("t", 0)])
        send(engine, first, 0)
        left = first.producer_epoch
    with KafkaEngine.open(tmp_path) as engine:
        second = Coordinator(engine).begin("pay")
        assert second.producer_id == first.producer_id
        assert second.producer_epoch == left + (3 if release == "4.3.1" else 2)
        assert engine.log("t", 0).stable_offset == engine.log("t", 0).end == 2
    assert [value["transactionStatus"] for value in noted(tmp_path, "pay")] == [0, 1, 3, 5, 0]
    (row,) = open_store(str(tmp_path)).transactions().rows
    assert (row["state"], row["partitions"], row["hanging"]) == ("Empty", [], False)
    rows = open_store(str(tmp_path)).dump(Filters(topic="t"), Rendering(records=True)).rows
    assert [row["control_type"] for row in rows if row and row.get("control_type")] == ["ABORT"]


def test_a_decision_that_was_not_carried_out_is(tmp_path: Path) -> None:
    """A kill between the decision and its markers: the next coordinator writes them."""
    engine = opened(tmp_path, "4.3.1")
    coordinator = Coordinator(engine)
    transaction = coordinator.begin("pay")
    coordinator.add(transaction, [("t", 0), ("t", 1)])
    send(engine, transaction, 0)
    engine.end_transaction = lambda ending, partitions: engine.crash()  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(Exception, match="closed"):
        coordinator.end(transaction, commit=True)
    (row,) = open_store(str(tmp_path)).transactions().rows
    assert row["state"] == "PrepareCommit"
    with KafkaEngine.open(tmp_path) as again:
        Coordinator(again).begin("pay")
    assert [value["transactionStatus"] for value in noted(tmp_path, "pay")] == [0, 1, 2, 4, 0]
    (record,) = [
        r for r in open_store(str(tmp_path)).query_offset("t", 0, 0, read_committed=True) if r["kind"] == "record"
    ]
    assert record["value"] == "v"


def test_a_producer_out_of_epochs_gets_another_id(tmp_path: Path) -> None:
    with opened(tmp_path, "3.9.2") as engine:
        coordinator = Coordinator(engine)
        transaction = coordinator.begin("pay")
        known, transaction.producer_epoch = transaction.producer_id, (1 << 15) - 2
        assert coordinator.begin("pay").producer_id == known + 1
        assert transaction.producer_epoch == 0


@pytest.mark.parametrize("epoch", [(1 << 15) - 3, (1 << 15) - 2])
def test_an_open_transaction_of_one_of_the_last_epochs_is_ended(epoch: int, tmp_path: Path) -> None:
    with opened(tmp_path, "4.3.1") as engine:
        coordinator = Coordinator(engine)
        transaction = coordinator.begin("pay")
        known, transaction.producer_epoch = transaction.producer_id, epoch
        coordinator.add(transaction, [("t", 0)])
        again = Coordinator(engine).begin("pay")
        assert (again.producer_id, again.producer_epoch) == (known + 1, 1)
        coordinator = Coordinator(engine)
        assert coordinator.begin("pay").producer_epoch == 2


def test_an_id_whose_coordinator_is_elsewhere_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path, "4.3.1") as engine:
        Coordinator(engine).begin("pay")
    for number in range(40, 50):
        shutil.rmtree(tmp_path / f"__transaction_state-{number}")
    names = {partition_of_name(f"id-{n}", 50): f"id-{n}" for n in range(400)}
    with KafkaEngine.open(tmp_path) as engine:
        coordinator = Coordinator(engine)
        with pytest.raises(Refused, match="__transaction_state-45, which is not here"):
            coordinator.begin(names[45])
        assert coordinator.begin(names[7]).producer_epoch == 0
    assert {value["partition"] for value in noted(tmp_path, names[7])} == {7}


def test_produce_goes_on_with_a_transactional_id(rmqctl: Rmqctl, tmp_path: Path) -> None:
    words = ("--format", "kafka", "--topic", "t", "--count", "5", "--key", "k{n}")
    for how in ("open", "commit"):
        done = rmqctl("produce", tmp_path / "d", *words, "--transactional", how, "--transactional-id", "pay")
        assert done.exit_code == 0, done.stderr
    rows = list(open_store(str(tmp_path / "d")).query_offset("t", 0, 0, Filters(limit=99), read_committed=True))
    assert [row["offset"] for row in rows if row["kind"] == "record"] == list(range(6, 11))
    for name in ("x" * 32768, "a\udcffb"):
        result = rmqctl("produce", tmp_path / "d", *words, "--transactional", "open", "--transactional-id", name)
        assert (result.exit_code, "1 to 32,767 bytes" in result.stderr) == (13, True)
    for bad in (("--transactional-id", "pay"), ("--transactional", "open", "--transactional-id", "")):
        assert rmqctl("produce", tmp_path / "e", *words, *bad).exit_code == 2
        assert not (tmp_path / "e").exists()
