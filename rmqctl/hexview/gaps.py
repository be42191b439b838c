"""Bytes that belong to no field: runs of data and of zeros, found by windows, holes not read."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np

from rmqctl.hexview.annotation import Annotation, Group, View

ZERO_RUN = 64
"""Zeros in a row that are shown as zeros; fewer stay part of the bytes around them."""
WINDOW = 1 << 20
PIECE = 1 << 16
"""Bytes in one annotation where everything is wanted."""
_ZEROS_CARRIED = 16


def gap(
    view: View, begin: int, end: int, *, outer: tuple[str, ...] = (), name: str = "gap", group: Group | None = None
) -> Iterator[Annotation]:
    """Annotations that cover ``[begin, end)`` exactly: ``name`` for data, zeros apart.

    Args:
        outer: path of what the bytes stand in.
    """
    cursor = begin
    runs = _data_runs(view, begin, end)
    readable = end
    while True:
        try:
            start, stop = next(runs)
        except StopIteration as over:
            readable = over.value
            break
        yield from _zeros(view, cursor, start, outer, group)
        yield from _data(view, start, stop, (*outer, name), group)
        cursor = stop
    yield from _zeros(view, cursor, max(readable, cursor), outer, group)
    cursor = max(readable, cursor)
    if cursor < end:
        meaning = "the file was cut while it was read"
        yield view.note((*outer, "gone"), cursor, b"", None, meaning, size=end - cursor, wrong=True, group=group)


def _zeros(view: View, start: int, end: int, outer: tuple[str, ...], group: Group | None) -> Iterator[Annotation]:
    if start < end:
        tail = end == view.size and not outer
        raw = bytes(min(end - start, _ZEROS_CARRIED))
        meaning = f"{end - start:,} bytes" + (", never written" if tail else "")
        path = (*outer, "zero_tail" if tail else "zeros")
        yield view.note(path, start, raw, None, meaning, size=end - start, wrong=_is_wrong(group), group=group)


def _data(view: View, start: int, end: int, path: tuple[str, ...], group: Group | None) -> Iterator[Annotation]:
    """One annotation with the first bytes; many with all bytes where there is no limit."""
    step = PIECE if view.limit is None else end - start
    for at in range(start, end, step):
        size = min(step, end - at)
        raw = view.source.read_at(at, size if view.limit is None else min(size, view.limit))
        meaning = f"{size:,} bytes"
        yield view.note(path, at, raw, None, meaning, size=size, wrong=_is_wrong(group), group=group)


def _is_wrong(group: Group | None) -> bool:
    return group is not None and group.wrong


def _data_runs(view: View, begin: int, end: int) -> Generator[tuple[int, int], None, int]:
    """Stretches of data with fewer than :data:`ZERO_RUN` zeros in a row; returns how far the file could be read.

    Fewer zeros at either end belong to the data too, except at the end of the file.
    """
    first = last = -1
    for start, stop in view.source.data_ranges(begin, end):
        position = max(start, begin)
        while position < stop:
            chunk = np.frombuffer(view.source.read_at(position, min(WINDOW, stop - position)), np.uint8)
            if not len(chunk):
                if first >= 0:
                    yield first, last
                return position
            for a, b in _stretches(np.flatnonzero(chunk) + position):
                if first >= 0 and a - last >= ZERO_RUN:
                    yield first, last
                    first = -1
                first, last = (_widened(begin, a) if first < 0 else first), b
            position += len(chunk)
    if first >= 0:
        yield first, last if end == view.size or end - last >= ZERO_RUN else end
    return end


def _widened(begin: int, start: int) -> int:
    return begin if start - begin < ZERO_RUN else start


def _stretches(places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[tuple[int, int]]:
    """First byte, and the byte behind the last, of places that lie close together."""
    if len(places):
        breaks = np.flatnonzero(np.diff(places) > ZERO_RUN)
        starts = places[np.concatenate([[0], breaks + 1])]
        ends = places[np.concatenate([breaks, [len(places) - 1]])] + 1
        yield from zip(starts.tolist(), ends.tolist(), strict=True)


__all__ = ["ZERO_RUN", "gap"]
