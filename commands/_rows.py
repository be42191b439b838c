"""Pieces of a stream of rows, and the keys they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Row = Mapping[str, Any]


def take(rows: Iterator[Row | None], most: int, *, patient: bool = True) -> tuple[list[Row], bool]:
    """Return the next rows, ``most`` at most, and whether the stream has ended.

    Args:
        patient: go on past a None, which says that the next row may take a while; otherwise stop
            there with what has come, if anything has.
    """
    taken: list[Row] = []
    while len(taken) < most:
        try:
            row = next(rows)
        except StopIteration:
            return taken, True
        if row is not None:
            taken.append(row)
        elif taken and not patient:
            break
    return taken, False


def keys_of(rows: Iterable[Row]) -> list[str]:
    """Every key of the rows, each where it first comes up, with neighbours kept together.

    Rows of several kinds share a table; a key that only later rows have is placed after the key
    that precedes it there, not at the end.
    """
    order: list[str] = []
    seen: set[str] = set()
    for row in rows:
        if row.keys() <= seen:
            continue
        place = 0
        for key in row:
            if key in seen:
                place = order.index(key) + 1
            else:
                order.insert(place, key)
                seen.add(key)
                place += 1
    return order
