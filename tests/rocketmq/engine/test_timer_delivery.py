"""Timer messages come out of the wheel when due, as a broker delivers them; the timer log follows the commit log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from freezegun.api import FrozenDateTimeFactory

from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.housekeeping import HOUR_MS
from rmqctl.rocketmq.engine.message import Message
from tests.rocketmq.engine.engine_helpers import START, TIMER, bodies, complaints

HOUR, DAY = 3600, 86_400


def config(**changes: object) -> StoreConfig:
    return StoreConfig.small(services=False, timer=True, **changes)


def timed(body: bytes, due: int, queue_id: int = 1, **more: str) -> Message:
    return Message("Orders", body, queue_id, {"TIMER_DELIVER_MS": str(due), "TAGS": "a", **more})


def test_they_come_when_due_in_order_of_time(clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, config()) as engine:
        for seconds in (9, 5, 7, 5):
            engine.put(timed(b"%d" % seconds, START + seconds * 1000))
        clock.tick(4.5)
        assert engine.deliver_due() == []
        clock.tick(0.5)
        assert [r.topic for r in engine.deliver_due()] == ["Orders", "Orders"]
        clock.tick(55)
        assert len(engine.deliver_due()) == 2
        assert engine.deliver_due() == []
        assert bodies(engine, "Orders", 1) == [b"5", b"5", b"7", b"9"]
        first = engine.get("Orders", 1, 0).messages[0]
        text = {name.decode(): value.decode() for name, value in first.properties.items()}
        assert text == {
            "TIMER_DELIVER_MS": str(START + 5000), "TIMER_OUT_MS": str(START + 4000), "TAGS": "a",
            "REAL_TOPIC": "Orders", "REAL_QID": "1",
            "TIMER_ENQUEUE_MS": str(START), "TIMER_DEQUEUE_MS": str(START + 5000),
        }  # fmt: skip
        assert first.store_timestamp == START + 5000
    assert complaints(tmp_path) == []


def test_what_was_due_while_the_store_was_closed(clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    for turn in range(3):
        with StoreEngine.open(tmp_path, config()) as engine:
            engine.put(timed(b"%d" % turn, START + turn * HOUR * 1000 + 5000))
        clock.tick(HOUR)
    with StoreEngine.open(tmp_path, config()) as engine:
        assert len(engine.deliver_due()) == 3
        assert bodies(engine, "Orders", 1) == [b"0", b"1", b"2"]
    with StoreEngine.open(tmp_path, config()) as engine:
        assert engine.deliver_due() == []
    assert complaints(tmp_path) == []


def test_a_month_later(clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, config()) as engine:
        for seconds in (9, 5):
            engine.put(timed(b"%d" % seconds, START + seconds * 1000))
    clock.tick(31 * DAY)
    with StoreEngine.open(tmp_path, config()) as engine:
        engine.deliver_due()
        assert bodies(engine, "Orders", 1) == [b"5", b"9"]


def test_a_long_delay_rolls(clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, config()) as engine:
        engine.put(timed(b"x", START + 70 * HOUR * 1000))
        for _ in range(69):
            clock.tick(HOUR)
            assert [r.topic for r in engine.deliver_due() if r.topic != TIMER] == []
        clock.tick(HOUR)
        engine.deliver_due()
        (message,) = engine.get("Orders", 1, 0).messages
        assert message.properties[b"TIMER_ROLL_TIMES"] == b"1"
        assert engine.offsets(TIMER, 0) == (0, 2)
    assert complaints(tmp_path) == []


def test_a_delete_mark_takes_its_message_back(clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, config()) as engine:
        for key in ("u1", "u2"):
            engine.put(timed(key.encode(), START + 5000, UNIQ_KEY=key))
        engine.put(timed(b"", START + 5000, UNIQ_KEY="u3", TIMER_DEL_UNIQKEY="u1"))
        clock.tick(6)
        assert len(engine.deliver_due()) == 1
        assert bodies(engine, "Orders", 1) == [b"u2"]


def test_messages_that_came_when_the_wheel_had_gone_on(clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, config()) as engine:
        stored = {"TIMER_OUT_MS": str(START - 5000), "REAL_TOPIC": "Orders", "REAL_QID": "1"}
        engine.put(Message(TIMER, b"late", 0, stored, is_stored=True))
        engine.put(timed(b"soon", START + 5000))
    with StoreEngine.open(tmp_path, config()) as engine:
        assert engine.system.wheel is not None
        assert engine.system.wheel.queue_offset == 0
        clock.tick(6)
        engine.deliver_due()
        assert bodies(engine, "Orders", 1) == [b"late", b"soon"]
        late = engine.get("Orders", 1, 0).messages[0]
        assert late.properties[b"TIMER_ENQUEUE_MS"] == b"9223372036854775807"


def test_after_a_crash_nothing_waits_twice(clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    engine = StoreEngine.open(tmp_path, config())
    for n in range(300):
        engine.put(timed(b"%d" % n, START + 1000 + n * 100))
    clock.tick(3)
    delivered = len(engine.deliver_due())
    assert 0 < delivered < 300
    engine.put(timed(b"last", START + 90_000))
    clock.tick(1)
    assert engine.deliver_due()
    engine.abandon()
    os.truncate(tmp_path / "timerwheel", 0)  # the wheel never reached the disk
    clock.tick(HOUR)
    with StoreEngine.open(tmp_path, config()) as engine:
        engine.deliver_due()
        assert sorted(bodies(engine, "Orders", 1)) == sorted([*(b"%d" % n for n in range(300)), b"last"])
    assert complaints(tmp_path) == []


def test_the_timer_log_goes_with_the_commit_log(clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    small_log = config(timer_log_file_size=52 * 20 + 16)
    with StoreEngine.open(tmp_path, small_log) as engine:
        for n in range(400):
            engine.put(timed(b"%d" % n * 100, START + 5000 + n))
        engine.flush()
        clock.tick(6)
        engine.deliver_due()
        before = sorted((tmp_path / "timerlog").iterdir())
        for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
            os.utime(path, ns=(0, (START - 73 * HOUR_MS) * 1_000_000))
        done = engine.expire(START)
        assert len(done.log) == 2
        assert 0 < len(done.timer) < len(before)
        assert sorted((tmp_path / "timerlog").iterdir()) == before[len(done.timer) :]
    assert complaints(tmp_path) == []
    with StoreEngine.open(tmp_path, small_log) as engine:
        assert engine.deliver_due() == []


@pytest.mark.parametrize("option", ["--deliver-at", "--property"])
def test_on_the_command_line(option: str, rmqctl: object, tmp_path: Path) -> None:
    assert callable(rmqctl)
    store = tmp_path / "s"
    given = {"--deliver-at": "1700000005000", "--property": "TIMER_DELAY_SEC=5"}[option]
    args = ("--topic", "T", "--count", "3", "--small", option, given)
    assert rmqctl("produce", store, *args, "--start-time", "1700000000000").exit_code == 0
    due = rmqctl("produce", store, "--deliver-due", "--start-time", "1700000100000")
    assert due.exit_code == 0
    assert due.stdout.startswith("3 messages")
    assert rmqctl("verify", store).exit_code == 0
