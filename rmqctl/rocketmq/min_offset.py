"""The smallest queue offset of a simple queue as a broker computes it when it starts (correctMinOffset, spec 3.9)."""

from __future__ import annotations

from collections.abc import Callable

Physical = Callable[[int], int]
"""Physical offset in the unit of a number of the queue's first file."""


def minimum_4(physical: Physical, count: int, first: int, log_begin: int) -> int:
    """Up to 4.9.8: the first unit of the first file that is not before the log, else 0.

    Args:
        count: units of the first file that count.
        first: queue offset of its first unit.
    """
    return next((first + number for number in range(count) if physical(number) >= log_begin), 0)


def minimum_5(physical: Physical, count: int, first: int, last: int, end: int, log_begin: int) -> int:
    """From 5.0.0 on: the same by bisection; the next offset where every message has expired.

    Args:
        count, first: as for :func:`minimum_4`.
        last: physical offset in the last unit of the queue.
        end: next queue offset.
    """
    if last < log_begin:
        return end  # the queue keeps its counter
    if not count or (first == 0 and physical(0) >= log_begin):
        return 0
    found = first_live(physical, count, log_begin)
    return 0 if found is None else first + found


def first_live(physical: Physical, count: int, log_begin: int) -> int | None:
    """The broker's halving, step for step: the first unit not before the log; it may miss where offsets do not ascend.

    Args:
        count: units to look at, at least one.
    """
    low, high = 0, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        offset = physical(middle)
        low, high = (middle if offset <= log_begin else low), (middle if offset >= log_begin else high)
    return next((number for number in range(low, high + 1) if physical(number) >= log_begin), None)
