"""Work shared among processes: every result in order, whatever way it takes, and arrays as they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rmqctl import processes
from rmqctl.processes import Ordered

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
    monkeypatch.setattr(processes, "SLOT", slot)
    monkeypatch.setattr(processes, "get_context", lambda: get_context(method))
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
