"""The store engine against the released store, and group commit against the least that a disk allows.

The Java half needs Java 17 and Maven; without them only what compares with raw system calls is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import pytest

from rmqctl.files.writing import Buffer, Disk
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message, PutResult, PutStatus
from rmqctl.rocketmq.producer.bulk import produce_bulk
from rmqctl.rocketmq.producer.drafts import Template
from rmqctl.rocketmq.producer.produce import ProduceOptions
from tests.benchmarks.ratio import size
from tests.interop.judge import class_path, has_java, java

ROUNDS = size("ROUNDS", 3, 1)
MESSAGES = size("MESSAGES", 300_000, 500)
IN_FLIGHT, SYNCED, TURNS = 64, 64 * size("SYNCED", 60, 2), size("TURNS", 12, 2)
BODY = bytes(range(256)) * 4

pytestmark = pytest.mark.benchmark


@pytest.fixture
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rmqctl-bench-"))
    yield path / "s"
    shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class Taken:
    """What `MESSAGES` messages took until everything was dispatched: seconds, and processor seconds of all threads."""

    seconds: float
    cpu: float

    def __str__(self) -> str:
        return f"{MESSAGES / self.seconds:,.0f}/s with {self.cpu / MESSAGES * 1e6:.1f} us of processor each"


def java_command(work: Path) -> list[str]:
    """How to start `PutSpeed` of 4.9.8; compiles it."""
    return java(class_path("4.9.8", work, "PutSpeed"), work / "home", "PutSpeed", memory="1g", options=())


def java_taken(command: list[str], root: Path) -> Taken:
    """The released store, one thread, async flush."""
    done = subprocess.run([*command, str(root), str(MESSAGES)], check=True, capture_output=True, text=True)
    row = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"kind"'))
    return Taken(row["seconds"], row["cpu_seconds"])


def taken(root: Path, work: Callable[[StoreEngine, int], None]) -> Taken:
    """Ours, after a tenth as many messages for warming up, as `PutSpeed` does."""
    with StoreEngine.open(root) as engine:
        work(engine, MESSAGES // 10)
        engine.dispatch()
        begin, used = time.perf_counter(), time.process_time()
        work(engine, MESSAGES)
        engine.dispatch()
        return Taken(time.perf_counter() - begin, time.process_time() - used)


def put(engine: StoreEngine, count: int) -> None:
    """The same messages through `StoreEngine.put`."""
    for n in range(count):
        properties = {"KEYS": f"order-{n}", "TAGS": "TagA", "UNIQ_KEY": f"{n:032X}"}
        engine.put(Message(f"T{n % 3}", BODY, n % 4, properties))


def bulk(engine: StoreEngine, count: int) -> None:
    """As `produce --count` writes them."""
    template = Template(sizes=(1024, 1024), keys=("order-{n}",), tags=(("TagA", 1.0),))
    for _ in produce_bulk(engine, template, count, ProduceOptions(("T0", "T1", "T2"))):
        pass


@pytest.mark.interop
@pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH")
def test_against_the_released_store(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = java_command(tmp_path)
    rounds: list[tuple[Taken, Taken, Taken]] = []
    for _ in range(ROUNDS):  # in turn, so that all meet the same machine
        rounds.append((java_taken(command, root), taken(root / "put", put), taken(root / "bulk", bulk)))
        shutil.rmtree(root)
        with capsys.disabled():
            names = ("4.9.8 put", "ours put", "bulk")
            print("\n" + "; ".join(f"{name} {one}" for name, one in zip(names, rounds[-1], strict=True)))
    with capsys.disabled():
        print(f"put {ratios(rounds, 1)} of it (wanted 0.40); bulk {ratios(rounds, 2)} of it (wanted 3.00);", end=" ")
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def ratios(rounds: list[tuple[Taken, Taken, Taken]], which: int) -> str:
    """The median over the rounds: of the rates, and of the processor time a message takes."""
    rate = median(row[0].seconds / row[which].seconds for row in rounds)
    cpu = median(row[0].cpu / row[which].cpu for row in rounds)
    return f"{rate:.2f} (by processor time {cpu:.2f})"


class Counting(Disk):
    """Counts syncs and how long they take, seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs, self.seconds = 0, 0.0

    def sync(self, fd: int) -> None:
        begin = time.perf_counter()
        super().sync(fd)
        self.syncs, self.seconds = self.syncs + 1, self.seconds + time.perf_counter() - begin

    def write_through(self, fd: int, data: Buffer, position: int) -> bool:
        begin = time.perf_counter()
        found = super().write_through(fd, data, position)
        self.syncs, self.seconds = self.syncs + 1, self.seconds + time.perf_counter() - begin
        return found


@dataclass(frozen=True)
class Synced:
    """Messages a second with sync flush, how many share one, and how long one takes."""

    rate: float
    group: float
    sync_us: float


