"""The engine of a log directory: opening, appending, stopping in order or not, topics, retention."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from freezegun.api import FrozenDateTimeFactory

from fixtures import golden
from formats.kafka.record_batch import Codec
from rmqctl.errors import IOFailure, NotAStore, Refused, StoreInUse, TooDamaged
from rmqctl.files.writing import Buffer, Disk
from rmqctl.filters import Filters
from rmqctl.kafka.engine.batch import BatchHead, Ending, build_batch
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.engine.log import BatchRefused
from rmqctl.kafka.log.reference import Record
from rmqctl.opening import open_store
from rmqctl.release import Release

TIME = 1_700_000_000_000
SMALL = EngineConfig(log=LogConfig.small(), clock=lambda: TIME, seed=1)


def record(number: int, size: int = 20) -> Record:
    return Record(0, TIME + number, -1, b"k%d" % number, b"v%d" % number + bytes(size))


def errors_of(path: Path) -> list[Any]:
    rows = open_store(str(path)).verify().rows
    return [row for row in rows if row.get("severity") in ("error", "warning")]


def served(path: Path, topic: str, number: int, **more: Any) -> list[Any]:
    """The records that a consumer gets."""
    rows = open_store(str(path)).query_offset(topic, number, 0, Filters(limit=1 << 30), **more).rows
    return [row for row in rows if row["kind"] == "record"]


def test_a_directory_is_made_goes_on_and_verifies(tmp_path: Path) -> None:
    with KafkaEngine.open(tmp_path / "d", SMALL) as engine:
        engine.make_topic("t", 2)
        for i in range(600):
            engine.append("t", i % 2, [record(i, 200), record(i)], BatchHead(codec=list(Codec)[i % 5]))
    assert errors_of(tmp_path / "d") == []
    with KafkaEngine.open(tmp_path / "d", SMALL) as engine:
        assert engine.recovered is not None
        assert engine.recovered.files == ()
        assert engine.topics == {"t": 2}
        assert engine.append("t", 0, [record(9)]).base_offset == 600
        engine.make_topic("u", 1, {"cleanup.policy": "compact"})
        engine.make_topic("t", 3)
        assert engine.append("t", 2, [record(9)]).base_offset == 0
    assert errors_of(tmp_path / "d") == []
    store = open_store(str(tmp_path / "d"))
    rows = {(r["topic"], r["partition"]): r["log_end_offset"] for r in store.topics().rows}
    assert rows == {("t", 0): 601, ("t", 1): 600, ("t", 2): 1, ("u", 0): 0}
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "d" / ".lock").exists()


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with KafkaEngine.open(tmp_path / name, SMALL) as engine:
            engine.make_topic("t", 1)
            engine.append("t", 0, [record(1)])
    files = [
        {p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n).rglob("*") if p.is_file()} for n in "ab"
    ]
    assert files[0] == files[1]


def test_a_crash_is_recovered_and_nothing_is_lost(tmp_path: Path) -> None:
    engine = KafkaEngine.open(tmp_path, SMALL)
    engine.make_topic("t", 1)
    for i in range(900):
        engine.append("t", 0, [record(i, 150)])
    with pytest.raises(StoreInUse):
        KafkaEngine.open(tmp_path, SMALL)
    engine.crash()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "t-0" / f"{0:020d}.index").exists()
    torn = max((tmp_path / "t-0").glob("*.log"))
    with torn.open("ab") as file:
        file.write(b"\0\0\0\0\0\0\3\x84\0\0\1\0 half a batch")
    with KafkaEngine.open(tmp_path, SMALL) as engine:
        assert engine.append("t", 0, [record(1)]).base_offset == 900
    assert errors_of(tmp_path) == []


def test_a_directory_that_its_broker_would_lose_records_of_is_refused(tmp_path: Path) -> None:
    engine = KafkaEngine.open(tmp_path, SMALL)
    engine.make_topic("t", 1)
    for i in range(9):
        engine.append("t", 0, [record(i)])
    engine.crash()
    log = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[250] ^= 1
    log.write_bytes(data)
    with pytest.raises(TooDamaged, match="would lose"):
        KafkaEngine.open(tmp_path, SMALL)
    assert log.read_bytes() == bytes(data)


def test_what_is_no_log_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(NotAStore):
        KafkaEngine.open(tmp_path, SMALL)
    with pytest.raises(NotAStore):
        KafkaEngine.open(tmp_path / "notes.txt", SMALL)
    with pytest.raises(Refused, match="record batches"):
        KafkaEngine.open(tmp_path / "d", replace(SMALL, release=Release(0, 10, 2)))


@pytest.mark.parametrize("name", ["", ".", "a b", "ä", "x" * 250, "__cluster_metadata"])
def test_topics_have_names_that_brokers_take(tmp_path: Path, name: str) -> None:
    with KafkaEngine.open(tmp_path / "d", SMALL) as engine, pytest.raises(Refused):
        engine.make_topic(name, 1)


def test_partitions_never_get_fewer(tmp_path: Path) -> None:
    with KafkaEngine.open(tmp_path / "d", SMALL) as engine:
        engine.make_topic("t", 3)
        with pytest.raises(Refused, match="never loses any"):
            engine.make_topic("t", 2)
        with pytest.raises(Refused, match="no partition 3"):
            engine.append("t", 3, [record(1)])


def test_topics_are_not_made_where_a_controller_elsewhere_decides(tmp_path: Path) -> None:
    with KafkaEngine.open(tmp_path, SMALL) as engine:
        engine.make_topic("t", 1)
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    with KafkaEngine.open(tmp_path, SMALL) as engine:
        assert engine.append("t", 0, [record(1)]).base_offset == 0
        with pytest.raises(Refused, match="controller elsewhere"):
            engine.make_topic("u", 1)
    assert not (tmp_path / "u-0").exists()


def test_idempotent_producers(tmp_path: Path) -> None:
    def send(sequence: int, epoch: int = 0, count: int = 2) -> Any:
        head = BatchHead(producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        return engine.append("t", 0, [record(i) for i in range(count)], head)

    with KafkaEngine.open(tmp_path / "d", SMALL) as engine:
        engine.make_topic("t", 1)
        assert send(0).base_offset == 0
        again = send(0)
        assert (again.is_duplicate, again.base_offset, again.last_offset) == (True, 0, 1)
        assert send(2).base_offset == 2
        with pytest.raises(BatchRefused, match="goes on with sequence 9, not 4"):
            send(9)
        assert send(0, epoch=1).base_offset == 4
        with pytest.raises(BatchRefused, match="fenced"):
            send(4)
    with KafkaEngine.open(tmp_path / "d", SMALL) as engine:
        assert send(0, epoch=1).is_duplicate
        assert send(2, epoch=1).base_offset == 6
    assert errors_of(tmp_path / "d") == []


def test_transactions(tmp_path: Path) -> None:
    def send(producer: int, value: bytes) -> None:
        head = BatchHead(producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        engine.append("t", 0, [Record(0, TIME, -1, None, value)], head)

    with KafkaEngine.open(tmp_path / "d", SMALL) as engine:
        engine.make_topic("t", 1)
        for producer, value in ((1, b"committed"), (2, b"aborted"), (3, b"open")):
            send(producer, value)
        engine.end_transaction(Ending(1, 0, commit=True), [("t", 0)])
        engine.end_transaction(Ending(2, 0, commit=False), [("t", 0)])
        assert engine.log("t", 0).stable_offset == 2
    assert [r["value"] for r in served(tmp_path / "d", "t", 0, read_committed=True)] == ["committed"]
    assert len((tmp_path / "d" / "t-0" / f"{0:020d}.txnindex").read_bytes()) == 34
    assert errors_of(tmp_path / "d") == []


def test_sizes_times_and_offsets_roll_segments(tmp_path: Path) -> None:
    config = replace(SMALL, log=LogConfig(segment_bytes=1 << 20, segment_ms=1000, index_bytes=80, index_interval=0))
    with KafkaEngine.open(tmp_path / "d", config) as engine:
        engine.make_topic("t", 3)
        for _ in range(30):  # ten slots an index
            engine.append("t", 0, [record(0)])
        log = engine.log("t", 0)
        assert [s.base for s in log.closed] == [0, 11]
        engine.append("t", 1, [record(0)])
        engine.append("t", 1, [record(1001)])
        assert [s.base for s in engine.log("t", 1).closed] == [0]
        far = engine.log("t", 2)
        far.append_stored(build_batch(BatchHead(0), [record(1)._replace(offset=0)]))
        far.append_stored(build_batch(BatchHead(1 << 32), [record(1)._replace(offset=1 << 32)]))
        assert far.active.base == 1 << 32
    assert {row["id"] for row in errors_of(tmp_path / "d")} == {"batch.offset-gap"}


def test_batches_that_brokers_refuse(tmp_path: Path) -> None:
    with KafkaEngine.open(tmp_path / "d", SMALL) as engine:
        engine.make_topic("t", 1)
        with pytest.raises(BatchRefused, match=r"max.message.bytes"):
            engine.append("t", 0, [record(1, 2 << 20)])
        with pytest.raises(BatchRefused, match="segment has at most"):
            engine.append("t", 0, [record(1, 70 << 10)])
        with pytest.raises(BatchRefused, match="not one whole"):
            engine.append_batch("t", 0, b"nothing")
        with pytest.raises(BatchRefused, match="CRC"):
            engine.append_batch("t", 0, build_batch(BatchHead(), [record(1)])[:-1] + b"x")


def test_append_time(tmp_path: Path) -> None:
    config = replace(SMALL, log=replace(SMALL.log, append_time=True), clock=lambda: TIME + 5)
    with KafkaEngine.open(tmp_path / "d", config) as engine:
        engine.make_topic("t", 1)
        assert engine.append("t", 0, [record(1), record(2)]).timestamp == TIME + 5
    assert [r["timestamp"] for r in served(tmp_path / "d", "t", 0)] == [TIME + 5] * 2


def test_retention_and_deleted_records(clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    log_config = replace(SMALL.log, segment_bytes=1000, retention_ms=1000, retention_bytes=-1)
    config = EngineConfig(log=log_config, seed=1)
    with KafkaEngine.open(tmp_path / "d", config) as engine:
        engine.make_topic("t", 1)
        engine.make_topic("size", 1, {"retention.bytes": "3000", "retention.ms": "-1"})
        for i in range(60):
            engine.append("t", 0, [record(i, 100)])
            engine.append("size", 0, [record(i, 100)])
        kept = engine.log("size", 0)
        assert set(engine.retain()) == {("size", 0)}
        assert 3000 <= kept.size < 4000
        assert kept.start == kept.closed[0].base
        engine.delete_records("size", 0, 58)
        assert kept.start == 58
        with pytest.raises(Refused, match="ends at offset 60"):
            engine.delete_records("size", 0, 61)
        clock.tick(2)
        engine.retain()
        assert engine.log("t", 0).start == engine.log("t", 0).end == 60
        assert engine.log("t", 0).closed == []
    assert errors_of(tmp_path / "d") == []
    with KafkaEngine.open(tmp_path / "d", config) as engine:
        assert engine.log("size", 0).start == 58
        assert engine.append("t", 0, [record(1)]).base_offset == 60


def test_threads_wait_for_one_flush(tmp_path: Path) -> None:
    config = replace(SMALL, log=replace(LogConfig(), flush_messages=1))
    with KafkaEngine.open(tmp_path / "d", config) as engine:
        engine.make_topic("t", 1)

        def write(writer: int) -> None:
            for i in range(30):
                result = engine.append("t", 0, [record(writer * 100 + i)])
                assert engine.log("t", 0).flushed > result.last_offset

        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert engine.log("t", 0).end == 120
    assert errors_of(tmp_path / "d") == []


WRITERS = """
import sys, threading
from dataclasses import replace
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record

