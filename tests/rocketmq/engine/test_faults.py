"""Every write, sync and create fails once: the caller is told, what was answered stays, the next open succeeds."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from rmqctl.errors import IOFailure, RmqctlError
from rmqctl.files.writing import Buffer, Disk
from rmqctl.rocketmq.engine.config import FlushMode, MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message, PutResult
from tests.rocketmq.engine.engine_helpers import complaints

MESSAGES = 40
Run = Callable[[Path, Disk], tuple[list[PutResult], int]]


class FaultyDisk(Disk):
    """Refuses its n-th request of a kind, and with ``for_ever`` all that follow; -1 only counts.

    It writes and syncs in one only if that is the kind.
    """

    def __init__(self, kind: str, at: int, error: int, *, for_ever: bool) -> None:
        super().__init__()
        self.kind, self.at, self.error, self.for_ever = kind, at, error, for_ever
        self.count = 0

    def _step(self, kind: str) -> bool:
        if kind != self.kind:
            return False
        self.count += 1
        return self.at >= 0 and (self.count == self.at + 1 or (self.for_ever and self.count > self.at))

    def write_some(self, fd: int, data: Buffer, position: int) -> int:
        if self._step("write"):
            os.pwrite(fd, data[:7], position)
            raise OSError(self.error, os.strerror(self.error))
        if self._step("short"):
            return os.pwrite(fd, data[:5], position)
        return super().write_some(fd, data, position)

    def write_through(self, fd: int, data: Buffer, position: int) -> bool:
        if self._step("through"):
            os.pwrite(fd, data[:7], position)
            return False
        return self.kind == "through" and super().write_through(fd, data, position)

    def resize(self, fd: int, size: int) -> None:
        if self._step("create"):
            raise OSError(self.error, os.strerror(self.error))
        super().resize(fd, size)

    def sync(self, fd: int) -> None:
        if self._step("sync"):
            raise IOFailure("cannot flush to disk", OSError(self.error, os.strerror(self.error)))
        super().sync(fd)


def config(start: int = 1_700_000_000_000) -> StoreConfig:
    return StoreConfig.small(
        commit_log_file_size=4096, queue_file_size=200, index_slots=20, index_entries=30, services=False,
        flush=FlushMode.SYNC, clock=MadeUpClock(start, 1), max_message_size=2000,
    )  # fmt: skip


def sent(root: Path, disk: Disk, send: Callable[[StoreEngine, Message], object]) -> int:
    """Send messages until the disk fails; how often the caller was told."""
    told = 0
    try:
        with StoreEngine.open(root, config(), disk=disk) as engine:
            for n in range(MESSAGES):
                try:
                    send(engine, Message("T", b"%d" % n * 60, n % 2, {"KEYS": f"k{n}"}))
                except RmqctlError:
                    told += 1
    except RmqctlError:
        told += 1
    return told


def run(root: Path, disk: Disk) -> tuple[list[PutResult], int]:
    """Messages until the disk fails; the answered ones, and how often the caller was told."""
    answered: list[PutResult] = []
    told = sent(root, disk, lambda engine, message: answered.append(engine.put(message)))
    return answered, told


def run_in_flight(root: Path, disk: Disk) -> tuple[list[PutResult], int]:
    """The same with all messages in flight."""
    waiting: list[Future[PutResult]] = []
    told = sent(root, disk, lambda engine, message: waiting.append(engine.put_async(message)))
    errors = [future.exception(0) for future in waiting]  # nobody waits: all are answered when the engine is closed
    assert all(error is None or isinstance(error, RmqctlError) for error in errors)
    answered = [future.result() for future, error in zip(waiting, errors, strict=True) if error is None]
    return answered, told + len(waiting) - len(answered)


def total(kind: str, tmp_path: Path) -> int:
    disk = FaultyDisk(kind, -1, 0, for_ever=False)
    run(tmp_path, disk)
    return disk.count


@pytest.mark.parametrize("write", [run, run_in_flight])
@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("kind", ["write", "sync", "through", "create", "short"])
def test_every_request_may_fail(kind: str, for_ever: bool, write: Run, tmp_path: Path) -> None:
    count = total(kind, tmp_path / "count")
    assert count > 10
    for at in range(0, count, max(count // 7, 1)):
        root = tmp_path / str(at)
        error = errno.ENOSPC if at % 2 else errno.EIO
        disk = FaultyDisk(kind, at, error, for_ever=for_ever)
        answered, told = write(root, disk)
        hit = write is run or disk.count > at  # syncs are shared, so there may be fewer than in the run that counted
        assert told or kind in ("short", "create", "through") or not hit
        check(root, answered)


def check(root: Path, answered: list[PutResult]) -> None:
    with StoreEngine.open(root, config(1_700_000_100_000)) as engine:
        for result in answered:
            found = engine.get(result.topic, result.queue_id, result.queue_offset, 1).messages
            assert [m.physical_offset for m in found] == [result.physical_offset]
        engine.put(Message("T", b"after", 0))
    gaps = "warning index.coverage"  # usual after a crash, spec 6.8
    assert [c for c in complaints(root) if not c.startswith(gaps)] == []


def test_a_group_over_two_files_whose_second_part_cannot_be_written(tmp_path: Path) -> None:
    disk = FaultyDisk("write", -1, errno.EIO, for_ever=True)
    engine = StoreEngine.open(tmp_path, config(), disk=disk)
    for n in range(30):
        engine.put(Message("T", b"%d" % n * 60, 0, {"KEYS": f"k{n}", "WAIT": "false"}))
    assert engine.log.wrote > 4096
    disk.at = disk.count + 1  # the first part goes to the first file
    with pytest.raises(IOFailure):
        engine.log.commit()
    assert engine.log.committed == 4096
    with pytest.raises(IOFailure):
        engine.close()
    with StoreEngine.open(tmp_path, config()) as again:
        assert again.log.wrote == 4096
        assert again.get("T", 0, 0, 1).max_offset == again.put(Message("T", b"after", 0)).queue_offset > 0
    assert [c for c in complaints(tmp_path) if not c.startswith("warning index.coverage")] == []
