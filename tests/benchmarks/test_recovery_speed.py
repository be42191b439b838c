"""Recover and rebuild against the released store doing the same to the same files, and the memory recover takes.

A store of 1 KiB messages with keys, in the broker's default sizes. The Java half needs Java 17 and Maven; only ``load()`` of
a started JVM is measured; logs are made as a broker makes them, and thrown away. Sizes can be set with RMQCTL_BENCH_MIB
(default 1024, the log in MiB).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from fixtures import bulk
from rmqctl.release import Release
from rmqctl.rocketmq.rebuild.rebuild import Rebuild, RebuildOptions
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store_at
from tests.benchmarks.ratio import CPU, Measured, Result, compare, judge, paired, size, timed
from tests.benchmarks.references import body_places, read_and_crc, read_and_crc_shared
from tests.interop.judge import PROJECT, class_path, has_java, java

pytestmark = pytest.mark.slow

SIZE = size("MIB", 1024, 4) << 20
MEMORY = 400 << 20
WANTED = {
    "a crash": {"4.9.7": (3.0, 5.0), "5.5.0": (1.5, 2.5)},
    "a clean exit": {"4.9.7": (1.5, 2.5), "5.5.0": (1.5, 2.5)},
}
"""How many times as fast as each release, on one core and on two."""
WANTED_OF_REBUILD = {"4.9.7": (3.0, 4.5), "5.5.0": (5.0, 8.0)}
RELEASES = ("4.9.7", "5.5.0")
"""Whole brokers that Maven has, with the logging they bring; 4.9.8 was published without its broker."""
PARALLEL = 1.8
"""How much faster two processes of pure CRC must be for the machine to judge by."""
LOGS = [f"-D{name}.configurationFile={PROJECT / 'console.xml'}" for name in ("logback", "rmq.logback")]
"""Where a broker's log goes: 4.x and 5.x read the same configuration under different names."""
RESULTS: list[Result] = []


@dataclass(frozen=True)
class Stores:
    """Two equal stores: one is only read, one is given to the broker.

    Attributes:
        messages: how many there are.
        parallel: how much faster two processes of pure CRC are than one.
    """

    ours: Path
    brokers: Path
    messages: int
    parallel: float

    def ends(self, *, crashed: bool) -> None:
        """Let both end cleanly or not."""
        for root in (self.ours, self.brokers):
            (root / "abort").touch() if crashed else (root / "abort").unlink(missing_ok=True)


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print what was measured at the end, and how busy the machine was."""
    yield
    busy = " ".join(f"{load:.1f}" for load in os.getloadavg())
    sys.stdout.write("\n" + "\n".join([*(result.line() for result in RESULTS), f"load averages: {busy}"]) + "\n")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    directory = tmp_path_factory.mktemp("bench")
    ours, brokers = directory / "ours", directory / "brokers"
    count = bulk.make(ours, bulk.Bulk(log_bytes=SIZE, file_size=SIZE))
    shutil.copytree(ours, brokers)
    yield Stores(ours, brokers, count, _parallel(next((ours / "commitlog").iterdir())))
    shutil.rmtree(directory)


def _parallel(log: Path) -> float:
    places = body_places(log)
    both, one = (lambda: read_and_crc_shared(log, places, 2)), (lambda: read_and_crc(log, places))
    RESULTS.append(compare("two processes of pure CRC / one", both, one))
    return RESULTS[-1].ratio


def recovered(stores: Stores, release: str, processes: int) -> float:
    """Seconds of a dry run."""
    found = []
    options = Release.parse(release)
    seconds = timed(lambda: found.append(recover(open_store_at(str(stores.ours)), options, processes=processes)))
    assert found[0].starts
    assert not found[0].lost
    return seconds


def loaded(stores: Stores, release: str, compiled: Path, *, anew: bool = False) -> Measured:
    """What measures seconds of the broker's load.

    Args:
        anew: without queues and index, which it has to dispatch from the whole log.
    """
    classes = class_path(release, compiled, "LoadSpeed")
    root, answer = stores.brokers, compiled / "answer.json"
    settings = [f"mappedFileSizeCommitLog={SIZE}"]

    def run() -> float:
        if anew:
            shutil.rmtree(root / "consumequeue")
            shutil.rmtree(root / "index")
        command = java(classes, compiled / "home", "LoadSpeed", root, answer, *settings, memory="1g", options=LOGS)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
        found = json.loads(answer.read_text("utf-8"))
        assert found["loaded"]
        assert found["messages"] == stores.messages
        return float(found["cpu" if CPU else "seconds"])

    return run


def noted(result: Result) -> Result:
    """Keep a result for the table."""
    RESULTS.append(result)
    return result


def shared(stores: Stores, ratio: float) -> float | None:
    """Return what is wanted of two processes, None where the machine has no two free cores."""
    return ratio if stores.parallel >= PARALLEL else None


needs_java = pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH")


@pytest.mark.interop
@needs_java
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("ended", WANTED)
def test_recover(ended: str, release: str, stores: Stores, tmp_path: Path) -> None:
    """A dry run, on one core and on two, against the load of the broker."""
    stores.ends(crashed=ended == "a crash")
    one, two = WANTED[ended][release]
    broker, name = loaded(stores, release, tmp_path), f"recover after {ended} / load of a {release} broker"
    judge(
        noted(paired(name, lambda: recovered(stores, release, 1), broker, one)),
        noted(paired("the same, two processes", lambda: recovered(stores, release, 2), broker, shared(stores, two))),
    )


@pytest.mark.interop
@needs_java
@pytest.mark.parametrize("release", RELEASES)
def test_rebuild(release: str, stores: Stores, tmp_path: Path) -> None:
    """Queues and index of the whole log, against a load that has to dispatch it."""
    stores.ends(crashed=True)
    one, two = WANTED_OF_REBUILD[release]

    def rebuilt(processes: int) -> float:
        shutil.rmtree(tmp_path / "into", ignore_errors=True)
        options = RebuildOptions(as_release=Release.parse(release), processes=processes)
        return timed(lambda: Rebuild(open_store_at(str(stores.ours)), options).run(tmp_path / "into"))

    broker = loaded(stores, release, tmp_path, anew=True)
    name = f"rebuild / load of {release} without queues and index"
    judge(
        noted(paired(name, lambda: rebuilt(1), broker, one)),
        noted(paired("the same, two processes", lambda: rebuilt(2), broker, shared(stores, two))),
    )


@pytest.mark.parametrize("crashed", [True, False], ids=["crash", "clean"])
def test_memory(stores: Stores, *, crashed: bool) -> None:
    """A process of its own stays below 400 MB."""
    stores.ends(crashed=crashed)
    with ProcessPoolExecutor(1) as pool:
        seconds, taken = pool.submit(_measured, stores).result()
    RESULTS.append(Result(f"recover of {SIZE >> 20} MiB, {taken >> 20} MiB of memory", seconds, seconds, 1.0, None))
    assert taken < MEMORY


def _measured(stores: Stores) -> tuple[float, int]:
    seconds = recovered(stores, "5.5.0", 1)
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
