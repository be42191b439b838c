"""How the processor time of a verb grows with the number of things: queues, log files, findings, partitions.

Each verb is measured at four numbers, each twice the one before; the exponent is the slope of the logarithms of time over
number, without what an answer costs at a number near none. 1 is linear; above 1.15 fails. Sizes:
RMQCTL_BENCH_QUEUES (default 16000, the largest number of queues), RMQCTL_BENCH_FILES (default 4000, of 64 KiB),
RMQCTL_BENCH_FINDINGS (default 40000), RMQCTL_BENCH_PARTITIONS (default 4000, of three segments each), RMQCTL_BENCH_DAMAGES
(default 4000: damaged batches of one Kafka log; half as many segments with one each, a quarter as many partitions).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import linear_regression

import pytest

import rmqctl
from fixtures.bulk import Bulk, make, record_size
from rmqctl.answer import Answer, Proposal
from rmqctl.store import Store
from tests.benchmarks.kafka_logs import make_partitions
from tests.benchmarks.ratio import ONCE, size
from tests.kafka.batches import TIME, batch, record

pytestmark = pytest.mark.slow

QUEUES = size("QUEUES", 16_000, 64)
FILES = size("FILES", 4_000, 16)
FINDINGS = size("FINDINGS", 40_000, 32)
PARTITIONS = size("PARTITIONS", 4_000, 16)
DAMAGES = size("DAMAGES", 4_000, 64)
MOST = 1.15
"""The exponent that is allowed."""
STEPS = 4
RESULTS: list[str] = []

Verb = Callable[[Store], object]


def _read(answer: Answer) -> None:
    """Have all of an answer made."""
    answer.prepare()
    for _ in answer.rows:
        pass
    if answer.document is not None:
        answer.document()


def _proposed(answer: Proposal) -> None:
    with answer:
        _read(answer)


VERBS: dict[str, Verb] = {
    "info": lambda store: _read(store.info()),
    "topics": lambda store: _read(store.topics()),
    "verify quick": lambda store: _read(store.verify(level="quick")),
    "verify": lambda store: _read(store.verify(processes=1)),
    "recover": lambda store: _proposed(store.recover(processes=1)),
    "repair": lambda store: _proposed(store.repair(processes=1)),
}


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print what was measured at the end."""
    yield
    sys.stdout.write("\n" + "\n".join(RESULTS) + "\n")


def exponent(numbers: list[int], seconds: list[float], start: float) -> float:
    """Slope of the logarithms, once what an answer costs in any case is taken off."""
    spent = [max(second - start, 1e-4) for second in seconds]
    return linear_regression([math.log(n) for n in numbers], [math.log(s) for s in spent]).slope


def measured(verb: Verb, root: Path) -> float:
    """Processor seconds of a verb on a store that is opened for it, the better of two."""
    found = []
    for _ in range(1 if ONCE else 2):
        begin = time.process_time()
        verb(rmqctl.open(str(root)))
        found.append(time.process_time() - begin)
    return min(found)


def _queues(root: Path, count: int) -> None:
    queues = -(-count // 250)
    make(root, Bulk(16 << 20, 16 << 20, 512, max(count // queues, 1), queues, queue_file_units=100))


def _files(root: Path, count: int) -> None:
    make(root, Bulk(count << 16, 1 << 16, 4096, 4, 4))


def _findings(root: Path, count: int) -> None:
    """A log in which every body has a flipped bit."""
    bulk = Bulk(body=64, topics=4)
    need = (count + 1) * record_size(bulk) // 4096 * 4096 + 4096
    bulk = Bulk(need, need, 64, 4)
    make(root, bulk)
    path = next((root / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    step = record_size(bulk)
    data[100 : len(data) - step : step] = bytes(byte ^ 1 for byte in data[100 : len(data) - step : step])
    path.write_bytes(data)


def _damaged(root: Path, segments: int, batches: int) -> None:
    """A Kafka log of some segments in which every second batch has a wrong bit."""
    (root / "t-0").mkdir(parents=True)
    for segment in range(segments):
        data = bytearray()
        for offset in range(segment * batches, (segment + 1) * batches):
            one = bytearray(
                batch(offset, [record(0, b"key", b"value %010d" % offset * 4)], base_timestamp=TIME + offset)
            )
            one[90] ^= 4 * (offset % 2)
            data += one
        (root / "t-0" / f"{segment * batches:020d}.log").write_bytes(data)


def _damaged_partitions(root: Path, count: int) -> None:
    """Kafka partitions with a wrong bit in each."""
    make_partitions(root, count)
    for path in root.glob(f"topic*/{15:020d}.log"):
        data = bytearray(path.read_bytes())
        data[100] ^= 4
        path.write_bytes(data)


CASES: list[tuple[str, int, Callable[[Path, int], None], tuple[str, ...]]] = [
    ("queues", QUEUES, _queues, tuple(VERBS)),
    ("log files", FILES, _files, tuple(VERBS)),
    ("findings", FINDINGS, _findings, ("verify", "repair")),
    ("partitions", PARTITIONS, make_partitions, tuple(VERBS)),
    ("damaged batches", DAMAGES, lambda root, count: _damaged(root, 1, 2 * count), ("repair",)),
    ("damaged segments", DAMAGES // 2, lambda root, count: _damaged(root, count, 2), ("repair",)),
    ("damaged partitions", DAMAGES // 4, _damaged_partitions, ("repair",)),
]


@pytest.mark.parametrize(("things", "most", "make_store", "verbs"), CASES, ids=[case[0] for case in CASES])
def test_growth(
    things: str, most: int, make_store: Callable[[Path, int], None], verbs: tuple[str, ...], tmp_path: Path
) -> None:
    numbers = [most >> step for step in range(STEPS - 1, -1, -1)]
    least = tmp_path / "least"
    make_store(least, max(numbers[0] // 16, 1))
    roots = [tmp_path / str(number) for number in numbers]
    for root, number in zip(roots, numbers, strict=True):
        make_store(root, number)
    worse = []
    for name in verbs:
        measured(VERBS[name], least)  # imports
        start = measured(VERBS[name], least)
        seconds = [measured(VERBS[name], root) for root in roots]
        slope = exponent(numbers, seconds, start)
        shown = ", ".join(f"{n:,}: {s:.2f} s" for n, s in zip(numbers, seconds, strict=True))
        RESULTS.append(f"{name:13} over {things:18} exponent {slope:5.2f}   {shown}")
        if slope > MOST and seconds[-1] > 2 * start:
            worse.append(RESULTS[-1])
    assert ONCE or not worse
