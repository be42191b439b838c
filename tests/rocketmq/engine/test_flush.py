"""Group commit, flush positions, the pool; threads and the order they leave."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from pathlib import Path
from time import sleep

import pytest

from rmqctl.errors import IOFailure
from rmqctl.files.writing import Buffer, Disk
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.flush import has_pages
from rmqctl.rocketmq.engine.message import Message, PutResult, PutStatus
from tests.rocketmq.engine.engine_helpers import SlowDisk, complaints


def write(engine: StoreEngine, threads: int, each: int, batch: int = 1) -> list[PutResult]:
    results: list[PutResult] = []
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in range(each):
                messages = [Message(f"T{number % 3}", b"%d %d" % (number, n), n % 2) for _ in range(batch)]
                found = engine.put_batch(messages)
                assert (
                    engine.config.flush is FlushMode.ASYNC
                    or engine.log.flushed >= found[-1].physical_offset + found[-1].size
                )
                results.extend(found)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors
    return results


def test_many_writers_share_a_sync(tmp_path: Path) -> None:
    disk = SlowDisk()
    with StoreEngine.open(tmp_path, StoreConfig.small(flush=FlushMode.SYNC, services=False), disk=disk) as engine:
        before = disk.syncs
        results = write(engine, threads=16, each=10)
        assert disk.syncs - before < len(results) / 4
        assert all(r.status is PutStatus.PUT_OK for r in results)


def test_one_writer_syncs_each_message(tmp_path: Path) -> None:
    disk = SlowDisk(0)
    with StoreEngine.open(tmp_path, StoreConfig.small(flush=FlushMode.SYNC, services=False), disk=disk) as engine:
        engine.make_topic("T0", 2)
        before = disk.syncs
        write(engine, threads=1, each=20)
        assert disk.syncs - before == 20


class Noting(Disk):
    """Notes what is written and synced in one, and every other sync; every ``failing``-th of the former fails."""

    def __init__(self, failing: int = 0) -> None:
        super().__init__()
        self.through, self.synced, self.failing = list[tuple[int, int]](), 0, failing

    def write_through(self, fd: int, data: Buffer, position: int) -> bool:
        self.through.append((position, len(data)))
        if self.failing and len(self.through) % self.failing == 0:
            return False
        return super().write_through(fd, data, position)

    def sync(self, fd: int) -> None:
        self.synced += 1
        super().sync(fd)


def test_a_group_goes_down_with_one_system_call(tmp_path: Path) -> None:
    disk = Noting()
    with StoreEngine.open(tmp_path, StoreConfig.small(flush=FlushMode.SYNC, services=False), disk=disk) as engine:
        engine.make_topic("T0", 2)
        synced = disk.synced
        results = write(engine, threads=1, each=20)
        assert disk.through == [(r.physical_offset, r.size) for r in results]
        assert disk.synced == synced
        assert engine.log.flushed == engine.log.committed == engine.log.wrote == results[-1].end
    assert complaints(tmp_path) == []


@pytest.mark.parametrize("flush", list(FlushMode))
def test_a_queue_file_that_is_full_outlasts_a_power_cut(flush: FlushMode, tmp_path: Path) -> None:
    """A start reads the last three of a queue; what is in front of them it takes for written."""
    synced = set[str]()

    class Naming(Disk):
        def sync(self, fd: int) -> None:
            synced.add(os.readlink(f"/proc/self/fd/{fd}"))
            super().sync(fd)

    config = StoreConfig.small(flush=flush, services=False, queue_file_size=40)
    engine = StoreEngine.open(tmp_path, config, disk=Naming())
    for n in range(15):
        engine.put(Message("T", b"%d" % n, 0))
        engine.dispatch()
    files = sorted(map(str, (tmp_path / "consumequeue/T/0").iterdir()))
    engine.abandon()
    assert len(files) == 8
    assert {file for file in files if file in synced} == (set(files[:-1]) if flush is FlushMode.SYNC else set())


@pytest.mark.parametrize("failing", [0, 1, 2, 3])
def test_groups_over_several_files(failing: int, tmp_path: Path) -> None:
    disk, config = Noting(failing), StoreConfig.small(flush=FlushMode.SYNC, services=False, commit_log_file_size=4096)
    with StoreEngine.open(tmp_path, config, disk=disk) as engine:
        results = write(engine, threads=6, each=40, batch=3)
        assert engine.log.files.files[-1].base > 10 * 4096
        assert engine.log.flushed == engine.log.committed == max(r.end for r in results)
        assert (disk.synced > 10) == bool(failing)
    assert complaints(tmp_path) == []


def test_what_was_written_before_is_synced_too(tmp_path: Path) -> None:
    disk = Noting()
    with StoreEngine.open(tmp_path, StoreConfig.small(flush=FlushMode.SYNC, services=False), disk=disk) as engine:
        engine.put(Message("T", b"nobody waits", properties={"WAIT": "false"}))
        engine.log.commit()
        synced = disk.synced
        result = engine.put(Message("T", b"one waits"))
        assert engine.log.flushed == result.end
        assert (disk.through, disk.synced) == ([], synced + 1)


def test_a_sync_that_takes_too_long_is_told(tmp_path: Path) -> None:
    config = StoreConfig.small(flush=FlushMode.SYNC, services=False, sync_flush_timeout_ms=20)
    with StoreEngine.open(tmp_path, config, disk=SlowDisk(0.15)) as engine:
        engine.make_topic("T", 1)
        leader = threading.Thread(target=lambda: engine.put(Message("T", b"first")))
        leader.start()
        sleep(0.05)
        result = engine.put(Message("T", b"second"))
        leader.join()
    assert result.status is PutStatus.FLUSH_DISK_TIMEOUT
    assert complaints(tmp_path) == []


def test_wait_false_is_not_waited_for(tmp_path: Path) -> None:
    disk = SlowDisk(0)
    with StoreEngine.open(tmp_path, StoreConfig.small(flush=FlushMode.SYNC, services=False), disk=disk) as engine:
        engine.make_topic("T", 1)
        before = disk.syncs
        engine.put(Message("T", b"x", properties={"WAIT": "false"}))
        assert disk.syncs == before


@pytest.mark.parametrize("pooled", [False, True])
def test_positions_are_in_order(tmp_path: Path, pooled: bool) -> None:
    config = StoreConfig.small(transient_pool=pooled, services=False)
    with StoreEngine.open(tmp_path, config) as engine:
        write(engine, threads=1, each=50)
        log = engine.log
        assert log.flushed <= log.committed <= log.wrote
        assert (log.committed < log.wrote) is pooled
        assert engine.offsets("T0", 0)[1] == (0 if pooled else 25)
        log.commit()
        assert log.flushed < log.committed == log.wrote
        engine.flush()
        assert log.flushed == log.committed == log.wrote
        assert engine.offsets("T0", 0)[1] == 25
    assert complaints(tmp_path) == []


def test_services_flush_and_dispatch_by_themselves(tmp_path: Path) -> None:
    config = StoreConfig.small(
        transient_pool=True, flush_interval_ms=5, flush_thorough_interval_ms=10, commit_interval_ms=5
    )
    with StoreEngine.open(tmp_path, config) as engine:
        write(engine, threads=2, each=20)
        for _ in range(300):
            if engine.log.flushed == engine.log.wrote and engine.reput.position == engine.log.wrote:
                break
            sleep(0.01)
        assert engine.log.flushed == engine.reput.position == engine.log.wrote


def test_least_pages() -> None:
    assert not has_pages(0, 4 * 4096 - 1, 4)
    assert has_pages(0, 4 * 4096, 4)
    assert has_pages(5, 6, 0)
    assert not has_pages(5, 5, 0)


@pytest.mark.parametrize("batch", [1, 3])
def test_64_threads_leave_dense_queues(tmp_path: Path, batch: int) -> None:
    with StoreEngine.open(tmp_path, StoreConfig.small()) as engine:
        results = write(engine, threads=64, each=12, batch=batch)
    queues: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for result in results:
        queues[result.topic, result.queue_id].append((result.physical_offset, result.queue_offset))
    for places in queues.values():
        assert [offset for _, offset in sorted(places)] == list(range(len(places)))
    assert sum(map(len, queues.values())) == 64 * 12 * batch
    assert complaints(tmp_path) == []


def test_after_a_failed_sync_nothing_more_is_taken(tmp_path: Path) -> None:
    class Failing(SlowDisk):
        def sync(self, fd: int) -> None:
            raise IOFailure("cannot flush to disk", OSError(5, "Input/output error"))

    engine = StoreEngine.open(tmp_path, StoreConfig.small(flush=FlushMode.SYNC, services=False), disk=SlowDisk(0))
    engine.put(Message("T", b"safe"))
    engine.log.files.disk = Failing()
    for _ in range(2):
        with pytest.raises(IOFailure):
            engine.put(Message("T", b"unsafe"))
    with pytest.raises(IOFailure):
        engine.close()
    assert (tmp_path / "abort").exists()
    with StoreEngine.open(tmp_path) as engine:
        assert engine.get("T", 0, 0).messages[0].fields["body"] == b"safe"