config = EngineConfig(log=replace(LogConfig.small(), flush_messages=1))
engine = KafkaEngine.open(sys.argv[1], config)
engine.make_topic("t", 2)
lock = threading.Lock()

def write(writer):
    for i in range(1000000):
        value = b"%s/%d/%d" % (sys.argv[2].encode(), writer, i)
        engine.append("t", writer % 2, [Record(0, 1700000000000 + i, -1, None, value + b"x" * 100)])
        with lock:
            sys.stdout.write(value.decode() + "\\n")
            sys.stdout.flush()

for n in range(8):
    threading.Thread(target=write, args=(n,), daemon=True).start()
threading.Event().wait()
"""


def kill_while_writing(path: Path, run: int, after: float) -> list[str]:
    """What was acknowledged before a kill."""
    process = subprocess.Popen([sys.executable, "-c", WRITERS, str(path), str(run)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline().strip()]
    timer = threading.Timer(after, os.kill, (process.pid, signal.SIGKILL))
    timer.start()
    try:
        acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
    finally:
        timer.join()
        process.wait(30)
        process.stdout.close()
    return acknowledged


def check_kills(path: Path, runs: int, seed: int) -> None:
    draw, acknowledged = random.Random(seed), list[str]()
    for run in range(runs):
        acknowledged += kill_while_writing(path, run, draw.uniform(0.02, 0.4))
    with KafkaEngine.open(path):
        pass
    stored = Counter(row["value"].rstrip("x") for number in range(2) for row in served(path, "t", number))
    assert max(stored.values()) == 1
    assert [value for value in acknowledged if not stored[value]] == []
    assert errors_of(path) == []


@pytest.mark.parametrize("runs", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_what_was_flushed_survives_a_kill(tmp_path: Path, runs: int) -> None:
    check_kills(tmp_path / "d", runs, 7)


def test_topics_made_in_several_runs_have_ids_of_their_own(tmp_path: Path) -> None:
    for topic in ("a", "b", "c"):
        with KafkaEngine.open(tmp_path, SMALL) as engine:
            engine.make_topic(topic, 1)
    ids = {(tmp_path / f"{topic}-0" / "partition.metadata").read_bytes() for topic in "abc"}
    assert len(ids) == 3


FEW = ("2.8.2-clean", "4.3.1-clean")


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in golden.KAFKA_NAMES]
)
def test_golden_directories_go_on(name: str, tmp_path: Path) -> None:
    path = golden.unpack(name, tmp_path)
    before = {(row["id"], row["file"]) for row in errors_of(path)}
    ends = {(r["topic"], r["partition"]): r["log_end_offset"] for r in open_store(str(path)).topics()}
    with KafkaEngine.open(path) as engine:
        assert {key: log.end for key, log in engine.logs.items()} == ends
        for (topic, number), end in ends.items():
            if not topic.startswith("__"):
                assert engine.append(topic, number, [record(1)]).base_offset == end
        engine.make_topic("new", 1)
    assert {(row["id"], row["file"]) for row in errors_of(path)} <= before
    with KafkaEngine.open(path) as engine:
        assert engine.recovered is not None
        assert engine.recovered.files == ()


class FullDisk(Disk):
    """Has room for so many bytes of log, and for half of the write that is too much."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 1 << 40

    def write_some(self, fd: int, data: Buffer, position: int) -> int:
        if self.left <= 0:
            raise OSError(errno.ENOSPC, "no space left")
        done = super().write_some(fd, memoryview(data)[: self.left], position)
        self.left -= done
        return done


