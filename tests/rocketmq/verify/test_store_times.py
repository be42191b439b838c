"""Store times give the same findings in windows and splits of any size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.findings import Finding
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.verify.store_times import StoreTimes, TimesJoin
from rmqctl.text import LATEST

_TIMES = st.lists(st.sampled_from([0, 1000, 1700, 2800, 4500, 4600, 9000]), max_size=14)
_LOCK_MS = 1000
_CUTS = st.lists(st.integers(0, 14), max_size=6)


@dataclass
class _Records:
    """As much of a block as the check looks at; record ``n`` of the log lies at ``n``."""

    first: int
    times: list[int]
    file: str = "log"

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, name: str) -> Any:
        return np.array(self.times, np.int64)

    @property
    def position(self) -> Any:
        return np.arange(self.first, self.first + len(self.times))

    physical = position

    @property
    def variant(self) -> Any:
        return np.zeros(len(self.times), np.int64)

    def topic(self, row: int) -> bytes:
        return b"T"


def _parts(times: list[int], cuts: list[int]) -> Iterator[tuple[int, list[int]]]:
    edges = sorted({0, len(times), *(c for c in cuts if c < len(times))})
    for begin, end in itertools.pairwise(edges):
        yield begin, times[begin:end]


def _found(times: list[int], splits: list[int], blocks: list[int]) -> tuple[list[tuple[Any, ...]], int | None]:
    join, found = TimesJoin(), list[Finding]()
    for begin, part in _parts(times, splits):
        checker = StoreTimes()
        for at, some in _parts(part, blocks):
            found += checker.block(cast("Block", _Records(begin + at, some)))
        found += join.add(checker.partial)
    found += join.end()
    return sorted((f.physical_offset, str(f.level), f.message) for f in found), join.newest


def _reference(times: list[int]) -> list[tuple[int, bool]]:
    """Record and whether brokers leave it so, as the words of the rule have it."""
    found = []
    for n, time in enumerate(times):
        front = times[n - 1] if n else time
        if time and time >= front:
            continue
        if time and n > 1 and times[n - 2] <= time:
            found.append((n - 1, front - time <= _LOCK_MS))
        else:
            step = n + 1 < len(times) and 0 < time <= times[n + 1] < front
            found.append((n, step or (time > 0 and front - time <= _LOCK_MS)))
    return sorted(found)


@given(times=_TIMES)
def test_each_record_by_its_neighbours(times: list[int]) -> None:
    found, _ = _found(times, [], [])
    assert [(at, level == "note") for at, level, _ in found] == _reference(times)


@given(times=_TIMES, splits=_CUTS, blocks=_CUTS)
def test_the_same_in_any_parts(times: list[int], splits: list[int], blocks: list[int]) -> None:
    assert _found(times, splits, blocks) == _found(times, [], [])


_FAR = st.sampled_from([1000, LATEST, LATEST + 1, 1700000000000000])


@given(times=st.lists(_FAR, max_size=14), splits=_CUTS, blocks=_CUTS)
def test_times_after_any_calendar_are_one_finding_a_file(
    times: list[int], splits: list[int], blocks: list[int]
) -> None:
    join = TimesJoin()
    for begin, part in _parts(times, splits):
        checker = StoreTimes()
        for at, some in _parts(part, blocks):
            list(checker.block(cast("Block", _Records(begin + at, some))))
        join.add(checker.partial)
    late = [n for n, time in enumerate(times) if time > LATEST]
    found = [(one.physical_offset, one.message.partition(" ")[0]) for one in join.future()]
    assert found == ([(late[0], str(len(late)))] if len(late) > 1 else [])
