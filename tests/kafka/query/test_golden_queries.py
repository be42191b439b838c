"""Lookups in golden directories, against what the brokers answered."""

from __future__ import annotations

import base64
import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.explain import all_misses
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectory, read_directory
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.query.key import KeySearch, explain_key, latest_rows, murmur2, partition_of_key, partition_of_name
from rmqctl.kafka.query.offset import OffsetQuestion, offset_rows
from rmqctl.kafka.query.time import offset_for_time
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.release import Release
from tests.kafka.batches import TIME, batch, record
from tests.kafka.state.golden_state_helpers import WRITTEN_LATER

ALL = 1 << 40
IDS = {miss.id for miss in all_misses()}


@pytest.fixture(params=[*golden.KAFKA_NAMES, *golden.KAFKA_UNPRINTED])
def golden_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def logs(directory: LogDirectory) -> dict[str, PartitionLog]:
    checkpoints = Checkpoints(directory)
    return {p.label: PartitionLog(directory, p, checkpoints) for p in directory.partitions if p.is_plain}


def key_rows(log: PartitionLog, key: bytes) -> list[dict[str, Any]]:
    """The records of one partition with a key, in order."""
    return [row for _, row in KeySearch([log], key).rows()]


def _ranges(offsets: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return found


@pytest.mark.parametrize("read_committed", [False, True])
def test_consumers_get_the_same_records(
    golden_name: str, logs: dict[str, PartitionLog], *, read_committed: bool
) -> None:
    for label, answer in golden.oracle(golden_name)["partitions"].items():
        log = logs[label]
        status, *rows = offset_rows(log, OffsetQuestion(log.log_start_offset, ALL, read_committed))
        offsets = [row["offset"] for row in rows]
        if (golden_name, label) in WRITTEN_LATER and not read_committed:
            offsets.pop()
        assert _ranges(offsets) == answer["readCommitted" if read_committed else "readUncommitted"], label
        assert status["status"] == ("FOUND" if rows else "END")


def test_times_are_answered_alike(golden_name: str, logs: dict[str, PartitionLog]) -> None:
    asked = 0
    for label, answer in golden.oracle(golden_name)["partitions"].items():
        if (golden_name, label) in WRITTEN_LATER:
            continue
        for time, offset, timestamp in answer.get("offsetsForTimes", ()):
            found = offset_for_time(logs[label], time, explain=True)
            assert (label, time, found.offset, found.timestamp) == (label, time, offset, timestamp)
            assert found.steps[-1]["what"] == "conclusion"
            asked += 1
        if "maxTimestamp" in answer:
            found = offset_for_time(logs[label], "max-timestamp")
            assert {"offset": found.offset, "timestamp": found.timestamp} == answer["maxTimestamp"], label
    assert asked > 100


def test_every_offset_says_why_there_is_no_record(logs: dict[str, PartitionLog]) -> None:
    """Each offset of one partition of each kind gets its record, or one sentence that says why not."""
    reasons, ids = defaultdict(list), set()
    for label in ("txn-a-0", "compacted-0", "deleted-rec-0"):
        if label not in logs:
            continue
        log = logs[label]
        for offset in range(-1, log.replayed.log_end_offset + 2):
            status, *rows = offset_rows(log, OffsetQuestion(offset, 1, read_committed=True, explain=True))
            conclusion, reason = rows[-1]["result"], rows[-1]["id"]
            hit = [row for row in rows if row["kind"] == "record" and row["offset"] == offset]
            assert bool(hit) == (reason == "miss.none")
            assert reason in IDS
            assert status["next_offset"] >= max(offset, 0) or status["status"] == "OUT_OF_RANGE"
            if not hit:
                reasons[label].append(conclusion)
                ids.add(reason)
    if "txn-a-0" in logs:
        text = " ".join(reasons["txn-a-0"])
        for word in ("control record", "aborted", "a transaction open since", "the end of the log", "beyond the end"):
            assert word in text
        for reason in ("control-record", "aborted", "not-decided", "end-of-log", "offset-beyond-end"):
            assert f"miss.{reason}" in ids
        assert "compaction" in " ".join(reasons["compacted-0"])
        assert "deleted by request" in " ".join(reasons["deleted-rec-0"])


def test_records_by_key(golden_name: str, logs: dict[str, PartitionLog]) -> None:
    """All records with a key, as the truth has them."""
    expected: dict[tuple[str, Any], list[int]] = defaultdict(list)
    file = ""
    for line in golden.truth(golden_name):
        file = line.get("file", file)
        if line["t"] == "record" and not line.get("controlType") and file.endswith(".log"):
            label = file.split("/")[0]
            if label in logs and line["offset"] >= logs[label].log_start_offset and line["key"] is not None:
                expected[label, line["key"]].append(line["offset"])
    for (label, key), offsets in list(expected.items())[::7]:
        rows = key_rows(logs[label], base64.b64decode(key))
        assert [row["offset"] for row in rows] == offsets, (label, key)
        assert [row["offset"] for row in latest_rows(iter(rows))] == offsets[-1:]


def test_a_missing_key_is_explained(logs: dict[str, PartitionLog]) -> None:
    log = next(iter(logs.values()))
    rows = key_rows(log, b"nobody wrote this")
    assert rows == []
    steps = explain_key([log], b"nobody wrote this", 1, rows).rows()
    assert steps[0]["result"] == "the default partitioner puts the key into partition 0 (of 0 to 0)"
    assert steps[-1]["result"] == "no record has the key: never written, or removed by compaction or retention"
    assert steps[-1]["id"] == "miss.no-record-with-key"


@pytest.mark.parametrize(
    ("data", "hash_"),
    [  # from the tests of the Java client
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2(data: bytes, hash_: int) -> None:
    assert murmur2(data) == hash_ & 0xFFFFFFFF


def test_names_go_where_brokers_put_them(directory: LogDirectory, logs: dict[str, PartitionLog]) -> None:
    from rmqctl.kafka.state.internal_topics import group_offsets, transactions

    found = 0
    for topic in ("__consumer_offsets", "__transaction_state"):
        owners = [log for log in logs.values() if log.partition.topic == topic]
        for log in owners:
            names = group_offsets([log]).groups if topic == "__consumer_offsets" else transactions([log])
            for name in names:
                assert partition_of_name(name, len(owners)) == log.partition.partition
                found += 1
    assert found or not any(log.partition.topic == "__transaction_state" for log in logs.values())


def test_the_partition_of_a_key() -> None:
    assert [partition_of_key(b"foobar", count) for count in (1, 3, 50)] == [0, (-790332482 & 0x7FFFFFFF) % 3, 16]


def test_a_search_in_several_processes_finds_the_same(logs: dict[str, PartitionLog]) -> None:
    chosen = list(logs.values())
    alone, shared = (list(KeySearch(chosen, b"k1", processes=count).rows()) for count in (1, 2))
    assert alone == shared
    assert alone


def test_a_log_that_is_cut_gives_the_same_again(tmp_path: Path) -> None:
    """What a broker drops is not found, by no way and however often it is asked."""
    root = golden.unpack("4.3.1-crash", tmp_path)
    directory = read_directory(LocalTree(root))
    partition = directory.partition("plain-none", 0)
    assert partition is not None
    (root / "recovery-point-offset-checkpoint").unlink()
    middle = partition.logs[1]
    with open(root / middle.name, "r+b") as file:
        file.seek(middle.size // 2)
        file.write(b"damaged")
    directory = read_directory(LocalTree(root))
    partition = directory.partition("plain-none", 0)
    assert partition is not None
    log = PartitionLog(directory, partition, Checkpoints(directory))
    passes = [[(block.file, len(block)) for _, block in log.blocks()] for _ in range(3)]
    assert passes[0] == passes[1] == passes[2]
    assert {file for file, _ in passes[0]} == {file.name for file in partition.logs[:2]}
    stop = log.replayed.stop
    assert stop is not None and stop.file == middle.name
    assert partition.logs[1].base < log.replayed.log_end_offset < partition.logs[2].base
    after = list(log.blocks(partition.logs[2].base))
    assert after == []
    found = [row["offset"] for row in key_rows(log, b"k1")]
    assert max(found, default=0) < log.replayed.log_end_offset


def test_a_wrong_time_index_is_told(tmp_path: Path) -> None:
    """A broker that is led astray answers later; the explanation has what the whole log says."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    name = "idem-0/00000000000000000000.timeindex"
    with open(root / name, "r+b") as file:
        file.seek(0, 2)
        size = file.tell()
        file.seek(size - 12)
        file.write((0).to_bytes(8, "big"))  # the segment seems to end long ago
    directory = read_directory(LocalTree(root))
    partition = directory.partition("idem", 0)
    assert partition is not None
    log = PartitionLog(directory, partition, Checkpoints(directory))
    found = offset_for_time(log, 1795221335064, explain=True)
    assert found.offset > 0
    step = found.steps[-2]
    assert step["what"] == "the whole log"
    assert step["result"].startswith("offset 0 is the first of that time or later; by its indexes a broker answers")


@pytest.mark.parametrize(
    ("release", "offsets"),
    [
        (Release(3, 6, 2), [1, 5, 8]),
        (Release(3, 7, 2), [2, 5, 8]),
        (Release(3, 8, 0), [1, 4, 6]),
        (Release(4, 3, 1), [1, 4, 6]),
    ],
)
def test_brokers_before_3_8_note_the_last_offset_of_some_batches(
    release: Release, offsets: list[int], tmp_path: Path
) -> None:
    """Three topics whose largest timestamp is in a batch as it is, in one that is compressed, and in a stamped one."""
    records = [record(i, b"k", b"v", time=7 * (i > 0)) for i in range(3)]
    plain = batch(0, records, max_timestamp=TIME + 7)
    packed = batch(3, records, gzip.compress(b"".join(records)), max_timestamp=TIME + 7, attributes=1)
    stamped = batch(6, records, max_timestamp=TIME + 9, attributes=8)
    found = []
    for name, data in {"plain": plain, "packed": packed, "stamped": stamped}.items():
        file = tmp_path / f"{name}-0" / f"{0:020d}.log"
        file.parent.mkdir()
        file.write_bytes(data)
        directory = read_directory(LocalTree(tmp_path))
        partition = directory.partition(name, 0)
        assert partition is not None
        log = PartitionLog(directory, partition, Checkpoints(directory))
        answer = offset_for_time(log, "max-timestamp", release)
        found.append(answer.offset)
        assert answer.timestamp == TIME + (9 if name == "stamped" else 7)
    assert found == offsets
