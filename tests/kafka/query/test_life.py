"""Lives of records: what consumers got and groups committed, as the brokers answered, and damaged copies."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import rmqctl
from fixtures import golden
from rmqctl.kafka.query.life import Keeping, LifeReader
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.store import KafkaStore
from rmqctl.life import Life

READ = {"stored", "passed", "waiting"}
NAMES = ["3.9.2-clean", "4.3.1-clean", "4.3.1-crash"]


def replicas(path: Path) -> Replicas:
    store = rmqctl.open(path)
    assert isinstance(store, KafkaStore)
    return store.replicas


def reader(path: Path) -> LifeReader:
    def keeping(topic: str) -> Keeping:
        return Keeping(-1, -1, is_compacted=topic == "compacted")

    return LifeReader(replicas(path), keeping)


def offsets_in(ranges: list[list[int]]) -> set[int]:
    return {offset for first, last in ranges for offset in range(first, last + 1)}


@cache
def records_of(name: str) -> list[dict[str, Any]]:
    """The records of the truth, each with the file of the batch before it."""
    found, file = list[dict[str, Any]](), ""
    for line in golden.truth(name):
        file = line.get("file", file)
        if line["t"] == "record":
            found.append(line | {"file": file})
    return found


@cache
def fates(name: str, label: str) -> dict[int, set[str]]:
    """Fates that the records of a partition may have, by what the broker's consumers got of it."""
    answer = golden.oracle(name)["partitions"][label]
    every, committed = offsets_in(answer["readUncommitted"]), offsets_in(answer["readCommitted"])
    stable = answer["lastStableOffset"]
    records = {r["offset"] for r in records_of(name) if r["file"].startswith(f"{label}/")}
    found = dict[int, set[str]]()
    for offset in range(answer["beginningOffset"], answer["endOffset"]):
        if offset in committed:
            found[offset] = READ
        elif offset in every:
            found[offset] = {"rolled-back"} if offset < stable else {"open", "rolled-back", *READ}
        else:
            found[offset] = {"control"} if offset in records else {"compacted"}
    return found


def life_at(lives_: LifeReader, label: str, offset: int) -> Life:
    topic, _, number = label.rpartition("-")
    (life,) = lives_.at_place(topic, int(number), offset)
    return life


@pytest.mark.parametrize("label", ["txn-a-0", "txn-a-1", "txn-b-0", "compacted-0"])
@pytest.mark.parametrize("name", NAMES)
def test_fates_are_what_consumers_got(name: str, label: str) -> None:
    lives_ = reader(golden.pristine(name))
    seen = Counter[str]()
    for offset, wanted in list(fates(name, label).items())[:: 5 if label == "compacted-0" else 1]:
        life = life_at(lives_, label, offset)
        assert life.fate in wanted, (offset, life.sentence)
        seen[life.fate] += 1
    assert len(seen) > 1


@pytest.mark.parametrize("name", NAMES)
def test_groups_have_passed_what_lies_in_front_of_their_offsets(name: str) -> None:
    """By the offsets that the broker's admin gave; each with its commit, at the byte where that stands."""
    root = golden.pristine(name)
    lives_, count = reader(root), 0
    for group, answer in golden.oracle(name)["groups"].items():
        for label, entry in (answer.get("offsets") or {}).items():
            committed = entry["offset"] if isinstance(entry, dict) else entry
            limits = golden.oracle(name)["partitions"][label]
            for offset in {limits["beginningOffset"], committed - 1, committed, limits["endOffset"] - 1}:
                if not limits["beginningOffset"] <= offset < limits["endOffset"]:
                    continue
                events = [e for e in life_at(lives_, label, offset).events if e.more.get("group") == group]
                if not events:
                    assert life_at(lives_, label, offset).fate in {"control", "rolled-back", "open"}
                    continue
                (event,) = events
                assert event.what == ("passed" if offset < committed else "not-passed"), (group, label, offset)
                assert event.file is not None
                assert event.position is not None
                assert (root / event.file).read_bytes()[event.position + 16] == 2  # a batch begins there
                count += 1
    assert count > 20


def test_the_end_of_a_transaction_is_where_the_step_says() -> None:
    root = golden.pristine("4.3.1-clean")
    lives_, markers = reader(root), 0
    for offset in fates("4.3.1-clean", "txn-b-0"):
        life = life_at(lives_, "txn-b-0", offset)
        for event in life.events:
            if event.what in {"committed", "aborted"}:
                assert event.file is not None
                assert event.position is not None
                batch = (root / event.file).read_bytes()[event.position :]
                assert int.from_bytes(batch[21:23], "big") & 0x30 == 0x30  # transactional and control
                assert event.time == int.from_bytes(batch[35:43], "big")
                markers += 1
    assert markers > 50


