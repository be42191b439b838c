"""Recover and rebuild of a Kafka log against the released broker loading the same log, and many small partitions.

One segment in batches of 16 KiB. The Java half needs Java 17 and Maven; what counts of a broker is the time in which it
says that it loaded its logs, always by the wall clock, in a new virtual machine each time, as brokers start. Sizes:
RMQCTL_BENCH_MIB (default 1024, the log in MiB), RMQCTL_BENCH_PARTITIONS (default 10000, of three segments each).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqctl import opening
from rmqctl.kafka.engine.cluster_files import Cluster, ClusterTopic, new_id, partition_metadata, write_cluster
from rmqctl.release import Release
from tests.benchmarks.kafka_logs import derived_files, make_partitions, make_segment
from tests.benchmarks.ratio import Measured, Result, compare, judge, paired, size, timed
from tests.interop import kafka_node
from tests.interop.judge import has_java

pytestmark = pytest.mark.slow

SIZE = size("MIB", 1024, 4) << 20
PARTITIONS = size("PARTITIONS", 10_000, 20)
CORES = os.cpu_count() or 1
RELEASE = kafka_node.RELEASES[0]
LIMIT = 4
"""How many times as long as opening and reading its files the work on many partitions may take."""
LOADED = re.compile(r"Loaded (\d+) logs in (\d+)\s*ms")
RESULTS: list[Result] = []
needs_java = pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH")


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print what was measured at the end, and how busy the machine was."""
    yield
    busy = " ".join(f"{load:.1f}" for load in os.getloadavg())
    sys.stdout.write("\n" + "\n".join([*(result.line() for result in RESULTS), f"load averages: {busy}"]) + "\n")


# --- one large log --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LargeLog:
    """A log directory with one large segment.

    Attributes:
        records: how many there are.
        derived: what is made from the segment, by name.
    """

    root: Path
    records: int
    derived: dict[str, bytes]

    def ends(self, *, crashed: bool) -> None:
        """Leave it as a broker does that crashed, or as one that was stopped in order, with its indexes gone then."""
        partition, properties = self.root / "t-0", ("partition.metadata", f"{0:020d}.log")
        for path in partition.iterdir():
            if path.name not in properties:
                path.unlink()
        for path in self.root.glob("*-offset-checkpoint"):
            path.unlink()
        for name, data in self.derived.items():
            if crashed or not name.endswith("index"):
                (partition / name).write_bytes(data)
        (self.root / ".kafka_cleanshutdown").unlink(missing_ok=True)
        if not crashed:
            (self.root / ".kafka_cleanshutdown").write_bytes(b'{"version":0}')
            (self.root / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {self.records}\n")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LargeLog, LargeLog]]:
    """Two equal directories: one is ours, one is given to the broker."""
    place = tmp_path_factory.mktemp("bench")
    ours, topic_id = place / "ours", new_id()
    ours.mkdir()
    write_cluster(ours, Cluster(new_id(), 1, Release.parse(RELEASE), [ClusterTopic("t", topic_id, {0: 0})]))
    (ours / "t-0").mkdir()
    records = make_segment(ours / "t-0" / f"{0:020d}.log", SIZE, 16, 1000)
    (ours / "t-0" / "partition.metadata").write_bytes(partition_metadata(topic_id))
    derived = derived_files(ours, ["t"])
    shutil.copytree(ours, place / "brokers")
    yield LargeLog(ours, records, derived), LargeLog(place / "brokers", records, derived)
    shutil.rmtree(place)


def recovered(log: LargeLog) -> None:
    """Replay the start of a broker."""
    with opening.open_store(str(log.root)).recover(as_release=Release.parse(RELEASE)) as answer:
        answer.prepare()
        assert log.records in {row["log_end_offset"] for row in answer}


def rebuilt(log: LargeLog, processes: int) -> None:
    """Make the indexes, which are missing."""
    with opening.open_store(str(log.root)).rebuild(parts=("index",), topics=("t",), processes=processes) as answer:
        answer.prepare()
        assert {row["change"] for row in answer} == {"create"}


def loaded(log: LargeLog, work: Path, *, crashed: bool) -> Measured:
    """What measures seconds of the broker's load, as it says itself."""

    def run() -> float:
        log.ends(crashed=crashed)
        with kafka_node.Brokers(RELEASE, work, for_speed=True) as broker:
            assert broker.start(log.root) == "started"
            broker.stop()
            found = LOADED.findall(broker.log)
            assert found, broker.log[-3000:]
            return int(found[-1][1]) / 1000

    return run


@pytest.mark.interop
@needs_java
def test_against_the_broker(logs: tuple[LargeLog, LargeLog], tmp_path: Path) -> None:
    """After a crash, and where the indexes are missing after an orderly stop."""
    ours, brokers = logs
    results = []
    for crashed, name in ((True, "after a crash"), (False, "without an index")):
        load, words = loaded(brokers, tmp_path, crashed=crashed), f"{name} / load of {RELEASE}"
        ours.ends(crashed=crashed)
        results.append(paired(f"Kafka: recover {words}", lambda: timed(lambda: recovered(ours)), load, 2))
    for processes in (1, CORES):
        work = lambda: timed(lambda: rebuilt(ours, processes))  # noqa: E731, B023
        results.append(paired(f"Kafka: rebuild by {processes} {words}", work, load, 2 if processes > 1 else None))
    load = loaded(brokers, tmp_path, crashed=True)
    work = lambda: timed(lambda: rebuilt(ours, CORES))  # noqa: E731
    results.append(paired(f"Kafka: rebuild by {CORES} / load after a crash of {RELEASE}", work, load, 2))
    RESULTS.extend(results)
    judge(*results)


# --- many small partitions ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log directory of many partitions."""
    root = tmp_path_factory.mktemp("bench") / "many"
    make_partitions(root, PARTITIONS)
    yield root
    shutil.rmtree(root)


def read_files(paths: list[str]) -> None:
    """Open each file, ask for its size, read it and close it; nothing else."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.pread(fd, os.fstat(fd).st_size, 0)
        os.close(fd)


def verified(root: Path, processes: int) -> None:
    assert not list(opening.open_path(str(root)).verify(processes=processes))


def planned(root: Path, processes: int) -> None:
    with opening.open_store(str(root)).repair(processes=processes) as answer:
        answer.prepare()
        assert not list(answer)


@pytest.mark.parametrize("work", [verified, planned])
def test_many_partitions(work: Callable[[Path, int], None], many: Path) -> None:
    """Verify and the plan of a repair, on one core and on all, against reading the same files."""
    paths = [f"{place}/{name}" for place, _, names in os.walk(many) for name in names]
    results = []
    for processes in (1, CORES):
        name = f"Kafka: {work.__name__} {PARTITIONS} partitions by {processes} / reading their files"
        results.append(compare(name, lambda: work(many, processes), lambda: read_files(paths), 1 / LIMIT))  # noqa: B023
    RESULTS.extend(results)
    judge(*results)
