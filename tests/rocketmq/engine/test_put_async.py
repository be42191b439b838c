"""Asynchronous puts: appended at once, answered by the flush, in order, with the words of `put`."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, wait
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.errors import IOFailure, Refused
from rmqctl.rocketmq.engine.config import FlushMode, MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine as Engine
from rmqctl.rocketmq.engine.message import Message, MessageRefused, PutResult, PutStatus
from rmqctl.rocketmq.producer.drafts import Draft
from rmqctl.rocketmq.producer.produce import ProduceOptions, produce
from tests.rocketmq.engine.engine_helpers import SlowDisk, complaints

START = 1_700_000_000_000


class Gate(SlowDisk):
    """Syncs that end when they are let, or fail then."""

    def __init__(self) -> None:
        super().__init__(0)
        self.gate, self.failing = threading.Event(), False
        self.gate.set()

    def sync(self, fd: int) -> None:
        super().sync(fd)
        assert self.gate.wait(20)
        if self.failing:
            raise IOFailure("cannot flush to disk", OSError(5, "Input/output error"))


def sync(**changes: object) -> StoreConfig:
    return StoreConfig.small(flush=FlushMode.SYNC, services=False, **changes)


def put_some(engine: Engine, count: int, first: int = 0) -> list[Future[PutResult]]:
    return [engine.put_async(Message("T", b"%d" % n, n % 2)) for n in range(first, first + count)]


def test_one_thread_shares_syncs(tmp_path: Path) -> None:
    disk = SlowDisk()
    with Engine.open(tmp_path, sync(), disk=disk) as engine:
        engine.make_topic("T", 2)
        before = disk.syncs
        results = [future.result(20) for future in put_some(engine, 300)]
        assert disk.syncs - before < 100
        assert {result.status for result in results} == {PutStatus.PUT_OK}
        assert [result.queue_offset for result in results] == [n // 2 for n in range(300)]
        assert engine.log.flushed == results[-1].physical_offset + results[-1].size
    assert complaints(tmp_path) == []


def test_an_answer_means_flushed_and_comes_in_order(tmp_path: Path) -> None:
    answered: list[int] = []
    with Engine.open(tmp_path, sync(), disk=SlowDisk(0.001)) as engine:
        engine.make_topic("T", 2)

        def note(future: Future[PutResult]) -> None:
            found = future.result()
            assert engine.log.flushed >= found.physical_offset + found.size
            answered.append(found.physical_offset)

        for future in put_some(engine, 200):
            future.add_done_callback(note)
        engine.put_async(Message("T", b"last")).result(20)
    assert len(answered) == 200
    assert answered[-1] == max(answered)


def test_appended_at_once_but_not_answered(tmp_path: Path) -> None:
    disk = Gate()
    with Engine.open(tmp_path, sync(), disk=disk) as engine:
        engine.make_topic("T", 2)
        disk.gate.clear()
        futures = put_some(engine, 5)
        assert engine.log.wrote > engine.log.flushed
        assert not any(future.done() for future in futures)
        assert not futures[0].cancel()
        with pytest.raises(TimeoutError):
            futures[0].result(0.01)
        disk.gate.set()
        assert not wait(futures, 20).not_done
        assert [future.result().queue_offset for future in futures] == [0, 0, 1, 1, 2]


def test_a_flush_that_takes_too_long_is_told_at_the_deadline(tmp_path: Path) -> None:
    disk = Gate()
    with Engine.open(tmp_path, sync(sync_flush_timeout_ms=60), disk=disk) as engine:
        engine.make_topic("T", 2)
        disk.gate.clear()
        begin = monotonic()
        futures = put_some(engine, 4)
        assert {future.result(20).status for future in futures} == {PutStatus.FLUSH_DISK_TIMEOUT}
        assert monotonic() - begin < 5
        disk.gate.set()
        assert engine.put(Message("T", b"later")).status is PutStatus.PUT_OK
        assert [future.result().queue_offset for future in futures] == [0, 0, 1, 1]
    assert complaints(tmp_path) == []


def test_a_failed_flush_is_told_to_all(tmp_path: Path) -> None:
    disk = Gate()
    engine = Engine.open(tmp_path, sync(), disk=disk)
    engine.make_topic("T", 2)
    assert engine.put_async(Message("T", b"safe")).result(20).status is PutStatus.PUT_OK
    disk.gate.clear()
    futures, batch = put_some(engine, 20), engine.put_batch_async([Message("T", b"x"), Message("T", b"y")])
    disk.failing = True
    disk.gate.set()
    for future in [*futures, batch]:
        assert isinstance(future.exception(20), IOFailure)
    with pytest.raises(IOFailure):
        engine.put_async(Message("T", b"unsafe"))
    with pytest.raises(IOFailure):
        engine.close()
    with Engine.open(tmp_path) as engine:
        assert engine.get("T", 0, 0).messages[0].fields["body"] == b"safe"


def test_refusals_are_raised_and_nothing_is_written(tmp_path: Path) -> None:
    with Engine.open(tmp_path, sync(), disk=SlowDisk(0)) as engine:
        for message in (Message("a b", b""), Message("T", b"", properties={"k": "\x02"}), Message("T", bytes(9 << 20))):
            before = engine.log.wrote
            with pytest.raises(MessageRefused):
                engine.put_async(message)
            with pytest.raises(MessageRefused):
                engine.put_batch_async([Message("T", b"x"), message])
            assert engine.log.wrote == before
        assert engine.put_batch_async([]).result() == []
    with pytest.raises(Refused):
        engine.put_async(Message("T", b"closed"))


@pytest.mark.parametrize("config", [StoreConfig.small(services=False), sync()], ids=["async flush", "nobody waits"])
def test_answered_at_once_where_nobody_waits(config: StoreConfig, tmp_path: Path) -> None:
    disk = SlowDisk(0)
    with Engine.open(tmp_path, config, disk=disk) as engine:
        engine.make_topic("T", 1)
        before = disk.syncs
        assert engine.put_async(Message("T", b"x", properties={"WAIT": "false"})).done()
        assert disk.syncs == before


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_what_is_in_flight_at_the_end(end: str, tmp_path: Path) -> None:
    disk = Gate()
    engine = Engine.open(tmp_path, sync(), disk=disk)
    engine.make_topic("T", 2)
    disk.gate.clear()
    futures = put_some(engine, 3)
    threading.Timer(0.05, disk.gate.set).start()
    getattr(engine, end)()
    assert all(future.done() for future in futures)
    kept = [future for future in futures if future.exception() is None]
    assert end == "abandon" or len(kept) == 3
    with Engine.open(tmp_path, sync()) as engine:
        for future in kept:
            found = future.result()
            assert engine.get("T", found.queue_id, found.queue_offset, 1).messages


def test_callbacks_may_put_again(tmp_path: Path) -> None:
    done = threading.Event()
    with Engine.open(tmp_path, sync(), disk=SlowDisk(0)) as engine:
        engine.make_topic("T", 1)

        def again(future: Future[PutResult]) -> None:
            if future.result().queue_offset < 50:
                engine.put_async(Message("T", b"next")).add_done_callback(again)
            else:
                done.set()

        engine.put_async(Message("T", b"first")).add_done_callback(again)
        assert done.wait(20)
        assert engine.offsets("T", 0) == (0, 51)


def test_awaited_and_mixed_with_threads(tmp_path: Path) -> None:
    with Engine.open(tmp_path, sync(), disk=SlowDisk(0.0005)) as engine:
        engine.make_topic("T", 4)

        def work(number: int) -> None:
            for n in range(40):
                message = Message("T", b"%d" % n, number)
                found = engine.put(message) if number % 2 else engine.put_async(message).result(20)
                assert engine.log.flushed >= found.physical_offset + found.size
                assert found.queue_offset == n

        async def awaited() -> list[PutResult]:
            return await asyncio.gather(*(asyncio.wrap_future(f) for f in put_some(engine, 20)))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(2, 8)]
        for thread in threads:
            thread.start()
        assert [r.status for r in asyncio.run(awaited())] == [PutStatus.PUT_OK] * 20
        for thread in threads:
            thread.join()
        assert engine.offsets("T", 7) == (0, 40)
    assert complaints(tmp_path) == []


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.integers(0, 2500), min_size=1, max_size=40), batch=st.integers(1, 4), writers=st.integers(2, 9)
)
def test_the_bytes_are_those_of_put(
    sizes: list[int], batch: int, writers: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("s")
    logs = []
    for name, number in (("one", 1), ("many", writers)):
        drafts = [Draft(body=bytes([n % 251]) * size) for n, size in enumerate(sizes)]
        with Engine.open(root / name, sync(clock=MadeUpClock(START, 3)), disk=SlowDisk(0)) as engine:
            found = list(produce(engine, drafts, ProduceOptions(("A", "B"), batch=batch, writers=number)))
            assert len(found) == len(sizes)
        log = {path.name: path.read_bytes() for path in sorted((root / name / "commitlog").iterdir())}
        logs.append((found, log))
    assert logs[0] == logs[1]


def test_produce_tells_what_was_stored_before_a_refusal(tmp_path: Path) -> None:
    drafts = [Draft(body=b"x") for _ in range(7)] + [Draft(body=bytes(9 << 20), origin="orders.jsonl, line 8")]
    found: list[PutResult] = []

    options = ProduceOptions(("T",), writers=4)
    refused = pytest.raises(MessageRefused, match=r"orders\.jsonl, line 8")
    with Engine.open(tmp_path, sync(), disk=SlowDisk(0.002)) as engine, refused:
        found.extend(produce(engine, drafts, options))
    assert [result.queue_offset for result in found] == [0, 0, 0, 0, 1, 1, 1]