@pytest.mark.parametrize("name", ["2.8.2-clean", "4.3.1-clean"])
def test_records_by_key(name: str) -> None:
    """All records with a key, the newest first; old messages have neither producer nor epoch."""
    store = rmqctl.open(golden.pristine(name))
    found = [row for row in store.trace("k13", most=1000) if row["kind"] == "fate"]  # type: ignore[union-attr]
    starts = {label: answer["beginningOffset"] for label, answer in golden.oracle(name)["partitions"].items()}
    expected = set[tuple[str, int, int]]()
    for record in records_of(name):
        label = record["file"].rpartition("/")[0]
        if record["key"] == "azEz" and record["offset"] >= starts.get(label, 1 << 60):
            topic, _, number = label.rpartition("-")
            expected.add((topic, int(number), record["offset"]))
    assert {(row["topic"], row["partition"], row["offset"]) for row in found} == expected
    assert len(expected) > 3


def test_what_is_not_there_any_more() -> None:
    lives_ = reader(golden.pristine("4.3.1-clean"))
    life = life_at(lives_, "deleted-rec-0", 5)
    assert life.fate == "deleted"
    assert any(event.what == "stored" for event in life.events)  # the bytes are still there
    assert life_at(lives_, "deleted-rec-0", 500).fate == "unwritten"
    assert lives_.at_place("nowhere", 0, 1) == []


@pytest.mark.parametrize("key", ["", " ", "\0", "a/b@c", "txn-a/0@", "x/0@5", "é", "a" * 4000, "%s", "\udcff", "x-0@1"])
def test_hostile_keys_find_nothing(key: str) -> None:
    answer = rmqctl.open(golden.pristine("4.3.1-clean")).trace(key, topic="plain-none")  # type: ignore[union-attr]
    rows = list(answer)
    assert all(row.get("key") in {key, None} for row in rows if row["kind"] == "fate")
    assert answer.is_no == (not rows)


def harmed(name: str, into: Path, seed: int) -> Path:
    """A copy with damage in the logs of one partition, of groups and of coordinators."""
    root, chance = golden.unpack(name, into), random.Random(seed)
    files = [f for part in ("txn-a-0", "txn-b-0", "__consumer_offsets-*") for f in root.glob(f"{part}/*.log")]
    for file in chance.sample([f for f in files if f.stat().st_size > 100], 3):
        size = file.stat().st_size
        with file.open("r+b") as opened:
            match chance.randrange(4):
                case 0:
                    opened.truncate(chance.randrange(size))
                case 1:
                    opened.seek(chance.randrange(size))
                    opened.write(bytes(chance.randrange(1, 300)))
                    opened.truncate(size)
                case _:
                    at = chance.randrange(size)
                    opened.seek(at)
                    (byte,) = opened.read(1)
                    opened.seek(at)
                    opened.write(bytes([byte ^ 1 << chance.randrange(8)]))
    return root


def wrong(lives_: LifeReader, expected: dict[int, set[str]], label: str) -> Iterator[tuple[int, Any]]:
    for offset, wanted in list(expected.items())[::3]:
        life = life_at(lives_, label, offset)
        if life.fate not in {*wanted, "unknown"}:
            yield offset, life.sentence


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 90))])
def test_no_fate_is_wrong_on_damaged_copies(seed: int, tmp_path: Path) -> None:
    name = NAMES[seed % len(NAMES)]
    lives_ = reader(harmed(name, tmp_path, seed))
    for label in ("txn-a-0", "txn-b-0"):
        assert list(wrong(lives_, fates(name, label), label)) == []


def test_where_commits_of_groups_are_gone_nobody_knows_who_passed(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    offsets = [offset for offset, wanted in fates("4.3.1-clean", "txn-b-0").items() if wanted == READ][:5]
    for log in root.glob("__consumer_offsets-*/*.log"):
        log.unlink()
    for life in (life_at(reader(root), "txn-b-0", offset) for offset in offsets):
        assert life.fate == "unknown"
        assert "__consumer_offsets is damaged, first at" in life.sentence


def test_a_segment_that_no_broker_deleted_is_not_taken_for_deleted(tmp_path: Path) -> None:
    """Its leader epochs begin with it still."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    first = min(root.glob("txn-b-0/*.log"))
    assert len(list(root.glob("txn-b-0/*.log"))) > 1
    for file in root.glob(f"txn-b-0/{first.stem}.*"):
        file.unlink()
    life = life_at(reader(root), "txn-b-0", 1)
    assert life.fate == "unknown"
    assert "its segment is lost" in life.sentence


def test_what_was_deleted_by_request_is_not_taken_for_there(tmp_path: Path) -> None:
    """The checkpoint that says so is lost; the leader epochs begin later."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    assert life_at(reader(root), "deleted-rec-0", 5).fate == "deleted"
    (root / "log-start-offset-checkpoint").write_bytes(b"")
    life = life_at(reader(root), "deleted-rec-0", 5)
    assert life.fate == "unknown"
    assert "leader epochs begin at offset" in life.sentence


def test_a_log_of_which_only_indexes_are_left_is_no_compaction(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    logs = sorted(root.glob("compacted-0/*.log"))
    assert len(logs) > 2
    logs[1].unlink()
    life = life_at(reader(root), "compacted-0", int(logs[1].stem))
    assert life.fate == "unknown"
