"""Old files go by their age; what points only to them goes with them, and the smallest offsets follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.release import Release
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.housekeeping import HOUR_MS
from rmqctl.rocketmq.engine.message import Message
from tests.rocketmq.engine.engine_helpers import START, age, complaints, put_some, small

DAYS = 24 * HOUR_MS


@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_old_files_go_with_what_points_to_them(release: str, tmp_path: Path) -> None:
    config = small(release=Release.parse(release))
    with StoreEngine.open(tmp_path, config) as engine:
        put_some(engine, 3000)
        engine.flush()
        old = age(tmp_path, 3, 73)
        done = engine.expire(START)
        assert list(done.log) == old
        assert done.min_offset == 3 * config.commit_log_file_size
        assert done.queues and done.index
        assert not any(path.exists() for path in (*done.log, *done.queues, *done.index))
        low, high = engine.offsets("Orders", 0)
        assert 0 < low < high == 1000
        first = engine.get("Orders", 0, low, 1).messages[0]
        assert first.physical_offset >= done.min_offset
        too_small = engine.get("Orders", 0, low - 1)
        assert (too_small.status, too_small.next_offset) == ("OFFSET_TOO_SMALL", low)
        put_some(engine, 30)
    assert complaints(tmp_path) == []
    with StoreEngine.open(tmp_path, config) as engine:
        assert engine.offsets("Orders", 0) == (low, 1010)


def test_the_last_file_and_young_files_stay(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, small()) as engine:
        put_some(engine, 100)
        engine.flush()
        age(tmp_path, 9, 1000)
        assert engine.expire(START).log == ()  # although one is made ahead of it
        assert engine.put(Message("Orders", b"x", 0)).queue_offset == 34
    assert complaints(tmp_path) == []


def test_ten_at_once(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, small(commit_log_file_size=8192, max_message_size=4000)) as engine:
        put_some(engine, 2000)
        engine.flush()
        age(tmp_path, 99, 100)
        assert len(engine.expire(START).log) == 10
