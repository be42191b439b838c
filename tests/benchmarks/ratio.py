"""Measuring A against B: in turn, several times, the medians and the ratio pair by pair."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]
Measured = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Result:
    """One comparison.

    Attributes:
        seconds, reference: medians of both.
        ratio: median of ``reference / seconds`` pair by pair: above 1 is faster than the reference.
        wanted: the ratio asked for, None where none is.
    """

    name: str
    seconds: float
    reference: float
    ratio: float
    wanted: float | None

    def line(self) -> str:
        """The result as a row of the printed table."""
        verdict = (
            ""
            if self.wanted is None
            else f"wanted {self.wanted:4.2f}  {'ok' if self.ratio >= self.wanted else 'BELOW'}"
        )
        return f"{self.name:58} {self.seconds:8.3f} s  {self.reference:8.3f} s  {self.ratio:6.2f}  {verdict}"


def compare(name: str, work: Work, reference: Work, wanted: float | None = None, rounds: int = 3) -> Result:
    """Run both in turn after a warm-up of each and compare."""
    work()
    reference()
    return paired(name, lambda: timed(work), lambda: timed(reference), wanted, rounds)


def paired(name: str, work: Measured, reference: Measured, wanted: float | None = None, rounds: int = 3) -> Result:
    """Compare what measure themselves and return seconds, in turn."""
    pairs = [(work(), reference()) for _ in range(rounds)]
    ratio = statistics.median(b / a for a, b in pairs)
    return Result(name, statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs), ratio, wanted)


def timed(work: Work) -> float:
    """Seconds that one run takes."""
    gc.collect()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
