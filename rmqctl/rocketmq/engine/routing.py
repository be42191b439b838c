"""Where a message really goes: delayed and timer messages to their system topics.

Sources: HookUtils.handleScheduleMessage, transformDelayLevelMessage, transformTimerMessage;
CommitLog.putMessage of 4.x (spec 2.13).
"""

from __future__ import annotations

from dataclasses import replace

from formats.rocketmq.message import TRANSACTION
from formats.rocketmq.tags_code import SCHEDULE_TOPIC, parse_delay_levels
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.message import Message, MessageRefused, PutStatus

TIMER_TOPIC = "rmq_sys_wheel_timer"
DELAY, REAL_TOPIC, REAL_QUEUE = "DELAY", "REAL_TOPIC", "REAL_QID"
DELIVER_MS, DELAY_SEC, DELAY_MS, OUT_MS = "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_OUT_MS"
TIMES = frozenset({DELIVER_MS, DELAY_SEC, DELAY_MS})
MOVING = TIMES | {DELAY}
"""Properties of timer messages, and all that send a message elsewhere first, to be delivered later."""
DELETE_KEY = "TIMER_DEL_UNIQKEY"
_ONE_QUEUE = ("RMQ_SYS_TRANS_", "%RETRY%", "%DLQ%", "rmq_sys_", "TRANS_CHECK_MAX_TIME_TOPIC")
_WAIT_PUT_BACK = Release(4, 9, 1), Release(4, 9, 8)


def route(message: Message, config: StoreConfig, now_ms: int) -> Message:
    """Return the message as it is stored: unchanged, or a copy for a system topic.

    Raises:
        MessageRefused: a delivery time that the timer does not take.
    """
    if message.is_stored or message.sys_flag & TRANSACTION in UNQUEUED:
        return message
    level = delay_level(message)
    if config.is_5 and level <= 0 and not TIMES.isdisjoint(message.properties):
        return _timed(message, config, now_ms)
    return _scheduled(message, level, config) if level > 0 else message


def may_move(message: Message) -> bool:
    """Whether :func:`route` has anything to look at; every put asks."""
    return not message.is_stored and not MOVING.isdisjoint(message.properties)


def delay_level(message: Message) -> int:
    """Return the message's delay level; 0 without one."""
    text = message.properties.get(DELAY)
    return int(text) if text is not None and text.isascii() and text.removeprefix("-").isdigit() else 0


def whole_number(text: str, otherwise: int = 0) -> int:
    """Return what a property says, where it says a number that is not negative."""
    return int(text) if text.isascii() and text.isdigit() else otherwise


def moved(message: Message, topic: str, queue_id: int, config: StoreConfig, more: dict[str, str]) -> Message:
    """Return a copy for a system topic that says where the message belongs."""
    properties = {**message.properties}
    if _WAIT_PUT_BACK[0] <= config.release <= _WAIT_PUT_BACK[1]:
        properties.setdefault("WAIT", "true")  # the text is made again from a map that has it again
    properties |= {**more, REAL_TOPIC: message.topic, REAL_QUEUE: str(message.queue_id)}
    return replace(message, topic=topic, queue_id=queue_id, properties=properties, property_bytes=None, is_stored=True)


def _scheduled(message: Message, level: int, config: StoreConfig) -> Message:
    levels = parse_delay_levels(config.delay_levels)
    level = min(level, max(levels, default=0))
    return moved(message, SCHEDULE_TOPIC, level - 1, config, {DELAY: str(level)})


def _timed(message: Message, config: StoreConfig, now_ms: int) -> Message:
    """Return a timer message; one that is due already goes to its topic at once."""
    if not config.timer:
        raise MessageRefused(
            PutStatus.WHEEL_TIMER_NOT_ENABLE,
            "the timer wheel is not enabled; use a delay level, or open with timer=True",
        )
    due, precision = _due(message, now_ms), config.timer_precision_ms
    if due <= now_ms:
        if DELETE_KEY in message.properties:
            raise MessageRefused(
                PutStatus.WHEEL_TIMER_MSG_ILLEGAL, "a delete mark for a time that is past; send it earlier"
            )
        return message
    if due - now_ms > config.timer_max_delay_sec * 1000:
        raise MessageRefused(
            PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
            f"delivery in {(due - now_ms) // 1000} s, at most {config.timer_max_delay_sec} s; choose an earlier time",
        )
    due = due - precision if due % precision == 0 else due // precision * precision
    return moved(message, TIMER_TOPIC, 0, config, {OUT_MS: str(due)})


def _due(message: Message, now_ms: int) -> int:
    properties = message.properties
    try:
        if DELAY_SEC in properties:
            return now_ms + int(properties[DELAY_SEC]) * 1000
        return now_ms + int(properties[DELAY_MS]) if DELAY_MS in properties else int(properties[DELIVER_MS])
    except ValueError:
        raise MessageRefused(
            PutStatus.WHEEL_TIMER_MSG_ILLEGAL, "a timer property that is no whole number; give milliseconds or seconds"
        ) from None


def system_queues(topic: str, config: StoreConfig) -> int | None:
    """Queues that a broker gives a topic of its own; None for other topics."""
    if topic == SCHEDULE_TOPIC:
        return len(parse_delay_levels(config.delay_levels))
    return 1 if topic == TIMER_TOPIC or topic.startswith(_ONE_QUEUE) else None
