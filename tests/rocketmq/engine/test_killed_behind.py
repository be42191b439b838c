"""However far a killed writer was, a start of any release gets every record into the queues.

Brokers of 5.4.0 and later look at no more than the last 10 log files after a kill.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.open import open_store_at
from rmqctl.release import Release
from rmqctl.rocketmq.engine import MadeUpClock, Message, StoreConfig, StoreEngine
from rmqctl.rocketmq.engine.bulk import produce_bulk
from rmqctl.rocketmq.engine.drafts import Template
from rmqctl.rocketmq.engine.produce import ProduceOptions
from rmqctl.rocketmq.recovery.replay import recover
from tests.rocketmq.engine.test_engine import START, complaints

RELEASES = ["4.9.8", "5.3.3", "5.4.0", "5.5.0"]


def config(release: str, *, services: bool) -> StoreConfig:
    return StoreConfig.small(release=Release.parse(release), services=services, clock=MadeUpClock(START, 1))


def check(root: Path, release: str, engine: StoreEngine) -> None:
    """All that was appended when the engine was abandoned is in the queues after a start."""
    wanted = engine.log.queues.snapshot()
    assert len(engine.log.files.files) > 15
    found = recover(open_store_at(str(root)), Release.parse(release))
    assert {(topic, queue_id): (low, high) for topic, queue_id, low, high in found.ranges()} == {
        key: (0, count) for key, count in wanted.items()
    }
    with StoreEngine.open(root, config(release, services=False)) as again:
        assert {key: again.offsets(*key) for key in wanted} == {key: (0, count) for key, count in wanted.items()}
    assert [c for c in complaints(root) if not c.startswith("warning index.coverage")] == []


@pytest.mark.parametrize("runs", [30, 81, 10_000])
@pytest.mark.parametrize("services", [False, True], ids=["without services", "with services"])
@pytest.mark.parametrize("release", RELEASES)
def test_bulk(release: str, services: bool, runs: int, tmp_path: Path) -> None:
    engine = StoreEngine.open(tmp_path, config(release, services=services))
    writing = produce_bulk(engine, Template(sizes=(700, 700)), 6000, ProduceOptions(("T", "U")))
    for number, _ in enumerate(writing):
        if number == runs:
            break
    engine.abandon()
    check(tmp_path, release, engine)


@pytest.mark.parametrize("release", RELEASES)
def test_puts_without_services(release: str, tmp_path: Path) -> None:
    engine = StoreEngine.open(tmp_path, config(release, services=False))
    for number in range(1500):
        engine.put(Message("T", b"x" * 900, number % 3))
    engine.abandon()
    check(tmp_path, release, engine)
