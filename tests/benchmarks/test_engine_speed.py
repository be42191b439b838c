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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from rmqctl.rocketmq.engine import FlushMode, Message, StoreConfig, StoreEngine
from rmqctl.rocketmq.engine.bulk import produce_bulk
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.engine.drafts import Template
from rmqctl.rocketmq.engine.produce import ProduceOptions

JAVA = Path(__file__).parents[1] / "interop" / "java"
OPENED = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref")
ROUNDS = int(os.environ.get("RMQCTL_BENCH_ROUNDS", "3"))
MESSAGES = int(os.environ.get("RMQCTL_BENCH_MESSAGES", "300000"))
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
    shutil.copy(JAVA / "pom.xml", work)
    goal = ["dependency:build-classpath", "-Drocketmq.version=4.9.8", f"-Dmdep.outputFile={work}/cp.txt"]
    subprocess.run(["mvn", "-q", "-B", *goal], cwd=work, check=True, stdout=subprocess.DEVNULL)
    jars = (work / "cp.txt").read_text("utf-8").strip()
    source = JAVA / "src/main/java/rmqctl/PutSpeed.java"
    subprocess.run(["javac", "-nowarn", "-d", work, "-cp", jars, source], check=True)
    opens = [word for module in OPENED for word in ("--add-opens", f"{module}=ALL-UNNAMED")]
    return ["java", "-Xmx1g", f"-Duser.home={work}", *opens, "-cp", f"{work}{os.pathsep}{jars}", "rmqctl.PutSpeed"]


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


@pytest.mark.skipif(not (shutil.which("mvn") and shutil.which("java")), reason="mvn or java is not on the PATH")
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


def sync_rate(root: Path, writers: int, each: int) -> tuple[float, int]:
    """Messages a second with sync flush, and how many syncs that took."""

    class Counting(Disk):
        syncs = 0

        def sync(self, fd: int) -> None:
            type(self).syncs += 1
            super().sync(fd)

    with StoreEngine.open(root, StoreConfig(flush=FlushMode.SYNC), disk=Counting()) as engine:
        engine.make_topic("T", 4)
        before, begin = Counting.syncs, time.perf_counter()

        def work() -> None:
            for n in range(each):
                engine.put(Message("T", BODY, n % 4))

        threads = [threading.Thread(target=work) for _ in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return writers * each / (time.perf_counter() - begin), Counting.syncs - before


def raw_rate(path: Path, syncs: int, messages: int) -> float:
    """Messages a second of plain write and fdatasync in groups of the same size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 30)
    group, begin = BODY * max(messages // syncs, 1), time.perf_counter()
    for n in range(syncs):
        os.pwrite(fd, group, n * len(group))
        os.fdatasync(fd)
    seconds = time.perf_counter() - begin
    os.close(fd)
    return messages / seconds


def test_group_commit(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: list[tuple[float, float, float]] = []
    for _ in range(ROUNDS):
        many, syncs = sync_rate(root / "many", 64, 60)
        raw = raw_rate(root / "raw", syncs, 64 * 60)
        one, _ = sync_rate(root / "one", 1, 200)
        shutil.rmtree(root)
        found.append((many / raw, many / one, 64 * 60 / syncs))
    of_raw, of_one, group = (median(column) for column in zip(*found, strict=True))
    with capsys.disabled():
        rounds = ", ".join(f"{ratio:.2f}" for ratio, _, _ in found)
        print(f"\n64 writers in groups of {group:.0f}: {of_raw:.2f} of raw ({rounds}; wanted 0.70);")
        print(f"{of_one:.1f} times one writer (wanted 8 where a sync takes 1 ms or more);", end=" ")
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