def test_a_full_disk_takes_nothing_from_what_was_appended(tmp_path: Path) -> None:
    disk = FullDisk()
    engine = KafkaEngine.open(tmp_path, SMALL, disk=disk)
    engine.make_topic("t", 1)
    for i in range(5):
        engine.append("t", 0, [record(i)])
    log, size = engine.log("t", 0), (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size
    disk.left = 50
    for _ in range(2):
        with pytest.raises(IOFailure, match="no space left"):
            engine.append("t", 0, [record(9)])
    assert (log.end, (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size) == (5, size)
    disk.left = 1 << 40
    assert engine.append("t", 0, [record(5)]).base_offset == 5
    engine.close()
    assert [r["key"] for r in served(tmp_path, "t", 0)] == [f"k{i}" for i in range(6)]
    assert errors_of(tmp_path) == []


def test_segments_are_made_in_full_length_and_trimmed(tmp_path: Path) -> None:
    """With ``preallocate`` as a broker does; a crash leaves the room, and a recovery cuts it off."""
    with KafkaEngine.open(tmp_path / "d", SMALL) as engine:
        engine.make_topic("t", 1, {"preallocate": "true", "internal.segment.bytes": "4000"})
        for i in range(60):
            engine.append("t", 0, [record(i)])
        sizes = [path.stat().st_size for path in sorted((tmp_path / "d/t-0").glob("*.log"))]
        assert sizes[-1] == 4000
        assert len(sizes) > 1
        assert max(sizes[:-1]) < 4000
    assert max(path.stat().st_size for path in (tmp_path / "d/t-0").glob("*.log")) < 4000
    assert errors_of(tmp_path / "d") == []
    again = KafkaEngine.open(tmp_path / "d", SMALL)
    for i in range(60, 90):
        again.append("t", 0, [record(i)])
    again.crash()
    assert max(path.stat().st_size for path in (tmp_path / "d/t-0").glob("*.log")) == 4000
    with KafkaEngine.open(tmp_path / "d", SMALL) as engine:
        assert engine.had_crashed
        assert engine.append("t", 0, [record(90)]).base_offset == 90
    assert [r["key"] for r in served(tmp_path / "d", "t", 0)] == [f"k{i}" for i in range(91)]
    assert errors_of(tmp_path / "d") == []
