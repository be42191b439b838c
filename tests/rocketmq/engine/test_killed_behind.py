"""However far a killed writer was, a start of any release gets every record into the queues.

Brokers of 5.4.0 and later look at no more than the last 10 log files after a kill.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.producer.bulk import produce_bulk
from rmqctl.rocketmq.producer.drafts import Template
from rmqctl.rocketmq.producer.produce import ProduceOptions
from rmqctl.rocketmq.query.key import KeyQuery
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.engine.engine_helpers import START, complaints

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


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_a_record_that_was_being_written_is_not_served(cut: int, tmp_path: Path) -> None:
    """The write stopped between two pages: head and body are there, the properties end in zeros."""
    path, settings = tmp_path / "store", config("5.5.0", services=False)
    engine = StoreEngine.open(path, settings)
    last = [engine.put(Message("T", b"body", properties={"KEYS": f"k{n}", "TAGS": "a" * 50})) for n in range(3)][-1]
    engine.abandon()
    with next((path / "commitlog").iterdir()).open("r+b") as log:
        log.seek(last.physical_offset + last.size - cut)
        log.write(bytes(cut))
    with StoreEngine.open(path, settings) as again:
        assert again.get("T", 0, 0, 32).next_offset == 2
        assert again.put(Message("T", b"next")).queue_offset == 2
    assert complaints(path) == []


@pytest.mark.parametrize("release", RELEASES)
def test_full_index_files_survive(release: str, tmp_path: Path) -> None:
    """The checkpoint knows a full index file at once, so that a recovery does not delete it."""
    engine = StoreEngine.open(tmp_path, config(release, services=False))
    for number in range(9000):
        engine.put(Message("T", b"x", 0, {"KEYS": f"k{number}"}))
    assert len(engine.log.files.files) > 10
    engine.abandon()
    with StoreEngine.open(tmp_path, config(release, services=False)) as again:
        assert [len(again.query(KeyQuery("T", f"k{number}"))) for number in (0, 4000, 8999)] == [1, 1, 1]
    assert complaints(tmp_path) == []
