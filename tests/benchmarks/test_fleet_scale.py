"""What a fleet costs: a thousand stores of 1 GiB with a hundred queues each, opened and divided by tasks.

The files are hard links of one store's, so 1 TB of log lies on a disk that has a few GiB. `make bench` prints:
for a tenth, a half and all of the stores what planning takes, how many tasks it makes and what the driver holds; for some
stores what reading takes. By the environment, with RMQCTL_BENCH_ before the name: STORES (1000), STORE_MIB (1024), READ
(16, stores that are read).
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from fixtures import bulk
from rmqctl.inventory import Member
from rmqctl.questions import Verify
from rmqctl.results import Reply
from tests.benchmarks.ratio import ONCE, processor_seconds, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

STORES = size("STORES", 1000, 10)
STORE = size("STORE_MIB", 1024, 4) << 20
READ = size("READ", 16, 2)
TOPICS, QUEUES = (2, 2) if ONCE else (25, 4)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Member]:
    root = tmp_path_factory.mktemp("fleet")
    bulk.make(root / "s", bulk.Bulk(STORE, STORE // 4, topics=TOPICS, queues=QUEUES))
    files = [path for path in (root / "s").rglob("*") if path.is_file()]
    for number in range(STORES):
        for directory in {file.parent for file in files}:
            (root / f"s{number:04d}" / directory.relative_to(root / "s")).mkdir(parents=True, exist_ok=True)
        for file in files:
            os.link(file, root / f"s{number:04d}" / file.relative_to(root / "s"))
    return [Member(f"s{number}", str(root / f"s{number:04d}")) for number in range(STORES)]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from rmqctl.pipeline import session

    made = session("local[2]", {"spark.driver.memory": "2g"})
    yield made
    made.stop()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def held(spark: SparkSession) -> tuple[float, float]:
    """MiB in use of the driver's heap after a collection, and the most that this Python process had."""
    runtime: Any = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    return (runtime.totalMemory() - runtime.freeMemory()) / 2**20, resource.getrusage(
        resource.RUSAGE_SELF
    ).ru_maxrss / 1024


def parts_of(members: list[Member]) -> list[int]:
    return sorted({max(len(members) // 10, 1), max(len(members) // 2, 1), len(members)})


def test_planning_of_a_verification(spark: SparkSession, stores: list[Member]) -> None:
    from rmqctl.pipeline.fleet import Errand, Spread, View

    spark.range(2).mapInArrow(lambda batches: batches, "id long").collect()
    for count in parts_of(stores):
        work = Spread(spark, [Errand(member, Verify()) for member in stores[:count]], View())
        before = processor_seconds()
        work.plan()
        used = processor_seconds() - before
        heap, python = held(spark)
        assert work.size == count * STORE
        say(
            f"verify, plan: {count:5} stores, {count * TOPICS * QUEUES:7} queues, {work.size / 2**40:6.3f} TiB: {work.count:6} "
            f"tasks, {used:7.1f} processor seconds, {used / count * 1000:5.0f} ms a store; heap {heap:5.0f} MiB, Python at "
            f"most {python:5.0f} MiB"
        )


def test_planning_of_a_query(spark: SparkSession, stores: list[Member]) -> None:
    from rmqctl.pipeline.fleet import seen
    from rmqctl.pipeline.jobs import planned

    for count in parts_of(stores):
        before = processor_seconds()
        sights = seen(spark, stores[:count])
        parts = planned(spark, sights.tables().for_cores(200).table("messages"))
        used = processor_seconds() - before
        heap, python = held(spark)
        assert sights.size == count * STORE
        say(
            f"sql, plan: {count:5} stores: {len(parts):6} tasks, {used:7.1f} processor seconds, "
            f"{used / count * 1000:5.0f} ms a store; heap {heap:5.0f} MiB, Python at most {python:5.0f} MiB"
        )


def test_reading(spark: SparkSession, stores: list[Member]) -> None:
    from rmqctl.pipeline.fleet import Errand, Spread, View
    from rmqctl.pipeline.jobs import counters

    for count in sorted({max(READ // 4, 1), READ}):
        work = Spread(spark, [Errand(member, Verify()) for member in stores[:count]], View())
        before = processor_seconds()
        counted = counters(spark)
        assert counted is not None
        since = int(counted.bytes.value)
        work.plan()
        replies = [answer for _, answer in work.answers()]
        used, read = processor_seconds() - before, int(counted.bytes.value) - since
        heap, python = held(spark)
        assert not any(isinstance(one, Exception | Reply) for one in replies)
        say(
            f"verify: {count:5} stores, {work.size / 2**30:6.1f} GiB: {used:7.1f} processor seconds, "
            f"{used / (work.size / 2**30):5.2f} a GiB, {read / work.size:4.2f} bytes counted for a byte of log; heap "
            f"{heap:5.0f} MiB, Python at most {python:5.0f} MiB"
        )
