"""Measuring A against B: in turn, several times, the medians and the ratio pair by pair.

Set by the environment:
    RMQCTL_BENCH: ``once`` runs every benchmark once at a tiny size and judges no ratio, so that none rots.
    RMQCTL_BENCH_CLOCK: ``cpu`` counts processor seconds, of all threads and processes; for a busy machine.
    RMQCTL_BENCH_MIB and others: sizes, see the modules.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

Work = Callable[[], object]
Measured = Callable[[], float]
ONCE = os.environ.get("RMQCTL_BENCH") == "once"
CPU = os.environ.get("RMQCTL_BENCH_CLOCK") == "cpu"


def size(name: str, default: int, tiny: int) -> int:
    """A size from the environment variable ``RMQCTL_BENCH_<name>``; its default is tiny where all runs once."""
    return int(os.environ.get(f"RMQCTL_BENCH_{name}", tiny if ONCE else default))


def judge(*results: Result) -> None:
    """Fail where a ratio is below what is wanted, unless everything runs once only."""
    assert ONCE or not [r.line() for r in results if not r.is_enough]


@dataclass(frozen=True, slots=True)
class Result:
    """One comparison.

    Attributes:
        name: of the work and, after a slash, of what it is compared with.
        seconds, reference: medians of both.
        ratio: median of ``reference / seconds`` pair by pair: above 1 is faster than the reference.
        wanted: the ratio asked for, None where none is.
    """

    name: str
    seconds: float
    reference: float
    ratio: float
    wanted: float | None

    @property
    def is_enough(self) -> bool:
        """Whether the ratio is as good as wanted."""
        return self.wanted is None or self.ratio >= self.wanted

    def line(self) -> str:
        """The result as a row of the printed table."""
        verdict = "" if self.wanted is None else f" (wanted {self.wanted:.2f}: {'ok' if self.is_enough else 'BELOW'})"
        times = f"{self.seconds:8.3f} s, compared with {self.reference:8.3f} s: {self.ratio:6.2f} times as fast"
        return f"{self.name:72} {times}{verdict}"


def compare(name: str, work: Work, reference: Work, wanted: float | None = None, rounds: int = 3) -> Result:
    """Run both in turn after a warm-up of each and compare."""
    if not ONCE:
        work()
        reference()
    return paired(name, lambda: timed(work), lambda: timed(reference), wanted, rounds)


def paired(name: str, work: Measured, reference: Measured, wanted: float | None = None, rounds: int = 3) -> Result:
    """Compare what measure themselves and return seconds, in turn."""
    pairs = [(work(), reference()) for _ in range(1 if ONCE else rounds)]
    ratio = statistics.median(b / a for a, b in pairs)
    return Result(name, statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs), ratio, wanted)


@dataclass(frozen=True, slots=True)
class Runs:
    """Seconds of several works that ran in turn, round by round, so that any two of them can be compared."""

    seconds: dict[str, list[float]]

    @classmethod
    def of(cls, works: Mapping[str, Work], rounds: int = 3) -> Runs:
        """Run each once a round, after a warm-up of each."""
        for work in () if ONCE else works.values():
            work()
        found: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(1 if ONCE else rounds):
            for name, work in works.items():
                found[name].append(timed(work))
        return cls(found)

    def result(self, name: str, work: str, reference: str, wanted: float | None = None) -> Result:
        """Compare two of the works."""
        a, b = self.seconds[work], self.seconds[reference]
        ratio = statistics.median(y / x for x, y in zip(a, b, strict=True))
        return Result(name, statistics.median(a), statistics.median(b), ratio, wanted)


def timed(work: Work) -> float:
    """Seconds that one run takes, by the clock that was chosen."""
    gc.collect()
    begin = _now()
    work()
    return _now() - begin


def _now() -> float:
    return processor_seconds() if CPU else time.perf_counter()


def processor_seconds() -> float:
    """Seconds of all threads of this process and of those that come from it, so far."""
    return sum(map(_used, _tree(os.getpid())))


def _tree(root: int) -> list[int]:
    """A process and all that come from it and still run, such as a virtual machine and its workers."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            parents[int(name)] = int(_stat(int(name))[1])
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def _used(process: int) -> float:
    """Processor seconds of a process, and of those that it has waited for."""
    try:
        return sum(map(int, _stat(process)[11:15])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def _stat(process: int) -> list[str]:
    """What the system says of a process, from its state on."""
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()
