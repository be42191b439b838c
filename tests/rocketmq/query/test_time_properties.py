"""Searches by time against plain search, on queues of any shape; and the end of a file against the rule unit by unit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from formats.rocketmq.consumequeue import ConsumeQueueUnit
from rmqctl.files.local import BytesSource
from rmqctl.release import Release
from rmqctl.rocketmq.query.time import Boundary, offset_by_time
from rmqctl.rocketmq.query.units import UNIT_SIZE, Unit, UnitFile, valid_prefix
from rmqctl.rocketmq.queues.files import UNIT, is_valid

RECORD = 100


@dataclass
class TimesQueue:
    """What a search needs of a queue: message ``i`` lies at ``i * RECORD`` of the log and has ``times[i]``."""

    times: list[int]
    per_file: int
    release: Release
    mtimes: list[int | None]
    expired: int = 0
    files: list[UnitFile] = field(init=False)
    is_batch: bool = False

    def __post_init__(self) -> None:
        units = [
            ConsumeQueueUnit.build({"physical_offset": i * RECORD, "size": RECORD, "tags_code": 0})
            for i in range(len(self.times))
        ]
        self.files = []
        for number, start in enumerate(range(0, len(units), self.per_file)):
            part = units[start : start + self.per_file]
            mtime = self.mtimes[number % len(self.mtimes)]
            source = BytesSource(b"".join(part).ljust(self.per_file * UNIT_SIZE, b"\0"))
            name = f"file {number}"
            self.files.append(UnitFile(name, start * UNIT_SIZE, self.per_file, len(part), mtime, False, source))

    topic = "T"

    @property
    def store(self) -> Any:
        return type("Store", (), {"is_rocksdb": False, "in_database": staticmethod(lambda topic: False)})

    @property
    def is_5(self) -> bool:
        return self.release.major == 5

    @property
    def log_begin(self) -> int:
        return self.expired * RECORD

    @property
    def min_offset(self) -> int:
        return self.expired

    @property
    def max_offset(self) -> int:
        return len(self.times)

    def store_time(self, unit: Unit) -> int:
        return self.times[unit.queue_offset] if unit.queue_offset >= self.expired else -1


def ask(queue: TimesQueue, time: int, boundary: Boundary = Boundary.LOWER) -> int:
    view: Any = queue
    return offset_by_time(view, time, boundary)


rising = st.lists(st.integers(1, 40), min_size=1, max_size=40).map(sorted)


@given(rising, st.integers(1, 7), st.integers(0, 42))
def test_boundaries(times: list[int], per_file: int, time: int) -> None:
    """LOWER is the first message not before the time; UPPER the last not after it, 0 where there is none."""
    queue = TimesQueue(times, per_file, Release(5, 5, 0), [0])
    assert ask(queue, time) == bisect_left(times, time)
    assert ask(queue, time, Boundary.UPPER) == max(bisect_right(times, time) - 1, 0)


@given(rising, st.integers(1, 7), st.integers(0, 42), st.data())
def test_boundaries_of_a_queue_whose_first_messages_expired(
    times: list[int], per_file: int, time: int, data: st.DataObject
) -> None:
    """Expiry deletes whole queue files, so what has expired lies in the first."""
    expired = data.draw(st.integers(0, min(per_file, len(times)) - 1))
    queue = TimesQueue(times, per_file, Release(5, 5, 0), [0], expired)
    assert ask(queue, time) == max(bisect_left(times, time), expired)
    assert ask(queue, time, Boundary.UPPER) == max(bisect_right(times, time) - 1, expired)


@given(rising, st.integers(0, 42))
def test_the_nearest_of_one_file(times: list[int], time: int) -> None:
    """Up to 5.1.0: no message of the file is nearer than the answer."""
    answer = ask(TimesQueue(times, 64, Release(4, 9, 8), [0]), time)
    assert abs(times[answer] - time) == min(abs(t - time) for t in times)


@given(rising, st.integers(1, 7), st.integers(0, 42), st.lists(st.integers(0, 42), min_size=1, max_size=8))
def test_the_file_is_chosen_by_its_modification_time(
    times: list[int], per_file: int, time: int, mtimes: list[int]
) -> None:
    queue = TimesQueue(times, per_file, Release(4, 9, 8), list(mtimes))
    chosen = next((f for f in queue.files if f.mtime_ms is not None and f.mtime_ms >= time), queue.files[-1])
    assert chosen.base // UNIT_SIZE <= ask(queue, time) < chosen.base // UNIT_SIZE + len(chosen)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 1 << 40, -1]), st.sampled_from([0, 1, 300, -5, 1 << 30]), st.integers(-9, 9)),
        max_size=30,
    ),
    st.binary(max_size=19),
)
def test_the_end_of_a_file(units: list[tuple[int, int, int]], torn: bytes) -> None:
    """Units count up to the first that is not valid, as the rule for arrays has it."""
    array = np.array(units, UNIT)
    bad = np.flatnonzero(~is_valid(array))
    expected = int(bad[0]) if len(bad) else len(units)
    assert valid_prefix(array.tobytes() + torn, UNIT_SIZE) == expected


def test_a_time_to_come_passes_over_files_that_a_start_writes() -> None:
    """They are as new as the start, which is before any time to come: the last file is searched (4.9.8, after a kill)."""
    queue = TimesQueue([1000, 2000, 3000, 4000, 5000], 2, Release(4, 9, 8), [None, None, None])
    assert offset_by_time(queue, 2**62) == 4  # type: ignore[arg-type]
    assert offset_by_time(queue, 2500) == 1  # type: ignore[arg-type]
