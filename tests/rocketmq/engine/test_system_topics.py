"""Delayed, timer and transactional messages; retries and dead letters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from freezegun.api import FrozenDateTimeFactory

from formats.rocketmq.tags_code import parse_delay_levels
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message, MessageRefused, PutStatus
from rmqctl.rocketmq.state.config import delay_offsets
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.engine.engine_helpers import HALF, OP, SCHEDULE, START, TIMER, bodies, complaints, small

_MAX_RECONSUME, _FIRST_RETRY_LEVEL = 16, 3
RELEASES = [Release.parse(r) for r in ("4.5.2", "4.9.8", "5.1.4", "5.5.0")]


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_delayed_messages_come_when_due(release: Release, clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, StoreConfig.small(release=release, services=False)) as engine:
        for level in (1, 3, 3, 30):
            engine.put(Message("Orders", b"level %d" % level, level % 2, {"DELAY": str(level), "TAGS": "a"}))
        assert engine.deliver_due() == []
        (unit,) = engine.reading.placed(SCHEDULE, 0, 0)
        assert unit.tags_code == START + 1000
        clock.tick(1)
        assert [r.topic for r in engine.deliver_due()] == ["Orders"]
        clock.tick(9)
        assert len(engine.deliver_due()) == 2
        assert bodies(engine, "Orders", 1) == [b"level 1", b"level 3", b"level 3"]
        assert engine.offsets(SCHEDULE, len(parse_delay_levels()) - 1) == (0, 1)
        text = engine.get("Orders", 1, 0).messages[0].properties
        assert text[b"REAL_TOPIC"] == b"Orders"
    assert delay_offsets(open_store_at(str(tmp_path))) == {1: 1, 3: 2}
    assert complaints(tmp_path) == []
    with StoreEngine.open(tmp_path, StoreConfig.small(release=release, services=False)) as engine:
        assert engine.deliver_due() == []
        clock.tick(7200)
        assert len(engine.deliver_due()) == 1
    assert complaints(tmp_path) == []


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_transactions(release: Release, tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, small(release=release)) as engine:
        halves = [
            engine.prepare(Message("Pay", b"%d" % n, n % 2, {"UNIQ_KEY": f"{n:032d}"}), "group") for n in range(4)
        ]
        committed = engine.end(halves[0], commit=True)
        assert committed is not None
        assert (committed.topic, committed.queue_id, committed.queue_offset) == ("Pay", 0, 0)
        assert engine.end(halves[1], commit=False) is None
        assert engine.end(halves[3], commit=True) is not None
        assert bodies(engine, HALF) == [b"0", b"1", b"2", b"3"]
        fields = engine.get("Pay", 0, 0).messages[0].fields
        assert fields["sys_flag"] & 0xC == 0x8
        assert fields["prepared_transaction_offset"] == halves[0].result.physical_offset
    with StoreEngine.open(tmp_path) as engine:
        op = bodies(engine, OP)
        assert op == ([b"0", b"1", b"3"] if release < (5, 1, 0) else [b"0,1,3,"])
    assert complaints(tmp_path) == []


def test_timer_messages_wait_in_the_wheel(tmp_path: Path) -> None:
    config = small(timer=True)
    with StoreEngine.open(tmp_path, config) as engine:
        for seconds in (5, 7, 7, 170_000, 250_000):
            engine.put(Message("Orders", b"%d" % seconds, 1, {"TIMER_DELAY_SEC": str(seconds)}))
        engine.put(Message("Orders", b"past", 0, {"TIMER_DELIVER_MS": str(START - 1)}))
        assert bodies(engine, "Orders", 0) == [b"past"]
        assert engine.offsets(TIMER, 0) == (0, 5)
        with pytest.raises(MessageRefused) as caught:
            engine.put(Message("Orders", b"", 0, {"TIMER_DELAY_SEC": "259201"}))
        assert caught.value.status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    assert complaints(tmp_path) == []
    with StoreEngine.open(tmp_path, config) as engine:
        assert engine.system.wheel is not None
        assert engine.system.wheel.queue_offset == 5
        engine.put(Message("Orders", b"7", 1, {"TIMER_DELAY_SEC": "7"}))
    assert complaints(tmp_path) == []
    assert (tmp_path / "timerlog" / f"{0:020d}").read_bytes()[: 6 * 52].count((52).to_bytes(4, "big")) >= 6


def test_timer_messages_need_the_wheel(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, small()) as engine:
        with pytest.raises(MessageRefused) as caught:
            engine.put(Message("T", b"", 0, {"TIMER_DELAY_MS": "5000"}))
        assert caught.value.status is PutStatus.WHEEL_TIMER_NOT_ENABLE
    with StoreEngine.open(tmp_path / "4", small(release=Release(4, 9, 8))) as engine:
        assert engine.put(Message("T", b"", 0, {"TIMER_DELAY_MS": "5000"})).topic == "T"


def retry_topic(group: str) -> str:
    """Where messages go that a group failed to consume."""
    return f"%RETRY%{group}"


def dead_letter_topic(group: str) -> str:
    """Where messages go that a group gave up."""
    return f"%DLQ%{group}"


def sent_back(message: Message, group: str, message_id: str, level: int = 0) -> Message:
    """Return what a broker stores when a consumer of ``group`` sends a message back
    (AbstractSendMessageProcessor.consumerSendMsgBack).

    Args:
        message: as it was consumed.
        message_id: offsetMsgId of the first record of the message.
        level: delay level; 0: by the number of attempts.
    """
    properties = dict(message.properties)
    properties.setdefault("RETRY_TOPIC", message.topic)
    properties.setdefault("ORIGIN_MESSAGE_ID", message_id)
    is_dead = message.reconsume_times >= _MAX_RECONSUME or level < 0
    if is_dead:
        properties.pop("DELAY", None)
    else:
        properties["DELAY"] = str(level or _FIRST_RETRY_LEVEL + message.reconsume_times)
    return replace(
        message,
        topic=dead_letter_topic(group) if is_dead else retry_topic(group),
        queue_id=0,
        properties={**properties, "WAIT": "false"},
        property_bytes=None,
        reconsume_times=message.reconsume_times + 1,
        is_stored=False,
    )


def test_retries_and_dead_letters(clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, StoreConfig.small(services=False)) as engine:
        first = engine.put(Message("Orders", b"x", 2, {"UNIQ_KEY": "u", "TAGS": "a"}))
        message = Message("Orders", b"x", 2, {"UNIQ_KEY": "u", "TAGS": "a"})
        for attempt in range(17):
            again = sent_back(message, "g1", first.message_id)
            engine.put(again)
            clock.tick(8000)
            engine.deliver_due()
            message = Message(again.topic, b"x", 0, again.properties, reconsume_times=again.reconsume_times)
            assert again.topic == (retry_topic("g1") if attempt < 16 else dead_letter_topic("g1"))
        assert len(bodies(engine, retry_topic("g1"))) == 16
        (dead,) = engine.get(dead_letter_topic("g1"), 0, 0).messages
        assert dead.properties[b"RETRY_TOPIC"] == b"Orders"
        assert dead.properties[b"ORIGIN_MESSAGE_ID"] == first.message_id.encode()
    assert complaints(tmp_path) == []


def test_inner_batches_and_light_queues(tmp_path: Path) -> None:
    config = small(multi_dispatch=True)
    with StoreEngine.open(tmp_path, config) as engine:
        engine.make_topic("Batch", 1, batch=True)
        for count in (3, 5):
            engine.put(Message("Batch", b"b", 0, {"INNER_NUM": str(count)}, sys_flag=0xC0))
        assert engine.offsets("Batch", 0) == (0, 8)
        with pytest.raises(MessageRefused, match="batch queues"):
            engine.put(Message("Plain", b"b", 0, {"INNER_NUM": "2"}, sys_flag=0xC0))
        for n in range(4):
            names = "%LMQ%a,%LMQ%b" if n % 2 else "%LMQ%a"
            engine.put(Message("Plain", b"%d" % n, 1, {"INNER_MULTI_DISPATCH": names}))
        assert engine.offsets("%LMQ%a", 0) == (0, 4)
        assert [m.fields["body"] for m in engine.get("%LMQ%b", 0, 0).messages] == [b"1", b"3"]
    assert complaints(tmp_path) == []
