"""Bytes written over a file in many small pieces, kept as few long ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class Runs:
    """Non-overlapping runs of bytes, ascending; runs that touch are one."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._runs: list[bytearray] = []

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return ((start, bytes(run)) for start, run in zip(self._starts, self._runs, strict=True))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def put(self, offset: int, data: bytes) -> None:
        """Write over what is there."""
        if not data:
            return
        first, last = self._touching(offset, offset + len(data))
        if first == last:
            self._starts.insert(first, offset)
            self._runs.insert(first, bytearray(data))
            return
        start, run = self._starts[first], self._runs[first]
        if offset < start:
            run[0:0] = bytes(start - offset)
            start = self._starts[first] = offset
        for at, other in zip(self._starts[first + 1 : last], self._runs[first + 1 : last], strict=True):
            run.extend(bytes(at - start - len(run)))
            run += other
        del self._starts[first + 1 : last], self._runs[first + 1 : last]
        run.extend(bytes(max(offset - start - len(run), 0)))
        run[offset - start : offset - start + len(data)] = data

    def lay_over(self, offset: int, buffer: bytearray) -> None:
        """Write the runs over a buffer that holds the bytes from `offset` on."""
        end = offset + len(buffer)
        first, last = self._touching(offset, end)
        for start, run in zip(self._starts[first:last], self._runs[first:last], strict=True):
            low, high = max(start, offset), min(start + len(run), end)
            if low < high:
                buffer[low - offset : high - offset] = run[low - start : high - start]

    def clip(self, size: int) -> None:
        """Drop what lies at `size` or behind it."""
        while self._starts and self._starts[-1] >= size:
            self._starts.pop()
            self._runs.pop()
        if self._starts:
            del self._runs[-1][size - self._starts[-1] :]

    def _touching(self, begin: int, end: int) -> tuple[int, int]:
        """First and last + 1 of the runs that overlap or touch ``[begin, end)``."""
        first = bisect_right(self._starts, begin)
        if first and self._starts[first - 1] + len(self._runs[first - 1]) >= begin:
            first -= 1
        last = bisect_right(self._starts, end)
        return first, max(first, last)
