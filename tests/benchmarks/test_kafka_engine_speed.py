"""The Kafka engine beside a released broker that a Java producer writes to over the loopback: records of 1 KiB.

The Java half needs Java 17 and Maven; without them only the engine is measured.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from rmqctl.kafka.engine.batch import BatchHead
from rmqctl.kafka.engine.config import EngineConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.producer.bulk import can_bulk, produce_bulk
from rmqctl.kafka.producer.drafts import Template
from rmqctl.kafka.producer.produce import ProduceOptions, make_topics
from tests.benchmarks.ratio import ONCE, size
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, Node

ROUNDS = size("ROUNDS", 3, 1)
RECORDS = size("MESSAGES", 300_000, 1000)
OPTIONS, TEMPLATE = ProduceOptions(topics=("t",)), Template(sizes=(1024, 1024))

pytestmark = pytest.mark.benchmark


@pytest.fixture
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rmqctl-bench-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def bulk_seconds(path: Path) -> float:
    """Seconds until all records are in the log, as those of a producer that flushes."""
    with KafkaEngine.open(path) as engine:
        make_topics(engine, OPTIONS)
        assert can_bulk(engine, TEMPLATE, OPTIONS)
        deque(produce_bulk(engine, TEMPLATE, RECORDS // 10, OPTIONS), 0)
        begin = time.perf_counter()
        deque(produce_bulk(engine, TEMPLATE, RECORDS, OPTIONS), 0)
        return time.perf_counter() - begin


def batch_seconds(path: Path) -> float:
    """The same by `append`, 15 records a batch."""
    value = bytes(range(256)) * 4
    with KafkaEngine.open(path, EngineConfig()) as engine:
        make_topics(engine, OPTIONS)
        begin = time.perf_counter()
        for at in range(0, RECORDS, 15):
            engine.append("t", 0, [Record(0, at, -1, None, value)] * min(15, RECORDS - at), BatchHead())
        return time.perf_counter() - begin


def test_rates(root: Path) -> None:
    bulk = [bulk_seconds(root / f"bulk-{n}") for n in range(ROUNDS)]
    batch = [batch_seconds(root / f"batch-{n}") for n in range(ROUNDS)]
    print(f"\nproduce: {RECORDS / median(bulk):,.0f} records/s; append: {RECORDS / median(batch):,.0f} records/s")
    assert ONCE or RECORDS / median(bulk) > 100_000


@pytest.mark.interop
@pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH")
def test_produce_against_a_broker(root: Path) -> None:
    with KafkaEngine.open(root / "logs") as engine:
        make_topics(engine, OPTIONS)
    java, ours = list[float](), list[float]()
    with Node(RELEASES[0], root / "logs", root, for_speed=True) as node:
        node.ask("load", "t", RECORDS // 2, 1024)
        for number in range(ROUNDS):
            java += node.ask("load", "t", RECORDS, 1024)
            ours.append(bulk_seconds(root / f"ours-{number}"))
    ratio = median(a / b for a, b in zip(java, ours, strict=True))
    print(
        f"\nproduce: {RECORDS / median(ours):,.0f} records/s; Java producer and broker: {RECORDS / median(java):,.0f}"
    )
    print(f"{ratio:.1f} times as fast, wanted 3")
    assert ONCE or ratio >= 3
