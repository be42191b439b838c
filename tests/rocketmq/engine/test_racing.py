"""Threads that flush, commit, expire and close while others write; what fails for one of them fails for all."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from time import monotonic, process_time, sleep

import pytest

from rmqctl.errors import IOFailure, Refused
from rmqctl.files.writing import Buffer, Disk
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.flush import Waiter
from rmqctl.rocketmq.engine.message import Message, PutResult, PutStatus
from tests.rocketmq.engine.engine_helpers import complaints

_UNWAITED = {"WAIT": "false"}


def config(**changes: object) -> StoreConfig:
    return StoreConfig.small(flush=FlushMode.SYNC, services=False, **changes)


class Hooked(Disk):
    """Calls what a test wants in front of a sync, a write, and a write with a sync."""

    def __init__(self) -> None:
        super().__init__()
        self.sync_hook: Callable[[], object] = lambda: None
        self.write_hook: Callable[[], object] = lambda: None
        self.through_hook: Callable[[], object] = lambda: None

    def sync(self, fd: int) -> None:
        self.sync_hook()
        super().sync(fd)

    def write_some(self, fd: int, data: Buffer, position: int) -> int:
        self.write_hook()
        return super().write_some(fd, data, position)

    def write_through(self, fd: int, data: Buffer, position: int) -> bool:
        self.through_hook()
        return super().write_through(fd, data, position)


def once(error: BaseException) -> Callable[[], None]:
    """Raises at the first call only, as the system tells a failed sync only once."""
    errors = [error]

    def call() -> None:
        if errors:
            raise errors.pop()

    return call


def bad() -> IOFailure:
    return IOFailure("cannot flush to disk", OSError(5, "Input/output error"))


def test_a_sync_that_failed_is_never_taken_for_a_later_one(tmp_path: Path) -> None:
    disk = Hooked()
    engine = StoreEngine.open(tmp_path, config(), disk=disk)
    engine.put(Message("T", b"x", 0, _UNWAITED))
    engine.log.commit()
    disk.sync_hook = once(bad())
    for _ in range(3):
        with pytest.raises(IOFailure):
            engine.log.flush()
    assert engine.log.flushed == 0
    for _ in range(3):
        with pytest.raises(IOFailure) as told:
            engine.put(Message("T", b"y"))
        assert len(told.traceback) < 20
    with pytest.raises(IOFailure):
        engine.close()
    assert (tmp_path / "abort").exists()


def test_of_two_syncs_at_once_the_system_tells_one(tmp_path: Path) -> None:
    disk, begun, failing = Hooked(), threading.Semaphore(0), [True]

    def hook() -> None:
        begun.release()
        if failing and failing.pop():
            sleep(0.1)
            raise bad()

    engine = StoreEngine.open(tmp_path, config(), disk=disk)
    engine.put(Message("T", b"x", 0, _UNWAITED))
    engine.log.commit()
    disk.sync_hook = hook
    told: list[object] = []

    def flush() -> None:
        try:
            told.append(engine.log.flush())
        except IOFailure as error:
            told.append(error)

    threads = [threading.Thread(target=flush) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(answer, IOFailure) for answer in told)
    assert engine.log.flushed == 0
    engine.abandon()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_commit_loses_nothing(error: type[BaseException], tmp_path: Path) -> None:
    disk = Hooked()
    with StoreEngine.open(tmp_path, config(), disk=disk) as engine:
        engine.put(Message("T", b"first"))
        disk.through_hook = once(error())
        with pytest.raises(error):
            engine.put(Message("T", b"second"))
        assert engine.put(Message("T", b"third")).queue_offset == 2
        assert [m.fields["body"] for m in engine.get("T", 0, 0, 9).messages] == [b"first", b"second", b"third"]
    assert complaints(tmp_path) == []


def test_an_interrupted_append_leaves_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreEngine.open(tmp_path, config()) as engine:
        engine.put(Message("T", b"first"))
        with monkeypatch.context() as patch:
            patch.setattr(engine.log, "_reach", lambda *_: once(KeyboardInterrupt())())
            with pytest.raises(KeyboardInterrupt):
                engine.put(Message("T", b"interrupted"))
        engine.log.commit()
        assert engine.log.committed == engine.log.wrote
        engine.put(Message("T", b"second"))
        assert [m.fields["body"] for m in engine.get("T", 0, 0, 9).messages] == [b"first", b"second"]
    assert complaints(tmp_path) == []


@pytest.mark.parametrize("end", ["close", "abandon"])
@pytest.mark.parametrize("mode", list(FlushMode))
def test_the_end_while_others_write(mode: FlushMode, end: str, tmp_path: Path) -> None:
    root, answered, errors = tmp_path / "s", list[PutResult](), list[BaseException]()
    engine = StoreEngine.open(root, StoreConfig.small(flush=mode, services=False))
    engine.make_topic("T", 4)

    def work(number: int) -> None:
        try:
            while True:
                message = Message("T", b"%d" % number * 50, number)
                answered.append(engine.put(message) if number % 2 else engine.put_async(message).result(20))
        except Refused:
            pass
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    sleep(0.1)
    getattr(engine, end)()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []
    log = [path.stat().st_mtime_ns for path in (root / "commitlog").iterdir()]
    sleep(0.02)
    assert log == [path.stat().st_mtime_ns for path in (root / "commitlog").iterdir()]
    assert engine.log.files.files
    assert all(file.fd < 0 for file in engine.log.files.files)
    with StoreEngine.open(root, config()) as again:
        assert again.log.wrote >= max(result.end for result in answered)
        assert sum(again.offsets("T", queue)[1] for queue in range(4)) >= len(answered)
    assert complaints(root) == []


def test_who_comes_behind_the_end_does_not_wait_for_ever(tmp_path: Path) -> None:
    engine = StoreEngine.open(tmp_path, config())
    engine.put(Message("T", b"x"))
    engine.put(Message("T", b"x", 0, _UNWAITED))
    end = engine.log.wrote
    engine.abandon()
    with pytest.raises(Refused):
        engine.group_commit.wait(end)
    with pytest.raises(Refused):
        engine.group_commit.submit(end, 0, lambda n: n)
    assert engine.log.commit() == 0


def test_a_callback_may_close_the_engine(tmp_path: Path) -> None:
    engine = StoreEngine.open(tmp_path, config())
    done = threading.Event()

    def close(_: object) -> None:
        engine.close()
        done.set()

    engine.group_commit._syncing = True  # leave the sync to the thread
    future = engine.put_async(Message("T", b"x"))
    future.add_done_callback(close)
    engine.group_commit._wake()
    assert done.wait(20)
    assert future.result(20).status is PutStatus.PUT_OK
    StoreEngine.open(tmp_path, config()).close()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_callback_that_ends_its_thread_keeps_nobody_waiting(error: type[BaseException], tmp_path: Path) -> None:
    gate, disk = threading.Event(), Hooked()
    with StoreEngine.open(tmp_path, config(), disk=disk) as engine:
        engine.put(Message("T", b"x"))
        disk.through_hook = lambda: gate.wait(20)
        futures = [engine.put_async(Message("T", b"%d" % n)) for n in range(10)]
        futures[3].add_done_callback(lambda _: once(error())())
        for future in futures[4:]:
            future.add_done_callback(lambda _: None)
        gate.set()
        assert not wait(futures, 20).not_done
        assert engine.put_async(Message("T", b"later")).result(20).status is PutStatus.PUT_OK


def test_whatever_stops_a_sync_is_told(tmp_path: Path) -> None:
    gate, disk = threading.Event(), Hooked()
    with StoreEngine.open(tmp_path, config(), disk=disk) as engine:
        engine.put(Message("T", b"x"))
        failing = once(MemoryError())
        disk.through_hook = lambda: (gate.wait(20), failing())
        futures = [engine.put_async(Message("T", b"%d" % n)) for n in range(3)]
        gate.set()
        assert {type(future.exception(20)) for future in futures} <= {IOFailure, type(None)}
        assert engine.put_async(Message("T", b"later")).result(20).status is PutStatus.PUT_OK
    assert complaints(tmp_path) == []


def test_a_file_that_expires_is_not_made_again_by_a_flush(tmp_path: Path) -> None:
    begun, gate, disk = threading.Event(), threading.Event(), Hooked()
    plain = StoreConfig.small(services=False, commit_log_file_size=4096, max_message_size=2000)
    with StoreEngine.open(tmp_path, plain, disk=disk) as engine:
        for n in range(40):
            engine.put(Message("T", b"%d" % n * 200))
        engine.dispatch()

        def hook() -> None:
            begun.set()
            gate.wait(20)

        disk.sync_hook = hook
        flush = threading.Thread(target=engine.log.flush)
        flush.start()
        assert begun.wait(20)
        threading.Timer(1, gate.set).start()
        gone = engine.expire(at_once=True).log
        flush.join()
        assert gone
        assert not any(path.exists() for path in gone)
    assert complaints(tmp_path) == []


def test_a_light_queue_has_no_gap_where_an_append_failed(tmp_path: Path) -> None:
    disk = Hooked()
    plain = StoreConfig.small(services=False, multi_dispatch=True)
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    with StoreEngine.open(tmp_path, plain, disk=disk) as engine:
        engine.put(Message("T", b"0", 0, dict(names)))
        disk.write_hook = once(OSError(28, os.strerror(28)))
        with pytest.raises(IOFailure):
            engine.put(Message("T", b"refused", 0, dict(names)))
        engine.put(Message("T", b"1", 0, dict(names)))
        assert engine.log.queues.next("%LMQ%a", 0) == 2
    assert complaints(tmp_path) == []


def test_after_a_failed_dispatch_nothing_more_is_taken(tmp_path: Path) -> None:
    disk = Hooked()
    plain = StoreConfig.small(services=False)
    engine = StoreEngine.open(tmp_path, plain, disk=disk)
    engine.put(Message("T", b"0"))
    disk.write_hook = once(OSError(28, os.strerror(28)))
    with pytest.raises(IOFailure):
        engine.dispatch()
    end = engine.log.wrote
    with pytest.raises(IOFailure):
        engine.put(Message("T", b"1"))
    assert engine.log.wrote == end
    with pytest.raises(IOFailure):
        engine.crash()
    with StoreEngine.open(tmp_path, plain) as again:  # its lock was let go
        assert again.offsets("T", 0) == (0, 1)


def test_the_pool_does_not_grow_without_end(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, config(commit_log_file_size=1 << 16)) as engine:
        most = 0
        for n in range(2000):
            engine.put(Message("T", b"%d" % n * 100, 0, _UNWAITED))
            most = max(most, engine.log.wrote - engine.log.committed)
        assert most <= engine.dispatching.most
    assert complaints(tmp_path) == []


def test_callbacks_that_put_again_do_not_wait_for_their_own_thread(tmp_path: Path) -> None:
    done, slowest, disk = threading.Event(), [0.0], Hooked()
    with StoreEngine.open(tmp_path, config(), disk=disk) as engine:
        engine.make_topic("T", 1)
        engine.put_async(Message("T", b"first")).result(20)
        engine.group_commit._usual = 0.5

        def again(future: object) -> None:
            engine.group_commit._ends_at = 0.0
            engine.group_commit._usual = 0.5
            begin = monotonic()
            engine.put_async(Message("T", b"a"))
            engine.put_async(Message("T", b"b"))
            slowest[0] = monotonic() - begin
            done.set()

        disk.through_hook = lambda: sleep(0.05)
        future = engine.put_async(Message("T", b"next"))
        future.add_done_callback(again)
        assert done.wait(20)
        assert slowest[0] < 0.4


@pytest.mark.parametrize("dsync", [0, 1 << 30], ids=["none", "EOPNOTSUPP"])
def test_systems_that_cannot_write_and_sync_in_one(dsync: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.files.writing._DSYNC", dsync)
    with StoreEngine.open(tmp_path, config(commit_log_file_size=4096, max_message_size=2000)) as engine:
        results = [engine.put(Message("T", b"%d" % n * 100)) for n in range(50)]
        assert engine.log.flushed == results[-1].end
        assert {r.status for r in results} == {PutStatus.PUT_OK}
    assert complaints(tmp_path) == []


def test_a_topic_that_could_not_be_noted_is_noted_with_the_next_message(tmp_path: Path) -> None:
    disk = Hooked()
    engine = StoreEngine.open(tmp_path, config(), disk=disk)
    engine.put(Message("A", b"x"))
    disk.write_hook = once(OSError(28, os.strerror(28)))
    with pytest.raises(IOFailure):
        engine.put(Message("B", b"x"))
    engine.put(Message("B", b"x"))
    engine.dispatch()
    engine.abandon()
    StoreEngine.open(tmp_path, config()).close()
    assert [c for c in complaints(tmp_path) if not c.startswith("warning index.coverage")] == []


@pytest.mark.parametrize("part", range(1, 60, 3))
def test_a_unit_of_a_queue_is_never_left_half_written(part: int, tmp_path: Path) -> None:
    class Full(Disk):
        is_full = False

        def write_some(self, fd: int, data: Buffer, position: int) -> int:
            if self.is_full and len(data) == 60:
                self.is_full = False
                os.pwrite(fd, data[:part], position)
                raise OSError(28, os.strerror(28))
            return super().write_some(fd, data, position)

    disk, plain = Full(), StoreConfig.small(services=False)
    engine = StoreEngine.open(tmp_path, plain, disk=disk)
    for n in range(3):
        engine.put(Message("T", b"%d" % n * 300, 0, {"TAGS": "A"}))
    disk.is_full = True
    with pytest.raises(IOFailure):
        engine.dispatch()
    engine.abandon()
    with StoreEngine.open(tmp_path, plain) as again:
        assert len(again.get("T", 0, 0, 9).messages) == 3
    assert [c for c in complaints(tmp_path) if not c.startswith("warning index.coverage")] == []


def test_a_timeout_of_nothing(tmp_path: Path) -> None:
    disk = Hooked()
    with StoreEngine.open(tmp_path, config(sync_flush_timeout_ms=0), disk=disk) as engine:
        engine.put(Message("T", b"x"))
        disk.through_hook = lambda: sleep(0.1)
        before = process_time()
        futures = [engine.put_async(Message("T", b"%d" % n)) for n in range(3)]
        assert {future.result(20).status for future in futures} <= {PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.PUT_OK}
        sleep(0.5)
        assert process_time() - before < 0.4


def test_writers_that_wake_each_other_pass_over_those_that_are_gone(tmp_path: Path) -> None:
    disk, gate, begun = Hooked(), threading.Event(), threading.Event()

    def hook() -> None:
        begun.set()
        assert gate.wait(20)

    with StoreEngine.open(tmp_path, config(sync_flush_timeout_ms=1), disk=disk) as engine:
        engine.make_topic("T", 9)
        disk.through_hook, answered = hook, dict[int, PutStatus | str]()

        def write(number: int) -> None:
            try:
                answered[number] = engine.put(Message("T", b"x", number)).status
            except KeyboardInterrupt:
                answered[number] = "interrupted"

        threads = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(9)]
        threads[0].start()  # it syncs for those that come before
        assert begun.wait(20)
        for number in (1, 2):
            threads[number].start()
            threads[number].join(20)
        engine.group_commit._timeout = 600
        for thread in threads[3:]:
            thread.start()
        while len(engine.group_commit._waiters) < 8:
            sleep(0.001)
        for thread in (threads[4], threads[7]):  # it comes when they wake
            ident = ctypes.c_ulong(thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(KeyboardInterrupt))
        gate.set()
        end = monotonic() + 20
        for thread in threads:
            thread.join(max(end - monotonic(), 0))
        late, stopped = {1, 2}, {4, 7}
        assert {n for n, status in answered.items() if status is PutStatus.FLUSH_DISK_TIMEOUT} == late
        assert {n for n, status in answered.items() if status == "interrupted"} == stopped
        assert {n for n, status in answered.items() if status is PutStatus.PUT_OK} == set(range(9)) - late - stopped


def test_a_writer_that_is_interrupted_as_it_queues_up_delays_nobody(tmp_path: Path) -> None:
    disk, gate, begun = Hooked(), threading.Event(), threading.Event()

    def hook() -> None:
        begun.set()
        assert gate.wait(20)

    class Interrupting(list[Waiter]):
        def append(self, waiter: Waiter) -> None:
            super().append(waiter)
            raise KeyboardInterrupt

    with StoreEngine.open(tmp_path, config(sync_flush_timeout_ms=60_000), disk=disk) as engine:
        engine.make_topic("T", 4)
        disk.through_hook, statuses = hook, list[PutStatus]()
        threads = [
            threading.Thread(target=lambda n=n: statuses.append(engine.put(Message("T", b"x", n)).status), daemon=True)
            for n in range(4)
        ]
        threads[0].start()
        assert begun.wait(20)
        commit = engine.group_commit
        commit._waiters = Interrupting(commit._waiters)
        with pytest.raises(KeyboardInterrupt):
            commit.wait(1 << 40)
        commit._waiters = list(commit._waiters)
        for thread in threads[1:]:
            thread.start()
        while len(commit._waiters) < 4:
            sleep(0.001)
        commit._waiters[0].end = commit._waiters[1].end  # its bytes are down with those of the others
        gate.set()
        end = monotonic() + 20
        for thread in threads:
            thread.join(max(end - monotonic(), 0))
        assert statuses == [PutStatus.PUT_OK] * 4


def test_an_end_that_cannot_be_read_to_be_mended(tmp_path: Path) -> None:
    class Unreadable(Hooked):
        def read(self, fd: int, size: int, position: int) -> bytes:
            raise bad()

    disk = Unreadable()
    engine = StoreEngine.open(tmp_path, config(), disk=disk)
    engine.put(Message("T", b"x"))
    disk.write_through = lambda *_: False  # type: ignore[method-assign]
    disk.write_hook = once(OSError(28, os.strerror(28)))
    with pytest.raises(IOFailure):
        engine.put(Message("T", b"y"))
    assert engine.log.torn
    with pytest.raises(IOFailure):
        engine.close()
    with StoreEngine.open(tmp_path, config()) as again:
        assert again.offsets("T", 0)[1] >= 1
