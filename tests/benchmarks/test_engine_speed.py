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
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.rocketmq.engine import FlushMode, Message, StoreConfig, StoreEngine
from rmqctl.rocketmq.engine.bulk import produce_bulk
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.engine.drafts import Template
from rmqctl.rocketmq.engine.produce import ProduceOptions

JAVA = Path(__file__).parents[1] / "interop" / "java"
OPENED = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref")
MESSAGES = int(os.environ.get("RMQCTL_BENCH_MESSAGES", "300000"))
BODY = bytes(range(256)) * 4

pytestmark = pytest.mark.benchmark


@pytest.fixture
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rmqctl-bench-"))
    yield path / "s"
    shutil.rmtree(path, ignore_errors=True)


def java_seconds(work: Path) -> float:
    """Seconds of `PutSpeed` of 4.9.8 for as many messages."""
    shutil.copy(JAVA / "pom.xml", work)
    goal = ["dependency:build-classpath", "-Drocketmq.version=4.9.8", f"-Dmdep.outputFile={work}/cp.txt"]
    subprocess.run(["mvn", "-q", "-B", *goal], cwd=work, check=True, stdout=subprocess.DEVNULL)
    jars = (work / "cp.txt").read_text("utf-8").strip()
    source = JAVA / "src/main/java/rmqctl/PutSpeed.java"
    subprocess.run(["javac", "-nowarn", "-d", work, "-cp", jars, source], check=True)
    opens = [word for module in OPENED for word in ("--add-opens", f"{module}=ALL-UNNAMED")]
    command = ["java", "-Xmx1g", f"-Duser.home={work}", *opens, "-cp", f"{work}{os.pathsep}{jars}", "rmqctl.PutSpeed"]
    done = subprocess.run([*command, str(work / "s"), str(MESSAGES)], check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"kind"')]
    return float(rows[0]["seconds"])


def put_seconds(root: Path) -> float:
    """The same messages through `StoreEngine.put`, until everything is dispatched."""
    with StoreEngine.open(root) as engine:
        begin = time.perf_counter()
        for n in range(MESSAGES):
            properties = {"KEYS": f"order-{n}", "TAGS": "TagA", "UNIQ_KEY": f"{n:032X}"}
            engine.put(Message(f"T{n % 3}", BODY, n % 4, properties))
        engine.dispatch()
        return time.perf_counter() - begin


def bulk_seconds(root: Path) -> float:
    """As `produce --count` writes them, until everything is dispatched."""
    template = Template(sizes=(1024, 1024), keys=("order-{n}",), tags=(("TagA", 1.0),))
    with StoreEngine.open(root) as engine:
        begin = time.perf_counter()
        for _ in produce_bulk(engine, template, MESSAGES, ProduceOptions(("T0", "T1", "T2"))):
            pass
        engine.dispatch()
        return time.perf_counter() - begin


@pytest.mark.skipif(not (shutil.which("mvn") and shutil.which("java")), reason="mvn or java is not on the PATH")
def test_against_the_released_store(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    java = java_seconds(tmp_path)
    put, bulk = put_seconds(root.parent / "put"), bulk_seconds(root.parent / "bulk")
    with capsys.disabled():
        print(
            f"\n4.9.8 put {MESSAGES / java:,.0f}/s; ours put {MESSAGES / put:,.0f}/s, {java / put:.2f} of it (wanted 0.40);"
        )
        print(f"bulk {MESSAGES / bulk:,.0f}/s, {java / bulk:.2f} of it (wanted 3.00)")


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
    many, syncs = sync_rate(root.parent / "many", 64, 60)
    one, _ = sync_rate(root.parent / "one", 1, 200)
    raw = raw_rate(root.parent / "raw", syncs, 64 * 60)
    with capsys.disabled():
        print(f"\n64 writers {many:,.0f}/s in groups of {64 * 60 / syncs:.0f}: {many / raw:.2f} of raw (wanted 0.70);")
        print(f"one writer {one:,.0f}/s: {many / one:.1f} times (wanted 8 where a sync takes 1 ms or more)")
