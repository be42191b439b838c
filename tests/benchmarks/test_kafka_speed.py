"""Speed of reading Kafka segments, as ratios in one run: `make bench` prints the table.

RMQCTL_BENCH_MIB (default 1024) is the size of each segment in MiB.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from rmqctl import opening
from rmqctl.files.local import LocalFile
from rmqctl.filters import Rendering
from rmqctl.kafka.log.records import records_of
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.tables.columns import RECORD_SCHEMA, Place, chosen_schema, rows_of
from tests.benchmarks.kafka_logs import make_segment
from tests.benchmarks.ratio import ONCE, Result, compare, judge, paired, size, timed
from tests.interop import kafka_node
from tests.interop.judge import has_java

pytestmark = pytest.mark.slow

SIZE = size("MIB", 1024, 1) << 20
WINDOW = 8 << 20
SCHEMA = chosen_schema(RECORD_SCHEMA, ("offset", "timestamp", "sequence", "key", "value", "headers"))
RESULTS: list[Result] = []
SHAPES = {"16 KiB batches": (150, 100), "16 KiB batches of 1 KiB": (16, 1000), "single records": (1, 100)}


@pytest.fixture(scope="module", params=SHAPES.values(), ids=SHAPES)
def segment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """A large segment, how many records it holds, and what it is called."""
    directory = tmp_path_factory.mktemp("bench") / "t-0"
    directory.mkdir()
    path = directory / f"{0:020d}.log"
    name = next(name for name, shape in SHAPES.items() if shape == request.param)
    return path, make_segment(path, SIZE, *request.param), name


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    yield
    sys.stdout.write("\n" + "\n".join(result.line() for result in RESULTS) + "\n")


def batch_places(path: Path) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    for block in scan(LocalFile(path), Extent(path.name)):
        places += zip(block.position.tolist(), (block.position + block.size).tolist(), strict=True)
    return places


def read_and_crc(path: Path, places: list[tuple[int, int]]) -> None:
    """Read a file once and compute the CRC-32C of each batch at known places; nothing else."""
    buffer, at = bytearray(WINDOW), 0
    view = memoryview(buffer)
    fd = os.open(path, os.O_RDONLY)
    try:
        while at < len(places):
            start = places[at][0]
            end = start + os.preadv(fd, [buffer], start)
            while at < len(places) and places[at][1] <= end:
                a, b = places[at]
                crc32c(view[a - start + 21 : b - start])
                at += 1
    finally:
        os.close(fd)


def frames(path: Path) -> None:
    for block in scan(LocalFile(path), Extent(path.name)):
        assert block.crc_ok.all()


def tables(path: Path) -> int:
    return sum(
        len(rows_of(records, Place(None, None), SCHEMA))
        for block in scan(LocalFile(path), Extent(path.name, check_crc=False))
        for records in records_of(block)
    )


def dump_lines(path: Path) -> None:
    answer = opening.open_path(str(path)).dump(rendering=Rendering(records=True))
    assert answer.lines is not None
    for _ in answer.lines():
        pass


def kafka_python(path: Path, most: int) -> int:
    """Decode the first ``most`` bytes with another library; returns the number of records."""
    memory_records = pytest.importorskip("kafka.record").MemoryRecords
    with open(path, "rb") as file:
        found, count = memory_records(file.read(most)), 0
    while (one := found.next_batch()) is not None:
        for record in one:
            count += record.value is not None
    return count


def test_frames_and_crc(segment: tuple[Path, int, str]) -> None:
    path, _, name = segment
    places = batch_places(path)
    result = compare(
        f"Kafka: frames + CRC-32C / read and CRC, {name}", lambda: frames(path), lambda: read_and_crc(path, places), 0.5
    )
    RESULTS.append(result)
    judge(result)


def test_recover(segment: tuple[Path, int, str]) -> None:
    """A start after a crash that finds no index, so that the log is read twice, against reading and CRC-32C once."""
    path, count, name = segment
    places = batch_places(path)

    def started() -> None:
        with opening.open_store(str(path.parent)).recover() as answer:
            answer.prepare()
            assert [row["log_end_offset"] for row in answer] == [count]

    result = compare(
        f"Kafka: recover without an index / read and CRC, {name}", started, lambda: read_and_crc(path, places), 0.3
    )
    RESULTS.append(result)
    judge(result)


def test_records_to_arrow(segment: tuple[Path, int, str]) -> None:
    path, count, name = segment
    assert tables(path) == count
    done = paired(
        f"Kafka: records to Arrow / 2,000,000 a second, {name}",
        lambda: timed(lambda: tables(path)),
        lambda: count / 2e6,
        1,
    )
    most = min(SIZE, 16 << 20)
    part = kafka_python(path, most)
    other = paired(
        f"Kafka: records to Arrow / kafka-python, {name}",
        lambda: timed(lambda: tables(path)) * part / count,
        lambda: timed(lambda: kafka_python(path, most)),
        5,
    )
    RESULTS.extend([done, other])
    assert ONCE or other.ratio >= (
        2.5 if "1 KiB" in name else 5
    )  # large values are copied, which the other does not do


def test_dump_of_records(segment: tuple[Path, int, str]) -> None:
    path, count, name = segment
    dump_lines(path)
    result = paired(
        f"Kafka: dump --records -o jsonl / 250,000 a second, {name}",
        lambda: timed(lambda: dump_lines(path)),
        lambda: count / 250e3,
        1,
    )
    RESULTS.append(result)


def verify(path: Path, processes: int, level: str = "full") -> None:
    for row in opening.open_path(str(path.parent)).verify(processes=processes, level=level):
        assert row["id"].endswith(".missing")  # the segment was made alone


def test_memory(segment: tuple[Path, int, str]) -> None:
    """A process of its own verifies and dumps the segment in less than 400 MB.

    The kernel's mark is read and not ``ru_maxrss``, which a process takes over from the one that made it.
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc: nothing says how much memory a process has used at most")
    path, _, name = segment
    command = (
        "from pathlib import Path; from tests.benchmarks.test_kafka_speed import dump_lines, verify; "
        f"path = Path({str(path)!r}); verify(path, 1); dump_lines(path); "
        "print(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1])"
    )
    done = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True)
    used = int(done.stdout.split()[-1]) << 10
    RESULTS.append(Result(f"Kafka: 400 MB / memory of verify and dump, {name}", 0, 0, 400e6 / used, 1))
    assert used < 400e6


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the newest official tool."""
    if not has_java():
        pytest.skip("mvn, java or javac is not on the PATH")
    return kafka_node.class_path(kafka_node.RELEASES[0], tmp_path_factory.mktemp("official"))


@pytest.mark.interop
def test_against_the_official_tool(segment: tuple[Path, int, str], official: str) -> None:
    path, _, name = segment

    def dumped(*options: str) -> float:
        words = ["java", "-cp", official, "org.apache.kafka.tools.DumpLogSegments", "--files", str(path), *options]
        return timed(lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def verified(processes: int, level: str = "full") -> float:
        return timed(lambda: verify(path, processes, level))

    deep, shallow = ("--deep-iteration",), ()
    results = [
        paired(f"Kafka: dump -o jsonl / --print-data-log, {name}", lambda: timed(lambda: dump_lines(path)),
               lambda: dumped("--print-data-log"), 3),
        paired(f"Kafka: verify / --deep-iteration, {name}", lambda: verified(1), lambda: dumped(*deep), 5),
        paired(f"Kafka: verify on two cores / --deep-iteration, {name}", lambda: verified(2), lambda: dumped(*deep), 8),
        paired(f"Kafka: verify / a shallow run, {name}", lambda: verified(1), lambda: dumped(*shallow), 2.5),
        paired(f"Kafka: verify on two cores / a shallow run, {name}", lambda: verified(2), lambda: dumped(*shallow), 2.5),
        paired(f"Kafka: verify --level structure / a shallow run, {name}", lambda: verified(1, "structure"),
               lambda: dumped(*shallow), 2.5),
    ]  # fmt: skip
    RESULTS.extend(results)
