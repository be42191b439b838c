"""The broker's own schedule in a running engine: delivery, deletion by hour and by fill, nearly full paths."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path

import pytest

from rmqctl.files.writing import Disk
from rmqctl.rocketmq.engine.config import MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.housekeeping import is_time, usage_of
from rmqctl.rocketmq.engine.message import Message, MessageRefused, PutStatus
from tests.rocketmq.engine.engine_helpers import START, age, complaints, put_some, small


class FullDisk(Disk):
    """Says how full each directory's disk is, by name."""

    def __init__(self, used: float = 0.5, **by_name: float) -> None:
        super().__init__()
        self.rest, self.by_name = used, by_name

    def used(self, path: Path) -> float:
        return self.by_name.get(path.name, self.rest)


def test_delivery_while_it_runs(tmp_path: Path) -> None:
    config = StoreConfig.small(housekeeping=True, timer=True, delete_when="")
    with StoreEngine.open(tmp_path, config) as engine:
        engine.put(Message("Orders", b"level", 0, {"DELAY": "1"}))
        engine.put(Message("Orders", b"timer", 1, {"TIMER_DELAY_MS": "1500"}))
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up and engine.offsets("Orders", 0)[1] + engine.offsets("Orders", 1)[1] < 2:
            time.sleep(0.05)
        for queue_id, body in enumerate((b"level", b"timer")):
            (found,) = engine.get("Orders", queue_id, 0).messages
            assert found.fields["body"] == body
            late = found.store_timestamp - int(found.fields["born_timestamp"])
            assert 900 <= late < 20_000
    assert complaints(tmp_path) == []


def test_without_it_nothing_is_delivered_by_itself(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, StoreConfig.small()) as engine:
        engine.put(Message("Orders", b"x", 0, {"DELAY": "1"}))
        time.sleep(1.7)
        assert engine.offsets("Orders", 0) == (0, 0)


@pytest.mark.parametrize(("hours", "gone"), [("04", 0), ("{hour}", 3), ("04;{hour}", 3), ("", 0)])
def test_old_files_go_in_the_hour_for_it(hours: str, gone: int, tmp_path: Path) -> None:
    noon = int(datetime(2023, 11, 14, 12, 30).astimezone().timestamp() * 1000)
    hours = hours.format(hour="12")
    config = StoreConfig.small(delete_when=hours, clock=MadeUpClock(noon), services=False)
    with StoreEngine.open(tmp_path, config, disk=FullDisk()) as engine:
        put_some(engine, 3000)
        engine.flush()
        for path in sorted((tmp_path / "commitlog").iterdir())[:3]:
            os.utime(path, ns=(0, (noon - 73 * 3_600_000) * 1_000_000))
        for path in sorted((tmp_path / "commitlog").iterdir())[3:]:
            os.utime(path, ns=(0, noon * 1_000_000))
        before = len(engine.log.files.files)
        engine.housekeeping.clean()
        assert before - len(engine.log.files.files) == gone
    assert complaints(tmp_path) == []


@pytest.mark.parametrize(
    ("used", "gone", "refused"), [(0.75, 0, False), (0.76, 3, False), (0.86, 10, False), (0.91, 10, True)]
)
def test_old_files_go_when_the_disk_fills_up(used: float, gone: int, refused: bool, tmp_path: Path) -> None:
    config = small(delete_when="", commit_log_file_size=16384, max_message_size=4000)
    disk = FullDisk()
    with StoreEngine.open(tmp_path, config, disk=disk) as engine:
        put_some(engine, 3000)
        engine.flush()
        age(tmp_path, 3, 73)
        before, disk.rest = len(engine.log.files.files), used
        engine.housekeeping.clean()
        assert before - len(engine.log.files.files) == gone
        if refused:
            with pytest.raises(MessageRefused, match="more than 90 % full") as caught:
                engine.put(Message("Orders", b"x"))
            assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE
            disk.rest = 0.5
            engine.housekeeping.clean()
        engine.put(Message("Orders", b"x"))
        low, _ = engine.offsets("Orders", 0)
        assert (low > 0) == (gone > 0)
        assert engine.get("Orders", 0, low, 1).messages
    assert complaints(tmp_path) == []


def test_a_broker_may_be_told_to_keep_young_files(tmp_path: Path) -> None:
    assert usage_of(0.86, small()).at_once
    assert not usage_of(0.86, small(clean_forcibly=False)).at_once


def test_hours() -> None:
    now = int(datetime(2023, 11, 14, 4, 59).astimezone().timestamp() * 1000)
    assert is_time("04", now) and is_time("03; 04", now)
    assert not is_time("05", now) and not is_time("", now)


def test_a_nearly_full_path_gets_no_more_files(tmp_path: Path) -> None:
    paths = ("commitlog-a", "commitlog-b", "commitlog-c")
    disk = FullDisk()
    with StoreEngine.open(tmp_path, small(commit_log_paths=paths), disk=disk) as engine:
        put_some(engine, 1000)
        disk.by_name = {"commitlog-b": 0.86, "commitlog-a": 0.85}
        first = engine.log.files.files[-1].base + 65536
        put_some(engine, 2000)
        disk.by_name = dict.fromkeys(paths, 0.99)
        second = engine.log.files.files[-1].base + 65536
        put_some(engine, 2000)
    for path in (p for d in paths for p in (tmp_path / d).iterdir()):
        number = int(path.name) // 65536
        wanted = ("commitlog-a", "commitlog-c") if first <= int(path.name) < second else paths
        assert path.parent.name == wanted[number % len(wanted)], path
    with StoreEngine.open(tmp_path) as engine:
        assert engine.offsets("Orders", 0)[1] > 1000
    assert complaints(tmp_path) == []


def test_how_full_a_disk_is(tmp_path: Path) -> None:
    used = Disk().used(tmp_path / "not" / "there")
    assert 0 < used <= 1
    assert used == Disk().used(tmp_path)
    assert START > 0
