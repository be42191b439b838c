"""Work shared among processes: every result in order, whatever way it takes, and arrays as they were."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import active_children, get_all_start_methods, get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rmqctl import parallel
from rmqctl.errors import IOFailure, TooDamaged
from rmqctl.files.remote import open_tree
from rmqctl.files.tree import LocalTree
from rmqctl.parallel import Ordered
from rmqctl.rocketmq.store.files import StoreFile, bytes_held

METHODS = [m for m in ("fork", "spawn") if m in get_all_start_methods()]


@dataclass(frozen=True)
class Arrays:
    """Makes a worker that answers a number with arrays of it."""

    scale: int

    def __call__(self) -> Callable[[int], tuple[int, list[npt.NDArray[np.int64]], npt.NDArray[np.void]]]:
        return lambda n: (n, [np.arange(n) * self.scale, np.arange(20)[::3] + n], records(n))


def records(n: int) -> npt.NDArray[np.void]:
    found = np.zeros(n, [("a", ">i8"), ("b", "u1")])
    found["a"], found["b"] = n, 7
    return found


def fails(n: int) -> int:
    if n == 3:
        raise OSError(5, "part 3")
    return n


def failing() -> Callable[[int], int]:
    return fails


@pytest.mark.parametrize("slot", [1 << 20, 600], ids=["all fit", "large ones go through the pipe"])
@pytest.mark.parametrize("method", METHODS)
def test_results_come_in_order(method: str, slot: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "SLOT", slot)
    monkeypatch.setattr("multiprocessing.get_context", lambda: get_context(method))
    shared: Ordered[int, Any] = Ordered(Arrays(3), 2, 3)
    seen = 0
    for n, (found, (counted, stepped), table) in enumerate(shared.results(range(40))):
        assert found == n
        assert counted.tolist() == list(range(0, 3 * n, 3))
        assert stepped.tolist() == [n + k for k in range(0, 20, 3)]
        assert table.tolist() == records(n).tolist()
        seen += 1
    assert seen == 40


def test_what_a_worker_raises_arrives_after_the_results_before_it() -> None:
    shared: Ordered[int, int] = Ordered(failing, 2, 4)
    found = shared.results(range(10))
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="part 3"):
        next(found)


def test_no_more_is_begun_when_nobody_takes_results() -> None:
    begun: list[int] = []

    def parts() -> Any:
        for n in range(100):
            begun.append(n)
            yield n

    shared: Ordered[int, Any] = Ordered(Arrays(1), 2, 3)
    found = shared.results(parts())
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert len(begun) == 3


def slow() -> Callable[[int], bytes]:
    """Makes a worker whose results are too large for a pipe that nobody reads."""

    def work(n: int) -> bytes:
        time.sleep(n % 3 / 1000)
        return bytes(300_000)

    return work


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_an_early_end_never_waits(method: str, keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_context", lambda: get_context(method))
    for turn in range(200 if method == "fork" else 5):
        shared: Ordered[int, bytes] = Ordered(slow, 3, 7, keeps=keeps)
        found = shared.results(range(50))
        for _ in range(turn % 12):
            assert len(next(found)) == 300_000
        begun = time.monotonic()
        found.close()  # type: ignore[attr-defined]
        assert time.monotonic() - begun < 5
    assert active_children() == []


def test_parts_that_fill_a_pipe_and_results_that_fill_it_do_not_wait_for_each_other() -> None:
    shared: Ordered[bytes, bytes] = Ordered(echoing, 2, 8, keeps=True)
    parts = [bytes([n]) * size for n, size in enumerate([1 << 20, 100, 2 << 20, 8000, 8000, 8000, 1 << 20] * 4)]
    assert list(shared.results(parts)) == parts


def echoing() -> Callable[[bytes], bytes]:
    return lambda part: part


def test_results_that_are_kept_stay_as_they_are() -> None:
    shared: Ordered[int, Any] = Ordered(Arrays(3), 2, 3, keeps=True)
    kept = list(shared.results(range(20)))
    assert [arrays[0].tolist() for _, arrays, _ in kept] == [list(range(0, 3 * n, 3)) for n in range(20)]


def dying() -> Callable[[int], int]:
    def work(n: int) -> int:
        if n == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        if n == 6:
            raise MemoryError
        if n == 7:
            os._exit(3)
        return n

    return work


@pytest.mark.parametrize(
    ("part", "says"), [(5, "SIGKILL.*--processes 1"), (6, "memory ran out.*--processes 1"), (7, "status 3")]
)
@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_dies_is_an_error(part: int, says: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_context", lambda: get_context(method))
    shared: Ordered[int, int] = Ordered(dying, 2, 4)
    with pytest.raises(IOFailure, match=says):
        list(shared.results([0, 1, part, *range(8, 40)]))
    assert active_children() == []


class OddError(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def odd() -> Callable[[int], int]:
    def work(n: int) -> int:
        raise OddError(n, n)

    return work


def test_an_exception_that_cannot_be_sent_is_said_in_words() -> None:
    shared: Ordered[int, int] = Ordered(odd, 2, 4)
    with pytest.raises(RuntimeError, match="4 and 4"):
        list(shared.results([4]))


PARENT = """
import os, sys, time
from rmqctl.parallel import Ordered
def make():
    def work(n):
        if n > 3:
            time.sleep(0.5)
        return os.getpid()
    return work
if __name__ == "__main__":
    for pid in Ordered(make, 2, 4).results(range(100)):
        print(pid, flush=True)
"""


def test_workers_end_with_a_parent_that_was_killed(tmp_path: Any) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    run = subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py")], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert run.stdout is not None
    workers = {int(run.stdout.readline()) for _ in range(4)}
    run.kill()
    run.wait()
    run.stdout.close()
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def refused() -> Callable[[int], int]:
    def work(n: int) -> int:
        raise TooDamaged("store", f"part {n}")

    return work


def test_errors_of_our_own_arrive_as_they_are() -> None:
    shared: Ordered[int, int] = Ordered(refused, 2, 4)
    with pytest.raises(TooDamaged, match="store is too damaged for this: part 4; type: rmqctl verify store") as told:
        list(shared.results([4]))
    assert told.value.path == "store"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have rules of their own")
def test_memory_of_windows_is_kept_for_the_next() -> None:
    code = """
        import resource
        from rmqctl.files import local
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for size in range(50):
            held = [bytearray(3 << 20), bytearray((2 << 20) + size * 4096)]
            del held
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, check=True)
    assert int(done.stdout) < 5000, "each of 50 times 5 MiB was taken from the system"


def test_what_was_never_written_is_no_work_to_share(tmp_path: Path) -> None:
    for base, written in ((0, 5000), (1 << 30, 0)):
        with (tmp_path / f"{base:020d}").open("wb") as out:
            out.write(b"\x01" * written)
            out.truncate(1 << 30)
    tree = LocalTree(str(tmp_path))
    files = [StoreFile(e.name, int(e.name), e.size, tree, e.name) for e in tree.entries("")]
    gone = StoreFile("gone", 2 << 30, 1 << 30, tree, "gone")
    assert 5000 <= bytes_held([*files, gone]) < 1 << 20
    away = StoreFile("away", 0, 1 << 30, open_tree("memory://store"), "away")
    assert bytes_held([away]) == 1 << 30, "nothing is asked of another machine"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system holds no process to some processors")
def test_processors_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may use three processors shares work among three, and never among more than eight."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    for allowed, expected in ((3, 3), (64, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=allowed: set(range(n)))
        assert parallel.most_processes() == expected