Writers = Callable[[StoreEngine, int], None]


def sync_rate(root: Path, messages: int, write: Writers) -> Synced:
    """How fast so many messages go down."""
    disk = Counting()
    with StoreEngine.open(root, StoreConfig(flush=FlushMode.SYNC), disk=disk) as engine:
        engine.make_topic("T", 4)
        write(engine, 64)  # threads are started, the first file is there
        disk.syncs, disk.seconds = 0, 0.0
        begin = time.perf_counter()
        write(engine, messages)
        seconds, syncs, slept = time.perf_counter() - begin, disk.syncs, disk.seconds
    return Synced(messages / seconds, messages / syncs, slept / syncs * 1e6)


def one_writer(engine: StoreEngine, messages: int) -> None:
    """Each message waits for its own sync."""
    for n in range(messages):
        engine.put(Message("T", BODY, n % 4))


def threads(engine: StoreEngine, messages: int) -> None:
    """64 writers that each wait for their message."""
    workers = [threading.Thread(target=one_writer, args=(engine, messages // IN_FLIGHT)) for _ in range(IN_FLIGHT)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def asynchronous(engine: StoreEngine, messages: int) -> None:
    """64 messages in flight from one thread."""
    waiting = deque[Future[PutResult]]()
    for n in range(messages):
        if len(waiting) == IN_FLIGHT:
            assert waiting.popleft().result().status is PutStatus.PUT_OK
        waiting.append(engine.put_async(Message("T", BODY, n % 4)))
    for future in waiting:
        assert future.result().status is PutStatus.PUT_OK


def raw_rate(path: Path, found: Synced, messages: int) -> float:
    """Messages a second of plain write and fdatasync in groups of the same size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 30)
    count = round(found.group)
    group, turns, begin = BODY * count, messages // count, time.perf_counter()
    for n in range(turns):
        os.pwrite(fd, group, n * len(group))
        os.fdatasync(fd)
    seconds = time.perf_counter() - begin
    os.close(fd)
    path.unlink()
    return turns * count / seconds


def handed_over(messages: int, sync_us: float) -> float:
    """Messages a second where 64 threads do nothing but wait, each for a lock of its own, without any store.

    A thread that sleeps as long as a sync takes releases the first lock of a group, and each thread that of the next one.
    """
    waiting, answered, begun = deque[threading.Lock](), deque[threading.Lock](), threading.Semaphore(0)

    def next_one() -> None:
        with suppress(IndexError):
            answered.popleft().release()

    def wait() -> None:
        for _ in range(messages // IN_FLIGHT):
            own = threading.Lock()
            own.acquire()
            waiting.append(own)
            begun.release()
            own.acquire()
            next_one()

    def answer() -> None:
        done = 0
        while done < messages:
            begun.acquire()
            time.sleep(sync_us / 1e6)
            group = len(waiting)
            answered.extend(waiting.popleft() for _ in range(group))
            for _ in range(group - 1):
                begun.acquire()
            done += group
            next_one()

    workers = [threading.Thread(target=work) for work in (answer, *[wait] * IN_FLIGHT)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return messages / (time.perf_counter() - begin)


def test_group_commit(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds: dict[str, Writers] = {"64 threads": threads, "64 in flight": asynchronous}
    rounds: dict[str, list[tuple[Synced, float]]] = {name: [] for name in kinds}
    one, floor = sync_rate(root / "one", 200, one_writer), list[float]()
    for _ in range(TURNS):  # many short ones, because a disk is now fast, now slow
        for name, write in kinds.items():
            found = sync_rate(root / "many", SYNCED, write)
            rounds[name].append((found, found.rate / raw_rate(root / "raw", found, SYNCED)))
            shutil.rmtree(root)
        floor.append(handed_over(SYNCED, rounds["64 threads"][-1][0].sync_us))
    with capsys.disabled():
        print(f"\none writer: {one.rate:,.0f}/s, a sync takes {one.sync_us:.0f} us")
        for name, rows in rounds.items():
            rate, group, sync_us = (
                median(getattr(f, field) for f, _ in rows) for field in ("rate", "group", "sync_us")
            )
            low, of_raw, high = quantiles((ratio for _, ratio in rows), n=4)
            print(f"{name}: {rate:,.0f}/s in groups of {group:.0f}, a sync takes {sync_us:.0f} us:", end=" ")
            print(f"{of_raw:.2f} of raw (quartiles {low:.2f} and {high:.2f}; wanted 0.70),", end=" ")
            print(f"{rate / one.rate:.1f} times one writer (wanted 8 where a sync takes 1 ms or more)")
        print(f"64 threads that only wait for such a sync, each with a lock, without a store: {median(floor):,.0f}/s")
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
