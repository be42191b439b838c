"""Speed and memory of rebuilding, as ratios in one run.

Sizes can be set with RMQCTL_BENCH_MIB (default 1024, the log in MiB) and RMQCTL_BENCH_KEYS (20000000).
"""

from __future__ import annotations

import resource
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fixtures import bulk
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.dispatched import IndexColumns
from rmqctl.rocketmq.dispatch.keys import hash_codes, index_hashes
from rmqctl.rocketmq.dispatch.series import IndexSeries
from rmqctl.rocketmq.rebuild.build import IndexFilesWriter
from rmqctl.rocketmq.rebuild.rebuild import Rebuild, RebuildOptions
from rmqctl.rocketmq.store.geometry import IndexGeometry
from rmqctl.rocketmq.store.locate import open_store_at
from tests.benchmarks.ratio import Result, compare, judge, size, timed
from tests.benchmarks.references import body_places, read_and_crc, read_and_crc_shared

pytestmark = pytest.mark.slow

SIZE = size("MIB", 1024, 4) << 20
KEYS = size("KEYS", 20_000_000, 20_000)
KEY_SIZE = 24
ROWS = 1 << 16
MEMORY = 400 << 20
RESULTS: list[Result] = []


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print what was measured at the end."""
    yield
    sys.stdout.write("\n" + "\n".join(result.line() for result in RESULTS) + "\n")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bench") / "store"
    bulk.make(root, bulk.Bulk(log_bytes=SIZE, file_size=SIZE))
    return root


def rebuilt(root: Path, into: Path, processes: int) -> None:
    """Queues and index of a whole store, compared with those that are there."""
    shutil.rmtree(into, ignore_errors=True)
    options = RebuildOptions(as_release=Release(4, 9, 8), processes=processes)
    found = Rebuild(open_store_at(str(root)), options).run(into)
    assert found.is_equal


def test_two_processes(store: Path, tmp_path: Path) -> None:
    """At least 1.6 times as fast as one, where two processes of pure CRC are 1.8 times as fast."""
    log = next((store / "commitlog").iterdir())
    places = body_places(log)
    alone = compare(
        "two processes of pure CRC / one",
        lambda: read_and_crc_shared(log, places, 2),
        lambda: read_and_crc(log, places),
    )
    both = compare(
        "rebuild with two processes / one",
        lambda: rebuilt(store, tmp_path / "two", 2),
        lambda: rebuilt(store, tmp_path / "one", 1),
        1.6 if alone.ratio >= 1.8 else None,
    )
    RESULTS.extend([alone, both])
    judge(both)


def keys_of(first: int, count: int) -> npt.NDArray[np.uint8]:
    """Keys ``TopicTest#order000000001``, ... end to end, each ``KEY_SIZE`` bytes."""
    numbers = np.arange(first, first + count)
    rows = np.empty((count, KEY_SIZE), np.uint8)
    rows[:] = np.frombuffer(b"TopicTest#order000000000", np.uint8)
    for digit in range(9):
        rows[:, KEY_SIZE - 1 - digit] += (numbers // 10**digit % 10).astype(np.uint8)
    return rows.reshape(-1)


def hashed(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    count = len(text) // KEY_SIZE
    return index_hashes(hash_codes(text, np.arange(count) * KEY_SIZE, np.full(count, KEY_SIZE)))


def test_index_keys(tmp_path: Path) -> None:
    """In at most four times what hashing the keys and sorting as many int64 takes."""
    texts = [keys_of(first, min(ROWS, KEYS - first)) for first in range(0, KEYS, ROWS)]
    geometry = IndexGeometry(5_000_000, KEYS + 1)

    def reference() -> None:
        slots = np.concatenate([hashed(text) for text in texts]) % geometry.slots
        np.sort(slots << 32 | np.arange(KEYS))

    def build() -> None:
        shutil.rmtree(tmp_path / "index", ignore_errors=True)
        series = IndexSeries(geometry, counts_slots=True, sink=IndexFilesWriter(tmp_path, geometry))
        for number, text in enumerate(texts):
            hashes = hashed(text)
            places = number * ROWS + np.arange(len(hashes))
            ones = np.ones(len(hashes), np.int32)
            series.add(IndexColumns(places * 1000, bulk.BORN + places, ones, hashes.astype(np.int32)))
        series.finish()
        assert series.heads[0].index_count == KEYS + 1

    result = compare(f"index of {KEYS:,} keys / hashing and sorting them", build, reference, 1 / 4, rounds=1)
    RESULTS.append(result)
    judge(result)


def test_memory(store: Path, tmp_path: Path) -> None:
    """A process of its own stays below 400 MB."""
    with ProcessPoolExecutor(1) as pool:
        seconds, taken = pool.submit(_measured, store, tmp_path / "into").result()
    RESULTS.append(Result(f"rebuild of {SIZE >> 20} MiB, {taken >> 20} MiB of memory", seconds, seconds, 1.0, None))
    assert taken < MEMORY


def _measured(store: Path, into: Path) -> tuple[float, int]:
    seconds = timed(lambda: rebuilt(store, into, 1))
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
